"""Topics are made, grown and deleted, or refused in Kafka's words."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.metadata.image import ResourceType
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID, Uuid
from tests.unit.controller.cluster import Cluster, creation, directory

CreateTopics, CreatePartitions, DeleteTopics = m.CreateTopicsRequest, m.CreatePartitionsRequest, m.DeleteTopicsRequest


def refusal(cluster: Cluster, request: m.CreateTopicsRequest) -> tuple[Error, str]:
    (result,) = cluster.send(request).topics
    assert cluster.last == []
    return Error(result.error_code), result.error_message


def assigned(name: str, *assignments: tuple[int, list[int]], **fields: Any) -> m.CreateTopicsRequest:
    topic = CreateTopics.CreatableTopic(
        name=name,
        num_partitions=fields.get("partitions", -1),
        replication_factor=fields.get("factor", -1),
        assignments=[
            CreateTopics.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments
        ],
    )
    return CreateTopics(topics=[topic])


def test_a_topic_is_written_as_kafka_writes_it() -> None:
    cluster = Cluster()
    response = cluster.send(creation("t", 2, retention_ms="1000"))
    topic_id = cluster.topic("t").topic_id
    partition = {
        "topic_id": topic_id,
        "replicas": [1],
        "isr": [1],
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": [directory(1)],
    }
    assert cluster.last == [
        m.TopicRecord(name="t", topic_id=topic_id),
        m.ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="t", name="retention.ms", value="1000"),
        m.PartitionRecord(partition_id=0, **partition),  # type: ignore[arg-type]
        m.PartitionRecord(partition_id=1, **partition),  # type: ignore[arg-type]
    ]
    (result,) = response.topics
    assert (result.error_code, result.topic_id, result.num_partitions, result.replication_factor) == (0, topic_id, 2, 1)


def test_the_response_reports_every_setting_of_the_topic_with_its_source() -> None:
    cluster = Cluster()
    (result,) = cluster.send(creation("t", retention_ms="1000")).topics
    configs = {config.name: (config.value, config.config_source) for config in result.configs}
    assert configs["retention.ms"] == ("1000", 1)
    assert configs["segment.bytes"] == ("1073741824", 5)
    assert configs["min.insync.replicas"] == ("1", 3)
    assert [config.name for config in result.configs] == sorted(configs)


def test_minus_one_takes_the_brokers_defaults() -> None:
    cluster = Cluster(brokers=2, default_partition_count=4, default_replication_factor=2)
    topic = cluster.create_topic("t", -1, -1)
    assert [len(partition.replicas) for partition in topic.partitions] == [2, 2, 2, 2]


def test_validating_only_says_what_would_happen_and_writes_nothing() -> None:
    cluster = Cluster()
    (result,) = cluster.send(creation("t", 3, validate_only=True)).topics
    assert (result.error_code, result.num_partitions) == (0, 3)
    assert cluster.last == []
    assert cluster.state.topic("t") is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("ä", "'ä' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    ],
)
def test_illegal_names_are_refused(name: str, problem: str) -> None:
    assert refusal(Cluster(), creation(name)) == (Error.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def test_a_name_of_249_characters_is_legal() -> None:
    Cluster().create_topic("x" * 249)


def test_names_that_differ_only_in_dots_and_underscores_collide() -> None:
    cluster = Cluster()
    cluster.create_topic("a.b")
    message = "Topic 'a_b' collides with existing topic: a.b"
    assert refusal(cluster, creation("a_b")) == (Error.INVALID_TOPIC_EXCEPTION, message)
    delete = DeleteTopics(topics=[DeleteTopics.DeleteTopicState(name="a.b")])
    cluster.send(delete)
    cluster.create_topic("a_b")


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (creation("old"), Error.TOPIC_ALREADY_EXISTS, "Topic 'old' already exists."),
        (
            creation("t", 0),
            Error.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            creation("t", -2),
            Error.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            creation("t", 1, 0),
            Error.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            creation("t", 1, 3),
            Error.INVALID_REPLICATION_FACTOR,
            (
                "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached "
                "because only 1 broker(s) are registered or some brokers have all their log directories cordoned."
            ),
        ),
        (creation("t", 10_001), Error.POLICY_VIOLATION, "Excessively large number of partitions per request."),
        (creation("t", 10_000), Error.POLICY_VIOLATION, "Unable to perform excessively large batch operation."),
        (
            creation("t", retention_ms=None),
            Error.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            creation("t", retention_ms="soon"),
            Error.INVALID_CONFIG,
            "Invalid value soon for configuration retention.ms: Not a number of type LONG",
        ),
        (
            creation("__cluster_metadata"),
            Error.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (
            assigned("t", (0, [1]), factor=1),
            Error.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            assigned("t", (0, [1]), partitions=1),
            Error.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            assigned("t", (0, [2])),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
        (
            assigned("t", (0, [1, 1])),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            assigned("t", (0, [])),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            assigned("t", (0, [1]), (0, [1])),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            assigned("t", (0, [1]), (2, [1])),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
    ],
)
def test_what_cannot_be_made_is_refused_in_kafkas_words(
    request_: m.CreateTopicsRequest, error: Error, message: str
) -> None:
    cluster = Cluster()
    cluster.create_topic("old")
    assert refusal(cluster, request_) == (error, message)


def test_an_unknown_setting_is_refused_with_the_nearest_name() -> None:
    error, message = refusal(Cluster(), creation("t", retention_mss="1"))
    assert error is Error.INVALID_CONFIG
    assert message.startswith("Unknown topic config name: retention.mss")
    assert "retention.ms?" in message


def test_assignments_of_different_lengths_are_refused() -> None:
    request = assigned("t", (0, [1]), (1, [1, 2]))
    assert refusal(Cluster(brokers=2), request) == (
        Error.INVALID_REPLICA_ASSIGNMENT,
        (
            "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with "
            "previous partitions, which have 1 replica(s)."
        ),
    )


def test_a_manual_assignment_is_kept_and_fenced_replicas_are_not_in_sync() -> None:
    cluster = Cluster(brokers=2)
    cluster.stop_broker(2)
    cluster.send(assigned("t", (1, [1, 2]), (0, [2, 1])))
    partitions = cluster.topic("t").partitions
    assert [(p.replicas, p.isr, p.leader) for p in partitions] == [((2, 1), (1,), 1), ((1, 2), (1,), 1)]
    only_fenced = refusal(cluster, assigned("u", (0, [2])))
    assert only_fenced == (
        Error.INVALID_REPLICA_ASSIGNMENT,
        (
            "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled "
            "shutdown."
        ),
    )


def test_no_topic_is_made_while_every_broker_is_fenced() -> None:
    cluster = Cluster()
    cluster.stop_broker(1)
    error, message = refusal(cluster, creation("t"))
    assert error is Error.INVALID_REPLICATION_FACTOR
    assert message.startswith("Unable to replicate the partition 1 time(s): ")


def test_topics_of_a_request_stand_for_themselves_and_repeated_ones_are_refused() -> None:
    cluster = Cluster()
    topics = [
        *creation("good").topics,
        *creation("bad", 0).topics,
        *creation("twice").topics,
        *creation("twice").topics,
    ]
    response = cluster.send(CreateTopics(topics=topics))
    results = {result.name: (Error(result.error_code), result.error_message) for result in response.topics}
    assert results["good"] == (Error.NONE, None)
    assert results["bad"][0] is Error.INVALID_PARTITIONS
    assert results["twice"] == (Error.INVALID_REQUEST, "Duplicate topic name.")
    assert [topic.name for topic in cluster.state.metadata.topics_by_name.values()] == ["good"]


def test_partitions_are_added_behind_the_ones_there_are() -> None:
    cluster = Cluster()
    cluster.create_topic("t", 2)
    request = CreatePartitions(topics=[CreatePartitions.CreatePartitionsTopic(name="t", count=5, assignments=None)])
    assert cluster.send(request).results[0].error_code == 0
    assert [record.partition_id for record in cluster.last if isinstance(record, m.PartitionRecord)] == [2, 3, 4]
    assert len(cluster.topic("t").partitions) == 5


@pytest.mark.parametrize(
    ("name", "count", "assignments", "error", "message"),
    [
        ("t", 2, None, Error.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            "t",
            1,
            None,
            Error.INVALID_PARTITIONS,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        ("u", 3, None, Error.UNKNOWN_TOPIC_OR_PARTITION, None),
        (
            "t",
            4,
            [[1]],
            Error.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            "t",
            3,
            [[1, 2]],
            Error.INVALID_REPLICA_ASSIGNMENT,
            (
                "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent "
                "with previous partitions, which have 1 replica(s)."
            ),
        ),
        ("t", 10_003, None, Error.POLICY_VIOLATION, "Excessively large number of partitions per request."),
    ],
)
def test_partitions_that_cannot_be_added_are_refused(
    name: str, count: int, assignments: list[list[int]] | None, error: Error, message: str | None
) -> None:
    cluster = Cluster(brokers=2)
    cluster.create_topic("t", 2)
    given = None
    if assignments is not None:
        given = [CreatePartitions.CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments]
    topic = CreatePartitions.CreatePartitionsTopic(name=name, count=count, assignments=given)
    (result,) = cluster.send(CreatePartitions(topics=[topic])).results
    assert (result.error_code, result.error_message) == (error, message)
    assert cluster.last == []


def test_partitions_can_be_assigned_by_hand_or_only_validated() -> None:
    cluster = Cluster(brokers=2)
    cluster.create_topic("t")
    assignment = CreatePartitions.CreatePartitionsAssignment(broker_ids=[2])
    topic = CreatePartitions.CreatePartitionsTopic(name="t", count=2, assignments=[assignment])
    assert cluster.send(CreatePartitions(topics=[topic], validate_only=True)).results[0].error_code == 0
    assert cluster.last == []
    cluster.send(CreatePartitions(topics=[topic]))
    assert cluster.partition("t", 1).replicas == (2,)


def test_topics_are_deleted_by_name_and_by_id() -> None:
    cluster = Cluster()
    by_name, by_id = cluster.create_topic("n"), cluster.create_topic("i")
    state = DeleteTopics.DeleteTopicState
    response = cluster.send(DeleteTopics(topics=[state(name="n"), state(topic_id=by_id.topic_id)]))
    assert {(r.name, r.topic_id, r.error_code) for r in response.responses} == {
        ("n", by_name.topic_id, 0),
        ("i", by_id.topic_id, 0),
    }
    assert len(cluster.state.metadata.topics_by_name) == 0
    assert cluster.state.in_sync_partitions(1) == ()


def test_older_versions_delete_by_a_list_of_names() -> None:
    cluster = Cluster()
    cluster.create_topic("n")
    assert cluster.send(DeleteTopics(topic_names=["n"])).responses[0].error_code == 0
    assert cluster.state.topic("n") is None


def test_deletions_that_make_no_sense_are_refused_one_by_one() -> None:
    cluster = Cluster()
    topic = cluster.create_topic("t")
    unknown = Uuid(b"u" * 16)
    state = DeleteTopics.DeleteTopicState
    response = cluster.send(
        DeleteTopics(
            topics=[
                state(name="nope"),
                state(topic_id=unknown),
                state(name=None),
                state(name="x", topic_id=unknown),
                state(name="twice"),
                state(name="twice"),
                state(name="t"),
                state(topic_id=topic.topic_id),
            ]
        )
    )
    results = {(r.name, r.topic_id): (Error(r.error_code), r.error_message) for r in response.responses}
    assert results == {
        ("nope", ZERO_UUID): (Error.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."),
        (None, unknown): (Error.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."),
        (None, ZERO_UUID): (Error.INVALID_REQUEST, "Neither topic name nor id were specified."),
        ("x", unknown): (Error.INVALID_REQUEST, "You may not specify both topic name and topic id."),
        ("twice", ZERO_UUID): (Error.INVALID_REQUEST, "Duplicate topic name."),
        ("t", topic.topic_id): (
            Error.INVALID_REQUEST,
            "The provided topic name maps to an ID that was already supplied.",
        ),
    }
    assert cluster.last == []


def test_deletion_can_be_disabled() -> None:
    cluster = Cluster(is_topic_deletion_enabled=False)
    cluster.create_topic("t")
    (result,) = cluster.send(DeleteTopics(topics=[DeleteTopics.DeleteTopicState(name="t")])).responses
    assert result.error_code == Error.TOPIC_DELETION_DISABLED
    assert cluster.state.topic("t") is not None


def test_a_topic_made_again_under_its_name_has_another_id_and_none_of_its_settings() -> None:
    cluster = Cluster()
    first = cluster.create_topic("t", retention_ms="5").topic_id
    cluster.send(DeleteTopics(topic_names=["t"]))
    assert cluster.create_topic("t").topic_id != first
    assert cluster.state.metadata.configs.of_topic("t") == {}
