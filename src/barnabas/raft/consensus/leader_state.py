"""What a leader knows of the other replicas: how far their logs go, when they last fetched, and what follows from that.

The high watermark is the highest offset up to which a majority of the voters have durable logs, once it has reached
the leader's own epoch: records of earlier epochs are committed only together with one of this epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.uuids import ZERO_UUID
from barnabas.raft.consensus.messages import NO_OFFSET

if TYPE_CHECKING:
    from barnabas.raft.consensus.voter_sets import Voter, VoterSet

CHECK_QUORUM_FACTOR = 1.5
"""A leader that has not heard from a majority for this many fetch timeouts resigns."""
OBSERVER_SESSION_MS = 300_000
"""An observer that has not fetched for so long is forgotten."""
OBSERVERS_MAX = 10_000
NEVER_MS = -1


class Replica:
    """A voter or an observer, as the leader sees it."""

    __slots__ = ("caught_up_ms", "end_offset", "fetched_ms", "leader_end_offset")

    def __init__(self) -> None:
        self.end_offset = NO_OFFSET
        self.fetched_ms = NEVER_MS
        self.caught_up_ms = NEVER_MS
        self.leader_end_offset = NO_OFFSET
        """Where the leader's log ended when this replica last fetched: once it has come that far, it had caught up at
        that time."""

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif 0 < self.leader_end_offset <= offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.leader_end_offset = leader_end_offset
        self.fetched_ms = max(self.fetched_ms, now_ms)
        self.end_offset = offset


class ReplicaStatus(NamedTuple):
    """For DescribeQuorum. Times are those of the core's clock, or NEVER_MS."""

    replica: Voter
    end_offset: int
    fetched_ms: int
    caught_up_ms: int


class LeaderState:
    """Invariant: `_voters` has one entry for each voter of the newest voters record."""

    __slots__ = (
        "_check_quorum_ms",
        "_heard",
        "_local",
        "_observers",
        "_voter_set",
        "_voters",
        "begin_epoch_at_ms",
        "begin_epoch_ms",
        "check_quorum_at_ms",
        "epoch_start",
        "is_committed",
    )

    def __init__(self, local: Voter, epoch_start: int, voters: VoterSet, fetch_timeout_ms: int, now_ms: int) -> None:
        self._local = local
        self._voter_set = voters
        self._voters = {node.key: Replica() for node in voters}
        self._observers: dict[Voter, Replica] = {}
        self._heard: set[int] = set()
        self._check_quorum_ms = int(fetch_timeout_ms * CHECK_QUORUM_FACTOR)
        self.epoch_start = epoch_start
        self.is_committed = False
        """Whether a record of this epoch is, and so all before it are."""
        self.begin_epoch_ms = fetch_timeout_ms // 2
        self.begin_epoch_at_ms = now_ms
        self.check_quorum_at_ms: int | None = None
        self._restart_check(now_ms)

    def use_voters(self, voters: VoterSet, now_ms: int) -> None:
        """The voters record has changed. What is known of a replica stays known, whether it votes or not."""
        known = {**self._observers, **self._voters}
        self._voters = {node.key: known.pop(node.key, Replica()) for node in voters}
        self._observers = known
        self._voter_set = voters
        self._restart_check(now_ms)

    def flushed(self, offset: int) -> None:
        """The leader's own log is durable below `offset`."""
        own = self._replica(self._local)
        own.end_offset = max(own.end_offset, offset)

    def fetched(self, replica: Voter, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """A replica fetches, which shows that its log is durable below `offset`."""
        self._replica(replica).fetched(offset, leader_end_offset, now_ms)
        self.heard_from(replica, now_ms)

    def heard_from(self, replica: Voter, now_ms: int) -> None:
        """A replica is alive. When a majority has been heard from, counting begins anew."""
        voter = self._voter_set.matching(replica)
        if voter is None or voter.id == self._local.id:
            return
        self._heard.add(voter.id)
        needed = self._voter_set.majority - (1 if self._is_voter() else 0)
        if len(self._heard) >= needed:
            self._restart_check(now_ms)

    def high_watermark(self) -> int | None:
        """None as long as nothing of this epoch is committed."""
        ends = sorted((replica.end_offset for replica in self._voters.values()), reverse=True)
        reached = ends[self._voter_set.majority - 1]
        return reached if reached > self.epoch_start else None

    def is_quorum_lost(self, now_ms: int) -> bool:
        return self.check_quorum_at_ms is not None and now_ms >= self.check_quorum_at_ms

    def voters_to_remind(self, now_ms: int) -> list[Voter]:
        """Those who may not know yet who leads, because they have not fetched lately."""
        return [
            voter
            for voter, replica in self._voters.items()
            if voter.id != self._local.id
            and (replica.fetched_ms == NEVER_MS or now_ms - replica.fetched_ms >= self.begin_epoch_ms)
        ]

    def successors(self) -> tuple[Voter, ...]:
        """The other voters, the most up to date first."""
        others = [(-replica.end_offset, voter) for voter, replica in self._voters.items() if voter.id != self._local.id]
        return tuple(voter for _, voter in sorted(others))

    def describe(self, leader_end_offset: int, now_ms: int) -> tuple[list[ReplicaStatus], list[ReplicaStatus]]:
        """The voters, and the observers."""
        for observer, replica in list(self._observers.items()):
            if now_ms - replica.fetched_ms >= OBSERVER_SESSION_MS and observer != self._local:
                del self._observers[observer]
        voters = [self._status(voter, replica, leader_end_offset, now_ms) for voter, replica in self._voters.items()]
        observers = [
            self._status(voter, replica, leader_end_offset, now_ms) for voter, replica in self._observers.items()
        ]
        return voters, observers

    def end_offsets(self, leader_end_offset: int) -> list[tuple[Voter, bool, int]]:
        """Each replica, whether it votes, and where its log ends, for figures about them. Another thread may ask."""
        found = [(replica, voter, True) for voter, replica in list(self._voters.items())]
        found += [(replica, voter, False) for voter, replica in list(self._observers.items())]
        return [
            (voter, votes, self._status(voter, replica, leader_end_offset, NEVER_MS).end_offset)
            for replica, voter, votes in found
        ]

    def _status(self, voter: Voter, replica: Replica, leader_end_offset: int, now_ms: int) -> ReplicaStatus:
        if voter.id == self._local.id and voter.directory_id in (ZERO_UUID, self._local.directory_id):
            return ReplicaStatus(voter, leader_end_offset, now_ms, now_ms)
        return ReplicaStatus(voter, replica.end_offset, replica.fetched_ms, replica.caught_up_ms)

    def _replica(self, replica: Voter) -> Replica:
        voter = self._voter_set.matching(replica)
        if voter is not None:
            return self._voters[voter.key]
        if replica not in self._observers and len(self._observers) >= OBSERVERS_MAX:
            oldest = min(self._observers, key=lambda known: self._observers[known].fetched_ms)
            del self._observers[oldest]
        return self._observers.setdefault(replica, Replica())

    def _is_voter(self) -> bool:
        return self._voter_set.matching(self._local) is not None

    def _restart_check(self, now_ms: int) -> None:
        self._heard.clear()
        is_alone = self._is_voter() and len(self._voter_set) == 1
        self.check_quorum_at_ms = None if is_alone else now_ms + self._check_quorum_ms
