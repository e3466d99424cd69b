"""What a leader knows of one partition: its epoch, its in-sync replicas, its high watermark. Pure.

A partition is led in *leader epochs*. In an epoch the leader takes every write, followers copy it, and the
*in-sync replicas* are those that hold everything the leader may call committed. The *high watermark* is the
offset below which every in-sync replica has every record: readers see no further, and an acks=all write is
acknowledged when the high watermark has passed it. With one replica it follows the log end at once; with more,
each follower's fetch moves `end_offsets` and the same rule decides.

Positions come in as values that carry an offset (the log adds segment and byte position to it, so that a reader
needs no look-up for the common end of a range).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NewType, Protocol, TypeVar

from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

BrokerId = NewType("BrokerId", int)
LeaderEpoch = NewType("LeaderEpoch", int)

NO_EPOCH = LeaderEpoch(-1)


class Position(Protocol):
    @property
    def offset(self) -> int: ...


P = TypeVar("P", bound=Position)


class PartitionState(Generic[P]):
    """Invariants: log start <= high watermark <= log end; the high watermark never falls within an epoch;
    `local_id` is in `isr` while it leads."""

    __slots__ = (
        "_follower_ends",
        "high_watermark",
        "isr",
        "leader_epoch",
        "leader_id",
        "local_id",
        "log_end",
        "partition_epoch",
        "replicas",
    )

    def __init__(self, local_id: BrokerId, log_end: P, high_watermark: P) -> None:
        self.local_id = local_id
        self.leader_id = BrokerId(-1)
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.replicas: tuple[BrokerId, ...] = ()
        self.isr: frozenset[BrokerId] = frozenset()
        self.log_end = log_end
        self.high_watermark = high_watermark
        self._follower_ends: dict[BrokerId, P] = {}

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.local_id

    def follow_metadata(
        self,
        leader_id: BrokerId,
        leader_epoch: LeaderEpoch,
        partition_epoch: int,
        replicas: Iterable[BrokerId],
        isr: Iterable[BrokerId],
    ) -> None:
        """Takes over what the cluster's metadata says. A new leader epoch forgets what followers had fetched."""
        if leader_epoch > self.leader_epoch:
            self._follower_ends.clear()
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = tuple(replicas)
        self.isr = frozenset(isr)
        self._move_high_watermark()

    def local_log_grew(self, log_end: P) -> bool:
        """The leader wrote up to `log_end`. True when that moved the high watermark."""
        self.log_end = log_end
        if len(self.isr) == 1:
            self.high_watermark = log_end
            return True
        return self._move_high_watermark()

    def follower_fetched(self, follower: BrokerId, fetch_position: P) -> bool:
        """A follower asked for what comes after `fetch_position`, so it holds all before. True when that moved
        the high watermark."""
        self._follower_ends[follower] = fetch_position
        return self._move_high_watermark()

    def local_log_truncated(self, log_end: P) -> None:
        self.log_end = log_end
        if self.high_watermark.offset > log_end.offset:
            self.high_watermark = log_end

    def _move_high_watermark(self) -> bool:
        if not self.is_leader:
            return False
        lowest = self.log_end
        for replica in self.isr:
            if replica == self.local_id:
                continue
            end = self._follower_ends.get(replica)
            if end is None:
                return False
            if end.offset < lowest.offset:
                lowest = end
        if lowest.offset <= self.high_watermark.offset:
            return False
        self.high_watermark = lowest
        return True

    def require_in_sync(self, min_insync_replicas: int) -> None:
        """An acks=all write needs this many in-sync replicas before anything is appended, though never more than the
        partition has."""
        needed = min(min_insync_replicas, len(self.replicas))
        if len(self.isr) < needed:
            raise KafkaError(
                Error.NOT_ENOUGH_REPLICAS,
                f"the partition has {len(self.isr)} in-sync replicas, but min.insync.replicas requires {needed}",
            )

    def check_reader_epoch(self, reader_epoch: int) -> Error:
        """Fences a reader whose idea of the leader epoch is older or newer than ours; -1 asks for no check."""
        if reader_epoch == NO_EPOCH or reader_epoch == self.leader_epoch:
            return Error.NONE
        return Error.FENCED_LEADER_EPOCH if reader_epoch < self.leader_epoch else Error.UNKNOWN_LEADER_EPOCH
