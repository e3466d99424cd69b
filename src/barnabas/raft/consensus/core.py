"""One node of the quorum: its role, its timers, and its answer to every message.

An *epoch* has at most one leader, elected by a majority of the voters, each of which votes once per epoch and only
for a candidate whose log is at least as up to date as its own. All other replicas fetch from the leader.

    unattached   knows no leader: a voter waits a while and stands, an observer asks around
    prospective  asks whether it would be elected (pre-vote); its epoch stays as it is
    candidate    asks for votes in an epoch of its own
    leader       appends, answers fetches, and resigns when a majority stays away
    follower     fetches from the leader; a voter that hears nothing for too long becomes prospective
    resigned     has led this epoch and will not again; it tells the others which voters should succeed it

A quorum of one elects itself in its first tick, and its high watermark is what it has flushed. A node that is no voter
(an observer) is only ever unattached or a follower.

The driver calls `step` and `tick` with the time, does what the `Ready` says, and calls `tick` again at `deadline_ms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.raft.consensus import following, leading, standing
from barnabas.raft.consensus.messages import (
    AppendFailed,
    BeginEpochRequest,
    BeginEpochResponse,
    EndEpochRequest,
    EndEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Flushed,
    HardState,
    Inbound,
    LogTrimmed,
    NotLeaderError,
    Propose,
    Ready,
    RequestFailed,
    Resign,
    Role,
    SnapshotLoaded,
    SnapshotUnusable,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)
from barnabas.raft.consensus.node_state import Draft, NodeState, QuorumTimeouts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.raft.consensus.leader_state import ReplicaStatus
    from barnabas.raft.consensus.replica_log import ReplicaLog
    from barnabas.raft.consensus.voter_sets import Voter, VoterEndpoint, VoterSet


class RaftCore:
    """The quorum's rules as one state machine."""

    __slots__ = ("_this",)

    def __init__(
        self,
        local: Voter,
        hard_state: HardState,
        log: ReplicaLog,
        *,
        endpoints: Sequence[VoterEndpoint] = (),
        timeouts: QuorumTimeouts | None = None,
        jitter: Callable[[int], int] = lambda _: 0,
    ) -> None:
        """`endpoints` are where others reach this node; `jitter` gives a number below the one it is given."""
        self._this = NodeState(local, hard_state, log, endpoints, timeouts or QuorumTimeouts(), jitter)

    @property
    def local(self) -> Voter:
        return self._this.local

    @property
    def role(self) -> Role:
        return self._this.role

    @property
    def epoch(self) -> int:
        return self._this.epoch

    @property
    def hard_state(self) -> HardState:
        return self._this.hard_state

    @property
    def leader_id(self) -> int:
        return self._this.leader_id

    @property
    def lost_leader_id(self) -> int:
        """The leader that took no connections before this node began to stand, or NO_NODE."""
        return self._this.lost_leader_id

    @property
    def leader_endpoints(self) -> tuple[VoterEndpoint, ...]:
        return self._this.leader_endpoints

    @property
    def log(self) -> ReplicaLog:
        return self._this.log

    @property
    def log_end_offset(self) -> int:
        return self._this.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._this.high_watermark

    @property
    def voters(self) -> VoterSet:
        return self._this.voters

    @property
    def kraft_version(self) -> int:
        return self._this.kraft_version

    @property
    def is_voter(self) -> bool:
        return self._this.is_voter

    @property
    def timeouts(self) -> QuorumTimeouts:
        return self._this.timeouts

    @property
    def is_active(self) -> bool:
        """Whether this node leads, and a record of its epoch is committed: so everything before it is."""
        return self._this.leader is not None and self._this.leader.is_committed

    @property
    def is_caught_up(self) -> bool:
        """Whether this node leads, or has everything that its leader said was committed when it last answered."""
        if self._this.role is Role.FOLLOWER:
            return 0 <= self._this.known_high_watermark <= self._this.high_watermark
        return self.is_active

    @property
    def deadline_ms(self) -> int | None:
        """When the next tick is due; None before the first."""
        this = self._this
        if this.deadline_ms is None:
            return None
        times = [this.deadline_ms, *this.to_resend.values()]
        if this.leader is not None and this.leader.check_quorum_at_ms is not None:
            times += (this.leader.check_quorum_at_ms, this.leader.begin_epoch_at_ms)
        if following.may_fetch(this):
            times.append(this.fetching.at_ms)
        return min(times)

    def describe(self, now_ms: int) -> tuple[list[ReplicaStatus], list[ReplicaStatus]]:
        """The voters and the observers, as the leader sees them."""
        if self._this.leader is None:
            raise NotLeaderError(f"node {self._this.local.id} does not lead epoch {self._this.epoch}")
        return self._this.leader.describe(self._this.log_end_offset, now_ms)

    def end_offsets(self) -> list[tuple[Voter, bool, int]]:
        """Where the logs of all replicas end, as the leader sees them; nothing elsewhere. Another thread may ask."""
        leader = self._this.leader
        return [] if leader is None else leader.end_offsets(self._this.log_end_offset)

    def tick(self, now_ms: int) -> Ready:
        """Time has passed: this starts elections, and a leader that has lost contact with the majority resigns."""
        this = self._this
        this.now_ms = max(this.now_ms, now_ms)
        if this.deadline_ms is None:
            standing.begin(this)
        elif this.leader is not None:
            leading.tick_as_leader(this, this.leader)
        elif this.now_ms >= this.deadline_ms:
            standing.time_is_up(this)
        _resend_due(this)
        return self._take_ready()

    def step(self, message: Inbound, now_ms: int | None = None) -> Ready:
        this = self._this
        if now_ms is not None:
            this.now_ms = max(this.now_ms, now_ms)
        match message:
            case Propose():
                leading.propose(this, message)
            case Flushed():
                _flushed(this, message.offset)
            case FetchRequest():
                this.draft.reply = leading.fetch_requested(this, message)
            case FetchResponse():
                following.fetch_answered(this, message)
            case VoteRequest():
                this.draft.reply = standing.vote_requested(this, message)
            case VoteResponse():
                standing.vote_answered(this, message)
            case BeginEpochRequest():
                this.draft.reply = standing.begin_requested(this, message)
            case BeginEpochResponse() | UpdateVoterResponse():
                this.learn(message.head)
            case EndEpochRequest():
                this.draft.reply = standing.end_requested(this, message)
            case EndEpochResponse():
                this.learn(message.head)
            case FetchSnapshotRequest():
                this.draft.reply = leading.snapshot_requested(this, message)
            case FetchSnapshotResponse():
                following.snapshot_answered(this, message)
            case UpdateVoterRequest():
                this.draft.reply = leading.update_requested(this, message)
            case RequestFailed():
                _request_failed(this, message)
            case SnapshotLoaded():
                following.snapshot_loaded(this, message)
            case SnapshotUnusable():
                this.begin_fetching()
                this.fetching.at_ms = this.now_ms + this.timeouts.retry_backoff_ms
            case LogTrimmed():
                this.log.history.trimmed(*message)
            case Resign():
                leading.resign(this)
            case AppendFailed():
                _append_failed(this, message)
        return self._take_ready()

    def _take_ready(self) -> Ready:
        following.pursue(self._this)
        draft, self._this.draft = self._this.draft, Draft()
        return Ready(
            draft.truncate_to,
            tuple(draft.entries),
            draft.snapshot_part,
            draft.hard_state,
            tuple(draft.messages),
            draft.reply,
            draft.high_watermark,
            draft.role,
        )


def _flushed(this: NodeState, offset: int) -> None:
    this.log.flushed(offset)
    if this.leader is not None:
        this.leader.flushed(this.log.durable_end)
        leading.advance_as_leader(this, this.leader)
    else:
        following.advance_as_follower(this)


def _append_failed(this: NodeState, failure: AppendFailed) -> None:
    this.truncate_to(failure.log_end.offset)
    if this.leader is not None:
        leading.resign(this)
    else:
        this.begin_fetching()
        this.fetching.at_ms = this.now_ms + this.timeouts.election_ms


def _request_failed(this: NodeState, failure: RequestFailed) -> None:
    request, again_ms = failure.request, this.now_ms + this.timeouts.retry_backoff_ms
    if isinstance(request, FetchRequest | FetchSnapshotRequest):
        if following.clear_in_flight(this, request):
            this.fetching.at_ms = again_ms
            if failure.is_unreachable and failure.to == this.leader_id:
                following.lose_leader(this)
    elif isinstance(request, VoteRequest):
        if this.election is not None and this.election.is_unanswered_by(failure.to):
            this.to_resend[failure.to] = again_ms
    elif isinstance(request, EndEpochRequest) and this.role is Role.RESIGNED and request.epoch == this.epoch:
        this.to_resend[failure.to] = again_ms


def _resend_due(this: NodeState) -> None:
    for voter_id in [voter_id for voter_id, at_ms in this.to_resend.items() if this.now_ms >= at_ms]:
        del this.to_resend[voter_id]
        node = this.voters.get(voter_id)
        if node is None:
            continue
        if this.role is Role.RESIGNED:
            leading.send_end_request(this, node)
        elif this.election is not None and voter_id not in this.election.granted:
            standing.send_vote_request(this, node)
