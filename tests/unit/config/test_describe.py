"""DescribeConfigs: values, sources and synonyms in Kafka's order."""

import pytest

from barnabas.config.broker_config import BrokerConfig, ConfigSource
from barnabas.config.describe import (
    ConfigEntry,
    Synonym,
    describe_broker,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from barnabas.config.settings import BROKER, GROUP, TOPIC, ConfigType

TOPIC_OVERRIDES = {"segment.ms": "5000", "cleanup.policy": "compact, delete", "internal.segment.bytes": "5000000"}
STATIC = {
    "log.roll.hours": "24",
    "ssl.key.password": "hunter2",
    "my.setting": "x",
    "log.initial.task.delay.ms": "20000",
}
ALL_BROKERS = {"log.retention.ms": "3600000", "message.max.bytes": "1500000", "max.connections": "80000"}
THIS_BROKER = {
    "message.max.bytes": "2000000",
    "log.roll.ms": "7200000",
    "listener.name.plaintext.max.connections": "700",
    "leader.replication.throttled.rate": "1000",
}
DEFAULT = ConfigSource.DEFAULT
STATIC_BROKER = ConfigSource.STATIC_BROKER
DYNAMIC_BROKER = ConfigSource.DYNAMIC_BROKER
DYNAMIC_DEFAULT = ConfigSource.DYNAMIC_DEFAULT_BROKER


@pytest.fixture(scope="module")
def broker() -> BrokerConfig:
    config, _ = BrokerConfig.for_single_node(data_dir="/data", overrides=STATIC)
    return config.with_dynamic(ALL_BROKERS, THIS_BROKER)


def by_name(entries: list[ConfigEntry]) -> dict[str, ConfigEntry]:
    return {entry.name: entry for entry in entries}


def test_a_topic_shows_all_its_settings_and_internal_ones_only_where_set(broker: BrokerConfig) -> None:
    assert by_name(describe_topic({}, broker)).keys() == TOPIC.keys() - {"internal.segment.bytes"}
    assert by_name(describe_topic(TOPIC_OVERRIDES, broker)).keys() == TOPIC.keys()


def test_a_topics_own_value_comes_first_and_the_brokers_follow_by_layer(broker: BrokerConfig) -> None:
    entry = by_name(describe_topic(TOPIC_OVERRIDES, broker))["segment.ms"]
    assert entry == ConfigEntry(
        name="segment.ms",
        value="5000",
        source=ConfigSource.TOPIC,
        is_sensitive=False,
        read_only=False,
        type=ConfigType.LONG,
        documentation=TOPIC["segment.ms"].documentation,
        synonyms=(
            Synonym("segment.ms", "5000", ConfigSource.TOPIC),
            Synonym("log.roll.ms", "7200000", DYNAMIC_BROKER),
            Synonym("log.roll.hours", "24", STATIC_BROKER),
            Synonym("log.roll.hours", "168", DEFAULT),
        ),
    )


def test_an_inherited_value_names_the_broker_setting_it_comes_from(broker: BrokerConfig) -> None:
    entries = by_name(describe_topic({}, broker))
    assert (entries["max.message.bytes"].value, entries["max.message.bytes"].source) == ("2000000", DYNAMIC_BROKER)
    assert entries["max.message.bytes"].synonyms == (
        Synonym("message.max.bytes", "2000000", DYNAMIC_BROKER),
        Synonym("message.max.bytes", "1500000", DYNAMIC_DEFAULT),
        Synonym("message.max.bytes", "1048588", DEFAULT),
    )
    assert (entries["retention.ms"].value, entries["retention.ms"].source) == ("3600000", DYNAMIC_DEFAULT)


def test_lists_are_shown_as_they_are_read(broker: BrokerConfig) -> None:
    entry = by_name(describe_topic(TOPIC_OVERRIDES, broker))["cleanup.policy"]
    assert (entry.value, entry.type) == ("compact,delete", ConfigType.LIST)
    assert entry.synonyms[0] == Synonym("cleanup.policy", "compact,delete", ConfigSource.TOPIC)


def test_a_default_behind_another_name_is_not_a_synonym_of_a_setting_that_nobody_gave(broker: BrokerConfig) -> None:
    for name in ("segment.jitter.ms", "flush.ms"):
        entry = by_name(describe_topic({}, broker))[name]
        assert (entry.source, entry.synonyms) == (DEFAULT, ())


def test_a_broker_shows_every_setting_and_whatever_was_given(broker: BrokerConfig) -> None:
    entries = by_name(describe_broker(broker))
    shown = {name for name, setting in BROKER.items() if not setting.internal}
    assert entries.keys() - shown == {
        "my.setting",
        "log.initial.task.delay.ms",
        "listener.name.plaintext.max.connections",
        "leader.replication.throttled.rate",
    }
    assert shown <= entries.keys()


def test_what_can_be_altered_is_not_read_only(broker: BrokerConfig) -> None:
    entries = by_name(describe_broker(broker))
    assert entries["num.partitions"].read_only
    assert not entries["message.max.bytes"].read_only
    assert not entries["leader.replication.throttled.rate"].read_only
    assert entries["listener.name.plaintext.max.connections"].read_only


def test_secrets_and_unknown_settings_are_never_shown(broker: BrokerConfig) -> None:
    entries = by_name(describe_broker(broker))
    for name, value_type in (("ssl.key.password", ConfigType.PASSWORD), ("my.setting", ConfigType.UNKNOWN)):
        entry = entries[name]
        assert (entry.value, entry.is_sensitive, entry.type) == (None, True, value_type)
        assert entry.synonyms == (Synonym(name, None, STATIC_BROKER),)
    assert "hunter2" not in repr(entries)


def test_a_listeners_setting_is_shown_with_the_brokers_behind_it(broker: BrokerConfig) -> None:
    entry = by_name(describe_broker(broker))["listener.name.plaintext.max.connections"]
    assert (entry.value, entry.source, entry.type, entry.documentation) == ("700", DYNAMIC_BROKER, ConfigType.INT, None)
    assert entry.synonyms == (
        Synonym("listener.name.plaintext.max.connections", "700", DYNAMIC_BROKER),
        Synonym("max.connections", "80000", DYNAMIC_DEFAULT),
        Synonym("max.connections", "2147483647", DEFAULT),
    )


def test_node_id_and_broker_id_are_both_shown(broker: BrokerConfig) -> None:
    entries = by_name(describe_broker(broker))
    assert entries["node.id"].synonyms == (Synonym("node.id", "1", STATIC_BROKER),)
    assert entries["broker.id"].synonyms == (
        Synonym("broker.id", "1", STATIC_BROKER),
        Synonym("broker.id", "-1", DEFAULT),
    )


def test_the_default_of_all_brokers_shows_only_its_own_layer(broker: BrokerConfig) -> None:
    entries = by_name(describe_cluster_default(broker))
    assert entries.keys() == ALL_BROKERS.keys()
    assert entries["message.max.bytes"].value == "1500000"
    assert entries["message.max.bytes"].synonyms == (Synonym("message.max.bytes", "1500000", DYNAMIC_DEFAULT),)


def test_a_group_shows_its_own_values_before_the_brokers(broker: BrokerConfig) -> None:
    overrides = {"consumer.session.timeout.ms": "50000", "share.auto.offset.reset": "earliest"}
    entries = by_name(describe_group(overrides, broker))
    assert entries.keys() == GROUP.keys()
    assert entries["consumer.session.timeout.ms"].synonyms == (
        Synonym("consumer.session.timeout.ms", "50000", ConfigSource.GROUP),
        Synonym("group.consumer.session.timeout.ms", "45000", DEFAULT),
    )
    assert entries["share.auto.offset.reset"].synonyms == (
        Synonym("share.auto.offset.reset", "earliest", ConfigSource.GROUP),
        Synonym("share.auto.offset.reset", "latest", DEFAULT),
    )
    assert entries["consumer.heartbeat.interval.ms"].source is DEFAULT
