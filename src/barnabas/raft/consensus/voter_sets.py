"""The voters: those that the log names (kraft.version 1), or those that the configuration names (kraft.version 0).

With kraft.version 1 the newest VotersRecord counts from the moment that it is appended, committed or not, and a log
that is truncated goes back to the one before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.uuids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

BEFORE_LOG = -1
"""In place of an offset: of voters that are not in the log, but in the bootstrap snapshot or the configuration."""

VOTERS_IN_LOG = 1
"""The kraft.version with which the voters are part of the log."""


class Voter(NamedTuple):
    """A member of the quorum. The directory id distinguishes a node with a new disk from the one that voted before; it
    is zero where it is not known, as with voters that the configuration names."""

    id: int
    directory_id: Uuid


class VoterEndpoint(NamedTuple):
    """The address of a voter's CONTROLLER listener."""

    name: str
    host: str
    port: int


class VoterNode(NamedTuple):
    """A voter as VotersRecord describes it."""

    id: int
    directory_id: Uuid
    endpoints: tuple[VoterEndpoint, ...]

    @property
    def key(self) -> Voter:
        return Voter(self.id, self.directory_id)


class VoterSet:
    """The voters at one moment. Immutable."""

    __slots__ = ("_by_id", "nodes")

    def __init__(self, nodes: Iterable[VoterNode] = ()) -> None:
        self.nodes = tuple(sorted(nodes))
        self._by_id = {node.id: node for node in self.nodes}

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[VoterNode]:
        return iter(self.nodes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self.nodes == other.nodes

    def __hash__(self) -> int:
        return hash(self.nodes)

    def __repr__(self) -> str:
        return f"VoterSet({list(self.nodes)})"

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self._by_id)

    @property
    def majority(self) -> int:
        return len(self.nodes) // 2 + 1

    def get(self, voter_id: int) -> VoterNode | None:
        return self._by_id.get(voter_id)

    def matching(self, replica: Voter) -> VoterNode | None:
        """The voter that a replica is, if it is one: by its id, and by its directory where that is known."""
        node = self._by_id.get(replica.id)
        if node is None or node.directory_id not in (ZERO_UUID, replica.directory_id):
            return None
        return node

    def endpoints_of(self, voter_id: int) -> tuple[VoterEndpoint, ...]:
        node = self._by_id.get(voter_id)
        return () if node is None else node.endpoints

    def with_endpoints(self, voter: Voter, endpoints: Sequence[VoterEndpoint]) -> VoterSet:
        """The same voters, one of them at other addresses."""
        return VoterSet(node._replace(endpoints=tuple(endpoints)) if node.key == voter else node for node in self.nodes)


class VotersAt(NamedTuple):
    """From the record at `offset` on, these vote."""

    offset: int
    kraft_version: int
    voters: VoterSet


class VoterHistory:
    """The voters as of each offset. Invariant: offsets increase, and there is always an entry."""

    __slots__ = ("_entries",)

    def __init__(self, kraft_version: int, voters: VoterSet, offset: int = BEFORE_LOG) -> None:
        self._entries = [VotersAt(offset, kraft_version, voters)]

    @property
    def latest(self) -> VotersAt:
        return self._entries[-1]

    def at(self, offset: int) -> VotersAt:
        """The voters as of a record that is committed, or the oldest known."""
        return next((entry for entry in reversed(self._entries) if entry.offset <= offset), self._entries[0])

    def append(self, offset: int, *, kraft_version: int | None = None, voters: VoterSet | None = None) -> None:
        """A record at `offset` changed the one or the other."""
        latest = self.latest
        assert offset > latest.offset, f"voters at offset {offset} follow those at {latest.offset}"
        self._entries.append(
            VotersAt(
                offset,
                latest.kraft_version if kraft_version is None else kraft_version,
                latest.voters if voters is None else voters,
            )
        )

    def truncate_to(self, end_offset: int) -> None:
        while len(self._entries) > 1 and self._entries[-1].offset >= end_offset:
            self._entries.pop()

    def forget_before(self, offset: int) -> None:
        """What was before the entry that counts at `offset` is committed, and will not be gone back to."""
        while len(self._entries) > 1 and self._entries[1].offset < offset:
            del self._entries[0]
