"""What a node of the quorum answers on its CONTROLLER listener.

Vote (v1 directory ids, v2 pre-votes) · BeginQuorumEpoch (v1 directory ids and endpoints) · EndQuorumEpoch (v1 preferred
candidates with directory ids) · Fetch of the metadata log (v12 divergence and snapshots, v13 topic ids, v17 directory
ids, v18 the reader's high watermark) · FetchSnapshot · DescribeQuorum (v1 times, v2 nodes) · UpdateRaftVoter

A request of another cluster gets INCONSISTENT_CLUSTER_ID, one for another partition INVALID_REQUEST. A node that does
not lead answers with what it knows of the leader and its address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from barnabas.net.dispatch import Route
from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.errors import Error
from barnabas.protocol.refusals import quorum_as
from barnabas.protocol.uuids import METADATA_TOPIC_ID, ZERO_UUID
from barnabas.raft.consensus.leader_state import NEVER_MS
from barnabas.raft.consensus.log_history import LogEnd, SnapshotId
from barnabas.raft.consensus.messages import (
    NO_NODE,
    BeginEpochRequest,
    EndEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    Head,
    NotLeaderError,
    UpdateVoterRequest,
    VoteRequest,
)
from barnabas.raft.consensus.voter_sets import Voter, VoterEndpoint
from barnabas.raft.driver import NotDurableError
from barnabas.raft.folder.metadata_log import PARTITION, TOPIC

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from barnabas.net.dispatch import Caller
    from barnabas.raft.consensus.leader_state import ReplicaStatus
    from barnabas.raft.quorum_client import QuorumClient

E = TypeVar("E")

ENDPOINTS_MAX = 1000
"""Of a leader or a voter: answers name them again and again."""
FETCH_BYTES_MAX = 8 * 1024 * 1024
FETCH_WAIT_MS_MAX = 60_000

_BY_TOPIC_NAME: Mapping[str, object] = {"topic_name": TOPIC}


class Host(Protocol):
    """What the handlers of the listener work with."""

    @property
    def quorum_client(self) -> QuorumClient: ...


async def vote(host: Host, request: m.VoteRequest, caller: Caller) -> m.VoteResponse:  # noqa: ARG001
    response = m.VoteResponse
    quorum = host.quorum_client
    refusal, asked = _read(quorum, request)
    if refusal:
        return response(error_code=refusal)
    if asked.replica_id < 0:
        head, is_granted = quorum.refusal(Error.INVALID_REQUEST), False
    else:
        answer: Any = await quorum.driver.handle(
            VoteRequest(
                Voter(asked.replica_id, asked.replica_directory_id),
                asked.replica_epoch,
                LogEnd(asked.last_offset_epoch, asked.last_offset),
                asked.pre_vote,
                _addressee(request, asked),
            )
        )
        head, is_granted = answer.head, answer.is_granted
    return response(**_epoch_fields(quorum, response, head, vote_granted=is_granted))


async def begin_quorum_epoch(
    host: Host,
    request: m.BeginQuorumEpochRequest,
    caller: Caller,  # noqa: ARG001
) -> m.BeginQuorumEpochResponse:
    response = m.BeginQuorumEpochResponse
    quorum = host.quorum_client
    refusal, asked = _read(quorum, request)
    if refusal:
        return response(error_code=refusal)
    answer: Any = await quorum.driver.handle(
        BeginEpochRequest(
            asked.leader_id, asked.leader_epoch, _endpoints(request.leader_endpoints), _addressee(request, asked)
        )
    )
    return response(**_epoch_fields(quorum, response, answer.head))


async def end_quorum_epoch(
    host: Host,
    request: m.EndQuorumEpochRequest,
    caller: Caller,  # noqa: ARG001
) -> m.EndQuorumEpochResponse:
    response = m.EndQuorumEpochResponse
    quorum = host.quorum_client
    refusal, asked = _read(quorum, request)
    if refusal:
        return response(error_code=refusal)
    successors = [Voter(each.candidate_id, each.candidate_directory_id) for each in asked.preferred_candidates]
    successors = successors or [Voter(each, ZERO_UUID) for each in asked.preferred_successors]
    answer: Any = await quorum.driver.handle(
        EndEpochRequest(asked.leader_id, asked.leader_epoch, tuple(successors), _endpoints(request.leader_endpoints))
    )
    return response(**_epoch_fields(quorum, response, answer.head))


async def fetch(host: Host, request: m.FetchRequest, caller: Caller) -> m.FetchResponse:
    response = m.FetchResponse
    quorum = host.quorum_client
    named = {"topic_id": METADATA_TOPIC_ID} if caller.api_version >= 13 else {"topic": TOPIC}
    refusal, asked = _read(quorum, request, named, "partition")
    if refusal:
        return response(error_code=refusal)
    partition = response.PartitionData(partition_index=PARTITION, high_watermark=-1, records=b"")
    replica_id = request.replica_state.replica_id if caller.api_version >= 15 else request.replica_id
    if (
        request.max_wait_ms < 0
        or asked.fetch_offset < 0
        or not 0 <= asked.last_fetched_epoch <= asked.current_leader_epoch
    ):
        head = quorum.refusal(Error.INVALID_REQUEST)
    else:
        answer, records = await quorum.driver.fetch(
            FetchRequest(
                Voter(replica_id, asked.replica_directory_id),
                asked.current_leader_epoch,
                LogEnd(asked.last_fetched_epoch, asked.fetch_offset),
                asked.high_watermark,
            ),
            min(request.max_wait_ms, FETCH_WAIT_MS_MAX),
            min(request.max_bytes, FETCH_BYTES_MAX),
        )
        head = answer.head
        partition.records = records
        partition.high_watermark = answer.high_watermark
        partition.log_start_offset = quorum.log_start_offset
        if answer.divergence is not None:
            partition.diverging_epoch = response.EpochEndOffset(
                epoch=answer.divergence.epoch, end_offset=answer.divergence.offset
            )
        if answer.snapshot is not None:
            partition.snapshot_id = response.SnapshotId(
                end_offset=answer.snapshot.end_offset, epoch=answer.snapshot.epoch
            )
    partition.error_code = head.error
    partition.current_leader = response.LeaderIdAndEpoch(leader_id=head.leader_id, leader_epoch=head.epoch)
    topic = response.FetchableTopicResponse(topic=TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return response(responses=[topic], node_endpoints=_node_endpoints(quorum, head, response.NodeEndpoint))


async def fetch_snapshot(
    host: Host,
    request: m.FetchSnapshotRequest,
    caller: Caller,  # noqa: ARG001
) -> m.FetchSnapshotResponse:
    response = m.FetchSnapshotResponse
    quorum = host.quorum_client
    refusal, asked = _read(quorum, request, {"name": TOPIC}, "partition")
    if asked is None:
        return response(error_code=refusal)
    partition = response.PartitionSnapshot(index=asked.partition, unaligned_records=b"")
    if refusal:
        head = quorum.refusal(Error.UNKNOWN_TOPIC_OR_PARTITION)
    else:
        snapshot = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        replica = Voter(request.replica_id, asked.replica_directory_id)
        answer: Any = await quorum.driver.handle(
            FetchSnapshotRequest(replica, asked.current_leader_epoch, snapshot, asked.position)
        )
        head = answer.head
        if head.error is Error.NONE:
            size, data, error = await quorum.read_snapshot(
                snapshot, asked.position, min(request.max_bytes, FETCH_BYTES_MAX)
            )
            head = head._replace(error=error)
            partition.size, partition.unaligned_records = size, data
            partition.position = asked.position
            partition.snapshot_id = response.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
    partition.error_code = head.error
    partition.current_leader = response.LeaderIdAndEpoch(leader_id=head.leader_id, leader_epoch=head.epoch)
    answered = response.TopicSnapshot(name=request.topics[0].name, partitions=[partition])
    return response(topics=[answered], node_endpoints=_node_endpoints(quorum, head, response.NodeEndpoint))


def describe_quorum(host: Host, request: m.DescribeQuorumRequest, caller: Caller) -> m.DescribeQuorumResponse:
    return quorum_as(describe(host.quorum_client, request), caller.api_version)


async def update_raft_voter(
    host: Host,
    request: m.UpdateRaftVoterRequest,
    caller: Caller,  # noqa: ARG001
) -> m.UpdateRaftVoterResponse:
    quorum = host.quorum_client
    endpoints = _endpoints(request.listeners)
    feature = request.kraft_version_feature
    if _is_of_another_cluster(quorum, request.cluster_id):
        head = quorum.refusal(Error.INCONSISTENT_CLUSTER_ID)
    else:
        is_valid = (
            request.voter_id >= 0
            and request.voter_directory_id != ZERO_UUID
            and any(endpoint.name == quorum.listener_name for endpoint in endpoints)
            and len(endpoints) <= ENDPOINTS_MAX
            and 0 <= feature.min_supported_version <= feature.max_supported_version
        )
        voter = Voter(request.voter_id, request.voter_directory_id)
        if is_valid:
            answer: Any = await quorum.driver.handle(UpdateVoterRequest(voter, request.current_leader_epoch, endpoints))
            head = answer.head
        else:
            head = quorum.refusal(Error.INVALID_REQUEST)
    leader = m.UpdateRaftVoterResponse.CurrentLeader(leader_id=head.leader_id, leader_epoch=head.epoch)
    for endpoint in head.leader_endpoints:
        if endpoint.name == quorum.listener_name:
            leader.host, leader.port = endpoint.host, endpoint.port
    return m.UpdateRaftVoterResponse(error_code=head.error, current_leader=leader)


def describe(quorum: QuorumClient, request: m.DescribeQuorumRequest) -> m.DescribeQuorumResponse:
    """DescribeQuorum as this node answers it: only the leader can."""
    response = m.DescribeQuorumResponse
    refusal, _ = _read_partition(request, _BY_TOPIC_NAME, "partition_index")
    if refusal:
        topics = [
            response.TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    response.PartitionData(
                        partition_index=each.partition_index,
                        error_code=Error.UNKNOWN_TOPIC_OR_PARTITION,
                        error_message="This server does not host this topic-partition.",
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return response(topics=topics)
    core = quorum.driver.core
    partition = response.PartitionData(partition_index=PARTITION)
    nodes = []
    try:
        voters, observers = core.describe(quorum.now_ms())
    except NotLeaderError:
        partition.error_code = Error.NOT_LEADER_OR_FOLLOWER
    else:
        partition.leader_id, partition.leader_epoch = core.local.id, core.epoch
        partition.high_watermark = core.high_watermark if core.is_active else -1
        partition.current_voters = [_replica_state(quorum, each) for each in voters]
        partition.observers = [_replica_state(quorum, each) for each in observers]
        nodes = [
            response.Node(
                node_id=node.id,
                listeners=[
                    response.Listener(name=each.name, host=each.host, port=each.port) for each in node.endpoints
                ],
            )
            for node in core.voters
        ]
    return response(topics=[response.TopicData(topic_name=TOPIC, partitions=[partition])], nodes=nodes)


def _replica_state(quorum: QuorumClient, status: ReplicaStatus) -> m.DescribeQuorumResponse.ReplicaState:
    return m.DescribeQuorumResponse.ReplicaState(
        replica_id=status.replica.id,
        replica_directory_id=status.replica.directory_id,
        log_end_offset=status.end_offset,
        last_fetch_timestamp=_wall_ms(quorum, status.fetched_ms),
        last_caught_up_timestamp=_wall_ms(quorum, status.caught_up_ms),
    )


def _wall_ms(quorum: QuorumClient, at_ms: int) -> int:
    return NEVER_MS if at_ms == NEVER_MS else quorum.wall_ms(at_ms)


def _epoch_fields(quorum: QuorumClient, response: Any, head: Head, **more: object) -> dict[str, Any]:
    partition = response.PartitionData(
        partition_index=PARTITION, error_code=head.error, leader_id=head.leader_id, leader_epoch=head.epoch, **more
    )
    topic = response.TopicData(topic_name=TOPIC, partitions=[partition])
    endpoints = _node_endpoints(quorum, head, response.NodeEndpoint)
    return {"topics": [topic], "node_endpoints": endpoints}


def _only(elements: list[E]) -> E | None:
    return elements[0] if len(elements) == 1 else None


def _read(
    quorum: QuorumClient,
    request: Any,
    named: Mapping[str, object] = _BY_TOPIC_NAME,
    index: str = "partition_index",
) -> tuple[Error, Any]:
    """Why a request is refused as a whole, and the one partition that it asks about, if it is one. The messages have
    other names for what identifies the topic and for the index of the partition."""
    if _is_of_another_cluster(quorum, request.cluster_id):
        return Error.INCONSISTENT_CLUSTER_ID, None
    return _read_partition(request, named, index)


def _read_partition(request: Any, named: Mapping[str, object], index: str) -> tuple[Error, Any]:
    topic = _only(request.topics)
    partition: Any = None if topic is None else _only(topic.partitions)
    is_meant = (
        partition is not None
        and getattr(partition, index) == PARTITION
        and all(getattr(topic, field) == value for field, value in named.items())
    )
    return (Error.NONE if is_meant else Error.INVALID_REQUEST), partition


def _is_of_another_cluster(quorum: QuorumClient, cluster_id: str | None) -> bool:
    return cluster_id is not None and cluster_id != quorum.cluster_id


def _addressee(request: Any, asked: Any) -> Voter | None:
    """Which voter a request is meant for, if it says so."""
    return Voter(request.voter_id, asked.voter_directory_id) if request.voter_id >= 0 else None


def _endpoints(endpoints: Iterable[Any]) -> tuple[VoterEndpoint, ...]:
    return tuple(VoterEndpoint(each.name, each.host, each.port) for each in endpoints)


def _node_endpoints(quorum: QuorumClient, head: Head, make: Callable[..., E]) -> list[E]:
    if head.leader_id == NO_NODE:
        return []
    return [
        make(node_id=head.leader_id, host=each.host, port=each.port)
        for each in head.leader_endpoints
        if each.name == quorum.listener_name
    ]


def _route(key: ApiKey, handler: Any) -> Route:
    return Route(key, (APIS[key].min_version, APIS[key].max_version), handler)


def _promising(key: ApiKey, handler: Callable[[Host, Any, Caller], Awaitable[Any]]) -> Route:
    """The answers of these promise something. While that cannot be made durable, whoever asks is told, and asks again;
    the driver has logged why."""

    async def answer(host: Host, request: Any, caller: Caller) -> Any:
        try:
            return await handler(host, request, caller)
        except NotDurableError:
            return getattr(m, APIS[key].response)(error_code=Error.KAFKA_STORAGE_ERROR)

    return _route(key, answer)


QUORUM_ROUTES: dict[int, Route] = {
    ApiKey.VOTE: _promising(ApiKey.VOTE, vote),
    ApiKey.BEGIN_QUORUM_EPOCH: _promising(ApiKey.BEGIN_QUORUM_EPOCH, begin_quorum_epoch),
    ApiKey.END_QUORUM_EPOCH: _promising(ApiKey.END_QUORUM_EPOCH, end_quorum_epoch),
    ApiKey.FETCH: _promising(ApiKey.FETCH, fetch),
    ApiKey.FETCH_SNAPSHOT: _promising(ApiKey.FETCH_SNAPSHOT, fetch_snapshot),
    ApiKey.DESCRIBE_QUORUM: _route(ApiKey.DESCRIBE_QUORUM, describe_quorum),
    ApiKey.UPDATE_RAFT_VOTER: _promising(ApiKey.UPDATE_RAFT_VOTER, update_raft_voter),
}
