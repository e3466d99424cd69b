"""Which leader wrote what: the first offset of each leader epoch in a partition's log.

A follower or a consumer that comes back asks where an epoch ended; everything it holds beyond that was written by a
leader whose tail was lost, and must go. The batches of the log carry their epochs too; the checkpoint file saves
searching for them. It is written together with an epoch's first batch and synced by the flush that syncs the batch;
after a crash, recovery reads the batches that were not flushed anyway.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from barnabas.log.folder.checkpoints import EpochStart, read_epochs, write_epochs
from barnabas.log.segments.file_names import LEADER_EPOCH_CHECKPOINT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.ports import Disk

NO_EPOCH = -1
UNKNOWN_END_OFFSET = -1


class LeaderEpochs:
    """Invariant: both epochs and start offsets strictly increase from entry to entry."""

    __slots__ = ("_disk", "entries", "folder", "is_saved", "latest")

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self.folder = folder
        self.entries: list[EpochStart] = []
        self.latest = NO_EPOCH
        """The newest epoch, or -1."""
        self.is_saved = True
        """Whether the file has the same entries."""

    @classmethod
    def load(cls, disk: Disk, folder: str) -> LeaderEpochs:
        epochs = cls(disk, folder)
        for epoch, start_offset in read_epochs(disk, epochs._path()):
            epochs._put(epoch, start_offset)
        epochs.is_saved = True
        return epochs

    def assign(self, epoch: int, start_offset: int) -> None:
        """From `start_offset` on, batches have this epoch. Entries that contradict that go. The caller saves."""
        if epoch != self.latest:
            self._put(epoch, start_offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest epoch at most `epoch`, where the next one began); (-1, -1) if nothing is known of it."""
        if epoch == NO_EPOCH:
            return NO_EPOCH, UNKNOWN_END_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        slot = bisect_right(self.entries, epoch, key=_epoch_of)
        if slot == len(self.entries):
            return NO_EPOCH, UNKNOWN_END_OFFSET
        floor = self.entries[slot - 1].epoch if slot else epoch
        return floor, self.entries[slot].start_offset

    def epoch_of(self, offset: int) -> int:
        """The epoch in which the record at `offset` was written; -1 if that is not known."""
        slot = bisect_right(self.entries, offset, key=_start_of) - 1
        return self.entries[slot].epoch if slot >= 0 else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forgets epochs that began at or after `end_offset`. The caller saves."""
        while self.entries and self.entries[-1].start_offset >= end_offset:
            self.entries.pop()
            self._refresh()

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now starts at `start_offset`: the epoch that it lies in begins there. The caller saves."""
        slot = bisect_right(self.entries, start_offset, key=_start_of) - 1
        if slot >= 0 and self.entries[0].start_offset < start_offset:
            self.entries[: slot + 1] = [EpochStart(self.entries[slot].epoch, start_offset)]
            self._refresh()

    def replace_all(self, entries: Iterable[EpochStart]) -> None:
        """Takes over what is known of the same log elsewhere. The caller saves."""
        self.entries[:] = entries
        self._refresh()

    def clear(self) -> None:
        self.entries.clear()
        self._refresh()

    def save(self) -> None:
        write_epochs(self._disk, self._path(), self.entries)
        self.is_saved = True

    def _put(self, epoch: int, start_offset: int) -> None:
        while self.entries and (self.entries[-1].epoch >= epoch or self.entries[-1].start_offset >= start_offset):
            self.entries.pop()
        self.entries.append(EpochStart(epoch, start_offset))
        self._refresh()

    def _refresh(self) -> None:
        self.is_saved = False
        self.latest = self.entries[-1].epoch if self.entries else NO_EPOCH

    def _path(self) -> str:
        return f"{self.folder}/{LEADER_EPOCH_CHECKPOINT}"


def _epoch_of(entry: EpochStart) -> int:
    return entry.epoch


def _start_of(entry: EpochStart) -> int:
    return entry.start_offset
