"""The leader of the metadata quorum, for all parts of this node that have to ask it.

Two threads meet here, as in `image_publisher`. The quorum's thread says which node leads (`publish`); other event loops
follow. The value is immutable and replaced as a whole, so that any thread may read it at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.raft.consensus.messages import NO_NODE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from barnabas.raft.consensus.voter_sets import VoterEndpoint


class QuorumLeader(NamedTuple):
    """The leader of an epoch."""

    id: int
    """NO_NODE while none is known."""
    epoch: int
    endpoint: VoterEndpoint | None
    """Its CONTROLLER listener, where that is known."""

    @property
    def is_known(self) -> bool:
        return self.id != NO_NODE


UNKNOWN = QuorumLeader(NO_NODE, 0, None)


class CurrentLeader:
    def __init__(self) -> None:
        self._leader = UNKNOWN
        self._followers: tuple[tuple[asyncio.AbstractEventLoop, Callable[[QuorumLeader], None]], ...] = ()

    @property
    def leader(self) -> QuorumLeader:
        """May be read from any thread."""
        return self._leader

    def follow(self, loop: asyncio.AbstractEventLoop, callback: Callable[[QuorumLeader], None]) -> Callable[[], None]:
        """Has `callback` called on `loop` with every leader from now on. Call it on that loop; so also what it
        returns, which ends that."""
        entry = (loop, callback)
        self._followers += (entry,)

        def leave() -> None:
            self._followers = tuple(each for each in self._followers if each is not entry)

        return leave

    def publish(self, leader: QuorumLeader) -> None:
        """To be called in the quorum's thread."""
        if leader == self._leader:
            return
        self._leader = leader
        for loop, callback in self._followers:
            if not loop.is_closed():
                loop.call_soon_threadsafe(callback, leader)
