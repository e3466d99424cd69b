"""The counting of votes in one election, or of pre-votes before one; and how long a voter waits before the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.raft.consensus.voter_sets import Voter, VoterSet

BACKOFF_BASE_MS = 50
BACKOFF_DOUBLINGS_MAX = 20


class Election:
    """The voters are those of the moment at which it began."""

    __slots__ = ("_voters", "granted", "refused")

    def __init__(self, voters: VoterSet, local_id: int) -> None:
        self._voters = voters
        self.granted = {local_id}
        self.refused: set[int] = set()

    def record(self, voter_id: int, *, is_granted: bool) -> None:
        """The answer of a voter; one that is no voter does not count. A later answer replaces an earlier one."""
        if self._voters.get(voter_id) is None:
            return
        self.granted.discard(voter_id)
        self.refused.discard(voter_id)
        (self.granted if is_granted else self.refused).add(voter_id)

    def is_unanswered_by(self, voter_id: int) -> bool:
        return voter_id not in self.granted and voter_id not in self.refused

    @property
    def is_won(self) -> bool:
        return len(self.granted) >= self._voters.majority

    @property
    def is_lost(self) -> bool:
        """Whether those who have not answered yet are too few."""
        return len(self._voters) - len(self.refused) < self._voters.majority


def backoff_ms(lost: int, longest_ms: int, jitter: Callable[[int], int]) -> int:
    """How long a candidate waits that has lost so many elections in a row, which perhaps nobody has won: a random time,
    up to twice as long after each."""
    steps = 2 << min(lost - 1, BACKOFF_DOUBLINGS_MAX)
    return min(BACKOFF_BASE_MS * (1 + jitter(steps)), longest_ms)


def succession_ms(successors: Sequence[Voter], local: Voter, longest_ms: int) -> int:
    """How long a voter waits whose leader has resigned: the first of its successors stands at once, each further one
    twice as late as the one before, everybody else last."""
    for position, voter in enumerate(successors):
        if voter.id == local.id and voter.directory_id in (ZERO_UUID, local.directory_id):
            shortest_ms = longest_ms >> (len(successors) - 1)
            return 0 if position == 0 else min(longest_ms, shortest_ms << (position - 1))
    return longest_ms
