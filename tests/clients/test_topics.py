"""Topics made, looked at, grown and deleted through each library."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import kafka
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from barnabas.protocol.errors import Error
from tests.clients.adapter import Client, ClientError, values
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.clients.with_confluent import ConfluentClient
    from tests.peers import Peer


@pytest.fixture
def admin(node: Peer) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.bootstrap})


@pytest.fixture
def kafka_python_admin(node: Peer) -> Iterator[Any]:
    admin = kafka.KafkaAdminClient(bootstrap_servers=node.bootstrap)
    try:
        yield admin
    finally:
        admin.close()


def refusal(futures: dict[str, Any]) -> tuple[Error, str]:
    """The error code and message with which the one call failed."""
    (future,) = futures.values()
    with pytest.raises(KafkaException) as refused:
        future.result(30)
    error = refused.value.args[0]
    return Error(error.code()), error.str()


def test_a_topic_is_created_listed_described_and_deleted(client: Client, topic: str) -> None:
    assert topic not in client.topic_names()
    client.create_topic(topic, partitions=3)
    assert topic in client.topic_names()
    assert client.partition_count(topic) == 3
    client.delete_topic(topic)
    wait_until(lambda: topic not in client.topic_names(), f"{topic} is gone")


def test_partitions_are_added_and_serve(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.add_partitions(topic, 4)
    wait_until(lambda: client.partition_count(topic) == 4, f"{topic} has four partitions")
    client.produce(topic, values(3), partition=3)
    assert client.offset_range(topic, 3) == (0, 3)


@pytest.mark.parametrize("total", [1, 2])
def test_partitions_only_grow(client: Client, topic: str, total: int) -> None:
    client.create_topic(topic, partitions=2)
    with pytest.raises(ClientError) as refused:
        client.add_partitions(topic, total)
    assert refused.value.code == Error.INVALID_PARTITIONS
    assert client.partition_count(topic) == 2


def test_a_topic_that_exists_is_not_created_again(client: Client, topic: str) -> None:
    client.create_topic(topic)
    with pytest.raises(ClientError) as refused:
        client.create_topic(topic)
    assert refused.value.code == Error.TOPIC_ALREADY_EXISTS
    assert topic in refused.value.message


def test_deleting_a_topic_that_does_not_exist_is_an_error(client: Client, topic: str) -> None:
    with pytest.raises(ClientError) as refused:
        client.delete_topic(topic)
    assert refused.value.code == Error.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("name", "named_as"),
    [
        ("", ""),
        (".", "."),
        ("..", ".."),
        ("a" * 250, "a" * 250),
        ("white space", "white space"),
        ("slash/name", "slash/name"),
        ("ключ", "ключ"),
        ("__cluster_metadata", "__cluster_metadata"),
    ],
)
def test_an_illegal_name_is_refused_and_named(confluent: ConfluentClient, name: str, named_as: str) -> None:
    with pytest.raises(ClientError) as refused:
        confluent.create_topic(name)
    assert refused.value.code in {Error.INVALID_TOPIC_EXCEPTION, Error.INVALID_REQUEST}
    assert named_as in refused.value.message


def test_the_longest_legal_name_is_accepted(confluent: ConfluentClient, topic: str) -> None:
    name = topic + "." + "x" * (248 - len(topic))
    confluent.create_topic(name)
    confluent.produce(name, values(1))
    assert confluent.offset_range(name) == (0, 1)
    confluent.delete_topic(name)


def test_a_name_that_collides_in_metrics_is_refused(confluent: ConfluentClient, topic: str) -> None:
    confluent.create_topic(f"{topic}.a_b")
    with pytest.raises(ClientError) as refused:
        confluent.create_topic(f"{topic}_a.b")
    assert refused.value.code == Error.INVALID_TOPIC_EXCEPTION
    assert f"{topic}.a_b" in refused.value.message


@pytest.mark.parametrize("count", [0, -2])
def test_an_illegal_partition_count_is_refused(kafka_python_admin: Any, topic: str, count: int) -> None:
    answer = kafka_python_admin.create_topics(
        {topic: {"num_partitions": count, "replication_factor": 1}}, raise_errors=False
    )
    (result,) = answer["topics"]
    assert result["error_code"] == Error.INVALID_PARTITIONS
    assert result["error_message"]


@pytest.mark.parametrize("factor", [0, -2, 2])
def test_an_illegal_replication_factor_is_refused(kafka_python_admin: Any, topic: str, factor: int) -> None:
    answer = kafka_python_admin.create_topics(
        {topic: {"num_partitions": 1, "replication_factor": factor}}, raise_errors=False
    )
    (result,) = answer["topics"]
    assert result["error_code"] == Error.INVALID_REPLICATION_FACTOR
    assert result["error_message"]


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"no.such.setting": "1"}, "no.such.setting"),
        ({"retention.ms": "soon"}, "retention.ms"),
        ({"cleanup.policy": "burn"}, "cleanup.policy"),
        ({"segment.bytes": "10"}, "segment.bytes"),
        ({"min.insync.replicas": "0"}, "min.insync.replicas"),
    ],
)
def test_an_illegal_setting_is_refused_and_named(
    client: Client, topic: str, config: dict[str, str], named: str
) -> None:
    with pytest.raises(ClientError) as refused:
        client.create_topic(topic, config=config)
    assert refused.value.code == Error.INVALID_CONFIG
    assert named in refused.value.message
    assert topic not in client.topic_names()


def test_validate_only_says_what_would_happen_and_creates_nothing(admin: AdminClient, topic: str) -> None:
    (future,) = admin.create_topics([NewTopic(topic, 3, 1)], validate_only=True).values()
    future.result(30)
    assert topic not in admin.list_topics(timeout=30).topics
    code, message = refusal(
        admin.create_topics([NewTopic(topic, 3, 1, config={"no.such.setting": "1"})], validate_only=True)
    )
    assert code == Error.INVALID_CONFIG
    assert "no.such.setting" in message


def test_validate_only_adds_no_partitions(admin: AdminClient, confluent: ConfluentClient, topic: str) -> None:
    confluent.create_topic(topic)
    (future,) = admin.create_partitions([NewPartitions(topic, 5)], validate_only=True).values()
    future.result(30)
    assert confluent.partition_count(topic) == 1


def test_replicas_are_assigned_by_hand(admin: AdminClient, topic: str) -> None:
    (broker_id,) = admin.list_topics(timeout=30).brokers
    assignment = [[broker_id], [broker_id]]
    (future,) = admin.create_topics([NewTopic(topic, 2, replica_assignment=assignment)]).values()
    future.result(30)
    partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
    assert [partitions[n].replicas for n in (0, 1)] == assignment
    assert [partitions[n].isrs for n in (0, 1)] == assignment
    assert [partitions[n].leader for n in (0, 1)] == [broker_id] * 2


def test_an_assignment_to_a_broker_that_is_not_there_is_refused(admin: AdminClient, topic: str) -> None:
    code, message = refusal(admin.create_topics([NewTopic(topic, 1, replica_assignment=[[4711]])]))
    assert code == Error.INVALID_REPLICA_ASSIGNMENT
    assert "4711" in message


def test_partitions_are_added_with_replicas_assigned_by_hand(
    admin: AdminClient, confluent: ConfluentClient, topic: str
) -> None:
    confluent.create_topic(topic)
    (broker_id,) = admin.list_topics(timeout=30).brokers
    (future,) = admin.create_partitions([NewPartitions(topic, 2, replica_assignment=[[broker_id]])]).values()
    future.result(30)
    wait_until(lambda: confluent.partition_count(topic) == 2, "the second partition is there")
    code, _ = refusal(admin.create_partitions([NewPartitions(topic, 3, replica_assignment=[[4711]])]))
    assert code == Error.INVALID_REPLICA_ASSIGNMENT


def test_partitions_of_an_unknown_topic_cannot_be_added(admin: AdminClient, topic: str) -> None:
    code, _ = refusal(admin.create_partitions([NewPartitions(topic, 2)]))
    assert code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_defaults_of_the_broker_fill_in_partitions_and_replication(kafka_python_admin: Any, topic: str) -> None:
    answer = kafka_python_admin.create_topics([topic])
    (created,) = answer["topics"]
    assert (created["num_partitions"], created["replication_factor"]) == (1, 1)
    assert created["configs"]["cleanup.policy"]["value"] == "delete"


def test_a_topic_is_described_and_deleted_by_its_id(kafka_python_admin: Any, topic: str) -> None:
    (created,) = kafka_python_admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}})["topics"]
    topic_id = uuid.UUID(str(created["topic_id"]))
    assert topic_id.int != 0
    wait_until(lambda: topic in kafka_python_admin.list_topics(), f"{topic} is known")
    (described,) = kafka_python_admin.describe_topics([topic_id])
    assert (described["name"], len(described["partitions"])) == (topic, 2)
    kafka_python_admin.delete_topics([topic_id])
    wait_until(lambda: topic not in kafka_python_admin.list_topics(), f"{topic} is gone")
    (gone,) = kafka_python_admin.describe_topics([topic_id])
    assert gone["error_code"] == Error.UNKNOWN_TOPIC_ID


def test_a_topic_made_again_has_another_id(kafka_python_admin: Any, topic: str) -> None:
    (first,) = kafka_python_admin.create_topics([topic])["topics"]
    kafka_python_admin.delete_topics([topic])
    wait_until(lambda: topic not in kafka_python_admin.list_topics(), f"{topic} is gone")
    (second,) = kafka_python_admin.create_topics([topic])["topics"]
    assert first["topic_id"] != second["topic_id"]


def test_a_topic_made_again_starts_empty(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, values(10))
    client.delete_topic(topic)
    wait_until(lambda: topic not in client.topic_names(), f"{topic} is gone")
    client.create_topic(topic)
    assert client.offset_range(topic) == (0, 0)


def test_partitions_are_described_page_by_page(kafka_python_admin: Any, topic: str) -> None:
    kafka_python_admin.create_topics({topic: {"num_partitions": 5, "replication_factor": 1}})
    first = kafka_python_admin.describe_topic_partitions([topic], response_partition_limit=3)
    (described,) = first["topics"]
    assert [p["partition_index"] for p in described["partitions"]] == [0, 1, 2]
    assert first["next_cursor"]["topic_name"] == topic
    assert first["next_cursor"]["partition_index"] == 3


def test_many_topics_in_one_request_are_answered_one_by_one(admin: AdminClient, topic: str) -> None:
    names = [f"{topic}-{n}" for n in range(20)]
    futures = admin.create_topics([NewTopic(name, 1, 1) for name in [*names, "not legal"]])
    for name in names:
        futures[name].result(30)
    with pytest.raises(KafkaException):
        futures["not legal"].result(30)
    wait_until(lambda: set(names) <= set(admin.list_topics(timeout=30).topics), "all legal topics are known")
    for future in admin.delete_topics(names).values():
        future.result(30)
