"""Requests that no client sends, but that Kafka has an answer for: found by comparing answers to generated ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.config_resources import ResourceType
from barnabas.protocol.error_messages import message_of
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.batches import batch
from tests.wire.consumer_groups import ask, joining
from tests.wire.groups import beat, commit, commit_request, join, join_request, leave, sync
from tests.wire.requests import fetch_request, list_offsets, produce, produce_request, unknown_topic

if TYPE_CHECKING:
    from tests.wire.connection import Connection
    from tests.wire.requests import Topic

FAR_IN_THE_FUTURE_MS = 100_000_000_000_000


def test_a_batch_that_the_log_refuses_is_answered_with_where_it_starts(
    connection: Connection, wire_topic: Topic
) -> None:
    refused = produce(connection, wire_topic, batch(timestamp_ms=FAR_IN_THE_FUTURE_MS))
    assert (refused.error_code, refused.log_start_offset) == (Error.INVALID_TIMESTAMP, 0)


def test_one_that_is_damaged_is_not(connection: Connection, wire_topic: Topic) -> None:
    refused = produce(connection, wire_topic, batch(crc=1))
    assert (refused.error_code, refused.log_start_offset) == (Error.CORRUPT_MESSAGE, -1)


def test_acks_that_do_not_exist_are_refused_before_that(connection: Connection, wire_topic: Topic) -> None:
    request = produce_request(wire_topic, batch(), 12, acks=2)
    (topic,) = connection.call(request, 12, m.ProduceResponse).responses
    (refused,) = topic.partition_responses
    assert (refused.error_code, refused.log_start_offset) == (Error.INVALID_REQUIRED_ACKS, -1)


def test_a_fetch_with_any_negative_leader_epoch_asks_for_no_check(connection: Connection, wire_topic: Topic) -> None:
    request = fetch_request(wire_topic, 12, leader_epoch=-2)
    (topic,) = connection.call(request, 12, m.FetchResponse).responses
    assert topic.partitions[0].error_code == Error.NONE


def test_other_questions_take_only_minus_one_for_that(connection: Connection, wire_topic: Topic) -> None:
    assert list_offsets(connection, wire_topic, -1).error_code == Error.NONE
    request = m.ListOffsetsRequest
    wanted = request.ListOffsetsPartition(partition_index=0, current_leader_epoch=-2, timestamp=-1)
    asked = request(replica_id=-1, topics=[request.ListOffsetsTopic(name=wire_topic.name, partitions=[wanted])])
    (topic,) = connection.call(asked, 11, m.ListOffsetsResponse).topics
    assert topic.partitions[0].error_code == Error.FENCED_LEADER_EPOCH


def test_a_reader_whose_log_has_another_past_is_told_of_no_aborted_transactions(
    connection: Connection, wire_topic: Topic
) -> None:
    request = fetch_request(wire_topic, 12, offset=3)
    request.isolation_level = 1
    request.topics[0].partitions[0].last_fetched_epoch = 0
    (topic,) = connection.call(request, 12, m.FetchResponse).responses
    assert topic.partitions[0].aborted_transactions is None


def test_metadata_by_id_leaves_out_what_has_no_id(connection: Connection, wire_topic: Topic) -> None:
    topic = m.MetadataRequest.MetadataRequestTopic
    asked = [topic(topic_id=wire_topic.id, name=None), topic(name=None), topic(name=wire_topic.name)]
    answer = connection.call(m.MetadataRequest(topics=asked), 13, m.MetadataResponse)
    assert answer.error_code == Error.NONE
    assert [each.name for each in answer.topics] == [wire_topic.name]


def test_a_topic_that_is_named_twice_in_an_election_is_answered_for_both(
    connection: Connection, wire_topic: Topic
) -> None:
    request = m.ElectLeadersRequest
    named = [
        request.TopicPartitions(topic=wire_topic.name, partitions=[0]),
        request.TopicPartitions(topic=wire_topic.name, partitions=[7]),
    ]
    answer = connection.call(request(topic_partitions=named, timeout_ms=30_000), 2, m.ElectLeadersResponse)
    results = {
        each.partition_id: each.error_code for of in answer.replica_election_results for each in of.partition_result
    }
    assert results == {0: Error.ELECTION_NOT_NEEDED, 7: Error.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("election_type", [0, -1])
def test_an_election_of_nothing_succeeds(connection: Connection, election_type: int) -> None:
    request = m.ElectLeadersRequest(election_type=election_type, topic_partitions=[], timeout_ms=30_000)
    answer = connection.call(request, 2, m.ElectLeadersResponse)
    assert (answer.error_code, answer.replica_election_results) == (Error.NONE, [])


def test_a_reassignment_of_nothing_echoes_nothing(connection: Connection) -> None:
    request = m.AlterPartitionReassignmentsRequest(allow_replication_factor_change=False, timeout_ms=30_000)
    answer = connection.call(request, 1, m.AlterPartitionReassignmentsResponse)
    assert (answer.error_code, answer.error_message, answer.allow_replication_factor_change) == (0, "", True)


def test_a_quorum_of_another_partition_is_refused_with_a_reason(connection: Connection) -> None:
    request = m.DescribeQuorumRequest
    partition = request.PartitionData(partition_index=0)
    asked = request(topics=[request.TopicData(topic_name="elsewhere", partitions=[partition])])
    answer = connection.call(asked, 2, m.DescribeQuorumResponse).topics[0].partitions[0]
    assert answer.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.error_message


@pytest.mark.parametrize("version", [3, 6])
def test_a_coordinator_of_keys_of_no_type_is_refused_with_a_reason(connection: Connection, version: int) -> None:
    request = m.FindCoordinatorRequest(key_type=-1)
    if version < 4:
        request.key = "key"
        old = connection.call(request, version, m.FindCoordinatorResponse)
        assert (old.error_code, bool(old.error_message)) == (Error.INVALID_REQUEST, True)
        return
    request.coordinator_keys = ["key"]
    (found,) = connection.call(request, version, m.FindCoordinatorResponse).coordinators
    assert (found.error_code, bool(found.error_message)) == (Error.INVALID_REQUEST, True)


def test_offsets_of_a_group_with_an_error_come_without_topics(group_connection: Connection, group: str) -> None:
    assert ask(group_connection, joining(group, "somebody", ["t"])).error == Error.NONE
    request = m.OffsetFetchRequest
    unknown = request.OffsetFetchRequestTopics(partition_indexes=[0])
    asked = request.OffsetFetchRequestGroup(group_id=group, member_id="nobody", member_epoch=5, topics=[unknown])
    (answer,) = group_connection.call(request(groups=[asked]), 10, m.OffsetFetchResponse).groups
    assert (answer.error_code, answer.topics) == (Error.UNKNOWN_MEMBER_ID, [])


def test_who_leaves_before_it_has_joined_sets_off_a_rebalance(group_connection: Connection, group: str) -> None:
    member = join(group_connection, join_request(group))
    assert sync(member, {member.member_id: b""})[0] == Error.NONE
    required = group_connection.call(join_request(group), 9, m.JoinGroupResponse)
    assert required.error_code == Error.MEMBER_ID_REQUIRED
    assert beat(member) == Error.NONE
    assert leave(replace(member, member_id=required.member_id)) == Error.NONE
    assert beat(member) == Error.REBALANCE_IN_PROGRESS


def test_a_topic_that_a_commit_names_twice_is_answered_for_all_its_partitions(
    group_connection: Connection, group: str, group_topic: Topic
) -> None:
    request = commit_request(group, group_topic, {0: 1, 7: 1})
    request.topics += commit_request(group, group_topic, {1: 1, 8: 1}).topics
    answer = group_connection.call(request, 9, m.OffsetCommitResponse)
    errors = {each.partition_index: each.error_code for topic in answer.topics for each in topic.partitions}
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == {0: Error.NONE, 1: Error.NONE, 7: unknown, 8: unknown}


def test_a_topic_that_a_deletion_of_offsets_names_twice_is_answered_for_all_its_partitions(
    group_connection: Connection, group: str, group_topic: Topic
) -> None:
    assert commit(group_connection, commit_request(group, group_topic, {0: 1})) == {0: Error.NONE}
    request = m.OffsetDeleteRequest
    named = [
        request.OffsetDeleteRequestTopic(
            name=group_topic.name, partitions=[request.OffsetDeleteRequestPartition(partition_index=index)]
        )
        for index in (0, 7, 8)
    ]
    answer = group_connection.call(request(group_id=group, topics=named), 0, m.OffsetDeleteResponse)
    errors = {each.partition_index: each.error_code for topic in answer.topics for each in topic.partitions}
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == {0: Error.NONE, 7: unknown, 8: unknown}


def test_the_metadata_epoch_goes_on_with_records_that_change_nothing(connection: Connection) -> None:
    request = m.DescribeQuorumRequest
    partition = request.PartitionData(partition_index=0)
    asked = request(topics=[request.TopicData(topic_name="__cluster_metadata", partitions=[partition])])

    def committed() -> int:
        answer = connection.call(asked, 0, m.DescribeQuorumResponse)
        return int(answer.topics[0].partitions[0].high_watermark) - 1

    def epoch() -> int:
        software = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
        return int(connection.call(software, 3, m.ApiVersionsResponse).finalized_features_epoch)

    for _ in range(2):
        reached = committed()
        wait_until(lambda reached=reached: epoch() >= reached, f"the broker has come to {reached}")  # type: ignore[misc]
        wait_until(lambda reached=reached: committed() > reached, "the controller writes a record")  # type: ignore[misc]


def test_words_come_with_a_refusal_of_records_and_not_with_one_of_where_they_go(
    connection: Connection, wire_topic: Topic
) -> None:
    nowhere = produce(connection, unknown_topic(), batch(), 12)
    no_partition = produce(connection, wire_topic, batch(), 12, partition=9)
    no_batch = produce(connection, wire_topic, b"", 12)
    assert [(each.error_code, each.error_message) for each in (nowhere, no_partition, no_batch)] == [
        (Error.UNKNOWN_TOPIC_OR_PARTITION, None),
        (Error.UNKNOWN_TOPIC_OR_PARTITION, None),
        (Error.INVALID_RECORD, None),
    ]
    refused = produce(connection, wire_topic, batch(timestamp_ms=FAR_IN_THE_FUTURE_MS), 12)
    assert (refused.error_code, bool(refused.error_message)) == (Error.INVALID_TIMESTAMP, True)


@pytest.mark.parametrize("version", [8, 12])
def test_a_topic_without_partitions_is_not_in_the_answer_to_a_produce(
    connection: Connection, wire_topic: Topic, version: int
) -> None:
    request = m.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[m.ProduceRequest.TopicProduceData(name="t")])
    assert connection.call(request, version, m.ProduceResponse).responses == []


def test_a_topic_without_partitions_is_in_the_answer_to_a_deletion_of_offsets(
    group_connection: Connection, group: str, group_topic: Topic
) -> None:
    assert commit(group_connection, commit_request(group, group_topic, {0: 1})) == {0: Error.NONE}
    request = m.OffsetDeleteRequest
    asked = request(group_id=group, topics=[request.OffsetDeleteRequestTopic(name=group_topic.name)])
    answer = group_connection.call(asked, 0, m.OffsetDeleteResponse)
    assert [(topic.name, topic.partitions) for topic in answer.topics] == [(group_topic.name, [])]


def test_a_topic_that_is_named_and_whose_id_is_given_twice_is_not_deleted(
    connection: Connection, wire_topic: Topic
) -> None:
    state = m.DeleteTopicsRequest.DeleteTopicState
    named = [
        state(topic_id=wire_topic.id, name=None),
        state(topic_id=wire_topic.id, name=None),
        state(name=wire_topic.name),
    ]
    request = m.DeleteTopicsRequest(topics=named, timeout_ms=30_000)
    answer = connection.call(request, 6, m.DeleteTopicsResponse)
    assert {(each.name, each.error_code, each.error_message) for each in answer.responses} == {
        (None, Error.INVALID_REQUEST, "Duplicate topic id."),
        (wire_topic.name, Error.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied."),
    }


def test_a_topic_that_does_not_exist_gets_no_partitions_and_no_words(connection: Connection) -> None:
    request = m.CreatePartitionsRequest
    topic = request.CreatePartitionsTopic(name=unknown_topic().name, count=3, assignments=None)
    (result,) = connection.call(request(topics=[topic], timeout_ms=30_000), 3, m.CreatePartitionsResponse).results
    assert (result.error_code, result.error_message) == (Error.UNKNOWN_TOPIC_OR_PARTITION, None)


def test_the_settings_of_a_topic_that_does_not_exist_are_refused_without_words(connection: Connection) -> None:
    request = m.DescribeConfigsRequest
    resource = request.DescribeConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name=unknown_topic().name, configuration_keys=None
    )
    (result,) = connection.call(request(resources=[resource]), 4, m.DescribeConfigsResponse).results
    assert (result.error_code, result.error_message) == (Error.UNKNOWN_TOPIC_OR_PARTITION, "")


def test_a_setting_of_a_group_that_is_out_of_bounds_is_refused_in_the_names_of_the_bounds(
    connection: Connection, group: str
) -> None:
    request = m.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name="consumer.session.timeout.ms", value="1")
    resource = request.AlterConfigsResource(resource_type=ResourceType.GROUP, resource_name=group, configs=[config])
    (result,) = connection.call(request(resources=[resource]), 1, m.IncrementalAlterConfigsResponse).responses
    assert (result.error_code, result.error_message) == (
        Error.INVALID_CONFIG,
        "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
    )


def test_a_quota_that_is_named_twice_is_complained_of_before_its_entity(connection: Connection) -> None:
    request = m.AlterClientQuotasRequest
    operations = [request.OpData(key="producer_byte_rate", value=1.0), request.OpData(key="producer_byte_rate")]
    entry = request.EntryData(entity=[request.EntityData(entity_type="nobody", entity_name=None)], ops=operations)
    (result,) = connection.call(request(entries=[entry]), 1, m.AlterClientQuotasResponse).entries
    assert (result.error_code, result.error_message) == (
        Error.INVALID_REQUEST,
        "Ignoring duplicate entity ClientQuotaEntity(entries={nobody=null})",
    )


def test_a_coordinator_of_keys_of_no_type_is_refused_in_the_words_of_the_error(connection: Connection) -> None:
    request = m.FindCoordinatorRequest(key_type=3, coordinator_keys=["key"])
    (found,) = connection.call(request, 6, m.FindCoordinatorResponse).coordinators
    assert (found.error_code, found.error_message) == (Error.INVALID_REQUEST, message_of(Error.INVALID_REQUEST))
