"""Configuration round trips: described with sources and synonyms, altered, in effect without a restart."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from confluent_kafka.admin._resource import ResourceType

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.clients.adapter import Client, ClientError, Message, consume, values
from tests.clients.with_confluent import ConfluentClient
from tests.peers import wait_until
from tests.wire.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conftest import MakeNode
    from tests.peers import Peer


@pytest.fixture
def admin(node: Peer) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.bootstrap})


def describe(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    described: dict[str, ConfigEntry] = future.result(30)
    return described


def change(
    admin: AdminClient, kind: ResourceType, name: str, operations: Mapping[str, tuple[AlterConfigOpType, str | None]]
) -> None:
    entries = [ConfigEntry(key, value, incremental_operation=op) for key, (op, value) in operations.items()]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(30)


def broker_id(admin: AdminClient) -> str:
    (only,) = admin.list_topics(timeout=30).brokers
    return str(only)


def source(entry: ConfigEntry) -> ConfigSource:
    return ConfigSource(entry.source)


def test_settings_given_at_creation_are_described(client: Client, topic: str) -> None:
    client.create_topic(topic, config={"retention.ms": "3600000", "cleanup.policy": "compact,delete"})
    config = client.topic_config(topic)
    assert config["retention.ms"] == "3600000"
    assert config["cleanup.policy"] == "compact,delete"
    assert config["segment.bytes"] == "1073741824"


def test_settings_are_altered_by_each_library(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.alter_topic_config(topic, {"min.insync.replicas": "2", "max.message.bytes": "2000000"})
    config = client.topic_config(topic)
    assert (config["min.insync.replicas"], config["max.message.bytes"]) == ("2", "2000000")


@pytest.mark.parametrize(
    ("setting", "value"), [("no.such.setting", "1"), ("retention.ms", "soon"), ("segment.bytes", "10")]
)
def test_an_illegal_change_is_refused_named_and_changes_nothing(
    client: Client, topic: str, setting: str, value: str
) -> None:
    client.create_topic(topic)
    before = client.topic_config(topic)
    with pytest.raises(ClientError) as refused:
        client.alter_topic_config(topic, {"max.message.bytes": "2000000", setting: value})
    assert refused.value.code == Error.INVALID_CONFIG
    assert setting in refused.value.message
    assert client.topic_config(topic) == before


def test_a_bad_value_fails_the_changes_of_its_topic_and_not_those_of_others(
    admin: AdminClient, confluent: ConfluentClient, topic: str
) -> None:
    names = [f"{topic}-{n}" for n in range(3)]
    for name in names:
        confluent.create_topic(name)
    retention = ("1000000", "soon", "2000000")
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            name,
            incremental_configs=[
                ConfigEntry(key, set_to, incremental_operation=AlterConfigOpType.SET)
                for key, set_to in (("max.message.bytes", "2000000"), ("retention.ms", value))
            ],
        )
        for name, value in zip(names, retention, strict=True)
    ]
    outcomes = {each.name: future.exception(30) for each, future in admin.incremental_alter_configs(resources).items()}
    assert [outcomes[name] is None for name in names] == [True, False, True]
    refused = outcomes[names[1]]
    assert isinstance(refused, KafkaException)
    assert refused.args[0].code() == Error.INVALID_CONFIG
    found = [confluent.topic_config(name) for name in names]
    assert [each["max.message.bytes"] for each in found] == ["2000000", "1048588", "2000000"]
    assert [each["retention.ms"] for each in found] == ["1000000", "604800000", "2000000"]


def test_min_insync_replicas_is_added_described_and_deleted(
    admin: AdminClient, confluent: ConfluentClient, topic: str
) -> None:
    confluent.create_topic(topic)
    change(admin, ResourceType.TOPIC, topic, {"min.insync.replicas": (AlterConfigOpType.SET, "2")})
    entry = describe(admin, ResourceType.TOPIC, topic)["min.insync.replicas"]
    assert (entry.value, source(entry)) == ("2", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    change(admin, ResourceType.TOPIC, topic, {"min.insync.replicas": (AlterConfigOpType.DELETE, None)})
    entry = describe(admin, ResourceType.TOPIC, topic)["min.insync.replicas"]
    assert entry.value == "1"
    assert source(entry) == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG


def test_a_topic_setting_shows_where_its_value_comes_from(
    admin: AdminClient, confluent: ConfluentClient, topic: str
) -> None:
    confluent.create_topic(topic, config={"retention.ms": "1000000"})
    described = describe(admin, ResourceType.TOPIC, topic)
    retention = described["retention.ms"]
    assert source(retention) == ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert not retention.is_default
    assert {name: ConfigSource(s.source) for name, s in retention.synonyms.items()} == {
        "retention.ms": ConfigSource.DYNAMIC_TOPIC_CONFIG,
    }
    segment = described["segment.bytes"]
    assert (segment.value, source(segment), segment.is_default) == ("1073741824", ConfigSource.DEFAULT_CONFIG, True)
    assert list(segment.synonyms) == ["log.segment.bytes"]


def test_every_topic_setting_is_described_with_kafkas_default(
    admin: AdminClient, confluent: ConfluentClient, topic: str
) -> None:
    confluent.create_topic(topic)
    described = {name: entry.value for name, entry in describe(admin, ResourceType.TOPIC, topic).items()}
    assert described == {
        "cleanup.policy": "delete",
        "compression.gzip.level": "-1",
        "compression.lz4.level": "9",
        "compression.type": "producer",
        "compression.zstd.level": "3",
        "delete.retention.ms": "86400000",
        "file.delete.delay.ms": "60000",
        "flush.messages": "9223372036854775807",
        "flush.ms": "9223372036854775807",
        "follower.replication.throttled.replicas": "",
        "index.interval.bytes": "4096",
        "leader.replication.throttled.replicas": "",
        "local.retention.bytes": "-2",
        "local.retention.ms": "-2",
        "max.compaction.lag.ms": "9223372036854775807",
        "max.message.bytes": "1048588",
        "message.timestamp.after.max.ms": "3600000",
        "message.timestamp.before.max.ms": "9223372036854775807",
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": "0.5",
        "min.compaction.lag.ms": "0",
        "min.insync.replicas": "1",
        "preallocate": "false",
        "remote.log.copy.disable": "false",
        "remote.log.delete.on.disable": "false",
        "remote.storage.enable": "false",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "segment.index.bytes": "10485760",
        "segment.jitter.ms": "0",
        "segment.ms": "604800000",
        "unclean.leader.election.enable": "false",
    }


def test_a_list_setting_is_appended_to_and_subtracted_from(
    admin: AdminClient, confluent: ConfluentClient, topic: str
) -> None:
    confluent.create_topic(topic)
    change(admin, ResourceType.TOPIC, topic, {"cleanup.policy": (AlterConfigOpType.APPEND, "compact")})
    assert describe(admin, ResourceType.TOPIC, topic)["cleanup.policy"].value == "delete,compact"
    change(admin, ResourceType.TOPIC, topic, {"cleanup.policy": (AlterConfigOpType.SUBTRACT, "delete")})
    assert describe(admin, ResourceType.TOPIC, topic)["cleanup.policy"].value == "compact"
    with pytest.raises(KafkaException) as refused:
        change(admin, ResourceType.TOPIC, topic, {"retention.ms": (AlterConfigOpType.APPEND, "1")})
    assert refused.value.args[0].code() == Error.INVALID_CONFIG


def test_incremental_changes_keep_the_other_settings_and_full_ones_drop_them(
    admin: AdminClient, confluent: ConfluentClient, topic: str
) -> None:
    confluent.create_topic(topic, config={"retention.ms": "1000000"})
    confluent.alter_topic_config(topic, {"max.message.bytes": "2000000"})
    assert confluent.topic_config(topic)["retention.ms"] == "1000000"
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "1000"})
    with pytest.warns(DeprecationWarning, match="alter_configs has been deprecated"):
        (future,) = admin.alter_configs([resource]).values()
    future.result(30)
    config = confluent.topic_config(topic)
    assert (config["retention.ms"], config["max.message.bytes"]) == ("604800000", "1048588")
    assert config["segment.ms"] == "1000"


def test_the_settings_of_an_unknown_topic_are_an_error(admin: AdminClient, topic: str) -> None:
    with pytest.raises(KafkaException) as refused:
        describe(admin, ResourceType.TOPIC, topic)
    assert refused.value.args[0].code() == Error.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaException) as refused:
        change(admin, ResourceType.TOPIC, topic, {"retention.ms": (AlterConfigOpType.SET, "1")})
    assert refused.value.args[0].code() == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_the_brokers_settings_are_described_with_their_sources(admin: AdminClient) -> None:
    described = describe(admin, ResourceType.BROKER, broker_id(admin))
    assert len(described) > 200
    check = described["log.retention.check.interval.ms"]
    assert (check.value, source(check)) == ("200", ConfigSource.STATIC_BROKER_CONFIG)
    assert check.is_read_only
    partitions = described["num.partitions"]
    assert (partitions.value, source(partitions)) == ("1", ConfigSource.DEFAULT_CONFIG)
    password = described["ssl.keystore.password"]
    assert password.is_sensitive
    assert password.value is None


def test_a_larger_message_is_accepted_as_soon_as_its_topic_allows_it(client: Client, topic: str) -> None:
    client.create_topic(topic, config={"max.message.bytes": "10000"})
    large = Message(b"x" * 50_000)
    with pytest.raises(ClientError):
        client.produce(topic, [large])
    client.alter_topic_config(topic, {"max.message.bytes": "100000"})
    client.produce(topic, [large])
    assert [r.value for r in consume(client, topic, 1)] == [large.value]


def test_the_timestamp_type_changes_under_way(client: Client, topic: str) -> None:
    client.create_topic(topic)
    old_ms = int(time.time() * 1000) - 1_000_000
    client.produce(topic, [Message(b"mine", timestamp_ms=old_ms)])
    client.alter_topic_config(topic, {"message.timestamp.type": "LogAppendTime"})
    client.produce(topic, [Message(b"the broker's", timestamp_ms=old_ms)])
    first, second = consume(client, topic, 2)
    assert (first.timestamp_type, first.timestamp_ms) == (0, old_ms)
    assert second.timestamp_type == 1
    assert second.timestamp_ms > old_ms


def test_a_timestamp_too_far_off_is_refused(client: Client, topic: str) -> None:
    client.create_topic(
        topic, config={"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "60000"}
    )
    now_ms = int(time.time() * 1000)
    for timestamp_ms in (now_ms - 600_000, now_ms + 600_000):
        with pytest.raises(ClientError) as refused:
            client.produce(topic, [Message(b"x", timestamp_ms=timestamp_ms)])
        assert refused.value.code == Error.INVALID_TIMESTAMP
    client.produce(topic, [Message(b"in time", timestamp_ms=now_ms)])
    assert client.offset_range(topic) == (0, 1)


def test_min_insync_replicas_never_asks_for_more_replicas_than_there_are(client: Client, topic: str) -> None:
    client.create_topic(topic, config={"min.insync.replicas": "2"})
    client.produce(topic, values(3))
    assert client.offset_range(topic) == (0, 3)


def test_settings_of_the_cluster_and_of_a_broker_reach_its_topics_at_once(make_node: MakeNode, topic: str) -> None:
    peer = make_node({})
    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    client = ConfluentClient(peer.bootstrap)
    client.create_topic(topic)
    set_cluster_default(peer.port, "message.max.bytes", "5000")
    wait_until(
        lambda: describe(admin, ResourceType.TOPIC, topic)["max.message.bytes"].value == "5000", "topics see the change"
    )
    entry = describe(admin, ResourceType.TOPIC, topic)["max.message.bytes"]
    assert source(entry) == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    with pytest.raises(ClientError) as refused:
        client.produce(topic, [Message(b"x" * 5_500)])
    assert refused.value.code == Error.MESSAGE_TOO_LARGE
    change(admin, ResourceType.BROKER, broker_id(admin), {"message.max.bytes": (AlterConfigOpType.SET, "6000")})
    wait_until(
        lambda: describe(admin, ResourceType.TOPIC, topic)["max.message.bytes"].value == "6000", "topics see the change"
    )
    entry = describe(admin, ResourceType.TOPIC, topic)["max.message.bytes"]
    assert source(entry) == ConfigSource.DYNAMIC_BROKER_CONFIG
    client.produce(topic, [Message(b"x" * 5_500)])


def test_a_read_only_setting_of_the_broker_is_not_changed(admin: AdminClient) -> None:
    with pytest.raises(KafkaException) as refused:
        change(admin, ResourceType.BROKER, broker_id(admin), {"node.id": (AlterConfigOpType.SET, "9")})
    assert refused.value.args[0].code() == Error.INVALID_REQUEST
    assert "node.id" in refused.value.args[0].str()


def set_cluster_default(port: int, name: str, value: str) -> None:
    """The resource of the whole cluster has an empty name, which none of the libraries sends."""
    request = m.IncrementalAlterConfigsRequest
    change_of = request.AlterConfigsResource
    resource = change_of(
        resource_type=ResourceType.BROKER.value,
        resource_name="",
        configs=[request.AlterableConfig(name=name, config_operation=AlterConfigOpType.SET.value, value=value)],
    )
    with Connection(port) as connection:
        answer = connection.call(request(resources=[resource]), 1, m.IncrementalAlterConfigsResponse)
    assert [r.error_code for r in answer.responses] == [Error.NONE], answer.responses[0].error_message
