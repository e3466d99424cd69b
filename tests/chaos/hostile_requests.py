"""Requests that nobody in their right mind sends: of every API that a node serves, as large as one likes.

Each is made for a count, which is how many names, partitions or other elements it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.batch import build_batch
from barnabas.protocol.headers import write_request_header
from barnabas.protocol.record import Record
from barnabas.protocol.uuids import Uuid
from barnabas.protocol.varint import write_uvarint
from tests.wire.connection import api_key_of, frame, request_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.compiler.structs import Message

ALLOWED = 12_000
"""As many structs or strings as a request may have that cannot be cut into pieces."""

SPREAD_SIZE = 10_000
KNOWN_TOPIC = "known"
KNOWN_PARTITIONS = 100
KNOWN_GROUP = "known-group"
TOPIC, BROKER, GROUP = 2, 4, 32
NODE_ID = "1"


@dataclass(frozen=True)
class Hostile:
    name: str
    make: Callable[[int], bytes]
    """The whole frame of a request with so many elements."""
    count: int = 20_000
    """That many in the short form of the test; about a megabyte."""
    full_count: int = 300_000
    is_for_controller: bool = False

    @property
    def api_key(self) -> int:
        return int.from_bytes(self.make(1)[4:6])


def names(count: int) -> list[str]:
    return [f"name-{number}" for number in range(count)]


def spread(count: int) -> list[tuple[str, int]]:
    """So many elements inside of others that are few: the names of those, and how many each has."""
    sizes = [SPREAD_SIZE] * (count // SPREAD_SIZE) + [count % SPREAD_SIZE]
    return list(zip(names(len(sizes)), filter(None, sizes), strict=False))


def ids(count: int) -> list[Uuid]:
    return [Uuid((number + 1).to_bytes(16)) for number in range(count)]


def by(request: Callable[[int], Message], version: int) -> Callable[[int], bytes]:
    return lambda count: request_frame(request(count), version)


def resources(kind: Any, type_: int, name: Callable[[int], str], **more: Any) -> Callable[[int], list[Any]]:
    return lambda count: [kind(resource_type=type_, resource_name=name(number), **more) for number in range(count)]


def tagged(request: Message, version: int) -> Callable[[int], bytes]:
    """A request with so many tagged fields that nobody knows, in its last struct."""

    def make(count: int) -> bytes:
        body = bytearray(request_frame(request, version)[4:])
        assert body[-1] == 0
        del body[-1]
        write_uvarint(body, count)
        field = bytearray()
        write_uvarint(field, 1000)
        write_uvarint(field, 0)
        return frame(bytes(body + field * count))

    return make


def tagged_header(count: int) -> bytes:
    out = bytearray()
    write_request_header(out, ApiKey.METADATA, 12, 1, "tags")
    del out[-1]
    write_uvarint(out, count)
    return frame(bytes(out + b"\x7f\x00" * count + b"\x01\x00\x00\x00"))


def counted(request: type[Message], version: int) -> Callable[[int], bytes]:
    """A request that claims many more elements than it has bytes."""

    def make(count: int) -> bytes:
        out = bytearray()
        write_request_header(out, api_key_of(request), version, 1, "claims")
        flexible_from = APIS[api_key_of(request)].flexible_from
        assert flexible_from is None or version < flexible_from
        return frame(bytes(out) + b"\x7f\xff\xff\xff" + bytes(count))

    return make


def offsets_of_one_topic(topic: str) -> Callable[[int], m.OffsetFetchRequest]:
    request = m.OffsetFetchRequest
    return lambda count: request(
        group_id=KNOWN_GROUP, topics=[request.OffsetFetchRequestTopic(name=topic, partition_indexes=list(range(count)))]
    )


def offsets_of_groups(count: int) -> m.OffsetFetchRequest:
    request = m.OffsetFetchRequest
    topic = request.OffsetFetchRequestTopics(name=KNOWN_TOPIC, partition_indexes=[0])
    return request(groups=[request.OffsetFetchRequestGroup(group_id=name, topics=[topic]) for name in names(count)])


def offsets_of_a_group(count: int) -> m.OffsetFetchRequest:
    request = m.OffsetFetchRequest
    topics = [request.OffsetFetchRequestTopics(name=name, partition_indexes=[0, 1]) for name in names(count)]
    return request(groups=[request.OffsetFetchRequestGroup(group_id=KNOWN_GROUP, topics=topics)])


def list_offsets(topic: str, timestamp: int) -> Callable[[int], m.ListOffsetsRequest]:
    request = m.ListOffsetsRequest
    return lambda count: request(
        replica_id=-1,
        topics=[
            request.ListOffsetsTopic(
                name=topic,
                partitions=[
                    request.ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in range(count)
                ],
            )
        ],
    )


def list_offsets_again(count: int) -> m.ListOffsetsRequest:
    """The same few partitions over and over."""
    request = m.ListOffsetsRequest
    partitions = [request.ListOffsetsPartition(partition_index=index, timestamp=5) for index in range(KNOWN_PARTITIONS)]
    topic = request.ListOffsetsTopic(name=KNOWN_TOPIC, partitions=partitions)
    return request(replica_id=-1, topics=[topic] * (count // KNOWN_PARTITIONS))


def leader_epochs(count: int) -> m.OffsetForLeaderEpochRequest:
    request = m.OffsetForLeaderEpochRequest
    partitions = [
        request.OffsetForLeaderPartition(partition=index % KNOWN_PARTITIONS, leader_epoch=0) for index in range(count)
    ]
    return request(topics=[request.OffsetForLeaderTopic(topic=KNOWN_TOPIC, partitions=partitions)])


def commit(topic: str) -> Callable[[int], m.OffsetCommitRequest]:
    request = m.OffsetCommitRequest
    return lambda count: request(
        group_id=KNOWN_GROUP,
        topics=[
            request.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    request.OffsetCommitRequestPartition(partition_index=index % KNOWN_PARTITIONS, committed_offset=7)
                    for index in range(count)
                ],
            )
        ],
    )


def commit_in_transaction(count: int) -> m.TxnOffsetCommitRequest:
    request = m.TxnOffsetCommitRequest
    partitions = [
        request.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata="")
        for index in range(count)
    ]
    topics = [request.TxnOffsetCommitRequestTopic(name=KNOWN_TOPIC, partitions=partitions)]
    return request(transactional_id="t", group_id=KNOWN_GROUP, producer_id=1, producer_epoch=0, topics=topics)


def delete_offsets(count: int) -> m.OffsetDeleteRequest:
    request = m.OffsetDeleteRequest
    partitions = [request.OffsetDeleteRequestPartition(partition_index=index) for index in range(count)]
    return request(
        group_id=KNOWN_GROUP, topics=[request.OffsetDeleteRequestTopic(name=KNOWN_TOPIC, partitions=partitions)]
    )


def add_partitions(count: int) -> m.AddPartitionsToTxnRequest:
    request = m.AddPartitionsToTxnRequest
    topic = request.AddPartitionsToTxnTopic(name=KNOWN_TOPIC, partitions=list(range(count)))
    return request(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic],
    )


def add_transactions(count: int) -> m.AddPartitionsToTxnRequest:
    request = m.AddPartitionsToTxnRequest
    topic = request.AddPartitionsToTxnTopic(name=KNOWN_TOPIC, partitions=[0, 1])
    return request(
        transactions=[
            request.AddPartitionsToTxnTransaction(transactional_id=name, producer_id=1, topics=[topic])
            for name in names(count)
        ]
    )


def markers(count: int) -> m.WriteTxnMarkersRequest:
    request = m.WriteTxnMarkersRequest
    topic = request.WritableTxnMarkerTopic(name="unknown", partition_indexes=[0, 1])
    return request(
        markers=[
            request.WritableTxnMarker(producer_id=number, producer_epoch=0, topics=[topic]) for number in range(count)
        ]
    )


def marker_of_many(count: int) -> m.WriteTxnMarkersRequest:
    request = m.WriteTxnMarkersRequest
    topic = request.WritableTxnMarkerTopic(name="unknown", partition_indexes=list(range(count)))
    return request(markers=[request.WritableTxnMarker(producer_id=1, producer_epoch=0, topics=[topic])])


def describe_producers(count: int) -> m.DescribeProducersRequest:
    request = m.DescribeProducersRequest
    return request(topics=[request.TopicRequest(name=KNOWN_TOPIC, partition_indexes=list(range(count)))])


def describe_log_dirs(topic: str) -> Callable[[int], m.DescribeLogDirsRequest]:
    request = m.DescribeLogDirsRequest
    return lambda count: request(topics=[request.DescribableLogDirTopic(topic=topic, partitions=list(range(count)))])


def describe_log_dirs_of_topics(count: int) -> m.DescribeLogDirsRequest:
    request = m.DescribeLogDirsRequest
    return request(topics=[request.DescribableLogDirTopic(topic=name, partitions=[0]) for name in names(count)])


def alter_log_dirs(count: int) -> m.AlterReplicaLogDirsRequest:
    request = m.AlterReplicaLogDirsRequest
    topic = request.AlterReplicaLogDirTopic(name=KNOWN_TOPIC, partitions=list(range(count)))
    return request(dirs=[request.AlterReplicaLogDir(path="/nowhere", topics=[topic])])


def delete_records(topic: str) -> Callable[[int], m.DeleteRecordsRequest]:
    request = m.DeleteRecordsRequest
    return lambda count: request(
        topics=[
            request.DeleteRecordsTopic(
                name=topic,
                partitions=[request.DeleteRecordsPartition(partition_index=n, offset=0) for n in range(count)],
            )
        ],
        timeout_ms=1000,
    )


def delete_records_of_topics(count: int) -> m.DeleteRecordsRequest:
    request = m.DeleteRecordsRequest
    partitions = [request.DeleteRecordsPartition(partition_index=0, offset=0)]
    return request(
        topics=[request.DeleteRecordsTopic(name=name, partitions=partitions) for name in names(count)], timeout_ms=1000
    )


def create_topics(count: int) -> m.CreateTopicsRequest:
    request = m.CreateTopicsRequest
    topics = [request.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names(count)]
    return request(topics=topics, timeout_ms=60_000, validate_only=True)


def create_known_topics(count: int) -> m.CreateTopicsRequest:
    request = m.CreateTopicsRequest
    topics = [request.CreatableTopic(name=f"bad name {number}", num_partitions=0) for number in range(count)]
    return request(topics=topics, timeout_ms=60_000)


def create_assigned_topic(count: int) -> m.CreateTopicsRequest:
    request = m.CreateTopicsRequest
    assignments = [request.CreatableReplicaAssignment(partition_index=n, broker_ids=[1]) for n in range(count)]
    topic = request.CreatableTopic(name="assigned", num_partitions=-1, replication_factor=-1, assignments=assignments)
    return request(topics=[topic], timeout_ms=60_000, validate_only=True)


def delete_topics(count: int) -> m.DeleteTopicsRequest:
    return m.DeleteTopicsRequest(topic_names=names(count), timeout_ms=60_000)


def delete_topic_ids(count: int) -> m.DeleteTopicsRequest:
    states = [m.DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=each) for each in ids(count)]
    return m.DeleteTopicsRequest(topics=states, timeout_ms=60_000)


def create_partitions_spread(count: int) -> m.CreatePartitionsRequest:
    request = m.CreatePartitionsRequest
    topics = [
        request.CreatePartitionsTopic(
            name=name,
            count=size,
            assignments=[request.CreatePartitionsAssignment(broker_ids=[1]) for _ in range(size)],
        )
        for name, size in spread(count)
    ]
    return request(topics=topics, timeout_ms=60_000)


def create_topics_spread(count: int) -> m.CreateTopicsRequest:
    request = m.CreateTopicsRequest
    topics = [
        request.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[request.CreatableReplicaAssignment(partition_index=n, broker_ids=[1]) for n in range(size)],
        )
        for name, size in spread(count)
    ]
    return request(topics=topics, timeout_ms=60_000, validate_only=True)


def create_partitions(count: int) -> m.CreatePartitionsRequest:
    request = m.CreatePartitionsRequest
    topics = [request.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in names(count)]
    return request(topics=topics, timeout_ms=60_000)


def alter(type_: int, name: Callable[[int], str], key: str, value: str) -> Callable[[int], m.AlterConfigsRequest]:
    request = m.AlterConfigsRequest
    configs = [request.AlterableConfig(name=key, value=value)]
    make = resources(request.AlterConfigsResource, type_, name, configs=configs)
    return lambda count: request(resources=make(count), validate_only=True)


def alter_many_keys(count: int) -> m.AlterConfigsRequest:
    request = m.AlterConfigsRequest
    configs = [request.AlterableConfig(name=name, value="1") for name in names(count)]
    resource = request.AlterConfigsResource(resource_type=TOPIC, resource_name=KNOWN_TOPIC, configs=configs)
    return request(resources=[resource], validate_only=True)


def alter_incrementally(
    type_: int, name: Callable[[int], str], key: str, value: str
) -> Callable[[int], m.IncrementalAlterConfigsRequest]:
    request = m.IncrementalAlterConfigsRequest
    configs = [request.AlterableConfig(name=key, config_operation=0, value=value)]
    make = resources(request.AlterConfigsResource, type_, name, configs=configs)
    return lambda count: request(resources=make(count), validate_only=True)


def alter_keys_spread(count: int) -> m.IncrementalAlterConfigsRequest:
    request = m.IncrementalAlterConfigsRequest
    resources = [
        request.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name=name,
            configs=[request.AlterableConfig(name=key, config_operation=0, value="1") for key in names(size)],
        )
        for name, size in spread(count)
    ]
    return request(resources=resources, validate_only=True)


def alter_long_values(count: int) -> m.AlterConfigsRequest:
    request = m.AlterConfigsRequest
    configs = [request.AlterableConfig(name="retention.ms", value="5" * 10_000)]
    make = resources(request.AlterConfigsResource, TOPIC, unknown, configs=configs)
    return request(resources=make(count), validate_only=True)


def describe(type_: int, name: Callable[[int], str]) -> Callable[[int], m.DescribeConfigsRequest]:
    request = m.DescribeConfigsRequest
    make = resources(request.DescribeConfigsResource, type_, name, configuration_keys=None)
    return lambda count: request(resources=make(count), include_synonyms=True)


def describe_keys(count: int) -> m.DescribeConfigsRequest:
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=KNOWN_TOPIC, configuration_keys=names(count)
    )
    return m.DescribeConfigsRequest(resources=[resource])


def join(count: int) -> m.JoinGroupRequest:
    protocols = [m.JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=b"") for name in names(count)]
    return m.JoinGroupRequest(
        group_id="joined",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="x",
        protocols=protocols,
    )


def join_with_bytes(count: int) -> m.JoinGroupRequest:
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(50 * count))
    return m.JoinGroupRequest(
        group_id="joined",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="x",
        protocols=[protocol],
    )


def sync(count: int) -> m.SyncGroupRequest:
    assignments = [
        m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=b"") for name in names(count)
    ]
    return m.SyncGroupRequest(
        group_id="joined",
        generation_id=1,
        member_id="m",
        protocol_type="x",
        protocol_name="range",
        assignments=assignments,
    )


def leave(count: int) -> m.LeaveGroupRequest:
    members = [m.LeaveGroupRequest.MemberIdentity(member_id=name) for name in names(count)]
    return m.LeaveGroupRequest(group_id=KNOWN_GROUP, members=members)


def consumer_heartbeat(count: int) -> m.ConsumerGroupHeartbeatRequest:
    return m.ConsumerGroupHeartbeatRequest(
        group_id="newer",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=names(count),
        topic_partitions=[],
    )


def metadata(topics: Callable[[int], list[Any]]) -> Callable[[int], m.MetadataRequest]:
    return lambda count: m.MetadataRequest(topics=topics(count))


def topic_partitions(count: int) -> m.DescribeTopicPartitionsRequest:
    request = m.DescribeTopicPartitionsRequest
    return request(topics=[request.TopicRequest(name=name) for name in names(count)])


def elect(count: int) -> m.ElectLeadersRequest:
    request = m.ElectLeadersRequest
    topic = request.TopicPartitions(topic=KNOWN_TOPIC, partitions=list(range(count)))
    return request(topic_partitions=[topic], timeout_ms=1000)


def elect_many(count: int) -> m.ElectLeadersRequest:
    request = m.ElectLeadersRequest
    topics = [request.TopicPartitions(topic=name, partitions=[0]) for name in names(count)]
    return request(topic_partitions=topics, timeout_ms=1000)


def elect_spread(count: int) -> m.ElectLeadersRequest:
    request = m.ElectLeadersRequest
    topics = [request.TopicPartitions(topic=name, partitions=list(range(size))) for name, size in spread(count)]
    return request(topic_partitions=topics, timeout_ms=1000)


def alter_quotas(count: int) -> m.AlterClientQuotasRequest:
    request = m.AlterClientQuotasRequest
    operations = [request.OpData(key="producer_byte_rate", value=1000.0)]
    return request(
        entries=[
            request.EntryData(entity=[request.EntityData(entity_type="user", entity_name=name)], ops=operations)
            for name in names(count)
        ],
        validate_only=True,
    )


def alter_quotas_spread(count: int) -> m.AlterClientQuotasRequest:
    request = m.AlterClientQuotasRequest
    return request(
        entries=[
            request.EntryData(
                entity=[request.EntityData(entity_type="user", entity_name=name)],
                ops=[request.OpData(key=key, value=1.0) for key in names(size)],
            )
            for name, size in spread(count)
        ],
        validate_only=True,
    )


def describe_quotas(count: int) -> m.DescribeClientQuotasRequest:
    request = m.DescribeClientQuotasRequest
    return request(components=[request.ComponentData(entity_type=name, match_type=2) for name in names(count)])


def reassign(count: int) -> m.AlterPartitionReassignmentsRequest:
    request = m.AlterPartitionReassignmentsRequest
    moved = request.ReassignablePartition
    partitions = [moved(partition_index=n % KNOWN_PARTITIONS, replicas=[1]) for n in range(count)]
    return request(topics=[request.ReassignableTopic(name=KNOWN_TOPIC, partitions=partitions)])


def reassign_topics(count: int) -> m.AlterPartitionReassignmentsRequest:
    request = m.AlterPartitionReassignmentsRequest
    partitions = [request.ReassignablePartition(partition_index=0, replicas=[1])]
    return request(topics=[request.ReassignableTopic(name=name, partitions=partitions) for name in names(count)])


def reassign_spread(count: int) -> m.AlterPartitionReassignmentsRequest:
    request = m.AlterPartitionReassignmentsRequest
    topics = [
        request.ReassignableTopic(
            name=name, partitions=[request.ReassignablePartition(partition_index=n, replicas=[1]) for n in range(size)]
        )
        for name, size in spread(count)
    ]
    return request(topics=topics)


def reassign_without_time(count: int) -> m.AlterPartitionReassignmentsRequest:
    request = reassign_spread(count)
    request.timeout_ms = 0
    return request


def list_reassignments_spread(count: int) -> m.ListPartitionReassignmentsRequest:
    request = m.ListPartitionReassignmentsRequest
    named = request.ListPartitionReassignmentsTopics
    return request(topics=[named(name=name, partition_indexes=list(range(size))) for name, size in spread(count)])


def list_reassignments(count: int) -> m.ListPartitionReassignmentsRequest:
    request = m.ListPartitionReassignmentsRequest
    topic = request.ListPartitionReassignmentsTopics(name=KNOWN_TOPIC, partition_indexes=list(range(10)))
    return request(topics=[topic] * count)


def describe_quorum(count: int) -> m.DescribeQuorumRequest:
    request = m.DescribeQuorumRequest
    partitions = [request.PartitionData(partition_index=n) for n in range(count)]
    return request(topics=[request.TopicData(topic_name="__cluster_metadata", partitions=partitions)])


def describe_quorum_topics(count: int) -> m.DescribeQuorumRequest:
    request = m.DescribeQuorumRequest
    partitions = [request.PartitionData(partition_index=0)]
    return request(topics=[request.TopicData(topic_name=name, partitions=partitions) for name in names(count)])


def update_features(count: int) -> m.UpdateFeaturesRequest:
    request = m.UpdateFeaturesRequest
    updates = [request.FeatureUpdateKey(feature=name, max_version_level=0, upgrade_type=2) for name in names(count)]
    return request(feature_updates=updates)


def push_telemetry(count: int) -> m.PushTelemetryRequest:
    return m.PushTelemetryRequest(client_instance_id=ids(1)[0], metrics=bytes(count))


def produce(topic: str, batch: bytes, acks: int = 1) -> Callable[[int], m.ProduceRequest]:
    request = m.ProduceRequest
    return lambda count: request(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            request.TopicProduceData(
                name=topic,
                partition_data=[
                    request.PartitionProduceData(index=index % KNOWN_PARTITIONS, records=batch)
                    for index in range(count)
                ],
            )
        ],
    )


def produce_topics(count: int) -> m.ProduceRequest:
    request = m.ProduceRequest
    data = [request.PartitionProduceData(index=0, records=b"")]
    topics = [request.TopicProduceData(name=name, partition_data=data) for name in names(count)]
    return request(acks=1, timeout_ms=30_000, topic_data=topics)


def produce_bytes(count: int) -> bytes:
    """A batch of a megabyte for each of so many partitions."""
    return request_frame(produce(KNOWN_TOPIC, build_batch([Record(value=bytes(1_000_000))]))(count), 12)


def fetch(topic: str, session_epoch: int = -1, partitions: int | None = None) -> Callable[[int], m.FetchRequest]:
    request = m.FetchRequest
    return lambda count: request(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=50_000_000,
        session_epoch=session_epoch,
        topics=[
            request.FetchTopic(
                topic=topic,
                partitions=[
                    request.FetchPartition(partition=index % (partitions or count), partition_max_bytes=1000)
                    for index in range(count)
                ],
            )
        ],
    )


def fetch_topics(count: int) -> m.FetchRequest:
    request = m.FetchRequest
    partitions = [request.FetchPartition(partition=0)]
    topics = [request.FetchTopic(topic=name, partitions=partitions) for name in names(count)]
    return request(max_wait_ms=0, session_epoch=-1, topics=topics)


def known(_: int) -> str:
    return KNOWN_TOPIC


def unknown(number: int) -> str:
    return f"name-{number}"


def node_id(_: int) -> str:
    return NODE_ID


_topic = m.MetadataRequest.MetadataRequestTopic
_batch = build_batch([Record(value=b"x")])

HOSTILE: list[Hostile] = [
    Hostile("produce", by(produce(KNOWN_TOPIC, _batch), 12), 10_000),
    Hostile("produce-classic", by(produce(KNOWN_TOPIC, _batch, acks=-1), 3), 10_000),
    Hostile("produce-unknown", by(produce("unknown", b""), 12)),
    Hostile("produce-topics", by(produce_topics, 12)),
    Hostile("produce-bytes", produce_bytes, 20, 98),
    Hostile("fetch-again", by(fetch(KNOWN_TOPIC, partitions=KNOWN_PARTITIONS), 12)),
    Hostile("fetch-unknown", by(fetch("unknown"), 4)),
    Hostile("fetch-session", by(fetch(KNOWN_TOPIC, session_epoch=0), 12), full_count=100_000),
    Hostile("fetch-topics", by(fetch_topics, 12), full_count=50_000),
    Hostile("metadata-names", by(metadata(lambda n: [_topic(name=each) for each in names(n)]), 1), 50_000, 1_000_000),
    Hostile("metadata-known", by(metadata(lambda n: [_topic(name=KNOWN_TOPIC)] * n), 12), 50_000, 1_000_000),
    Hostile("metadata-ids", by(metadata(lambda n: [_topic(name=None, topic_id=each) for each in ids(n)]), 12)),
    Hostile("metadata-nameless", by(metadata(lambda n: [_topic(name=None)] * n), 12), 50_000, 1_000_000),
    Hostile(
        "metadata-100MiB",
        lambda n: frame(bytes.fromhex("0003 0001 00000001 ffff") + (n // 2).to_bytes(4) + bytes(n)),
        2 << 20,
        (100 << 20) - 100,
    ),
    Hostile("describe-groups", by(lambda n: m.DescribeGroupsRequest(groups=names(n)), 5)),
    Hostile("describe-known-group", by(lambda n: m.DescribeGroupsRequest(groups=[KNOWN_GROUP] * n), 4)),
    Hostile("delete-groups", by(lambda n: m.DeleteGroupsRequest(groups_names=names(n)), 2)),
    Hostile("consumer-group-describe", by(lambda n: m.ConsumerGroupDescribeRequest(group_ids=names(n)), 1)),
    Hostile("share-group-describe", by(lambda n: m.ShareGroupDescribeRequest(group_ids=names(n)), 1)),
    Hostile("streams-group-describe", by(lambda n: m.StreamsGroupDescribeRequest(group_ids=names(n)), 0)),
    Hostile("list-groups", by(lambda n: m.ListGroupsRequest(states_filter=names(n)), 5), ALLOWED),
    Hostile("offset-fetch-known", by(offsets_of_one_topic(KNOWN_TOPIC), 5)),
    Hostile("offset-fetch-unknown", by(offsets_of_one_topic("unknown"), 1)),
    Hostile("offset-fetch-groups", by(offsets_of_groups, 8)),
    Hostile("offset-fetch-topics", by(offsets_of_a_group, 9)),
    Hostile("offset-commit", by(commit(KNOWN_TOPIC), 8)),
    Hostile("offset-commit-unknown", by(commit("unknown"), 2)),
    Hostile("offset-delete", by(delete_offsets, 0)),
    Hostile("find-coordinator", by(lambda n: m.FindCoordinatorRequest(coordinator_keys=names(n)), 6)),
    Hostile("join-group", by(join, 5), ALLOWED),
    Hostile("join-group-refused", by(join, 5)),
    Hostile("join-group-bytes", by(join_with_bytes, 5), full_count=2_000_000),
    Hostile("sync-group", by(sync, 5), ALLOWED),
    Hostile("sync-group-refused", by(sync, 5)),
    Hostile("leave-group", by(leave, 4)),
    Hostile("consumer-group-heartbeat", by(consumer_heartbeat, 1), ALLOWED),
    Hostile("consumer-group-heartbeat-refused", by(consumer_heartbeat, 1)),
    Hostile("list-offsets-unknown", by(list_offsets("unknown", 5), 7)),
    Hostile("list-offsets-known", by(list_offsets(KNOWN_TOPIC, 5), 7)),
    Hostile("list-offsets-again", by(list_offsets_again, 7)),
    Hostile("offset-for-leader-epoch", by(leader_epochs, 4)),
    Hostile("describe-producers", by(describe_producers, 0)),
    Hostile("describe-log-dirs", by(describe_log_dirs(KNOWN_TOPIC), 5)),
    Hostile("describe-log-dirs-topics", by(describe_log_dirs_of_topics, 1)),
    Hostile("alter-log-dirs", by(alter_log_dirs, 2)),
    Hostile("delete-records", by(delete_records(KNOWN_TOPIC), 2)),
    Hostile("delete-records-topics", by(delete_records_of_topics, 0)),
    Hostile("describe-transactions", by(lambda n: m.DescribeTransactionsRequest(transactional_ids=names(n)), 0)),
    Hostile("init-producer-id", tagged(m.InitProducerIdRequest(transactional_id="t"), 4), 200_000, 20_000_000),
    Hostile("end-txn", tagged(m.EndTxnRequest(transactional_id="t"), 4), 200_000, 20_000_000),
    Hostile("add-offsets-to-txn", tagged(m.AddOffsetsToTxnRequest(transactional_id="t"), 4), 200_000, 20_000_000),
    Hostile("list-transactions", by(lambda n: m.ListTransactionsRequest(state_filters=names(n)), 1), ALLOWED),
    Hostile("add-partitions-to-txn", by(add_partitions, 3), 10_000),
    Hostile("add-transactions", by(add_transactions, 4)),
    Hostile("write-txn-markers", by(markers, 1)),
    Hostile("write-txn-marker", by(marker_of_many, 1), 10_000),
    Hostile("txn-offset-commit", by(commit_in_transaction, 3)),
    Hostile("describe-configs-topic", by(describe(TOPIC, known), 4), 500),
    Hostile("describe-configs-broker", by(describe(BROKER, node_id), 4), 100, 20_000),
    Hostile("describe-configs-unknown", by(describe(TOPIC, unknown), 1)),
    Hostile("list-config-resources", by(lambda n: m.ListConfigResourcesRequest(resource_types=[2] * n), 1)),
    Hostile("describe-client-quotas", by(describe_quotas, 1), ALLOWED),
    Hostile("describe-configs-keys", by(describe_keys, 4), ALLOWED),
    Hostile("describe-configs-keys-refused", by(describe_keys, 4)),
    Hostile("describe-cluster", tagged(m.DescribeClusterRequest(), 1), 200_000, 20_000_000),
    Hostile("get-telemetry-subscriptions", tagged(m.GetTelemetrySubscriptionsRequest(), 0), 200_000, 20_000_000),
    Hostile("push-telemetry", by(push_telemetry, 0), 1_000_000, 100_000_000),
    Hostile("describe-topic-partitions", by(topic_partitions, 0), full_count=1_000_000),
    Hostile(
        "tags",
        tagged(m.ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4),
        200_000,
        20_000_000,
    ),
    Hostile("heartbeat-tags", tagged(m.HeartbeatRequest(group_id="g", member_id="m"), 4), 200_000, 20_000_000),
    Hostile("header-tags", tagged_header, 200_000, 20_000_000),
    Hostile("claimed-count", counted(m.MetadataRequest, 1), 1_000_000, 50_000_000),
]
CONTROLLED: list[Hostile] = [
    Hostile("alter-client-quotas", by(alter_quotas, 1), 10_000, 1_000_000),
    Hostile("alter-quotas-spread", by(alter_quotas_spread, 1), 36_000, 1_000_000),
    Hostile("reassign-partitions", by(reassign, 1), 10_000, 12_000),
    Hostile("reassign-topics", by(reassign_topics, 1), 10_000, 100_000),
    Hostile("list-reassignments", by(list_reassignments, 0), 10_000, 100_000),
    Hostile("reassign-spread", by(reassign_spread, 1), 36_000, 1_000_000),
    Hostile("reassign-without-time", by(reassign_without_time, 1), 36_000, 1_000_000),
    Hostile("list-reassignments-spread", by(list_reassignments_spread, 0), 1_000_000),
    Hostile("elect-leaders", by(elect, 2), 10_000, 100_000),
    Hostile("elect-many", by(elect_many, 2), 10_000, 100_000),
    Hostile("elect-spread", by(elect_spread, 2), 36_000, 1_000_000),
    Hostile("describe-quorum", by(describe_quorum, 2), ALLOWED, 100_000),
    Hostile("describe-quorum-topics", by(describe_quorum_topics, 2), ALLOWED // 2, 100_000),
    Hostile("update-features", by(update_features, 1), ALLOWED),
    Hostile("unregister-broker", tagged(m.UnregisterBrokerRequest(broker_id=99), 0), 200_000, 20_000_000),
    Hostile("create-topics", by(create_topics, 7), 3_000, 100_000),
    Hostile("create-bad-topics", by(create_known_topics, 7), 10_000, 100_000),
    Hostile("create-assigned-topic", by(create_assigned_topic, 7), 9_000, 1_000_000),
    Hostile("create-topics-spread", by(create_topics_spread, 7), 36_000, 1_000_000),
    Hostile("create-partitions-spread", by(create_partitions_spread, 3), 36_000, 1_000_000),
    Hostile("alter-configs-spread", by(alter_keys_spread, 1), 36_000, 1_000_000),
    Hostile("alter-configs-long", by(alter_long_values, 2), 1_000, 9_000),
    Hostile("delete-topics", by(delete_topics, 5), 10_000, 1_000_000),
    Hostile("delete-topic-ids", by(delete_topic_ids, 6)),
    Hostile("create-partitions", by(create_partitions, 3), 10_000, 100_000),
    Hostile("alter-configs-topic", by(alter(TOPIC, unknown, "retention.ms", "5"), 2), 10_000, 100_000),
    Hostile("alter-configs-broker", by(alter(BROKER, node_id, "log.retention.ms", "5"), 2), 10_000, 100_000),
    Hostile("alter-configs-keys", by(alter_many_keys, 2), 10_000, 1_000_000),
    Hostile("alter-configs-brokers", by(alter(BROKER, str, "log.retention.ms", "5"), 2), 10_000, 100_000),
    Hostile(
        "incremental-alter-configs", by(alter_incrementally(TOPIC, unknown, "retention.ms", "5"), 1), 10_000, 100_000
    ),
    Hostile(
        "incremental-alter-groups",
        by(alter_incrementally(GROUP, unknown, "consumer.session.timeout.ms", "50000"), 1),
        10_000,
        100_000,
    ),
]
HOSTILE += CONTROLLED
