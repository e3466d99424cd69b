"""What a node does that does not lead: it fetches from the leader, records or parts of a snapshot.

A leader's log that differs is followed: this node truncates its own. What the leader has committed is committed here
as far as this log is durable. An observer whose leader does not answer asks others; a voter stands soon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import Error
from barnabas.raft.consensus.fetching import Download
from barnabas.raft.consensus.messages import (
    NO_NODE,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Role,
    SnapshotLoaded,
    SnapshotPart,
    UpdateVoterRequest,
)
from barnabas.raft.consensus.node_state import LOST_LEADER_MS
from barnabas.raft.consensus.voter_sets import VOTERS_IN_LOG

if TYPE_CHECKING:
    from barnabas.raft.consensus.node_state import NodeState


def fetch_answered(this: NodeState, response: FetchResponse) -> None:
    if not clear_in_flight(this, response.request):
        return
    if this.learn(response.head):
        _try_again_later(this)
        return
    if this.role is not Role.FOLLOWER:
        return
    _heard_leader(this)
    if response.divergence is not None:
        this.truncate_to(this.log.truncation_for(response.divergence))
    elif response.snapshot is not None:
        this.fetching.download = Download(response.snapshot, 0)
    else:
        this.draft.entries += this.log.append_fetched(response.batches, this.epoch)
        this.known_high_watermark = max(this.known_high_watermark, response.high_watermark)
        advance_as_follower(this)


def advance_as_follower(this: NodeState) -> None:
    this.advance(min(this.known_high_watermark, this.log.durable_end))


def snapshot_answered(this: NodeState, response: FetchSnapshotResponse) -> None:
    request = response.request
    if not clear_in_flight(this, request):
        return
    download = this.fetching.download
    is_gone = response.head.error in (Error.SNAPSHOT_NOT_FOUND, Error.POSITION_OUT_OF_RANGE)
    if (this.learn(response.head) and not is_gone) or this.role is not Role.FOLLOWER:
        _try_again_later(this)
        return
    _heard_leader(this)
    if is_gone or download is None or not response.data:
        # The leader has removed it meanwhile: what it sends in place of it, the next fetch says.
        this.fetching.download = None
        return
    end = request.position + len(response.data)
    this.fetching.download = Download(request.snapshot, end)
    is_last = end >= response.size
    this.fetching.is_installing = is_last
    this.draft.snapshot_part = SnapshotPart(request.snapshot, request.position, response.data, is_last)


def snapshot_loaded(this: NodeState, loaded: SnapshotLoaded) -> None:
    if this.log.restart_at(loaded):
        this.draft.high_watermark = this.high_watermark
    this.begin_fetching()


def clear_in_flight(this: NodeState, request: FetchRequest | FetchSnapshotRequest) -> bool:
    """The request that is under way has ended. False if it is not this one, whose outcome comes too late to matter."""
    if request != this.fetching.in_flight:
        return False
    this.fetching.in_flight = None
    return True


def _heard_leader(this: NodeState) -> None:
    this.fetching.has_fetched = True
    this.lost_leader_id = NO_NODE
    this.fetching.is_leader_doubtful = False
    this.deadline_ms = this.now_ms + this.timeouts.fetch_ms


def _try_again_later(this: NodeState) -> None:
    if this.fetching.in_flight is None:
        this.fetching.at_ms = max(this.fetching.at_ms, this.now_ms + this.timeouts.retry_backoff_ms)


def may_fetch(this: NodeState) -> bool:
    is_reader = this.role is Role.FOLLOWER or (this.role is Role.UNATTACHED and not this.is_voter)
    return is_reader and this.fetching.is_free() and this.log.is_durable


def pursue(this: NodeState) -> None:
    """Asks for more, if that is due."""
    if not may_fetch(this) or this.now_ms < this.fetching.at_ms or this.deadline_ms is None:
        return
    to, endpoints = this.leader_id, this.leader_endpoints
    if this.role is Role.UNATTACHED or this.fetching.is_leader_doubtful:
        to, endpoints = NO_NODE, ()
    elif _is_update_due(this):
        this.update_voter_at_ms = this.now_ms + this.timeouts.fetch_ms
        this.send(to, endpoints, UpdateVoterRequest(this.local, this.epoch, this.endpoints))
    request = this.fetching.next_request(this.local, this.epoch, this.log.end, this.high_watermark)
    this.send(to, endpoints, request)


def _is_update_due(this: NodeState) -> bool:
    """Whether the leader is to be told that this voter has moved. It has to know the newest voters for that."""
    node = this.voters.matching(this.local)
    return (
        node is not None
        and bool(this.endpoints)
        and node.endpoints != this.endpoints
        and this.kraft_version >= VOTERS_IN_LOG
        and this.fetching.has_fetched
        and this.high_watermark >= this.log_end_offset
        and this.now_ms >= this.update_voter_at_ms
    )


def lose_leader(this: NodeState) -> None:
    """The leader takes no connections: an observer asks others for its successor, a voter does not wait for long
    until it stands."""
    this.fetching.has_fetched = False
    this.lost_leader_id = this.leader_id
    if not this.is_voter:
        this.fetching.is_leader_doubtful = True
    elif this.deadline_ms is not None:
        this.deadline_ms = min(this.deadline_ms, this.now_ms + this.jitter(LOST_LEADER_MS))
