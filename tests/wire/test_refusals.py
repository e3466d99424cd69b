"""Well-formed requests that cannot be granted: each gets Kafka's error code, where it belongs in the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID, Uuid
from tests.wire.requests import (
    BROKER_RESOURCE,
    LATEST,
    TOPIC_RESOURCE,
    Topic,
    create_topic,
    list_offsets,
    list_offsets_request,
    unknown_topic,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.peers import Peer, PeerKind
    from tests.wire.connection import Connection

SET, DELETE, APPEND, SUBTRACT = range(4)


def creation(name: str, partitions: int = 1, replication_factor: int = 1) -> m.CreateTopicsRequest.CreatableTopic:
    return m.CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor
    )


def create(connection: Connection, *topics: m.CreateTopicsRequest.CreatableTopic) -> dict[str, Error]:
    request = m.CreateTopicsRequest(topics=list(topics), timeout_ms=30_000)
    answer = connection.call(request, 7, m.CreateTopicsResponse)
    return {each.name: Error(each.error_code) for each in answer.topics}


def assignments(*brokers: list[int]) -> list[m.CreateTopicsRequest.CreatableReplicaAssignment]:
    assignment = m.CreateTopicsRequest.CreatableReplicaAssignment
    return [assignment(partition_index=n, broker_ids=each) for n, each in enumerate(brokers)]


def test_the_same_topic_twice_in_one_request_is_created_not_at_all(connection: Connection, topic: str) -> None:
    assert create(connection, creation(topic), creation(f"{topic}-b"), creation(topic)) == {
        topic: Error.INVALID_REQUEST,
        f"{topic}-b": Error.NONE,
    }


def test_counts_and_assignments_exclude_each_other(connection: Connection, topic: str) -> None:
    both = creation(topic, partitions=2)
    both.assignments = assignments([1], [1])
    assert create(connection, both) == {topic: Error.INVALID_REQUEST}


@pytest.mark.parametrize(
    "brokers",
    [[[1, 1]], [[]], [[1], []], [[-1]], [[1], [1, 2]]],
    ids=["twice the same", "nobody", "the second has nobody", "a negative broker", "different factors"],
)
def test_an_assignment_that_cannot_be_is_refused(connection: Connection, topic: str, brokers: list[list[int]]) -> None:
    wrong = creation(topic, -1, -1)
    wrong.assignments = assignments(*brokers)
    assert create(connection, wrong) == {topic: Error.INVALID_REPLICA_ASSIGNMENT}


def test_assigned_partitions_are_numbered_from_zero_without_gaps(connection: Connection, topic: str) -> None:
    wrong = creation(topic, -1, -1)
    wrong.assignments = assignments([1], [1])
    wrong.assignments[1].partition_index = 5
    assert create(connection, wrong) == {topic: Error.INVALID_REPLICA_ASSIGNMENT}


@pytest.mark.parametrize("partitions", [0, -5])
def test_a_partition_count_is_positive(connection: Connection, topic: str, partitions: int) -> None:
    assert create(connection, creation(topic, partitions)) == {topic: Error.INVALID_PARTITIONS}


@pytest.mark.parametrize("factor", [0, -5, 2, 32_767])
def test_a_replication_factor_is_met_by_the_brokers_there_are(connection: Connection, topic: str, factor: int) -> None:
    assert create(connection, creation(topic, 1, factor)) == {topic: Error.INVALID_REPLICATION_FACTOR}


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "a/b", "a\u0000b", "ä"])
def test_an_illegal_name_creates_nothing(connection: Connection, name: str) -> None:
    assert create(connection, creation(name)) == {name: Error.INVALID_TOPIC_EXCEPTION}


def test_a_topic_of_a_hundred_thousand_partitions_is_refused(
    connection: Connection, wire_topic: Topic, peer_kind: PeerKind
) -> None:
    """One request may write so many records of metadata and no more."""
    wide = f"{wire_topic.name}-wide"
    assert create(connection, creation(wide, 100_000)) == {wide: Error.POLICY_VIOLATION}
    if peer_kind == "barnabas":  # Kafka adds the first ten thousand and answers with an unknown error
        assert grow(connection, (wire_topic.name, 100_000, None)) == {wire_topic.name: Error.POLICY_VIOLATION}


def delete(connection: Connection, *states: tuple[str | None, Uuid]) -> list[tuple[str | None, Error]]:
    request = m.DeleteTopicsRequest
    topics = [request.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states]
    answer = connection.call(request(topics=topics, timeout_ms=10_000), 6, m.DeleteTopicsResponse)
    return [(each.name, Error(each.error_code)) for each in answer.responses]


def test_topics_that_are_not_there_are_not_deleted(connection: Connection) -> None:
    name, topic_id = unknown_topic()
    assert delete(connection, (name, ZERO_UUID)) == [(name, Error.UNKNOWN_TOPIC_OR_PARTITION)]
    assert delete(connection, (None, topic_id)) == [(None, Error.UNKNOWN_TOPIC_ID)]


def test_a_topic_is_deleted_by_name_or_by_id_not_by_both_or_twice(connection: Connection, wire_topic: Topic) -> None:
    both = delete(connection, (wire_topic.name, wire_topic.id))
    assert both == [(wire_topic.name, Error.INVALID_REQUEST)]
    twice = delete(connection, (wire_topic.name, ZERO_UUID), (None, wire_topic.id))
    assert {error for _, error in twice} == {Error.INVALID_REQUEST}
    assert list_offsets(connection, wire_topic, LATEST).error_code == Error.NONE


def grow(connection: Connection, *wanted: tuple[str, int, list[list[int]] | None]) -> dict[str, Error]:
    request = m.CreatePartitionsRequest
    topics = [
        request.CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None
            if brokers is None
            else [request.CreatePartitionsAssignment(broker_ids=each) for each in brokers],
        )
        for name, count, brokers in wanted
    ]
    answer = connection.call(request(topics=topics, timeout_ms=10_000), 3, m.CreatePartitionsResponse)
    return {each.name: Error(each.error_code) for each in answer.results}


def test_partitions_that_cannot_be_added(connection: Connection, wire_topic: Topic) -> None:
    name = wire_topic.name
    assert grow(connection, (name, 1, None)) == {name: Error.INVALID_PARTITIONS}
    assert grow(connection, (name, 0, None)) == {name: Error.INVALID_PARTITIONS}
    assert grow(connection, (name, 3, [[1]])) == {name: Error.INVALID_REPLICA_ASSIGNMENT}
    assert grow(connection, (name, 2, [[4711]])) == {name: Error.INVALID_REPLICA_ASSIGNMENT}
    assert grow(connection, (name, 2, None), (name, 3, None)) == {name: Error.INVALID_REQUEST}
    assert grow(connection, ("no-such-topic", 2, None)) == {"no-such-topic": Error.UNKNOWN_TOPIC_OR_PARTITION}


def describe_config(connection: Connection, kind: int, name: str) -> Error:
    request = m.DescribeConfigsRequest
    resource = request.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    (result,) = connection.call(request(resources=[resource]), 4, m.DescribeConfigsResponse).results
    return Error(result.error_code)


def test_settings_that_cannot_be_described(connection: Connection) -> None:
    assert describe_config(connection, TOPIC_RESOURCE, "no-such-topic") == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert describe_config(connection, TOPIC_RESOURCE, "not legal") == Error.INVALID_TOPIC_EXCEPTION
    assert describe_config(connection, BROKER_RESOURCE, "4711") == Error.INVALID_REQUEST
    assert describe_config(connection, BROKER_RESOURCE, "one") == Error.INVALID_REQUEST


def test_only_the_settings_that_were_asked_for_are_described(connection: Connection, wire_topic: Topic) -> None:
    request = m.DescribeConfigsRequest
    resource = request.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE,
        resource_name=wire_topic.name,
        configuration_keys=["segment.bytes", "no.such.setting"],
    )
    asked = request(resources=[resource], include_synonyms=True, include_documentation=True)
    (result,) = connection.call(asked, 4, m.DescribeConfigsResponse).results
    (entry,) = result.configs
    assert (entry.name, entry.value, entry.config_type, entry.read_only) == ("segment.bytes", "1073741824", 3, False)
    assert entry.documentation
    assert [(each.name, each.source) for each in entry.synonyms] == [("log.segment.bytes", 5)]


Change = tuple[int, str, "Sequence[tuple[str, int, str | None]]"]


def alter(connection: Connection, *changes: Change) -> list[Error]:
    request = m.IncrementalAlterConfigsRequest
    resources = [
        request.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                request.AlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in configs
            ],
        )
        for kind, name, configs in changes
    ]
    answer = connection.call(request(resources=resources), 1, m.IncrementalAlterConfigsResponse)
    return [Error(each.error_code) for each in answer.responses]


def test_changes_of_settings_that_cannot_be_made(connection: Connection, wire_topic: Topic) -> None:
    topic = wire_topic.name

    def change(key: str, operation: int, value: str | None) -> list[Error]:
        return alter(connection, (TOPIC_RESOURCE, topic, [(key, operation, value)]))

    assert change("retention.ms", SET, "x") == [Error.INVALID_CONFIG]
    assert change("no.such.setting", SET, "1") == [Error.INVALID_CONFIG]
    assert change("retention.ms", SET, None) == [Error.INVALID_REQUEST]
    assert change("retention.ms", APPEND, "1") == [Error.INVALID_CONFIG]
    assert change("retention.ms", 9, "1") in ([Error.INVALID_REQUEST], [Error.UNKNOWN_SERVER_ERROR])
    assert change("no.such.setting", DELETE, None) in ([Error.NONE], [Error.INVALID_CONFIG])
    twice: Change = (TOPIC_RESOURCE, topic, [("retention.ms", SET, "1000"), ("retention.ms", SET, "2000")])
    assert alter(connection, twice) == [Error.INVALID_REQUEST]


def test_the_same_resource_twice_is_refused_and_another_is_changed(connection: Connection, topic: str) -> None:
    first, second = (create_topic(connection, f"{topic}-{n}") for n in range(2))
    change = [("retention.ms", SET, "1000000")]
    errors = alter(
        connection,
        (TOPIC_RESOURCE, first.name, change),
        (TOPIC_RESOURCE, first.name, change),
        (TOPIC_RESOURCE, second.name, change),
    )
    assert sorted(errors) == [Error.NONE, Error.INVALID_REQUEST, Error.INVALID_REQUEST]


def test_settings_of_what_is_not_there_are_not_changed(connection: Connection) -> None:
    change = [("retention.ms", SET, "1000000")]
    assert alter(connection, (TOPIC_RESOURCE, "no-such-topic", change)) == [Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert alter(connection, (BROKER_RESOURCE, "one", change)) == [Error.INVALID_REQUEST]


def metadata(connection: Connection, *topics: tuple[str | None, Uuid]) -> list[tuple[str | None, Error]]:
    request = m.MetadataRequest
    asked = [request.MetadataRequestTopic(name=name, topic_id=topic_id) for name, topic_id in topics]
    answer = connection.call(request(topics=asked, allow_auto_topic_creation=False), 13, m.MetadataResponse)
    return [(each.name, Error(each.error_code)) for each in answer.topics]


def test_metadata_of_topics_that_are_not_there(connection: Connection) -> None:
    name, topic_id = unknown_topic()
    assert metadata(connection, (name, ZERO_UUID)) == [(name, Error.UNKNOWN_TOPIC_OR_PARTITION)]
    assert metadata(connection, (None, topic_id)) == [(None, Error.UNKNOWN_TOPIC_ID)]
    assert metadata(connection, ("not legal", ZERO_UUID)) == [("not legal", Error.INVALID_TOPIC_EXCEPTION)]


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_all_topics_and_of_none(connection: Connection, wire_topic: Topic, version: int) -> None:
    """In version 0 an empty list means all, later null does."""
    everything = m.MetadataRequest(topics=None if version else [])
    answer = connection.call(everything, version, m.MetadataResponse)
    assert wire_topic.name in {each.name for each in answer.topics}
    (broker,) = answer.brokers
    if version:
        assert answer.controller_id == broker.node_id
        assert connection.call(m.MetadataRequest(topics=[]), version, m.MetadataResponse).topics == []


def test_the_first_metadata_of_a_topic_to_be_created(connection: Connection, topic: str, node: Peer) -> None:
    """The client is told to ask again, and finds the topic when it does."""
    request = m.MetadataRequest
    asked = request(topics=[request.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    codes: list[Error] = []
    while not codes or codes[-1] != Error.NONE:
        (described,) = connection.call(asked, 12, m.MetadataResponse).topics
        codes.append(Error(described.error_code))
        assert len(codes) < 100_000
    assert codes[0] in {Error.UNKNOWN_TOPIC_OR_PARTITION, Error.LEADER_NOT_AVAILABLE}
    assert described.name == topic
    assert [each.partition_index for each in described.partitions] == [0]
    assert described.topic_id != ZERO_UUID


def test_offsets_that_cannot_be_listed(connection: Connection, wire_topic: Topic) -> None:
    unknown = list_offsets(connection, unknown_topic(), LATEST)
    assert Error(unknown.error_code) == Error.UNKNOWN_TOPIC_OR_PARTITION
    absent = list_offsets(connection, wire_topic, LATEST, partition=9)
    assert Error(absent.error_code) == Error.UNKNOWN_TOPIC_OR_PARTITION
    request = list_offsets_request(wire_topic, LATEST)
    request.topics[0].partitions[0].current_leader_epoch = 99
    (answered,) = connection.call(request, 11, m.ListOffsetsResponse).topics[0].partitions
    assert Error(answered.error_code) == Error.UNKNOWN_LEADER_EPOCH


def test_epochs_that_cannot_be_looked_up(connection: Connection, wire_topic: Topic) -> None:
    request = m.OffsetForLeaderEpochRequest

    def ask(topic: str, partition: int, current_epoch: int) -> Error:
        wanted = request.OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=current_epoch, leader_epoch=0
        )
        asked = request(replica_id=-1, topics=[request.OffsetForLeaderTopic(topic=topic, partitions=[wanted])])
        (found,) = connection.call(asked, 4, m.OffsetForLeaderEpochResponse).topics[0].partitions
        return Error(found.error_code)

    assert ask("no-such-topic", 0, -1) == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(wire_topic.name, 9, -1) == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(wire_topic.name, 0, 99) == Error.UNKNOWN_LEADER_EPOCH


def test_a_cluster_is_described_to_the_right_asker(connection: Connection) -> None:
    answer = connection.call(m.DescribeClusterRequest(endpoint_type=2), 2, m.DescribeClusterResponse)
    assert Error(answer.error_code) == Error.MISMATCHED_ENDPOINT_TYPE
    answer = connection.call(m.DescribeClusterRequest(endpoint_type=9), 2, m.DescribeClusterResponse)
    assert Error(answer.error_code) == Error.UNSUPPORTED_ENDPOINT_TYPE


def test_partitions_of_topics_that_are_not_there_are_described_as_such(connection: Connection) -> None:
    request = m.DescribeTopicPartitionsRequest
    asked = request(topics=[request.TopicRequest(name="no-such-topic")])
    (described,) = connection.call(asked, 0, m.DescribeTopicPartitionsResponse).topics
    assert (described.name, Error(described.error_code)) == ("no-such-topic", Error.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_description_goes_on_at_its_cursor(connection: Connection, topic: str) -> None:
    wide = create_topic(connection, topic, partitions=5)
    request = m.DescribeTopicPartitionsRequest
    asked = request(topics=[request.TopicRequest(name=wide.name)], response_partition_limit=2)
    seen: list[int] = []
    for _ in range(3):
        answer = connection.call(asked, 0, m.DescribeTopicPartitionsResponse)
        seen += [each.partition_index for each in answer.topics[0].partitions]
        if answer.next_cursor is None:
            break
        asked.cursor = request.Cursor(
            topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
        )
    assert seen == [0, 1, 2, 3, 4]
    assert answer.next_cursor is None


def test_an_empty_transactional_id_is_refused(connection: Connection) -> None:
    request = m.InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1_000)
    assert Error(connection.call(request, 4, m.InitProducerIdResponse).error_code) == Error.INVALID_REQUEST


def test_a_broker_that_is_asked_for_controllers_says_what_it_is(connection: Connection) -> None:
    answer = connection.call(m.DescribeClusterRequest(endpoint_type=2), 1, m.DescribeClusterResponse)
    assert (Error(answer.error_code), answer.error_message) == (
        Error.MISMATCHED_ENDPOINT_TYPE,
        "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
    )


def test_producers_of_a_topic_that_cannot_exist_are_refused_with_the_reason(connection: Connection) -> None:
    named = m.DescribeProducersRequest.TopicRequest(name="not/legal", partition_indexes=[0])
    answer = connection.call(m.DescribeProducersRequest(topics=[named]), 0, m.DescribeProducersResponse)
    (partition,) = answer.topics[0].partitions
    assert Error(partition.error_code) is Error.INVALID_TOPIC_EXCEPTION
    assert partition.error_message is not None
    assert partition.error_message.startswith("Topic name is invalid: 'not/legal' contains one or more characters")


def test_producers_of_what_does_not_exist_are_refused_in_words_where_the_topic_does_not(
    connection: Connection, wire_topic: Topic
) -> None:
    request = m.DescribeProducersRequest
    asked = [
        request.TopicRequest(name=wire_topic.name, partition_indexes=[77]),
        request.TopicRequest(name="nobody-knows-it", partition_indexes=[0]),
    ]
    answer = connection.call(request(topics=asked), 0, m.DescribeProducersResponse)
    (partition,), (topic,) = (each.partitions for each in answer.topics)
    assert (Error(partition.error_code), partition.error_message) == (Error.UNKNOWN_TOPIC_OR_PARTITION, None)
    assert (Error(topic.error_code), topic.error_message) == (
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        "This server does not host this topic-partition.",
    )


@pytest.mark.parametrize(("key_type", "is_explained"), [(2, False), (9, True)])
def test_a_coordinator_of_an_unknown_kind_is_refused_in_words(
    connection: Connection, key_type: int, is_explained: bool
) -> None:
    request = m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"])
    (found,) = connection.call(request, 5, m.FindCoordinatorResponse).coordinators
    assert Error(found.error_code) is Error.INVALID_REQUEST
    assert bool(found.error_message) is is_explained


def test_a_topic_that_is_named_with_its_id_costs_only_that_entry(connection: Connection, wire_topic: Topic) -> None:
    request = m.DeleteTopicsRequest
    by_name = request.DeleteTopicState(name=wire_topic.name)
    by_both = request.DeleteTopicState(name=wire_topic.name, topic_id=wire_topic.id)
    answer = connection.call(request(topics=[by_name, by_both], timeout_ms=30_000), 6, m.DeleteTopicsResponse)
    found = {each.error_message: Error(each.error_code) for each in answer.responses}
    assert found == {None: Error.NONE, "You may not specify both topic name and topic id.": Error.INVALID_REQUEST}


def test_a_setting_with_neither_name_nor_value_is_refused_for_its_value(
    connection: Connection, wire_topic: Topic
) -> None:
    request = m.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name="", config_operation=0, value=None)
    resource = request.AlterConfigsResource(resource_type=2, resource_name=wire_topic.name, configs=[config])
    (answer,) = connection.call(request(resources=[resource]), 1, m.IncrementalAlterConfigsResponse).responses
    assert Error(answer.error_code) is Error.INVALID_REQUEST
    assert answer.error_message == "Null value not supported for : "


def test_settings_of_another_broker_are_refused_whatever_is_wrong_with_them(connection: Connection) -> None:
    request = m.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name="min.insync.replicas", config_operation=3, value="1")
    resource = request.AlterConfigsResource(resource_type=4, resource_name="77", configs=[config])
    answer = connection.call(request(resources=[resource]), 1, m.IncrementalAlterConfigsResponse)
    assert (Error(answer.responses[0].error_code), answer.responses[0].error_message) == (
        Error.INVALID_REQUEST,
        "Unexpected broker id, expected 1, but received 77",
    )


def test_the_answer_to_a_creation_has_settings_as_they_were_written(connection: Connection, topic: str) -> None:
    new = creation(topic)
    new.configs = [
        m.CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
        for name, value in (("preallocate", "TRUE"), ("retention.ms", " 5000 "))
    ]
    answer = connection.call(m.CreateTopicsRequest(topics=[new], timeout_ms=30_000), 7, m.CreateTopicsResponse)
    configs = {each.name: each.value for each in answer.topics[0].configs or ()}
    assert (configs["preallocate"], configs["retention.ms"]) == ("TRUE", " 5000 ")
