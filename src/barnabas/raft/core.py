"""KRaft's rules without any I/O: messages and ticks in, `Ready` out.

The driver handles each `Ready` in this order: make `hard_state` durable, append `entries` to the log, send `messages`,
and publish `high_watermark` and `role`. When entries are durable, it steps `Flushed`.

An *epoch* has at most one leader, elected by a majority of the voters, each of which votes once per epoch and only
for a candidate whose log is at least as up to date as its own. Records below the *high watermark* are committed: it is
the highest offset up to which a majority of the voters have durable logs, once it has reached the leader's own epoch. A
quorum of one elects itself in its first tick, and its high watermark is what it has flushed.

End offsets are exclusive: they are the offset of the next record.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.uuids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

NO_NODE = -1
CHECK_QUORUM_FACTOR = 1.5
"""A leader that has not heard from a majority for this many fetch timeouts resigns."""


class Role(Enum):
    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"


class Voter(NamedTuple):
    """A member of the quorum. The directory id distinguishes a node with a new disk from the one that voted before."""

    id: int
    directory_id: Uuid


class HardState(NamedTuple):
    """What must survive a crash: otherwise a node could vote twice in an epoch, or lead an old one again."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory_id: Uuid = ZERO_UUID


class LogEnd(NamedTuple):
    """The end of a log. Logs are compared by the epoch of their last record, then by length."""

    epoch: int
    offset: int


class Propose(NamedTuple):
    """A request to the leader to append `record_count` records."""

    payload: object
    record_count: int


class Flushed(NamedTuple):
    """This node's log is durable below `offset`."""

    offset: int


class VoteRequest(NamedTuple):
    candidate: Voter
    epoch: int
    log_end: LogEnd


class VoteResponse(NamedTuple):
    voter_id: int
    epoch: int
    is_granted: bool


class FetchSeen(NamedTuple):
    """A voter fetches from this leader, which shows that its log is durable below `offset`."""

    voter_id: int
    epoch: int
    offset: int


class LeaderSeen(NamedTuple):
    """Another node is known to be the leader of `epoch`."""

    leader_id: int
    epoch: int


class Resign(NamedTuple):
    """This node must stop leading."""


class AppendFailed(NamedTuple):
    """Entries could not be written: the log ends at `log_end`, and this node must stop leading."""

    log_end: LogEnd


Inbound = Propose | Flushed | VoteRequest | VoteResponse | FetchSeen | LeaderSeen | Resign | AppendFailed


class LeaderChange(NamedTuple):
    """The payload of the first entry of a leader's epoch."""

    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]
    names_voters: bool
    """Whether two more records follow: kraft.version, and the voters with their endpoints."""


LEADER_CHANGE_RECORDS = 1
LEADER_CHANGE_AND_VOTERS_RECORDS = 3


class Entry(NamedTuple):
    """`record_count` records to append at `base_offset`."""

    base_offset: int
    epoch: int
    record_count: int
    payload: object


class Outbound(NamedTuple):
    to: int
    message: VoteRequest | VoteResponse


class Ready(NamedTuple):
    hard_state: HardState | None = None
    entries: tuple[Entry, ...] = ()
    messages: tuple[Outbound, ...] = ()
    high_watermark: int | None = None
    role: Role | None = None


class NotLeaderError(Exception):
    """Only the leader can append."""


class RaftCore:
    """One node of the quorum.

    Invariants: `high_watermark` never decreases; this node votes for at most one candidate per epoch; only a LEADER
    has `_voter_ends`, with one entry per voter.
    """

    __slots__ = (
        "_deadline_ms",
        "_draft",
        "_election_timeout_ms",
        "_end",
        "_epoch_start",
        "_fetch_timeout_ms",
        "_granted",
        "_hard_state",
        "_is_voters_record_due",
        "_jitter",
        "_last_heard_ms",
        "_now_ms",
        "_self",
        "_voter_ends",
        "_voters",
        "high_watermark",
        "role",
    )

    def __init__(
        self,
        local: Voter,
        voters: Iterable[Voter],
        hard_state: HardState,
        log_end: LogEnd,
        *,
        high_watermark: int = 0,
        election_timeout_ms: int = 1000,
        fetch_timeout_ms: int = 2000,
        jitter: Callable[[int], int] = lambda _: 0,
        is_voters_record_due: bool = False,
    ) -> None:
        self._self = local
        self._voters = {voter.id: voter for voter in voters}
        # If the state was lost or is older than the log, this node must not vote or lead in an old epoch again.
        self._hard_state = hard_state if hard_state.epoch >= log_end.epoch else HardState(log_end.epoch)
        self._end = log_end
        self._election_timeout_ms = election_timeout_ms
        self._fetch_timeout_ms = fetch_timeout_ms
        self._jitter = jitter
        self._is_voters_record_due = is_voters_record_due
        self._now_ms = 0
        self._deadline_ms: int | None = None
        self._epoch_start = -1
        self._granted: set[int] = set()
        self._voter_ends: dict[int, int] = {}
        self._last_heard_ms: dict[int, int] = {}
        self._draft = _Draft()
        self.role = Role.UNATTACHED
        self.high_watermark = high_watermark

    @property
    def epoch(self) -> int:
        return self._hard_state.epoch

    @property
    def leader_id(self) -> int:
        return self._hard_state.leader_id

    @property
    def log_end_offset(self) -> int:
        return self._end.offset

    @property
    def deadline_ms(self) -> int | None:
        """When the next tick is due; None before the first."""
        return self._deadline_ms

    def tick(self, now_ms: int) -> Ready:
        """Time has passed: this starts elections, and a leader that has lost contact with the majority resigns."""
        is_first = self._deadline_ms is None
        self._now_ms = now_ms
        if self.role is Role.LEADER:
            self._check_quorum()
        elif self._self.id not in self._voters:
            self._set_deadline(self._election_timeout_ms)
        elif self._is_sole_voter() or (not is_first and now_ms >= (self._deadline_ms or 0)):
            self._campaign()
        elif is_first:
            self._set_deadline(self._election_timeout_ms)
        return self._take_ready()

    def step(self, message: Inbound) -> Ready:
        match message:
            case Propose():
                self._propose(message)
            case Flushed():
                self._flushed(message.offset)
            case VoteRequest():
                self._vote_requested(message)
            case VoteResponse():
                self._vote_received(message)
            case FetchSeen():
                self._fetch_seen(message)
            case LeaderSeen():
                self._leader_seen(message)
            case Resign():
                self._resign()
            case AppendFailed():
                self._end = message.log_end
                self._resign()
        return self._take_ready()

    # Elections

    def _campaign(self) -> None:
        self._persist(HardState(self.epoch + 1, NO_NODE, self._self.id, self._self.directory_id))
        self._become(Role.CANDIDATE)
        self._granted = {self._self.id}
        self._set_deadline(self._election_timeout_ms)
        request = VoteRequest(self._self, self.epoch, self._end)
        for voter_id in self._voters:
            if voter_id != self._self.id:
                self._draft.messages.append(Outbound(voter_id, request))
        self._count_votes()

    def _vote_requested(self, request: VoteRequest) -> None:
        if request.epoch > self.epoch:
            self._persist(HardState(request.epoch))
            self._become(Role.UNATTACHED)
        is_granted = (
            request.epoch == self.epoch
            and self.leader_id == NO_NODE
            and request.log_end >= self._end
            and self._may_vote_for(request.candidate)
        )
        if is_granted and self._hard_state.voted_id == NO_NODE:
            self._persist(
                self._hard_state._replace(
                    voted_id=request.candidate.id, voted_directory_id=request.candidate.directory_id
                )
            )
            self._set_deadline(self._election_timeout_ms)
        self._draft.messages.append(Outbound(request.candidate.id, VoteResponse(self._self.id, self.epoch, is_granted)))

    def _may_vote_for(self, candidate: Voter) -> bool:
        state = self._hard_state
        return state.voted_id == NO_NODE or (state.voted_id, state.voted_directory_id) == candidate

    def _vote_received(self, response: VoteResponse) -> None:
        if response.epoch > self.epoch:
            self._persist(HardState(response.epoch))
            self._become(Role.UNATTACHED)
        elif self.role is Role.CANDIDATE and response.epoch == self.epoch and response.is_granted:
            self._granted.add(response.voter_id)
            self._count_votes()

    def _count_votes(self) -> None:
        granted = self._granted & self._voters.keys()
        if len(granted) >= self._majority():
            self._lead(tuple(sorted(granted)))

    def _lead(self, granting: tuple[int, ...]) -> None:
        self._persist(HardState(self.epoch, leader_id=self._self.id))
        self._become(Role.LEADER)
        self._epoch_start = self._end.offset
        self._voter_ends = dict.fromkeys(self._voters, 0)
        self._last_heard_ms = dict.fromkeys(self._voters, self._now_ms)
        self._set_deadline(self._fetch_timeout_ms)
        self._append(
            LeaderChange(self._self.id, tuple(sorted(self._voters)), granting, self._is_voters_record_due),
            LEADER_CHANGE_AND_VOTERS_RECORDS if self._is_voters_record_due else LEADER_CHANGE_RECORDS,
        )

    def _leader_seen(self, seen: LeaderSeen) -> None:
        is_news = seen.epoch > self.epoch or (seen.epoch == self.epoch and self.leader_id == NO_NODE)
        if is_news and seen.leader_id != self._self.id:
            kept = self._hard_state if seen.epoch == self.epoch else HardState(seen.epoch)
            self._persist(kept._replace(leader_id=seen.leader_id))
            self._become(Role.FOLLOWER)
        if self.role is Role.FOLLOWER and seen.epoch == self.epoch:
            self._set_deadline(self._fetch_timeout_ms)

    def _resign(self) -> None:
        if self.role is Role.LEADER:
            self._become(Role.RESIGNED)
            self._set_deadline(self._election_timeout_ms)

    def _check_quorum(self) -> None:
        limit_ms = self._fetch_timeout_ms * CHECK_QUORUM_FACTOR
        heard = [
            voter_id
            for voter_id, heard_ms in self._last_heard_ms.items()
            if voter_id == self._self.id or self._now_ms - heard_ms < limit_ms
        ]
        if len(heard) < self._majority():
            self._resign()
        else:
            self._set_deadline(self._fetch_timeout_ms)

    # Replication

    def _propose(self, proposal: Propose) -> None:
        if self.role is not Role.LEADER:
            raise NotLeaderError(f"node {self._self.id} does not lead epoch {self.epoch}")
        self._append(proposal.payload, proposal.record_count)

    def _append(self, payload: object, record_count: int) -> None:
        assert record_count > 0, "an entry without records has no offset"
        self._draft.entries.append(Entry(self._end.offset, self.epoch, record_count, payload))
        self._end = LogEnd(self.epoch, self._end.offset + record_count)

    def _flushed(self, offset: int) -> None:
        assert offset <= self._end.offset, f"flushed to {offset}, beyond the end of the log {self._end.offset}"
        if self.role is Role.LEADER and self._self.id in self._voter_ends:
            self._voter_ends[self._self.id] = max(offset, self._voter_ends[self._self.id])
            self._advance_high_watermark()

    def _fetch_seen(self, fetch: FetchSeen) -> None:
        if self.role is not Role.LEADER or fetch.epoch != self.epoch or fetch.voter_id not in self._voter_ends:
            return
        self._voter_ends[fetch.voter_id] = fetch.offset
        self._last_heard_ms[fetch.voter_id] = self._now_ms
        self._advance_high_watermark()

    def _advance_high_watermark(self) -> None:
        ends = sorted(self._voter_ends.values(), reverse=True)
        reached = ends[self._majority() - 1]
        # Records of earlier epochs are committed only together with one of this epoch.
        if reached > self._epoch_start and reached > self.high_watermark:
            self.high_watermark = self._draft.high_watermark = reached
            # The voters record is now committed; until then, every epoch begins with it.
            self._is_voters_record_due = False

    # Helpers

    def _majority(self) -> int:
        return len(self._voters) // 2 + 1

    def _is_sole_voter(self) -> bool:
        return list(self._voters) == [self._self.id]

    def _persist(self, hard_state: HardState) -> None:
        assert hard_state.epoch >= self.epoch, "the epoch never decreases"
        self._hard_state = self._draft.hard_state = hard_state

    def _become(self, role: Role) -> None:
        self._voter_ends = {}
        self._granted = set()
        self.role = self._draft.role = role

    def _set_deadline(self, timeout_ms: int) -> None:
        self._deadline_ms = self._now_ms + timeout_ms + self._jitter(timeout_ms)

    def _take_ready(self) -> Ready:
        draft, self._draft = self._draft, _Draft()
        return Ready(draft.hard_state, tuple(draft.entries), tuple(draft.messages), draft.high_watermark, draft.role)


class _Draft:
    """A `Ready` under construction."""

    __slots__ = ("entries", "hard_state", "high_watermark", "messages", "role")

    def __init__(self) -> None:
        self.hard_state: HardState | None = None
        self.entries: list[Entry] = []
        self.messages: list[Outbound] = []
        self.high_watermark: int | None = None
        self.role: Role | None = None
