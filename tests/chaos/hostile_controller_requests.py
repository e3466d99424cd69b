"""What only controllers serve, as large as one likes, and what brokers forward to them for their clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol import messages as m
from barnabas.protocol.codec import encode
from barnabas.protocol.uuids import METADATA_TOPIC_ID
from tests.chaos.hostile_requests import (
    ALLOWED,
    BROKER,
    CONTROLLED,
    TOPIC,
    Hostile,
    alter_quotas,
    by,
    delete_topics,
    describe,
    describe_quorum_topics,
    elect_many,
    ids,
    known,
    names,
    node_id,
    tagged,
    tagged_header,
)
from tests.wire.connection import request_frame

if TYPE_CHECKING:
    from collections.abc import Callable

QUORUM = "__cluster_metadata"


def forwarded(make: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """The same request in an envelope."""
    principal = m.DefaultPrincipalData(type="User", name="ANONYMOUS")
    return lambda count: request_frame(
        m.EnvelopeRequest(
            request_data=make(count)[4:],
            request_principal=bytes(2) + encode(principal, 0),
            client_host_address=bytes((127, 0, 0, 1)),
        ),
        0,
    )


def vote_of_topics(count: int) -> m.VoteRequest:
    request = m.VoteRequest
    return request(topics=[request.TopicData(topic_name=name) for name in names(count)])


def begin_epoch(count: int) -> m.BeginQuorumEpochRequest:
    request = m.BeginQuorumEpochRequest
    topic = request.TopicData(topic_name=QUORUM, partitions=[request.PartitionData(leader_id=1)])
    endpoints = [request.LeaderEndpoint(name=name, host="h", port=1) for name in names(count)]
    return request(topics=[topic], leader_endpoints=endpoints)


def end_epoch(count: int) -> m.EndQuorumEpochRequest:
    request = m.EndQuorumEpochRequest
    candidates = [request.ReplicaInfo(candidate_id=number) for number in range(count)]
    partition = request.PartitionData(leader_id=1, preferred_candidates=candidates)
    return request(topics=[request.TopicData(topic_name=QUORUM, partitions=[partition])])


def fetch_log(count: int) -> m.FetchRequest:
    request = m.FetchRequest
    partitions = [request.FetchPartition(partition=number) for number in range(count)]
    return request(max_wait_ms=0, topics=[request.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=partitions)])


def fetch_logs(count: int) -> m.FetchRequest:
    request = m.FetchRequest
    partitions = [request.FetchPartition(partition=0)]
    return request(
        max_wait_ms=0, topics=[request.FetchTopic(topic_id=each, partitions=partitions) for each in ids(count)]
    )


def fetch_snapshots(count: int) -> m.FetchSnapshotRequest:
    request = m.FetchSnapshotRequest
    return request(topics=[request.TopicSnapshot(name=name) for name in names(count)])


def update_voter(count: int) -> m.UpdateRaftVoterRequest:
    request = m.UpdateRaftVoterRequest
    return request(voter_id=1, listeners=[request.Listener(name=name, host="h", port=1) for name in names(count)])


def register_controller_listeners(count: int) -> m.ControllerRegistrationRequest:
    request = m.ControllerRegistrationRequest
    listeners = [request.Listener(name=name, host="h", port=1) for name in names(count)]
    return request(controller_id=1, incarnation_id=ids(1)[0], listeners=listeners)


def register_controller_features(count: int) -> m.ControllerRegistrationRequest:
    request = m.ControllerRegistrationRequest
    features = [request.Feature(name=name, min_supported_version=0, max_supported_version=1) for name in names(count)]
    return request(controller_id=9, incarnation_id=ids(1)[0], features=features)


def alter_partition(count: int) -> m.AlterPartitionRequest:
    request = m.AlterPartitionRequest
    isr = [request.BrokerState(broker_id=1)]
    partitions = [request.PartitionData(partition_index=n, new_isr_with_epochs=isr) for n in range(count)]
    return request(broker_id=1, broker_epoch=0, topics=[request.TopicData(topic_id=ids(1)[0], partitions=partitions)])


def assign_dirs(count: int) -> m.AssignReplicasToDirsRequest:
    request = m.AssignReplicasToDirsRequest
    partitions = [request.PartitionData(partition_index=n) for n in range(count)]
    topic = request.TopicData(topic_id=ids(1)[0], partitions=partitions)
    return request(broker_id=1, broker_epoch=0, directories=[request.DirectoryData(id=ids(1)[0], topics=[topic])])


def register(count: int) -> m.BrokerRegistrationRequest:
    request = m.BrokerRegistrationRequest
    features = [request.Feature(name=name, min_supported_version=0, max_supported_version=1) for name in names(count)]
    return request(broker_id=9, cluster_id="another", incarnation_id=ids(1)[0], features=features)


def heartbeat_dirs(count: int) -> m.BrokerHeartbeatRequest:
    return m.BrokerHeartbeatRequest(broker_id=9, broker_epoch=0, offline_log_dirs=ids(count))


FOR_CONTROLLERS: list[Hostile] = [
    Hostile(f"controller:{each.name}", each.make, each.count, each.full_count, is_for_controller=True)
    for each in CONTROLLED
]
FOR_CONTROLLERS += [
    Hostile(
        f"controller:forwarded-{each.name}", forwarded(each.make), each.count, each.full_count, is_for_controller=True
    )
    for each in CONTROLLED
]
FOR_CONTROLLERS += [
    Hostile(f"controller:{name}", make, count, full_count, is_for_controller=True)
    for name, make, count, full_count in (
        ("forwarded-too-many-quotas", forwarded(by(alter_quotas, 1)), 100_000, 300_000),
        ("forwarded-too-many-elections", forwarded(by(elect_many, 2)), 100_000, 300_000),
        ("forwarded-too-many-deletions", forwarded(by(delete_topics, 5)), 100_000, 1_000_000),
        ("forwarded-too-many-described", forwarded(by(describe_quorum_topics, 2)), 100_000, 300_000),
        ("forwarded-fetch", forwarded(by(fetch_log, 17)), 20_000, 100_000),
        ("forwarded-tags", forwarded(tagged_header), 200_000, 20_000_000),
        ("vote", by(vote_of_topics, 2), ALLOWED, 100_000),
        ("begin-quorum-epoch", by(begin_epoch, 1), ALLOWED, 100_000),
        ("end-quorum-epoch", by(end_epoch, 1), ALLOWED, 100_000),
        ("fetch", by(fetch_log, 17), ALLOWED, 100_000),
        ("fetch-topics", by(fetch_logs, 17), ALLOWED // 2, 100_000),
        ("fetch-snapshot", by(fetch_snapshots, 1), ALLOWED, 100_000),
        ("update-raft-voter", by(update_voter, 0), ALLOWED, 100_000),
        ("register-listeners", by(register_controller_listeners, 0), ALLOWED, 100_000),
        ("register-features", by(register_controller_features, 0), ALLOWED, 100_000),
        ("allocate-producer-ids", tagged(m.AllocateProducerIdsRequest(broker_id=9), 0), 200_000, 20_000_000),
        ("alter-partition", by(alter_partition, 3), ALLOWED, 300_000),
        ("assign-dirs", by(assign_dirs, 0), ALLOWED, 300_000),
        ("register", by(register, 4), ALLOWED, 300_000),
        ("heartbeat", by(heartbeat_dirs, 1), 20_000, 300_000),
        ("describe-configs-broker", by(describe(BROKER, node_id), 4), 100, 20_000),
        ("describe-configs-topic", by(describe(TOPIC, known), 4), 500, 300_000),
        ("describe-cluster", tagged(m.DescribeClusterRequest(endpoint_type=2), 1), 200_000, 20_000_000),
        (
            "api-versions",
            tagged(m.ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4),
            200_000,
            20_000_000,
        ),
    )
]
