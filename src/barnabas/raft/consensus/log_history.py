"""What a node must know of its log to compare it with that of another: where each epoch began, and the snapshots.

A follower says where its log ends and of which epoch its last record is. If the leader's log has that epoch up to that
offset, both logs are the same up to there, because an epoch has one leader, which writes each offset once.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_EPOCH = 0
"""The epoch of an empty log."""


class LogEnd(NamedTuple):
    """The end of a log. Logs are compared by the epoch of their last record, then by length."""

    epoch: int
    offset: int


class SnapshotId(NamedTuple):
    """A snapshot contains everything below `end_offset`; `epoch` is that of its last record."""

    end_offset: int
    epoch: int


BOOTSTRAP = SnapshotId(0, 0)
"""The snapshot that formatting writes: it has no metadata, only the voters."""


class LogHistory:
    """Invariant: epochs and their start offsets increase, and lie between `start_offset` and the end of the log."""

    __slots__ = ("_end_offset", "_epochs", "newest_snapshot", "oldest_snapshot", "start_offset")

    def __init__(
        self,
        end: LogEnd,
        epochs: Iterable[tuple[int, int]] = (),
        *,
        start_offset: int = 0,
        oldest_snapshot: SnapshotId | None = None,
        newest_snapshot: SnapshotId | None = None,
    ) -> None:
        """`epochs` are pairs of an epoch and the offset of its first record."""
        self._epochs = list(epochs)
        if not self._epochs and end.offset > start_offset:
            self._epochs = [(end.epoch, start_offset)]
        self._end_offset = end.offset
        self.start_offset = start_offset
        self.oldest_snapshot = oldest_snapshot
        self.newest_snapshot = newest_snapshot

    @property
    def end(self) -> LogEnd:
        return LogEnd(self.last_epoch, self._end_offset)

    @property
    def last_epoch(self) -> int:
        if self._epochs:
            return self._epochs[-1][0]
        return self.newest_snapshot.epoch if self.newest_snapshot else NO_EPOCH

    def append(self, epoch: int, end_offset: int) -> None:
        assert epoch >= self.last_epoch, f"epoch {epoch} follows {self.last_epoch}"
        assert end_offset > self._end_offset
        if not self._epochs or self._epochs[-1][0] != epoch:
            self._epochs.append((epoch, self._end_offset))
        self._end_offset = end_offset

    def truncate_to(self, offset: int) -> None:
        if offset >= self._end_offset:
            return
        self._end_offset = offset
        while self._epochs and self._epochs[-1][1] >= offset:
            self._epochs.pop()

    def restart_at(self, snapshot: SnapshotId) -> None:
        """The log is empty now, and continues where a snapshot ends."""
        self._epochs.clear()
        self.start_offset = self._end_offset = snapshot.end_offset
        self.oldest_snapshot = self.newest_snapshot = snapshot

    def trimmed(self, start_offset: int, oldest: SnapshotId | None, newest: SnapshotId | None) -> None:
        """There are other snapshots than before, and perhaps the log starts later."""
        self.start_offset = start_offset
        self.oldest_snapshot, self.newest_snapshot = oldest, newest
        slot = bisect_right(self._epochs, start_offset, key=_start_of) - 1
        if slot > 0:
            self._epochs[: slot + 1] = [(self._epochs[slot][0], start_offset)]

    def end_of(self, epoch: int) -> LogEnd:
        """The largest epoch here that is at most `epoch`, and where its last record ends."""
        if not self._epochs or epoch > self._epochs[-1][0]:
            return self.end
        slot = bisect_right(self._epochs, epoch, key=_epoch_of)
        end_offset = self._epochs[slot][1] if slot < len(self._epochs) else self._end_offset
        return LogEnd(self._epochs[slot - 1][0] if slot else epoch, end_offset)

    def compare(self, reader: LogEnd) -> LogEnd | SnapshotId | None:
        """How a reader of this log goes on: None if its log is a part of this one, a `LogEnd` that its log has to be
        truncated to, or a snapshot that it has to start from."""
        newest, oldest = self.newest_snapshot, self.oldest_snapshot
        if newest not in (None, BOOTSTRAP) and reader.offset == 0:
            return newest  # which is always less than the log up to there
        if self.start_offset == 0 and reader == LogEnd(NO_EPOCH, 0):
            return None
        if oldest is not None and self._is_before(reader, oldest):
            return newest
        end = self.end_of(reader.epoch)
        return end if end.epoch != reader.epoch or end.offset < reader.offset else None

    def truncation_for(self, divergence: LogEnd) -> int:
        """Up to where this log and that of a leader are the same, given where its largest epoch at most ours ends."""
        own = self.end_of(divergence.epoch)
        if divergence.epoch == NO_EPOCH or own.epoch == divergence.epoch:
            return min(own.offset if divergence.epoch != NO_EPOCH else self._end_offset, divergence.offset)
        return own.offset

    def _is_before(self, reader: LogEnd, oldest: SnapshotId) -> bool:
        is_other_history = reader.offset == self.start_offset and reader.epoch != oldest.epoch
        return reader.offset < self.start_offset or is_other_history or reader.epoch < oldest.epoch


def _epoch_of(entry: tuple[int, int]) -> int:
    return entry[0]


def _start_of(entry: tuple[int, int]) -> int:
    return entry[1]
