"""One node of the quorum: its role, its timers, and its answer to every message.

An *epoch* has at most one leader, elected by a majority of the voters, each of which votes once per epoch and only
for a candidate whose log is at least as up to date as its own. Everybody else fetches from the leader.

    unattached   knows no leader: a voter waits a while and stands, an observer asks around
    prospective  asks whether it would be elected (pre-vote); its epoch stays as it is
    candidate    asks for votes in an epoch of its own
    leader       appends, answers fetches, and resigns when a majority stays away
    follower     fetches from the leader; a voter that hears nothing for too long becomes prospective
    resigned     has led this epoch and will not again; it tells the others whom it would like to succeed it

A quorum of one elects itself in its first tick, and its high watermark is what it has flushed. A node that is no voter
(an observer) is only ever unattached or a follower.

The driver calls `step` and `tick` with the time, does what the `Ready` says, and calls `tick` again at `deadline_ms`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID
from barnabas.raft.consensus.election import Election, backoff_ms, succession_ms
from barnabas.raft.consensus.fetching import Download, Fetching
from barnabas.raft.consensus.leader_state import LeaderState
from barnabas.raft.consensus.log_history import LogEnd, SnapshotId
from barnabas.raft.consensus.messages import (
    NO_NODE,
    NO_OFFSET,
    AppendFailed,
    BeginEpochRequest,
    BeginEpochResponse,
    EndEpochRequest,
    EndEpochResponse,
    Entry,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Flushed,
    HardState,
    Head,
    Inbound,
    LeaderChange,
    LogTrimmed,
    NotLeaderError,
    Outbound,
    Propose,
    Ready,
    Request,
    RequestFailed,
    Resign,
    Response,
    Role,
    SnapshotLoaded,
    SnapshotPart,
    SnapshotUnusable,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
    VotersChange,
)
from barnabas.raft.consensus.voter_sets import VOTERS_IN_LOG, Voter, VoterEndpoint, VoterNode, VoterSet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.raft.consensus.leader_state import ReplicaStatus
    from barnabas.raft.consensus.replica_log import ReplicaLog

logger = logging.getLogger("barnabas.raft")

LOST_LEADER_MS = 100
"""A follower whose leader refuses connections stands within so much time, long before its fetch timeout is over."""
START_FRACTION = 4
"""A node that starts waits for this fraction of an election timeout only: with pre-votes it disturbs nobody."""


class QuorumTimeouts(NamedTuple):
    """Kafka's `controller.quorum.*.ms`."""

    election_ms: int = 1000
    fetch_ms: int = 2000
    election_backoff_max_ms: int = 1000
    retry_backoff_ms: int = 20


class RaftCore:
    """Invariants: `high_watermark` never decreases; this node votes for at most one candidate per epoch; `_leader` is
    set while it is LEADER, `_election` while it is PROSPECTIVE or CANDIDATE, `_fetching` in all other roles."""

    __slots__ = (
        "_deadline_ms",
        "_draft",
        "_election",
        "_endpoints",
        "_fetching",
        "_hard_state",
        "_jitter",
        "_known_high_watermark",
        "_leader",
        "_lost_elections",
        "_now_ms",
        "_self",
        "_successors",
        "_to_resend",
        "_update_voter_at_ms",
        "leader_endpoints",
        "log",
        "role",
        "timeouts",
    )

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
        self._self = local
        # If the state was lost or is older than the log, this node must not vote or lead in an old epoch again.
        self._hard_state = hard_state if hard_state.epoch >= log.end.epoch else HardState(log.end.epoch)
        self.log = log
        self._endpoints = tuple(endpoints)
        self.timeouts = timeouts or QuorumTimeouts()
        self._jitter = jitter
        self._now_ms = 0
        self._deadline_ms: int | None = None
        self._election: Election | None = None
        self._leader: LeaderState | None = None
        self._fetching = Fetching(0)
        self._known_high_watermark = NO_OFFSET
        self._lost_elections = 0
        self._successors: tuple[Voter, ...] = ()
        self._to_resend: dict[int, int] = {}
        """When which voter is asked again who could not be."""
        self._update_voter_at_ms = 0
        self._draft = _Draft()
        self.leader_endpoints = self.voters.endpoints_of(self.leader_id)
        if self.leader_id == local.id:
            self.role = Role.RESIGNED
        elif self.leader_endpoints:
            self.role = Role.FOLLOWER
        else:
            self.role = Role.UNATTACHED

    @property
    def local(self) -> Voter:
        return self._self

    @property
    def epoch(self) -> int:
        return self._hard_state.epoch

    @property
    def hard_state(self) -> HardState:
        return self._hard_state

    @property
    def leader_id(self) -> int:
        return self._hard_state.leader_id

    @property
    def log_end_offset(self) -> int:
        return self.log.end.offset

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def voters(self) -> VoterSet:
        return self.log.voters.latest.voters

    @property
    def kraft_version(self) -> int:
        return self.log.voters.latest.kraft_version

    @property
    def is_voter(self) -> bool:
        return self.voters.matching(self._self) is not None

    @property
    def is_active(self) -> bool:
        """Whether this node leads, and a record of its epoch is committed: so everything before it is."""
        return self._leader is not None and self._leader.is_committed

    @property
    def is_caught_up(self) -> bool:
        """Whether this node leads, or has everything that its leader said was committed when it last answered."""
        if self.role is Role.FOLLOWER:
            return 0 <= self._known_high_watermark <= self.high_watermark
        return self.is_active

    @property
    def deadline_ms(self) -> int | None:
        """When the next tick is due; None before the first."""
        if self._deadline_ms is None:
            return None
        times = [self._deadline_ms, *self._to_resend.values()]
        if self._leader is not None and self._leader.check_quorum_at_ms is not None:
            times += (self._leader.check_quorum_at_ms, self._leader.begin_epoch_at_ms)
        if self._may_fetch():
            times.append(self._fetching.at_ms)
        return min(times)

    def describe(self, now_ms: int) -> tuple[list[ReplicaStatus], list[ReplicaStatus]]:
        """The voters and the observers, as the leader sees them."""
        if self._leader is None:
            raise NotLeaderError(f"node {self._self.id} does not lead epoch {self.epoch}")
        return self._leader.describe(self.log_end_offset, now_ms)

    def tick(self, now_ms: int) -> Ready:
        """Time has passed: this starts elections, and a leader that has lost contact with the majority resigns."""
        self._now_ms = max(self._now_ms, now_ms)
        if self._deadline_ms is None:
            self._begin()
        elif self._leader is not None:
            self._tick_as_leader(self._leader)
        elif self._now_ms >= self._deadline_ms:
            self._time_is_up()
        self._resend_due()
        return self._take_ready()

    def step(self, message: Inbound, now_ms: int | None = None) -> Ready:
        if now_ms is not None:
            self._now_ms = max(self._now_ms, now_ms)
        match message:
            case Propose():
                self._propose(message)
            case Flushed():
                self._flushed(message.offset)
            case FetchRequest():
                self._draft.reply = self._fetch_requested(message)
            case FetchResponse():
                self._fetch_answered(message)
            case VoteRequest():
                self._draft.reply = self._vote_requested(message)
            case VoteResponse():
                self._vote_answered(message)
            case BeginEpochRequest():
                self._draft.reply = self._begin_requested(message)
            case BeginEpochResponse() | UpdateVoterResponse():
                self._learn(message.head)
            case EndEpochRequest():
                self._draft.reply = self._end_requested(message)
            case EndEpochResponse():
                self._learn(message.head)
            case FetchSnapshotRequest():
                self._draft.reply = self._snapshot_requested(message)
            case FetchSnapshotResponse():
                self._snapshot_answered(message)
            case UpdateVoterRequest():
                self._draft.reply = self._update_requested(message)
            case RequestFailed():
                self._request_failed(message)
            case SnapshotLoaded():
                self._snapshot_loaded(message)
            case SnapshotUnusable():
                self._begin_fetching()
                self._fetching.at_ms = self._now_ms + self.timeouts.retry_backoff_ms
            case LogTrimmed():
                self.log.history.trimmed(*message)
            case Resign():
                self._resign()
            case AppendFailed():
                self._append_failed(message)
        return self._take_ready()

    # Elections

    def _begin(self) -> None:
        if self._is_sole_voter():
            self._stand()
        elif self.role is Role.FOLLOWER:
            self._follow_further()
        elif self.is_voter:
            self._deadline_ms = self._now_ms + self._jitter(max(1, self.timeouts.election_ms // START_FRACTION))
        else:
            self._set_election_deadline()

    def _time_is_up(self) -> None:
        """Nothing has happened within the time that this role has."""
        if not self.is_voter:
            if self.role is Role.RESIGNED:
                self._become_unattached(self.epoch + 1)
            self._fetching.is_leader_doubtful = True
            self._set_election_deadline()
        elif self._is_sole_voter():
            self._stand()
        elif self.role is Role.PROSPECTIVE:
            self._return_from_pre_vote()
        elif self.role is Role.RESIGNED:
            # So that nobody takes this node for the leader that it was.
            self._persist(HardState(self.epoch + 1))
            self._become_prospective()
        else:
            self._become_prospective()

    def _become_prospective(self) -> None:
        self._become(Role.PROSPECTIVE)
        self._ask_for_votes()

    def _return_from_pre_vote(self) -> None:
        """This node would not be elected now: it goes back to whom it followed, or waits."""
        if self.leader_id not in (NO_NODE, self._self.id) and self.leader_endpoints:
            self._follow_further()
        else:
            self._become(Role.UNATTACHED)
            self._set_election_deadline()

    def _stand(self) -> None:
        self._persist(HardState(self.epoch + 1, NO_NODE, self._self.id, self._self.directory_id))
        self.leader_endpoints = ()
        self._become(Role.CANDIDATE)
        self._ask_for_votes()

    def _ask_for_votes(self) -> None:
        self._election = Election(self.voters, self._self.id)
        self._set_election_deadline()
        for node in self.voters:
            self._send_vote_request(node)
        self._count_votes()

    def _send_vote_request(self, node: VoterNode) -> None:
        if node.id != self._self.id:
            is_pre_vote = self.role is Role.PROSPECTIVE
            request = VoteRequest(self._self, self.epoch, self.log.end, is_pre_vote, node.key)
            self._send(node.id, node.endpoints, request)

    def _vote_requested(self, request: VoteRequest) -> VoteResponse:
        is_granted, error = False, Error.NONE
        last_possible_epoch = request.epoch if request.is_pre_vote else request.epoch - 1
        if not 0 <= request.log_end.epoch <= last_possible_epoch or request.log_end.offset < 0:
            error = Error.INVALID_REQUEST
        elif request.epoch < self.epoch:
            error = Error.FENCED_LEADER_EPOCH
        else:
            if request.epoch > self.epoch:
                self._become_unattached(request.epoch)
            if not self._is_meant(request.voter):
                error = Error.INVALID_VOTER_KEY
            else:
                is_granted = self._may_grant(request)
        if is_granted and not request.is_pre_vote and self._hard_state.voted_id == NO_NODE:
            candidate = request.candidate
            self._persist(self._hard_state._replace(voted_id=candidate.id, voted_directory_id=candidate.directory_id))
            self._become(Role.UNATTACHED)
            self._set_election_deadline()
        return VoteResponse(self._self.id, self._head(error), is_granted, request.is_pre_vote)

    def _may_grant(self, request: VoteRequest) -> bool:
        is_up_to_date = request.log_end >= self.log.end
        if request.is_pre_vote:
            has_leader = self.role is Role.LEADER or (self.role is Role.FOLLOWER and self._fetching.has_fetched)
            return is_up_to_date and not has_leader
        if self.role not in (Role.UNATTACHED, Role.PROSPECTIVE):
            return False
        state = self._hard_state
        if state.voted_id != NO_NODE:
            return (state.voted_id, state.voted_directory_id) == request.candidate
        return is_up_to_date and self.leader_id == NO_NODE

    def _vote_answered(self, response: VoteResponse) -> None:
        election = self._election
        is_about_this = response.is_pre_vote is (self.role is Role.PROSPECTIVE) and response.head.epoch == self.epoch
        if self._learn(response.head) or election is None or election is not self._election or not is_about_this:
            return
        self._to_resend.pop(response.voter_id, None)
        if not election.is_lost:
            election.record(response.voter_id, is_granted=response.is_granted)
            self._count_votes()
        if self._election is election and self.role is Role.PROSPECTIVE and not response.is_granted:
            # It may not have noticed yet that the leader is gone, and asking costs nobody anything.
            self._to_resend[response.voter_id] = self._now_ms + LOST_LEADER_MS

    def _count_votes(self) -> None:
        election = self._election
        assert election is not None
        if election.is_won:
            if self.role is Role.PROSPECTIVE:
                self._stand()
            else:
                self._lead(tuple(sorted(election.granted)))
        elif election.is_lost:
            if self.role is Role.PROSPECTIVE:
                self._return_from_pre_vote()
            else:
                self._to_resend.clear()
                self._lost_elections += 1
                longest_ms = self.timeouts.election_backoff_max_ms
                self._deadline_ms = self._now_ms + backoff_ms(self._lost_elections, longest_ms, self._jitter)

    def _lead(self, granting: tuple[int, ...]) -> None:
        voters = self.voters
        self._persist(HardState(self.epoch, leader_id=self._self.id))
        self._become(Role.LEADER)
        self.leader_endpoints = self._endpoints
        self._lost_elections = 0
        self._leader = LeaderState(self._self, self.log_end_offset, voters, self.timeouts.fetch_ms, self._now_ms)
        self._deadline_ms = self._now_ms + self.timeouts.fetch_ms
        named = self._voters_to_name()
        change = LeaderChange(self._self.id, voters.ids, granting, named.nodes if named else None)
        self._append(change, change.record_count, named)
        self._remind_voters(self._leader)

    def _voters_to_name(self) -> VoterSet | None:
        """The voters, if the log does not have them yet, or has this one at other addresses."""
        latest = self.log.voters.latest
        if latest.kraft_version < VOTERS_IN_LOG:
            return None
        named = latest.voters
        if self._endpoints:
            named = named.with_endpoints(self._self, self._endpoints)
        return named if latest.offset < 0 or named != latest.voters else None

    def _resign(self) -> None:
        leader = self._leader
        if leader is None:
            return
        self._successors = leader.successors()
        self._become(Role.RESIGNED)
        self._set_election_deadline()
        for node in self.voters:
            self._send_end_request(node)

    def _send_end_request(self, node: VoterNode) -> None:
        if node.id != self._self.id:
            request = EndEpochRequest(self._self.id, self.epoch, self._successors, self._endpoints)
            self._send(node.id, node.endpoints, request)

    def _tick_as_leader(self, leader: LeaderState) -> None:
        if leader.is_quorum_lost(self._now_ms):
            logger.warning(
                "node %d resigns from epoch %d: a majority of the voters %s has not fetched in time",
                self._self.id,
                self.epoch,
                self.voters.ids,
            )
            self._resign()
            return
        self._deadline_ms = self._now_ms + self.timeouts.fetch_ms
        if self._now_ms >= leader.begin_epoch_at_ms:
            self._remind_voters(leader)

    def _remind_voters(self, leader: LeaderState) -> None:
        leader.begin_epoch_at_ms = self._now_ms + leader.begin_epoch_ms
        for voter in leader.voters_to_remind(self._now_ms):
            request = BeginEpochRequest(self._self.id, self.epoch, self._endpoints, voter)
            self._send(voter.id, self.voters.endpoints_of(voter.id), request)

    def _begin_requested(self, request: BeginEpochRequest) -> BeginEpochResponse:
        error = self._announced(request.leader_id, request.epoch, request.endpoints)
        if error is Error.NONE and not self._is_meant(request.voter):
            error = Error.INVALID_VOTER_KEY
        elif error is Error.NONE and self.role is Role.PROSPECTIVE:
            self._follow_further()
        return BeginEpochResponse(self._self.id, self._head(error))

    def _end_requested(self, request: EndEpochRequest) -> EndEpochResponse:
        error = self._announced(request.leader_id, request.epoch, request.endpoints)
        if error is Error.NONE and self.role is Role.FOLLOWER and self.leader_id == request.leader_id:
            self._fetching.has_fetched = False
            longest_ms = self.timeouts.election_backoff_max_ms
            self._deadline_ms = self._now_ms + succession_ms(request.successors, self._self, longest_ms)
            if self.is_voter and self._deadline_ms <= self._now_ms:
                self._become_prospective()
        return EndEpochResponse(self._self.id, self._head(error))

    def _announced(self, leader_id: int, epoch: int, endpoints: tuple[VoterEndpoint, ...]) -> Error:
        """Somebody says that it leads, or led."""
        if epoch < self.epoch:
            return Error.FENCED_LEADER_EPOCH
        is_contradiction = epoch == self.epoch and self.leader_id not in (NO_NODE, leader_id)
        if leader_id < 0 or leader_id == self._self.id or is_contradiction:
            return Error.INVALID_REQUEST
        self._hear_of(leader_id, epoch, endpoints)
        return Error.NONE

    # Who leads

    def _learn(self, head: Head) -> bool:
        """Whether a response is of no further use, because it was refused, or this node has moved on."""
        if head.epoch < self.epoch or head.error is Error.UNKNOWN_LEADER_EPOCH:
            return True
        if head.epoch > self.epoch or head.error in (Error.FENCED_LEADER_EPOCH, Error.NOT_LEADER_OR_FOLLOWER):
            self._hear_of(head.leader_id, head.epoch, head.leader_endpoints)
            return True
        if self.leader_id == NO_NODE and head.leader_id != NO_NODE:
            self._hear_of(head.leader_id, head.epoch, head.leader_endpoints)
        return head.error is not Error.NONE

    def _hear_of(self, leader_id: int, epoch: int, endpoints: tuple[VoterEndpoint, ...]) -> None:
        """Some node says who leads an epoch, or that nobody is known to."""
        if leader_id in (NO_NODE, self._self.id):
            if epoch > self.epoch:
                self._become_unattached(epoch)
            return
        endpoints = endpoints or self.voters.endpoints_of(leader_id)
        if epoch > self.epoch or self.leader_id == NO_NODE:
            kept = self._hard_state if epoch == self.epoch else HardState(epoch)
            self._persist(kept._replace(leader_id=leader_id))
            self.leader_endpoints = endpoints
            self._follow()
        elif epoch == self.epoch and leader_id == self.leader_id:
            if endpoints and endpoints != self.leader_endpoints:
                self.leader_endpoints = endpoints
            if self.role is Role.UNATTACHED and self.leader_endpoints:
                self._follow()
            elif self.role is Role.FOLLOWER and self._fetching.is_leader_doubtful:
                self._begin_fetching()

    def _follow(self) -> None:
        self._lost_elections = 0
        if self.leader_endpoints:
            self._become(Role.FOLLOWER)
            self._deadline_ms = self._now_ms + self.timeouts.fetch_ms
        else:
            self._become(Role.UNATTACHED)
            self._set_election_deadline()

    def _follow_further(self) -> None:
        self._become(Role.FOLLOWER)
        self._deadline_ms = self._now_ms + self.timeouts.fetch_ms

    def _become_unattached(self, epoch: int) -> None:
        """An epoch has begun of which no leader is known. Whoever was about to stand is not kept from it by that."""
        keeps_deadline = self._leader is None and self.role is not Role.RESIGNED and self._deadline_ms is not None
        self._persist(HardState(epoch))
        self.leader_endpoints = ()
        self._become(Role.UNATTACHED)
        if not keeps_deadline:
            self._set_election_deadline()

    def _append_failed(self, failure: AppendFailed) -> None:
        self._truncate_to(failure.log_end.offset)
        if self._leader is not None:
            self._resign()
        else:
            self._begin_fetching()
            self._fetching.at_ms = self._now_ms + self.timeouts.election_ms

    # Replication: the leader

    def _propose(self, proposal: Propose) -> None:
        if self.role is not Role.LEADER:
            raise NotLeaderError(f"node {self._self.id} does not lead epoch {self.epoch}")
        self._append(proposal.payload, proposal.record_count)

    def _append(self, payload: object, record_count: int, voters: VoterSet | None = None) -> None:
        self._draft.entries.append(self.log.append(self.epoch, payload, record_count, voters))
        if voters is not None and self._leader is not None:
            self._leader.use_voters(voters, self._now_ms)

    def _flushed(self, offset: int) -> None:
        self.log.flushed(offset)
        if self._leader is not None:
            self._leader.flushed(self.log.durable_end)
            self._advance_as_leader(self._leader)
        else:
            self._advance_as_follower()

    def _advance_as_leader(self, leader: LeaderState) -> None:
        reached = leader.high_watermark()
        if reached is not None:
            leader.is_committed = True
            self._advance(reached)

    def _advance(self, high_watermark: int) -> None:
        if self.log.commit(high_watermark):
            self._draft.high_watermark = high_watermark

    def _fetch_requested(self, request: FetchRequest) -> FetchResponse:
        leader = self._leader
        error = self._leader_error(request.epoch)
        if error is not Error.NONE or leader is None:
            return FetchResponse(request, self._head(error))
        place = self.log.history.compare(request.log_end)
        divergence = place if isinstance(place, LogEnd) else None
        snapshot = place if isinstance(place, SnapshotId) else None
        if place is None and request.replica.id >= 0:
            leader.fetched(request.replica, request.log_end.offset, self.log_end_offset, self._now_ms)
            self._advance_as_leader(leader)
        committed = self.high_watermark if leader.is_committed else NO_OFFSET
        return FetchResponse(request, self._head(), committed, divergence, snapshot)

    def _snapshot_requested(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        error = self._leader_error(request.epoch)
        if error is Error.NONE and self._leader is not None:
            self._leader.heard_from(request.replica, self._now_ms)
        return FetchSnapshotResponse(request, self._head(error))

    def _update_requested(self, request: UpdateVoterRequest) -> UpdateVoterResponse:
        leader, latest = self._leader, self.log.voters.latest
        error = self._leader_error(request.epoch)
        if error is Error.NONE and leader is not None:
            if not leader.is_committed or latest.offset >= self.high_watermark:
                error = Error.REQUEST_TIMED_OUT  # as Kafka answers while another change is under way
            elif latest.kraft_version < VOTERS_IN_LOG:
                error = Error.UNSUPPORTED_VERSION
            elif all(node.key != request.voter for node in latest.voters):
                error = Error.VOTER_NOT_FOUND
            else:
                voters = latest.voters.with_endpoints(request.voter, request.endpoints)
                if voters != latest.voters:
                    self._append(VotersChange(voters.nodes), 1, voters)
        return UpdateVoterResponse(self._head(error))

    def _leader_error(self, epoch: int) -> Error:
        """What keeps a request from being served that only the leader of this epoch may."""
        if epoch < self.epoch:
            return Error.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return Error.UNKNOWN_LEADER_EPOCH
        return Error.NONE if self._leader is not None else Error.NOT_LEADER_OR_FOLLOWER

    # Replication: everybody else

    def _fetch_answered(self, response: FetchResponse) -> None:
        if not self._is_awaited(response.request):
            return
        if self._learn(response.head):
            self._try_again_later()
            return
        if self.role is not Role.FOLLOWER:
            return
        self._heard_leader()
        if response.divergence is not None:
            self._truncate_to(self.log.truncation_for(response.divergence))
        elif response.snapshot is not None:
            self._fetching.download = Download(response.snapshot, 0)
        else:
            self._draft.entries += self.log.append_fetched(response.batches, self.epoch)
            self._known_high_watermark = max(self._known_high_watermark, response.high_watermark)
            self._advance_as_follower()

    def _advance_as_follower(self) -> None:
        self._advance(min(self._known_high_watermark, self.log.durable_end))

    def _truncate_to(self, offset: int) -> None:
        if self.log.truncate_to(offset):
            self._draft.truncate_to = offset

    def _snapshot_answered(self, response: FetchSnapshotResponse) -> None:
        request = response.request
        if not self._is_awaited(request):
            return
        download = self._fetching.download
        is_gone = response.head.error in (Error.SNAPSHOT_NOT_FOUND, Error.POSITION_OUT_OF_RANGE)
        if (self._learn(response.head) and not is_gone) or self.role is not Role.FOLLOWER:
            self._try_again_later()
            return
        self._heard_leader()
        if is_gone or download is None or not response.data:
            # The leader has removed it meanwhile: what it sends in place of it, the next fetch says.
            self._fetching.download = None
            return
        end = request.position + len(response.data)
        self._fetching.download = Download(request.snapshot, end)
        is_last = end >= response.size
        self._fetching.is_installing = is_last
        self._draft.snapshot_part = SnapshotPart(request.snapshot, request.position, response.data, is_last)

    def _snapshot_loaded(self, loaded: SnapshotLoaded) -> None:
        if self.log.restart_at(loaded):
            self._draft.high_watermark = self.high_watermark
        self._begin_fetching()

    def _is_awaited(self, request: FetchRequest | FetchSnapshotRequest) -> bool:
        """Whether this is the answer to the request that is under way, which it then is no longer."""
        if request != self._fetching.in_flight:
            return False
        self._fetching.in_flight = None
        return True

    def _heard_leader(self) -> None:
        self._fetching.has_fetched = True
        self._fetching.is_leader_doubtful = False
        self._deadline_ms = self._now_ms + self.timeouts.fetch_ms

    def _begin_fetching(self) -> None:
        has_fetched = self._fetching.has_fetched
        self._fetching = Fetching(self._now_ms)
        self._fetching.has_fetched = has_fetched

    def _try_again_later(self) -> None:
        if self._fetching.in_flight is None:
            self._fetching.at_ms = max(self._fetching.at_ms, self._now_ms + self.timeouts.retry_backoff_ms)

    def _may_fetch(self) -> bool:
        is_reader = self.role is Role.FOLLOWER or (self.role is Role.UNATTACHED and not self.is_voter)
        return is_reader and self._fetching.is_free() and self.log.is_durable

    def _pursue(self) -> None:
        """Asks for more, if that is due."""
        if not self._may_fetch() or self._now_ms < self._fetching.at_ms or self._deadline_ms is None:
            return
        to, endpoints = self.leader_id, self.leader_endpoints
        if self.role is Role.UNATTACHED or self._fetching.is_leader_doubtful:
            to, endpoints = NO_NODE, ()
        elif self._is_update_due():
            self._update_voter_at_ms = self._now_ms + self.timeouts.fetch_ms
            self._send(to, endpoints, UpdateVoterRequest(self._self, self.epoch, self._endpoints))
        request = self._fetching.next_request(self._self, self.epoch, self.log.end, self.high_watermark)
        self._send(to, endpoints, request)

    def _is_update_due(self) -> bool:
        """Whether the leader is to be told that this voter has moved. It has to know the newest voters for that."""
        node = self.voters.matching(self._self)
        return (
            node is not None
            and bool(self._endpoints)
            and node.endpoints != self._endpoints
            and self.kraft_version >= VOTERS_IN_LOG
            and self._fetching.has_fetched
            and self.high_watermark >= self.log_end_offset
            and self._now_ms >= self._update_voter_at_ms
        )

    # Requests that failed

    def _request_failed(self, failure: RequestFailed) -> None:
        request, again_ms = failure.request, self._now_ms + self.timeouts.retry_backoff_ms
        if isinstance(request, FetchRequest | FetchSnapshotRequest):
            if self._is_awaited(request):
                self._fetching.at_ms = again_ms
                if failure.is_unreachable and failure.to == self.leader_id:
                    self._lose_leader()
        elif isinstance(request, VoteRequest):
            if self._election is not None and self._election.is_unanswered_by(failure.to):
                self._to_resend[failure.to] = again_ms
        elif isinstance(request, EndEpochRequest) and self.role is Role.RESIGNED and request.epoch == self.epoch:
            self._to_resend[failure.to] = again_ms

    def _lose_leader(self) -> None:
        """The leader takes no connections: an observer asks others for its successor, a voter does not wait for long
        until it stands."""
        self._fetching.has_fetched = False
        if not self.is_voter:
            self._fetching.is_leader_doubtful = True
        elif self._deadline_ms is not None:
            self._deadline_ms = min(self._deadline_ms, self._now_ms + self._jitter(LOST_LEADER_MS))

    def _resend_due(self) -> None:
        for voter_id in [voter_id for voter_id, at_ms in self._to_resend.items() if self._now_ms >= at_ms]:
            del self._to_resend[voter_id]
            node = self.voters.get(voter_id)
            if node is None:
                continue
            if self.role is Role.RESIGNED:
                self._send_end_request(node)
            elif self._election is not None and voter_id not in self._election.granted:
                self._send_vote_request(node)

    # Helpers

    def _is_sole_voter(self) -> bool:
        return len(self.voters) == 1 and self.is_voter

    def _is_meant(self, voter: Voter | None) -> bool:
        """Whether a request is for this node, and not for one that had its id or address before."""
        if voter is None or voter.id < 0:
            return True
        return voter.id == self._self.id and voter.directory_id in (ZERO_UUID, self._self.directory_id)

    def _head(self, error: Error = Error.NONE) -> Head:
        return Head(error, self.epoch, self.leader_id, self.leader_endpoints)

    def _send(self, to: int, endpoints: tuple[VoterEndpoint, ...], request: Request) -> None:
        self._draft.messages.append(Outbound(to, endpoints, request))

    def _persist(self, hard_state: HardState) -> None:
        assert hard_state.epoch >= self.epoch, "the epoch never decreases"
        self._hard_state = self._draft.hard_state = hard_state

    def _become(self, role: Role) -> None:
        self._leader = None
        self._election = None
        self._to_resend.clear()
        self._fetching = Fetching(self._now_ms)
        self._known_high_watermark = NO_OFFSET
        self.role = self._draft.role = role

    def _set_election_deadline(self) -> None:
        timeout_ms = self.timeouts.election_ms
        self._deadline_ms = self._now_ms + timeout_ms + self._jitter(max(1, timeout_ms))

    def _take_ready(self) -> Ready:
        self._pursue()
        draft, self._draft = self._draft, _Draft()
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


class _Draft:
    """A `Ready` under construction."""

    __slots__ = (
        "entries",
        "hard_state",
        "high_watermark",
        "messages",
        "reply",
        "role",
        "snapshot_part",
        "truncate_to",
    )

    def __init__(self) -> None:
        self.truncate_to: int | None = None
        self.entries: list[Entry] = []
        self.snapshot_part: SnapshotPart | None = None
        self.hard_state: HardState | None = None
        self.messages: list[Outbound] = []
        self.reply: Response | None = None
        self.high_watermark: int | None = None
        self.role: Role | None = None
