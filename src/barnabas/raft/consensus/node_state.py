"""What one node of the quorum knows and has promised, and the steps from one role into another.

A message changes this state and leaves behind, in `draft`, what the driver has to do: that becomes the `Ready`. The
rules are in `standing`, `leading` and `following`. What all of them need is here, above all which node leads: any
message may say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID
from barnabas.raft.consensus.fetching import Fetching
from barnabas.raft.consensus.messages import (
    NO_NODE,
    NO_OFFSET,
    Entry,
    HardState,
    Head,
    Outbound,
    Request,
    Response,
    Role,
    SnapshotPart,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.raft.consensus.election import Election
    from barnabas.raft.consensus.leader_state import LeaderState
    from barnabas.raft.consensus.replica_log import ReplicaLog
    from barnabas.raft.consensus.voter_sets import Voter, VoterEndpoint, VoterSet


LOST_LEADER_MS = 100
"""A follower whose leader refuses connections stands within so much time, long before its fetch timeout is over."""


class QuorumTimeouts(NamedTuple):
    """Kafka's `controller.quorum.*.ms`."""

    election_ms: int = 1000
    fetch_ms: int = 2000
    election_backoff_max_ms: int = 1000
    retry_backoff_ms: int = 20


class NodeState:
    """Invariants: the high watermark never decreases; this node votes for at most one candidate per epoch; `leader` is
    set while it is LEADER, `election` while it is PROSPECTIVE or CANDIDATE, `fetching` in all other roles."""

    __slots__ = (
        "deadline_ms",
        "draft",
        "election",
        "endpoints",
        "fetching",
        "hard_state",
        "jitter",
        "known_high_watermark",
        "leader",
        "leader_endpoints",
        "local",
        "log",
        "lost_elections",
        "lost_leader_id",
        "now_ms",
        "role",
        "successors",
        "timeouts",
        "to_resend",
        "update_voter_at_ms",
    )

    def __init__(
        self,
        local: Voter,
        hard_state: HardState,
        log: ReplicaLog,
        endpoints: Sequence[VoterEndpoint],
        timeouts: QuorumTimeouts,
        jitter: Callable[[int], int],
    ) -> None:
        self.local = local
        # If the state was lost or is older than the log, this node must not vote or lead in an old epoch again.
        self.hard_state = hard_state if hard_state.epoch >= log.end.epoch else HardState(log.end.epoch)
        self.log = log
        self.endpoints = tuple(endpoints)
        self.timeouts = timeouts
        self.jitter = jitter
        self.now_ms = 0
        self.deadline_ms: int | None = None
        self.election: Election | None = None
        self.leader: LeaderState | None = None
        self.fetching = Fetching(0)
        self.known_high_watermark = NO_OFFSET
        self.lost_elections = 0
        self.lost_leader_id = NO_NODE
        """The node that led when it last took no connections, until a leader is heard."""
        self.successors: tuple[Voter, ...] = ()
        self.to_resend: dict[int, int] = {}
        """When which voter is asked again who could not be."""
        self.update_voter_at_ms = 0
        self.draft = Draft()
        self.leader_endpoints = self.voters.endpoints_of(self.leader_id)
        if self.leader_id == local.id:
            self.role = Role.RESIGNED
        elif self.leader_endpoints:
            self.role = Role.FOLLOWER
        else:
            self.role = Role.UNATTACHED

    @property
    def epoch(self) -> int:
        return self.hard_state.epoch

    @property
    def leader_id(self) -> int:
        return self.hard_state.leader_id

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
        return self.voters.matching(self.local) is not None

    def become(self, role: Role) -> None:
        self.leader = None
        self.election = None
        self.to_resend.clear()
        self.fetching = Fetching(self.now_ms)
        self.known_high_watermark = NO_OFFSET
        self.role = self.draft.role = role

    def persist(self, hard_state: HardState) -> None:
        assert hard_state.epoch >= self.epoch, "the epoch never decreases"
        self.hard_state = self.draft.hard_state = hard_state

    def send(self, to: int, endpoints: tuple[VoterEndpoint, ...], request: Request) -> None:
        self.draft.messages.append(Outbound(to, endpoints, request))

    def head(self, error: Error = Error.NONE) -> Head:
        return Head(error, self.epoch, self.leader_id, self.leader_endpoints)

    def set_election_deadline(self) -> None:
        timeout_ms = self.timeouts.election_ms
        self.deadline_ms = self.now_ms + timeout_ms + self.jitter(max(1, timeout_ms))

    def is_sole_voter(self) -> bool:
        return len(self.voters) == 1 and self.is_voter

    def is_meant(self, voter: Voter | None) -> bool:
        """Whether a request is for this node, and not for one that had its id or address before."""
        if voter is None or voter.id < 0:
            return True
        return voter.id == self.local.id and voter.directory_id in (ZERO_UUID, self.local.directory_id)

    def learn(self, head: Head) -> bool:
        """Whether a response is of no further use, because it was refused, or this node has moved on."""
        if head.epoch < self.epoch or head.error is Error.UNKNOWN_LEADER_EPOCH:
            return True
        if head.epoch > self.epoch or head.error in (Error.FENCED_LEADER_EPOCH, Error.NOT_LEADER_OR_FOLLOWER):
            self.hear_of(head.leader_id, head.epoch, head.leader_endpoints)
            return True
        if self.leader_id == NO_NODE and head.leader_id != NO_NODE:
            self.hear_of(head.leader_id, head.epoch, head.leader_endpoints)
        return head.error is not Error.NONE

    def hear_of(self, leader_id: int, epoch: int, endpoints: tuple[VoterEndpoint, ...]) -> None:
        """Some node says who leads an epoch, or that nobody is known to."""
        if leader_id in (NO_NODE, self.local.id):
            if epoch > self.epoch:
                self.become_unattached(epoch)
            return
        endpoints = endpoints or self.voters.endpoints_of(leader_id)
        if epoch > self.epoch or self.leader_id == NO_NODE:
            kept = self.hard_state if epoch == self.epoch else HardState(epoch)
            self.persist(kept._replace(leader_id=leader_id))
            self.leader_endpoints = endpoints
            self.follow()
        elif epoch == self.epoch and leader_id == self.leader_id:
            if endpoints and endpoints != self.leader_endpoints:
                self.leader_endpoints = endpoints
            if self.role is Role.UNATTACHED and self.leader_endpoints:
                self.follow()
            elif self.role is Role.FOLLOWER and self.fetching.is_leader_doubtful:
                self.begin_fetching()

    def follow(self) -> None:
        self.lost_elections = 0
        if self.leader_endpoints:
            self.become(Role.FOLLOWER)
            self.deadline_ms = self.now_ms + self.timeouts.fetch_ms
        else:
            self.become(Role.UNATTACHED)
            self.set_election_deadline()

    def follow_further(self) -> None:
        self.become(Role.FOLLOWER)
        self.deadline_ms = self.now_ms + self.timeouts.fetch_ms

    def become_unattached(self, epoch: int) -> None:
        """An epoch has begun of which no leader is known. Whoever was about to stand is not kept from it by that."""
        keeps_deadline = self.leader is None and self.role is not Role.RESIGNED and self.deadline_ms is not None
        self.persist(HardState(epoch))
        self.leader_endpoints = ()
        self.become(Role.UNATTACHED)
        if not keeps_deadline:
            self.set_election_deadline()

    def begin_fetching(self) -> None:
        has_fetched = self.fetching.has_fetched
        self.fetching = Fetching(self.now_ms)
        self.fetching.has_fetched = has_fetched

    def advance(self, high_watermark: int) -> None:
        if self.log.commit(high_watermark):
            self.draft.high_watermark = high_watermark

    def truncate_to(self, offset: int) -> None:
        if self.log.truncate_to(offset):
            self.draft.truncate_to = offset


class Draft:
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
