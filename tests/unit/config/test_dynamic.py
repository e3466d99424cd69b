"""What may be altered while a node runs. The refusals are those that Apache Kafka 4.3.1 was seen to give."""

import pytest

from barnabas.config.broker_config import BrokerConfig, ConfigSource
from barnabas.config.dynamic import validate_broker_overrides, validate_group_overrides, without_listeners
from barnabas.config.settings import ConfigError

THIS_BROKER = ConfigSource.DYNAMIC_BROKER
ALL_BROKERS = ConfigSource.DYNAMIC_DEFAULT_BROKER


@pytest.fixture(scope="module")
def broker() -> BrokerConfig:
    return BrokerConfig.for_single_node(data_dir="/data")[0]


@pytest.mark.parametrize(
    ("scope", "overrides", "message"),
    [
        (
            THIS_BROKER,
            {"num.partitions": "3", "node.id": "7"},
            "Cannot update these configs dynamically: [node.id, num.partitions]",
        ),
        (ALL_BROKERS, {"log.retention.hours": "3"}, "Cannot update these configs dynamically: [log.retention.hours]"),
        (
            THIS_BROKER,
            {"ssl.keystore.location": "/x"},
            (
                "These security configs can be dynamically updated only per-listener using the listener prefix: "
                "[ssl.keystore.location]"
            ),
        ),
        (
            ALL_BROKERS,
            {"listener.name.plaintext.ssl.keystore.location": "/x"},
            (
                "Cannot update these configs at default cluster level, broker id must be specified: "
                "[listener.name.plaintext.ssl.keystore.location]"
            ),
        ),
        (
            ALL_BROKERS,
            {"listeners": "PLAINTEXT://:1"},
            "Cannot update these configs at default cluster level, broker id must be specified: [listeners]",
        ),
        (
            THIS_BROKER,
            {"log.segment.bytes": "5"},
            "Invalid value 5 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
        (
            THIS_BROKER,
            {"listener.name.plaintext.max.connections": "x"},
            "Invalid value x for configuration max.connections: Not a number of type INT",
        ),
        (
            THIS_BROKER,
            {"leader.replication.throttled.rate": "-1"},
            "Invalid value -1 for configuration leader.replication.throttled.rate: Value must be at least 0",
        ),
        (THIS_BROKER, {"log.roll.ms": "0"}, "log.roll.ms must be greater than or equal to 1"),
        (
            ALL_BROKERS,
            {"log.retention.ms": "0"},
            "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        (
            THIS_BROKER,
            {"background.threads": "100"},
            (
                "Invalid value org.apache.kafka.common.config.ConfigException: "
                "Dynamic thread count update validation failed for background.threads=100, "
                "value should not be greater than double the current value 10 "
                "for configuration Invalid dynamic configuration"
            ),
        ),
        (
            THIS_BROKER,
            {"background.threads": "4"},
            (
                "Invalid value org.apache.kafka.common.config.ConfigException: "
                "Dynamic thread count update validation failed for background.threads=4, "
                "value should be at least half the current value 10 "
                "for configuration Invalid dynamic configuration"
            ),
        ),
        (
            THIS_BROKER,
            {"log.cleaner.threads": "3"},
            (
                "Invalid value org.apache.kafka.common.config.ConfigException: "
                "Log cleaner threads cannot be increased to more than double the current value 1 "
                "for configuration Invalid dynamic configuration"
            ),
        ),
        (
            ALL_BROKERS,
            {"log.cleaner.dedupe.buffer.size": "1048576"},
            "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ),
        (
            THIS_BROKER,
            {"log.cleaner.threads": "2", "log.cleaner.dedupe.buffer.size": "2097152"},
            "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ),
        (
            THIS_BROKER,
            {"log.local.retention.ms": "99999999999"},
            (
                "Invalid value 99999999999 for configuration log.local.retention.ms: "
                "Value must not be more than log.retention.ms property value: 604800000"
            ),
        ),
        (
            THIS_BROKER,
            {"log.local.retention.ms": "-1"},
            (
                "Invalid value -1 for configuration log.local.retention.ms: "
                "Value must not be -1 as log.retention.ms value is set as 604800000."
            ),
        ),
    ],
)
def test_a_broker_setting_is_refused_in_kafkas_words(
    broker: BrokerConfig, scope: ConfigSource, overrides: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        validate_broker_overrides(overrides, scope, broker)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("scope", "overrides"),
    [
        (THIS_BROKER, {}),
        (THIS_BROKER, {"message.max.bytes": "2000000", "log.roll.ms": "7200000"}),
        (ALL_BROKERS, {"log.retention.ms": "3600000", "min.insync.replicas": "1"}),
        (THIS_BROKER, {"of.a.plug.in": "x"}),
        (ALL_BROKERS, {"of.a.plug.in": "x"}),
        (THIS_BROKER, {"listener.name.plaintext.ssl.key.password": "x"}),
        (ALL_BROKERS, {"listener.name.plaintext.max.connections": "800"}),
        (THIS_BROKER, {"leader.replication.throttled.rate": "1000"}),
        (THIS_BROKER, {"background.threads": "20"}),
        (THIS_BROKER, {"log.cleanup.policy": ""}),
        (THIS_BROKER, {"log.cleaner.threads": "2", "log.cleaner.dedupe.buffer.size": "2097154"}),
    ],
)
def test_what_kafka_lets_be_altered_is_accepted(
    broker: BrokerConfig, scope: ConfigSource, overrides: dict[str, str]
) -> None:
    validate_broker_overrides(overrides, scope, broker)


def test_cleaner_threads_are_not_cut_to_less_than_half(broker: BrokerConfig) -> None:
    many = broker.with_dynamic({"log.cleaner.threads": "8"}, {})
    with pytest.raises(ConfigError, match="reduced to less than half the current value 8"):
        validate_broker_overrides({"log.cleaner.threads": "3"}, THIS_BROKER, many)
    validate_broker_overrides({"log.cleaner.threads": "4"}, THIS_BROKER, many)


def test_listeners_that_do_not_fit_the_node_have_no_effect_and_affect_no_other_setting(broker: BrokerConfig) -> None:
    wrong = {"listeners": "UNMAPPED://localhost:1"}
    with pytest.raises(ConfigError, match="No security protocol defined for listener UNMAPPED"):
        validate_broker_overrides(wrong, THIS_BROKER, broker)
    changed = broker.with_dynamic({}, {**wrong, "log.retention.ms": "5"})
    assert changed.listeners == broker.listeners
    assert changed.log_retention_ms == 5
    assert changed.ignored_dynamic.keys() == {"listeners"}


def test_another_node_judges_everything_but_the_listeners() -> None:
    assert without_listeners({"listeners": "X://:1", "log.retention.ms": "5"}) == {"log.retention.ms": "5"}


def test_a_layer_is_judged_together_with_the_other(broker: BrokerConfig) -> None:
    whole = broker.with_dynamic({}, {"max.connections.per.ip.overrides": "localhost:5"})
    validate_broker_overrides({"max.connections.per.ip": "0"}, ALL_BROKERS, whole)
    with pytest.raises(ConfigError, match="can be set to zero only if"):
        validate_broker_overrides({"max.connections.per.ip": "0"}, ALL_BROKERS, broker)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"foo": "5"}, "Unknown group config name: foo"),
        (
            {"consumer.session.timout.ms": "5"},
            "Unknown group config name: consumer.session.timout.ms; did you mean consumer.session.timeout.ms?",
        ),
        (
            {"consumer.session.timeout.ms": "x"},
            "Invalid value x for configuration consumer.session.timeout.ms: Not a number of type INT",
        ),
        (
            {"consumer.session.timeout.ms": "5"},
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {"consumer.heartbeat.interval.ms": "50000"},
            "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        (
            {"share.delivery.count.limit": "11"},
            "share.delivery.count.limit must be less than or equal to group.share.max.delivery.count.limit",
        ),
        (
            {"streams.num.standby.replicas": "3"},
            "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ),
        (
            {"consumer.assignment.interval.ms": "100000"},
            "consumer.assignment.interval.ms must be less than or equal to group.consumer.max.assignment.interval.ms",
        ),
    ],
)
def test_a_group_setting_is_refused_with_the_name_of_what_is_wrong(
    broker: BrokerConfig, overrides: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        validate_group_overrides(overrides, broker)
    assert str(refused.value).startswith(message)


def test_a_groups_session_must_outlast_its_heartbeat() -> None:
    wide = BrokerConfig.for_single_node(
        data_dir="/data", overrides={"group.consumer.max.heartbeat.interval.ms": "60000"}
    )[0]
    with pytest.raises(
        ConfigError, match=r"consumer\.session\.timeout\.ms must be greater than consumer\.heartbeat\.interval\.ms"
    ):
        validate_group_overrides({"consumer.heartbeat.interval.ms": "50000"}, wide)


def test_group_settings_within_bounds_are_accepted(broker: BrokerConfig) -> None:
    validate_group_overrides(
        {
            "consumer.session.timeout.ms": "50000",
            "consumer.heartbeat.interval.ms": "14000",
            "share.auto.offset.reset": "by_duration:P1D",
            "share.delivery.count.limit": "2",
        },
        broker,
    )
