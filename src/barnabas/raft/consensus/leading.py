"""What a leader does: it appends, counts what the others have, reminds voters that it leads, and resigns.

A record is committed when a majority of the voters has it (`leader_state`). A leader from which no majority fetches
steps down by itself, and one that stops names its successors, the most up to date first.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.protocol.errors import Error
from barnabas.raft.consensus.leader_state import LeaderState
from barnabas.raft.consensus.log_history import LogEnd, SnapshotId
from barnabas.raft.consensus.messages import (
    NO_OFFSET,
    BeginEpochRequest,
    EndEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    HardState,
    LeaderChange,
    NotLeaderError,
    Propose,
    Role,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VotersChange,
)
from barnabas.raft.consensus.voter_sets import VOTERS_IN_LOG, VoterNode, VoterSet

if TYPE_CHECKING:
    from barnabas.raft.consensus.node_state import NodeState

logger = logging.getLogger("barnabas.raft")


def lead(this: NodeState, granting: tuple[int, ...]) -> None:
    voters = this.voters
    this.persist(HardState(this.epoch, leader_id=this.local.id))
    this.become(Role.LEADER)
    this.leader_endpoints = this.endpoints
    this.lost_elections = 0
    this.leader = LeaderState(this.local, this.log_end_offset, voters, this.timeouts.fetch_ms, this.now_ms)
    this.deadline_ms = this.now_ms + this.timeouts.fetch_ms
    named = _voters_to_name(this)
    change = LeaderChange(this.local.id, voters.ids, granting, named.nodes if named else None)
    _append(this, change, change.record_count, named)
    _remind_voters(this, this.leader)


def _voters_to_name(this: NodeState) -> VoterSet | None:
    """The voters, if the log does not have them yet, or has this one at other addresses."""
    latest = this.log.voters.latest
    if latest.kraft_version < VOTERS_IN_LOG:
        return None
    named = latest.voters
    if this.endpoints:
        named = named.with_endpoints(this.local, this.endpoints)
    return named if latest.offset < 0 or named != latest.voters else None


def tick_as_leader(this: NodeState, leader: LeaderState) -> None:
    if leader.is_quorum_lost(this.now_ms):
        logger.warning(
            "node %d resigns from epoch %d: a majority of the voters %s has not fetched in time",
            this.local.id,
            this.epoch,
            this.voters.ids,
        )
        resign(this)
        return
    this.deadline_ms = this.now_ms + this.timeouts.fetch_ms
    if this.now_ms >= leader.begin_epoch_at_ms:
        _remind_voters(this, leader)


def _remind_voters(this: NodeState, leader: LeaderState) -> None:
    leader.begin_epoch_at_ms = this.now_ms + leader.begin_epoch_ms
    for voter in leader.voters_to_remind(this.now_ms):
        request = BeginEpochRequest(this.local.id, this.epoch, this.endpoints, voter)
        this.send(voter.id, this.voters.endpoints_of(voter.id), request)


def resign(this: NodeState) -> None:
    leader = this.leader
    if leader is None:
        return
    this.successors = leader.successors()
    this.become(Role.RESIGNED)
    this.set_election_deadline()
    for node in this.voters:
        send_end_request(this, node)


def send_end_request(this: NodeState, node: VoterNode) -> None:
    if node.id != this.local.id:
        request = EndEpochRequest(this.local.id, this.epoch, this.successors, this.endpoints)
        this.send(node.id, node.endpoints, request)


def propose(this: NodeState, proposal: Propose) -> None:
    if this.role is not Role.LEADER:
        raise NotLeaderError(f"node {this.local.id} does not lead epoch {this.epoch}")
    _append(this, proposal.payload, proposal.record_count)


def _append(this: NodeState, payload: object, record_count: int, voters: VoterSet | None = None) -> None:
    this.draft.entries.append(this.log.append(this.epoch, payload, record_count, voters))
    if voters is not None and this.leader is not None:
        this.leader.use_voters(voters, this.now_ms)


def advance_as_leader(this: NodeState, leader: LeaderState) -> None:
    reached = leader.high_watermark()
    if reached is not None:
        leader.is_committed = True
        this.advance(reached)


def fetch_requested(this: NodeState, request: FetchRequest) -> FetchResponse:
    leader = this.leader
    error = _leader_error(this, request.epoch)
    if error is not Error.NONE or leader is None:
        return FetchResponse(request, this.head(error))
    place = this.log.history.compare(request.log_end)
    divergence = place if isinstance(place, LogEnd) else None
    snapshot = place if isinstance(place, SnapshotId) else None
    if place is None and request.replica.id >= 0:
        leader.fetched(request.replica, request.log_end.offset, this.log_end_offset, this.now_ms)
        advance_as_leader(this, leader)
    committed = this.high_watermark if leader.is_committed else NO_OFFSET
    return FetchResponse(request, this.head(), committed, divergence, snapshot)


def snapshot_requested(this: NodeState, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    error = _leader_error(this, request.epoch)
    if error is Error.NONE and this.leader is not None:
        this.leader.heard_from(request.replica, this.now_ms)
    return FetchSnapshotResponse(request, this.head(error))


def update_requested(this: NodeState, request: UpdateVoterRequest) -> UpdateVoterResponse:
    leader, latest = this.leader, this.log.voters.latest
    error = _leader_error(this, request.epoch)
    if error is Error.NONE and leader is not None:
        if not leader.is_committed or latest.offset >= this.high_watermark:
            error = Error.REQUEST_TIMED_OUT  # as Kafka answers while another change is under way
        elif latest.kraft_version < VOTERS_IN_LOG:
            error = Error.UNSUPPORTED_VERSION
        elif all(node.key != request.voter for node in latest.voters):
            error = Error.VOTER_NOT_FOUND
        else:
            voters = latest.voters.with_endpoints(request.voter, request.endpoints)
            if voters != latest.voters:
                _append(this, VotersChange(voters.nodes), 1, voters)
    return UpdateVoterResponse(this.head(error))


def _leader_error(this: NodeState, epoch: int) -> Error:
    """What keeps a request from being served that only the leader of this epoch may."""
    if epoch < this.epoch:
        return Error.FENCED_LEADER_EPOCH
    if epoch > this.epoch:
        return Error.UNKNOWN_LEADER_EPOCH
    return Error.NONE if this.leader is not None else Error.NOT_LEADER_OR_FOLLOWER
