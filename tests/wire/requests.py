"""Requests for the tests: for every API and version of a single node one with a known outcome, and what they consist
of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import Uuid
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.protocol.compiler.structs import Message, Struct
    from tests.wire.connection import Connection

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -2, -1, -3, -4, -5, -6
PRODUCE_BY_ID, FETCH_BY_ID = 13, 13
"""The first versions that name topics by id."""
OFFSETS_BY_ID, OFFSETS_OF_MANY_GROUPS, LEAVE_OF_MANY_MEMBERS = 10, 8, 3
GROUP, NO_GROUP, NO_PRODUCER = "a group", "no such group", "no such producer"
NO_BROKER = 2_000_000_000
TRANSACTION_KEY, ADDS_MANY_TRANSACTIONS = 1, 4
"""The type of a coordinator's key that is a transactional id, and the first version of AddPartitionsToTxn in which
brokers speak for several producers."""


class Topic(NamedTuple):
    name: str
    id: Uuid


@dataclass(frozen=True, slots=True)
class Context:
    """What a request needs to know: a topic of one partition with one record, a name that is free, and its version."""

    topic: Topic
    free_name: str
    version: int
    batch: bytes


def create_topic(connection: Connection, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> Topic:
    """Make a topic, wait for its leaders and return it with its id."""
    request = m.CreateTopicsRequest
    configs = [request.CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()]
    topic = request.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
    (created,) = connection.call(request(topics=[topic], timeout_ms=30_000), 7, m.CreateTopicsResponse).topics
    assert created.error_code == 0, created.error_message
    made = Topic(name, created.topic_id)
    for partition in range(partitions):
        wait_until(partial(_has_leader, connection, made, partition), f"{name}-{partition} has a leader")
    return made


def _has_leader(connection: Connection, topic: Topic, partition: int) -> bool:
    return list_offsets(connection, topic, LATEST, partition=partition).error_code == 0


def produce_request(
    topic: Topic, records: bytes | None, version: int, *, acks: int = -1, partition: int = 0
) -> m.ProduceRequest:
    request = m.ProduceRequest
    data = [request.PartitionProduceData(index=partition, records=records)]
    if version >= PRODUCE_BY_ID:
        topic_data = request.TopicProduceData(topic_id=topic.id, partition_data=data)
    else:
        topic_data = request.TopicProduceData(name=topic.name, partition_data=data)
    return request(acks=acks, timeout_ms=30_000, topic_data=[topic_data])


def produce(
    connection: Connection,
    topic: Topic,
    records: bytes | None,
    version: int = 12,
    *,
    acks: int = -1,
    partition: int = 0,
) -> m.ProduceResponse.PartitionProduceResponse:
    request = produce_request(topic, records, version, acks=acks, partition=partition)
    answer = connection.call(request, version, m.ProduceResponse)
    return answer.responses[0].partition_responses[0]


def fetch_request(
    topic: Topic,
    version: int,
    *,
    offset: int = 0,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    partition_max_bytes: int = 1_048_576,
    leader_epoch: int = -1,
    session_id: int = 0,
    session_epoch: int = -1,
) -> m.FetchRequest:
    request = m.FetchRequest
    wanted = request.FetchPartition(
        partition=partition,
        current_leader_epoch=leader_epoch if version >= 9 else -1,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
    )
    if version >= FETCH_BY_ID:
        topics = [request.FetchTopic(topic_id=topic.id, partitions=[wanted])]
    else:
        topics = [request.FetchTopic(topic=topic.name, partitions=[wanted])]
    return request(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=topics,
        session_id=session_id,
        session_epoch=session_epoch,
    )


def fetch(
    connection: Connection,
    topic: Topic,
    version: int = 12,
    *,
    offset: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    partition_max_bytes: int = 1_048_576,
) -> m.FetchResponse.PartitionData:
    request = fetch_request(
        topic,
        version,
        offset=offset,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        partition_max_bytes=partition_max_bytes,
    )
    return connection.call(request, version, m.FetchResponse).responses[0].partitions[0]


def list_offsets(
    connection: Connection, topic: Topic, timestamp: int, version: int = 11, *, partition: int = 0
) -> m.ListOffsetsResponse.ListOffsetsPartitionResponse:
    request = list_offsets_request(topic, timestamp, partition=partition)
    return connection.call(request, version, m.ListOffsetsResponse).topics[0].partitions[0]


def list_offsets_request(topic: Topic, timestamp: int, *, partition: int = 0) -> m.ListOffsetsRequest:
    request = m.ListOffsetsRequest
    wanted = request.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    return request(replica_id=-1, topics=[request.ListOffsetsTopic(name=topic.name, partitions=[wanted])])


def _produce(c: Context) -> Message:
    return produce_request(c.topic, c.batch, c.version)


def _fetch(c: Context) -> Message:
    return fetch_request(c.topic, c.version)


def _list_offsets(c: Context) -> Message:
    return list_offsets_request(c.topic, LATEST)


def _metadata(c: Context) -> Message:
    request = m.MetadataRequest
    return request(topics=[request.MetadataRequestTopic(name=c.topic.name)])


def _find_coordinator(c: Context) -> Message:
    if c.version >= 4:
        return m.FindCoordinatorRequest(coordinator_keys=[GROUP])
    return m.FindCoordinatorRequest(key=GROUP)


def _api_versions(_: Context) -> Message:
    return m.ApiVersionsRequest(client_software_name="test", client_software_version="1.0")


def _create_topics(c: Context) -> Message:
    request = m.CreateTopicsRequest
    topic = request.CreatableTopic(name=c.free_name, num_partitions=2, replication_factor=1)
    return request(topics=[topic], timeout_ms=30_000, validate_only=True)


def _delete_topics(c: Context) -> Message:
    request = m.DeleteTopicsRequest
    if c.version >= 6:
        return request(topics=[request.DeleteTopicState(name=c.topic.name)], timeout_ms=30_000)
    return request(topic_names=[c.topic.name], timeout_ms=30_000)


def _create_partitions(c: Context) -> Message:
    request = m.CreatePartitionsRequest
    topic = request.CreatePartitionsTopic(name=c.topic.name, count=2, assignments=None)
    return request(topics=[topic], timeout_ms=30_000, validate_only=True)


def _describe_configs(c: Context) -> Message:
    request = m.DescribeConfigsRequest
    topic = request.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=c.topic.name, configuration_keys=None
    )
    return request(resources=[topic])


def _alter_configs(c: Context) -> Message:
    request = m.AlterConfigsRequest
    config = request.AlterableConfig(name="retention.ms", value="1000000")
    topic = request.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=c.topic.name, configs=[config])
    return request(resources=[topic])


def _incremental_alter_configs(c: Context) -> Message:
    request = m.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name="retention.ms", config_operation=0, value="1000000")
    topic = request.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=c.topic.name, configs=[config])
    return request(resources=[topic])


def _describe_cluster(_: Context) -> Message:
    return m.DescribeClusterRequest()


def _describe_topic_partitions(c: Context) -> Message:
    request = m.DescribeTopicPartitionsRequest
    return request(topics=[request.TopicRequest(name=c.topic.name)])


def _offset_for_leader_epoch(c: Context) -> Message:
    request = m.OffsetForLeaderEpochRequest
    wanted = request.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    return request(replica_id=-1, topics=[request.OffsetForLeaderTopic(topic=c.topic.name, partitions=[wanted])])


def _init_producer_id(_: Context) -> Message:
    return m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)


def _offset_commit(c: Context) -> Message:
    request = m.OffsetCommitRequest
    partition = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="here")
    if c.version >= OFFSETS_BY_ID:
        topic = request.OffsetCommitRequestTopic(topic_id=c.topic.id, partitions=[partition])
    else:
        topic = request.OffsetCommitRequestTopic(name=c.topic.name, partitions=[partition])
    return request(group_id=GROUP, topics=[topic])


def _offset_fetch(c: Context) -> Message:
    request = m.OffsetFetchRequest
    if c.version < OFFSETS_OF_MANY_GROUPS:
        wanted = request.OffsetFetchRequestTopic(name=c.topic.name, partition_indexes=[0])
        return request(group_id=GROUP, topics=[wanted])
    if c.version >= OFFSETS_BY_ID:
        topic = request.OffsetFetchRequestTopics(topic_id=c.topic.id, partition_indexes=[0])
    else:
        topic = request.OffsetFetchRequestTopics(name=c.topic.name, partition_indexes=[0])
    return request(groups=[request.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])])


def _offset_delete(c: Context) -> Message:
    request = m.OffsetDeleteRequest
    partition = request.OffsetDeleteRequestPartition(partition_index=0)
    topic = request.OffsetDeleteRequestTopic(name=c.topic.name, partitions=[partition])
    return request(group_id=NO_GROUP, topics=[topic])


def _join_group(_: Context) -> Message:
    request = m.JoinGroupRequest
    protocol = request.JoinGroupRequestProtocol(name="range", metadata=b"")
    return request(
        group_id=NO_GROUP,
        member_id="nobody",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )


def _sync_group(_: Context) -> Message:
    return m.SyncGroupRequest(
        group_id=NO_GROUP, member_id="nobody", generation_id=1, protocol_type="consumer", protocol_name="range"
    )


def _heartbeat(_: Context) -> Message:
    return m.HeartbeatRequest(group_id=NO_GROUP, member_id="nobody", generation_id=1)


def _leave_group(c: Context) -> Message:
    request = m.LeaveGroupRequest
    if c.version < LEAVE_OF_MANY_MEMBERS:
        return request(group_id=NO_GROUP, member_id="nobody")
    return request(group_id=NO_GROUP, members=[request.MemberIdentity(member_id="nobody")])


def _list_groups(_: Context) -> Message:
    return m.ListGroupsRequest()


def _describe_groups(_: Context) -> Message:
    return m.DescribeGroupsRequest(groups=[NO_GROUP])


def _delete_groups(_: Context) -> Message:
    return m.DeleteGroupsRequest(groups_names=[NO_GROUP])


def _consumer_group_describe(_: Context) -> Message:
    return m.ConsumerGroupDescribeRequest(group_ids=[NO_GROUP])


def _consumer_group_heartbeat(_: Context) -> Message:
    return m.ConsumerGroupHeartbeatRequest(group_id=NO_GROUP, member_id="nobody", member_epoch=1)


def _share_group_describe(_: Context) -> Message:
    return m.ShareGroupDescribeRequest(group_ids=[NO_GROUP])


def _streams_group_describe(_: Context) -> Message:
    return m.StreamsGroupDescribeRequest(group_ids=[NO_GROUP])


def _add_partitions_to_txn(c: Context) -> Message:
    request = m.AddPartitionsToTxnRequest
    topic = request.AddPartitionsToTxnTopic(name=c.topic.name, partitions=[0])
    if c.version < ADDS_MANY_TRANSACTIONS:
        return request(v3_and_below_transactional_id=NO_PRODUCER, v3_and_below_topics=[topic])
    transaction = request.AddPartitionsToTxnTransaction(transactional_id=NO_PRODUCER, topics=[topic])
    return request(transactions=[transaction])


def _add_offsets_to_txn(_: Context) -> Message:
    return m.AddOffsetsToTxnRequest(transactional_id=NO_PRODUCER, group_id=GROUP)


def _txn_offset_commit(c: Context) -> Message:
    request = m.TxnOffsetCommitRequest
    partition = request.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = request.TxnOffsetCommitRequestTopic(name=c.topic.name, partitions=[partition])
    return request(transactional_id=NO_PRODUCER, group_id=GROUP, topics=[topic])


def _end_txn(_: Context) -> Message:
    return m.EndTxnRequest(transactional_id=NO_PRODUCER)


def _write_txn_markers(c: Context) -> Message:
    request = m.WriteTxnMarkersRequest
    topic = request.WritableTxnMarkerTopic(name=c.topic.name, partition_indexes=[0])
    return request(markers=[request.WritableTxnMarker(producer_id=1_000_000, topics=[topic])])


def _describe_transactions(_: Context) -> Message:
    return m.DescribeTransactionsRequest(transactional_ids=[NO_PRODUCER])


def _list_transactions(_: Context) -> Message:
    return m.ListTransactionsRequest()


def _describe_producers(c: Context) -> Message:
    request = m.DescribeProducersRequest
    return request(topics=[request.TopicRequest(name=c.topic.name, partition_indexes=[0])])


def _describe_log_dirs(c: Context) -> Message:
    request = m.DescribeLogDirsRequest
    return request(topics=[request.DescribableLogDirTopic(topic=c.topic.name, partitions=[0])])


def _alter_replica_log_dirs(c: Context) -> Message:
    request = m.AlterReplicaLogDirsRequest
    topic = request.AlterReplicaLogDirTopic(name=c.topic.name, partitions=[0])
    return request(dirs=[request.AlterReplicaLogDir(path="/no/such/folder", topics=[topic])])


def _delete_records(c: Context) -> Message:
    request = m.DeleteRecordsRequest
    partition = request.DeleteRecordsPartition(partition_index=0, offset=0)
    topic = request.DeleteRecordsTopic(name=c.topic.name, partitions=[partition])
    return request(topics=[topic], timeout_ms=30_000)


def _list_config_resources(_: Context) -> Message:
    return m.ListConfigResourcesRequest()


def _update_features(_: Context) -> Message:
    request = m.UpdateFeaturesRequest
    return request(feature_updates=[request.FeatureUpdateKey(feature="metadata.version", max_version_level=30)])


def _unregister_broker(_: Context) -> Message:
    return m.UnregisterBrokerRequest(broker_id=NO_BROKER)


def _describe_quorum(_: Context) -> Message:
    request = m.DescribeQuorumRequest
    partition = request.PartitionData(partition_index=0)
    return request(topics=[request.TopicData(topic_name="__cluster_metadata", partitions=[partition])])


def _elect_leaders(c: Context) -> Message:
    request = m.ElectLeadersRequest
    return request(topic_partitions=[request.TopicPartitions(topic=c.topic.name, partitions=[0])], timeout_ms=30_000)


def _alter_client_quotas(_: Context) -> Message:
    request = m.AlterClientQuotasRequest
    entity = request.EntityData(entity_type="user", entity_name="anybody")
    operation = request.OpData(key="producer_byte_rate", value=1000.0)
    return request(entries=[request.EntryData(entity=[entity], ops=[operation])])


def _describe_client_quotas(_: Context) -> Message:
    request = m.DescribeClientQuotasRequest
    return request(components=[request.ComponentData(entity_type="user", match_type=0, match="anybody")])


def _alter_partition_reassignments(c: Context) -> Message:
    request = m.AlterPartitionReassignmentsRequest
    partition = request.ReassignablePartition(partition_index=0, replicas=None)
    return request(topics=[request.ReassignableTopic(name=c.topic.name, partitions=[partition])])


def _list_partition_reassignments(_: Context) -> Message:
    return m.ListPartitionReassignmentsRequest()


REQUESTS: dict[ApiKey, Callable[[Context], Message]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.SYNC_GROUP: _sync_group,
    ApiKey.HEARTBEAT: _heartbeat,
    ApiKey.LEAVE_GROUP: _leave_group,
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
    ApiKey.SHARE_GROUP_DESCRIBE: _share_group_describe,
    ApiKey.STREAMS_GROUP_DESCRIBE: _streams_group_describe,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.END_TXN: _end_txn,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.LIST_CONFIG_RESOURCES: _list_config_resources,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_client_quotas,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_partition_reassignments,
    ApiKey.UPDATE_FEATURES: _update_features,
    ApiKey.UNREGISTER_BROKER: _unregister_broker,
    ApiKey.DESCRIBE_QUORUM: _describe_quorum,
    ApiKey.ELECT_LEADERS: _elect_leaders,
}
"""The APIs of a single node; each maker gives a request that succeeds, unless `OUTCOMES` has another outcome."""

OUTCOMES: dict[ApiKey, set[Error]] = {
    ApiKey.OFFSET_DELETE: {Error.GROUP_ID_NOT_FOUND},
    ApiKey.JOIN_GROUP: {Error.UNKNOWN_MEMBER_ID},
    ApiKey.SYNC_GROUP: {Error.UNKNOWN_MEMBER_ID},
    ApiKey.HEARTBEAT: {Error.UNKNOWN_MEMBER_ID},
    ApiKey.LEAVE_GROUP: {Error.NONE, Error.UNKNOWN_MEMBER_ID},
    ApiKey.DESCRIBE_GROUPS: {Error.NONE, Error.GROUP_ID_NOT_FOUND},
    ApiKey.DELETE_GROUPS: {Error.GROUP_ID_NOT_FOUND},
    ApiKey.CONSUMER_GROUP_DESCRIBE: {Error.GROUP_ID_NOT_FOUND},
    ApiKey.SHARE_GROUP_DESCRIBE: {Error.GROUP_ID_NOT_FOUND},
    ApiKey.STREAMS_GROUP_DESCRIBE: {Error.GROUP_ID_NOT_FOUND},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {Error.GROUP_ID_NOT_FOUND},
    ApiKey.ADD_PARTITIONS_TO_TXN: {Error.NONE, Error.INVALID_PRODUCER_ID_MAPPING},
    ApiKey.ADD_OFFSETS_TO_TXN: {Error.INVALID_PRODUCER_ID_MAPPING},
    ApiKey.TXN_OFFSET_COMMIT: {Error.INVALID_PRODUCER_ID_MAPPING},
    ApiKey.END_TXN: {Error.INVALID_PRODUCER_ID_MAPPING},
    ApiKey.DESCRIBE_TRANSACTIONS: {Error.TRANSACTIONAL_ID_NOT_FOUND},
    ApiKey.ALTER_REPLICA_LOG_DIRS: {Error.LOG_DIR_NOT_FOUND},
    ApiKey.UNREGISTER_BROKER: {Error.BROKER_ID_NOT_REGISTERED},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {Error.NONE, Error.NO_REASSIGNMENT_IN_PROGRESS},
    ApiKey.ELECT_LEADERS: {Error.NONE, Error.ELECTION_NOT_NEEDED},
}
"""The error codes that may be in an answer, for requests that name what does not exist, or ask for what is there."""


def every_version() -> list[tuple[ApiKey, int]]:
    """Each API of a single node with each of its stable versions."""
    return [(key, version) for key in REQUESTS for version in range(APIS[key].min_version, APIS[key].max_version + 1)]


def error_codes(answer: Struct) -> Iterator[int]:
    """Every error code in an answer, however deep."""
    for name in answer.__slots__:
        value = getattr(answer, name)
        if name.endswith("error_code"):
            yield value
        for each in value if isinstance(value, list | tuple) else [value]:
            if hasattr(each, "__slots__") and not isinstance(each, bytes | str | int):
                yield from error_codes(each)


def unknown_topic() -> Topic:
    """A topic that no broker has."""
    return Topic("no-such-topic", Uuid(b"no such topic id"))
