"""Asks other nodes of the quorum, in Kafka's messages, and understands what they answer.

Voters are reached where the log or the configuration says. A node that knows no leader asks the servers in
`controller.quorum.bootstrap.servers` one after the other, or the voters if there are none; the answers name the leader
and its address.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.net.frames import ConnectError, WireError
from barnabas.net.peer import Peer, PeerSettings
from barnabas.protocol import messages as m
from barnabas.protocol.batch import crc_is_valid, iter_headers
from barnabas.protocol.errors import DecodeError, Error
from barnabas.protocol.uuids import METADATA_TOPIC_ID
from barnabas.raft.consensus.log_history import LogEnd, SnapshotId
from barnabas.raft.consensus.messages import (
    NO_NODE,
    BeginEpochRequest,
    BeginEpochResponse,
    EndEpochRequest,
    EndEpochResponse,
    FetchedBatch,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Head,
    Outbound,
    Request,
    Response,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)
from barnabas.raft.consensus.voter_sets import VOTERS_IN_LOG, VoterEndpoint
from barnabas.raft.driver import RequestError
from barnabas.raft.folder.metadata_batches import decode_batch, voters_from_record
from barnabas.raft.folder.metadata_log import PARTITION, TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.net.peer import PeerEnvironment
    from barnabas.protocol.compiler.structs import Message
    from barnabas.raft.consensus.voter_sets import VoterSet

logger = logging.getLogger("barnabas.raft")

FETCH_WAIT_MS = 500
"""How long a leader without news may keep a fetch."""
COMPLAINT_S = 5.0
"""How often a quorum that cannot be reached is complained about."""
_NO_ERROR = 0


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class PeerOptions(NamedTuple):
    cluster_id: str
    listener_name: str
    """The name under which voters have their CONTROLLER listener."""
    bootstrap_servers: tuple[Address, ...] = ()
    request_timeout_ms: int = 2_000
    fetch_max_bytes: int = 8 * 1024 * 1024
    snapshot_max_bytes: int = 8 * 1024 * 1024
    own_endpoints: tuple[VoterEndpoint, ...] = ()
    """Where this node is, so that it does not count as one of those that it asks."""


class QuorumPeers:
    """Use it on one event loop."""

    def __init__(self, options: PeerOptions, environment: PeerEnvironment, local_id: int) -> None:
        self._options = options
        self._environment = environment
        self._local_id = local_id
        self._peers: dict[Address, Peer] = {}
        self._others: dict[Address, Peer] = {}
        self._next_server = 0
        self._failures: dict[Address, str] = {}
        self.namesake: Address | None = None
        """Where a leader with the id of this node was last fetched from."""
        self._foreign: set[Address] = set()
        """Who said last that it is in another cluster."""
        self._failing_since: float | None = None
        self._next_complaint = 0.0
        self.voters: Callable[[], VoterSet] | None = None
        """The newest voters, for a node that has no bootstrap servers to ask."""
        self.is_well: Callable[[], bool] = lambda: False
        """Whether this node does what it should, although somebody does not answer."""

    async def ask(self, outbound: Outbound) -> Response:
        address, name = self._address_of(outbound), f"node {outbound.to}"
        if outbound.to == NO_NODE:
            name = "a controller"
        if address is None:
            raise RequestError(f"the address of {name} is unknown", is_unreachable=False)
        message = self._message(outbound.request)
        try:
            answer = await self._peer(address, name).send(message)
        except WireError as error:
            self._failed(address, str(error))
            raise RequestError(str(error), is_unreachable=isinstance(error, ConnectError)) from None
        top_error = Error(getattr(answer, "error_code", _NO_ERROR))
        if top_error is not Error.NONE and not isinstance(outbound.request, UpdateVoterRequest):
            reason = f"{name} at {address} refused {type(message).__name__}: {top_error.name}"
            self._failed(address, reason)
            if top_error is Error.INCONSISTENT_CLUSTER_ID:
                self._foreign.add(address)
            raise RequestError(reason, is_unreachable=False)
        try:
            response = self._understand(outbound, answer)
        except (DecodeError, IndexError, ValueError) as error:
            reason = f"{name} at {address} sent a malformed response to {type(message).__name__}: {error}"
            self._failed(address, reason)
            raise RequestError(reason, is_unreachable=False) from error
        self._succeeded(address)
        if isinstance(response, FetchResponse) and response.head.error is Error.NONE:
            self.namesake = address if response.head.leader_id == self._local_id else None
        return response

    async def send(self, endpoint: VoterEndpoint, name: str, message: Message) -> Any:
        """The answer to a request that has nothing to do with the quorum itself. It goes over a connection of its own:
        answers come in order, and a slow one would hold up fetches. Raises WireError."""
        address = Address(endpoint.host, endpoint.port)
        peer = self._others.get(address)
        if peer is None:
            settings = PeerSettings(client_id=f"controller-{self._local_id}")
            peer = self._others[address] = Peer(name, address.host, address.port, self._environment, settings)
        return await peer.send(message)

    async def close(self) -> None:
        peers = [*self._peers.values(), *self._others.values()]
        self._peers, self._others = {}, {}
        for peer in peers:
            await peer.close()

    def _peer(self, address: Address, name: str) -> Peer:
        peer = self._peers.get(address)
        if peer is None:
            timeout_s = (self._options.request_timeout_ms + FETCH_WAIT_MS) / 1000
            settings = PeerSettings(
                client_id=f"raft-client-{self._local_id}",
                request_timeout_s=timeout_s,
                connection_setup_timeout_s=timeout_s,
                reconnect_backoff_s=0.02,
                reconnect_backoff_max_s=1.0,
            )
            peer = self._peers[address] = Peer(name, address.host, address.port, self._environment, settings)
        return peer

    def _address_of(self, outbound: Outbound) -> Address | None:
        if outbound.to != NO_NODE:
            endpoint = self._named(outbound.endpoints)
            return None if endpoint is None else Address(endpoint.host, endpoint.port)
        servers = list(self._options.bootstrap_servers)
        if not servers and self.voters is not None:
            endpoints = [self._named(node.endpoints) for node in self.voters() if node.id != self._local_id]
            servers = [Address(endpoint.host, endpoint.port) for endpoint in endpoints if endpoint is not None]
        if not servers:
            return None
        self._next_server = (self._next_server + 1) % len(servers)
        return servers[self._next_server]

    def _named(self, endpoints: Sequence[VoterEndpoint]) -> VoterEndpoint | None:
        named = (endpoint for endpoint in endpoints if endpoint.name == self._options.listener_name)
        return next(named, endpoints[0] if endpoints else None)

    def _failed(self, address: Address, reason: str) -> None:
        """Says every few seconds whom this node tries in vain, as long as nobody answers."""
        now = self._environment.loop.time()
        self._failures[address] = reason
        if self.is_well():
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since, self._next_complaint = now, now + COMPLAINT_S
        elif now >= self._next_complaint:
            self._next_complaint = now + COMPLAINT_S
            logger.warning(
                "no answer from the metadata quorum for %d s, still trying: %s",
                now - self._failing_since,
                "; ".join(self._failures[each] for each in sorted(self._failures)),
            )

    @property
    def is_foreign(self) -> bool:
        """Whether every other controller that this node knows of is in another cluster."""
        servers = set(self._options.bootstrap_servers)
        if self.voters is not None:
            endpoints = (self._named(node.endpoints) for node in self.voters() if node.id != self._local_id)
            servers |= {Address(endpoint.host, endpoint.port) for endpoint in endpoints if endpoint is not None}
        own = {Address(endpoint.host, endpoint.port) for endpoint in self._options.own_endpoints}
        return bool(servers - own) and servers - own <= self._foreign

    def _succeeded(self, address: Address) -> None:
        self._foreign.discard(address)
        self._failures.pop(address, None)
        self._failing_since = None

    # From the rules' words to Kafka's

    def _message(self, request: Request) -> Message:
        cluster_id = self._options.cluster_id
        match request:
            case VoteRequest():
                return _vote(request, cluster_id)
            case BeginEpochRequest():
                return _begin_epoch(request, cluster_id)
            case EndEpochRequest():
                return _end_epoch(request, cluster_id)
            case FetchRequest():
                return _fetch(request, cluster_id, self._options.fetch_max_bytes)
            case FetchSnapshotRequest():
                return _fetch_snapshot(request, cluster_id, self._options.snapshot_max_bytes)
            case UpdateVoterRequest():
                return _update_voter(request, cluster_id)

    def _understand(self, outbound: Outbound, answer: Any) -> Response:
        request = outbound.request
        if isinstance(request, UpdateVoterRequest):
            return UpdateVoterResponse(self._head_of_update(answer))
        if isinstance(request, FetchRequest):
            partition = answer.responses[0].partitions[0]
            return _fetched(request, self._head(partition, partition.current_leader, answer), partition)
        partition = answer.topics[0].partitions[0]
        if isinstance(request, FetchSnapshotRequest):
            head = self._head(partition, partition.current_leader, answer)
            return _snapshot_fetched(request, head, partition)
        head = self._head(partition, partition, answer)
        if isinstance(request, VoteRequest):
            return VoteResponse(outbound.to, head, partition.vote_granted, request.is_pre_vote)
        if isinstance(request, BeginEpochRequest):
            return BeginEpochResponse(outbound.to, head)
        return EndEpochResponse(outbound.to, head)

    def _head(self, partition: Any, leader: Any, answer: Any) -> Head:
        endpoints = tuple(
            VoterEndpoint(self._options.listener_name, node.host, node.port)
            for node in answer.node_endpoints
            if node.node_id == leader.leader_id
        )
        return Head(Error(partition.error_code), leader.leader_epoch, leader.leader_id, endpoints)

    def _head_of_update(self, answer: Any) -> Head:
        leader = answer.current_leader
        endpoints: tuple[VoterEndpoint, ...] = ()
        if leader.host:
            endpoints = (VoterEndpoint(self._options.listener_name, leader.host, leader.port),)
        return Head(Error(answer.error_code), leader.leader_epoch, leader.leader_id, endpoints)


def _vote(request: VoteRequest, cluster_id: str) -> Message:
    message, voter = m.VoteRequest, request.voter
    assert voter is not None, "a vote is asked of somebody"
    partition = message.PartitionData(
        partition_index=PARTITION,
        replica_epoch=request.epoch,
        replica_id=request.candidate.id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=request.log_end.epoch,
        last_offset=request.log_end.offset,
        pre_vote=request.is_pre_vote,
    )
    topic = message.TopicData(topic_name=TOPIC, partitions=[partition])
    return message(cluster_id=cluster_id, voter_id=voter.id, topics=[topic])


def _begin_epoch(request: BeginEpochRequest, cluster_id: str) -> Message:
    message, voter = m.BeginQuorumEpochRequest, request.voter
    assert voter is not None, "somebody is told who leads"
    partition = message.PartitionData(
        partition_index=PARTITION,
        voter_directory_id=voter.directory_id,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
    )
    endpoints = [message.LeaderEndpoint(name=each.name, host=each.host, port=each.port) for each in request.endpoints]
    topic = message.TopicData(topic_name=TOPIC, partitions=[partition])
    return message(cluster_id=cluster_id, voter_id=voter.id, topics=[topic], leader_endpoints=endpoints)


def _end_epoch(request: EndEpochRequest, cluster_id: str) -> Message:
    message = m.EndQuorumEpochRequest
    partition = message.PartitionData(
        partition_index=PARTITION,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_candidates=[
            message.ReplicaInfo(candidate_id=voter.id, candidate_directory_id=voter.directory_id)
            for voter in request.successors
        ],
    )
    endpoints = [message.LeaderEndpoint(name=each.name, host=each.host, port=each.port) for each in request.endpoints]
    topic = message.TopicData(topic_name=TOPIC, partitions=[partition])
    return message(cluster_id=cluster_id, topics=[topic], leader_endpoints=endpoints)


def _fetch(request: FetchRequest, cluster_id: str, max_bytes: int) -> Message:
    message = m.FetchRequest
    partition = message.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=request.epoch,
        fetch_offset=request.log_end.offset,
        last_fetched_epoch=request.log_end.epoch,
        partition_max_bytes=0,
        replica_directory_id=request.replica.directory_id,
        high_watermark=request.high_watermark,
    )
    topic = message.FetchTopic(topic=TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return message(
        cluster_id=cluster_id,
        replica_state=message.ReplicaState(replica_id=request.replica.id),
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=0,
        max_bytes=max_bytes,
        topics=[topic],
    )


def _fetched(request: FetchRequest, head: Head, partition: Any) -> FetchResponse:
    if head.error is not Error.NONE:
        return FetchResponse(request, head)
    if partition.diverging_epoch.epoch >= 0:
        divergence = LogEnd(partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset)
        return FetchResponse(request, head, partition.high_watermark, divergence=divergence)
    if partition.snapshot_id.epoch >= 0 or partition.snapshot_id.end_offset >= 0:
        snapshot = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        return FetchResponse(request, head, partition.high_watermark, snapshot=snapshot)
    batches = _batches(bytes(partition.records or b""))
    return FetchResponse(request, head, partition.high_watermark, batches=batches)


def _batches(records: bytes) -> tuple[FetchedBatch, ...]:
    """The complete batches; the last one may be cut off."""
    batches = []
    for position, header in iter_headers(records):
        if not crc_is_valid(records, position, header.size):
            raise DecodeError(f"the batch at offset {header.base_offset} has an invalid checksum")
        batch = records[position : position + header.size]
        kraft_version = voters = None
        for record in decode_batch(batch, "the leader").records if header.is_control else ():
            if isinstance(record, m.KRaftVersionRecord):
                kraft_version = record.kraft_version
            elif isinstance(record, m.VotersRecord):
                voters = voters_from_record(record)
        epoch = header.partition_leader_epoch
        batches.append(FetchedBatch(header.base_offset, header.next_offset, epoch, batch, kraft_version, voters))
    return tuple(batches)


def _fetch_snapshot(request: FetchSnapshotRequest, cluster_id: str, max_bytes: int) -> Message:
    message = m.FetchSnapshotRequest
    snapshot = message.SnapshotId(end_offset=request.snapshot.end_offset, epoch=request.snapshot.epoch)
    partition = message.PartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=request.epoch,
        snapshot_id=snapshot,
        position=request.position,
        replica_directory_id=request.replica.directory_id,
    )
    topic = message.TopicSnapshot(name=TOPIC, partitions=[partition])
    return message(cluster_id=cluster_id, replica_id=request.replica.id, max_bytes=max_bytes, topics=[topic])


def _snapshot_fetched(request: FetchSnapshotRequest, head: Head, partition: Any) -> FetchSnapshotResponse:
    if head.error is not Error.NONE:
        return FetchSnapshotResponse(request, head)
    got = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch), partition.position
    if got != (request.snapshot, request.position):
        raise DecodeError(f"asked for {request.snapshot} at {request.position}, got {got}")
    return FetchSnapshotResponse(request, head, partition.size, bytes(partition.unaligned_records or b""))


def _update_voter(request: UpdateVoterRequest, cluster_id: str) -> Message:
    message = m.UpdateRaftVoterRequest
    return message(
        cluster_id=cluster_id,
        current_leader_epoch=request.epoch,
        voter_id=request.voter.id,
        voter_directory_id=request.voter.directory_id,
        listeners=[message.Listener(name=each.name, host=each.host, port=each.port) for each in request.endpoints],
        kraft_version_feature=message.KRaftVersionFeature(min_supported_version=0, max_supported_version=VOTERS_IN_LOG),
    )
