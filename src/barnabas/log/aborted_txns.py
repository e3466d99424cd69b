"""The aborted transactions of a partition: what a reader of committed data is told to leave out.

A segment has an index of the transactions whose abort marker lies in it, in the order of the markers. The file
(`.txnindex`) is made with the first entry, so that most segments have none, and looking for one costs nothing then.

    version int16 = 0 · producer id · first offset · last offset · last stable offset, int64 each

The last offset is the marker's. The last stable offset is the one after it: no later entry of the partition has
records before it, which is where a search ends.

As with the other indexes, only that of the active segment grows, its newest entries wait in memory until the segment is
flushed, rolled or closed, and whatever a crash keeps from the file, recovery makes again from the log.
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.index import CorruptIndexError, cut_file, read_all, write_all
from barnabas.log.names import TXN_INDEX, offset_file, offset_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.ports import Disk

ENTRY = Struct(">hqqqq")
VERSION = 0

_LAST_OFFSET = Struct(">18xq8x")
_PENDING_BYTES_MAX = 128 * ENTRY.size


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedTxns:
    """Invariants: `_bytes_on_file` names every segment that has entries, oldest first; what is pending belongs to the
    last of them, behind what its file has."""

    __slots__ = ("_bytes_on_file", "_disk", "_folder", "_is_file_changed", "_pending", "_read")

    def __init__(self, disk: Disk, folder: str, bytes_on_file: Mapping[int, int]) -> None:
        """`bytes_on_file` has the size of each index file by the base offset of its segment."""
        self._disk = disk
        self._folder = folder
        self._bytes_on_file = dict(sorted(bytes_on_file.items()))
        self._read: dict[int, bytearray] = {}
        """Files that were read, until the log is idle."""
        self._pending = bytearray()
        self._is_file_changed = False

    def __bool__(self) -> bool:
        return bool(self._bytes_on_file)

    def add(self, segment: int, aborted: AbortedTxn) -> None:
        """An abort marker was written to the segment with this base offset, which is the active one."""
        self._bytes_on_file.setdefault(segment, 0)
        self._pending += ENTRY.pack(VERSION, *aborted)
        if len(self._pending) % _PENDING_BYTES_MAX == 0:
            try:
                self._is_file_changed = self.write_pending() is not None
            except OSError:
                # The marker is in the log, so its append succeeded. Entries stay here, and the next block, flush or
                # close tries again; only the latter report the failure.
                return

    def between(self, segment: int, offset: int, end_offset: int) -> list[AbortedTxn]:
        """The transactions that have records between two offsets, in the order of their markers. `segment` is the
        base offset of the one that holds the first: markers before it do not matter. Raises OSError, CorruptIndexError.
        """
        aborted: list[AbortedTxn] = []
        for base in self._bytes_on_file:
            if base >= segment and _collect(self._on_file(base), offset, end_offset, aborted):
                return aborted
        _collect(self._pending, offset, end_offset, aborted)
        return aborted

    def write_pending(self) -> str | None:
        """Moves the entries that wait in memory to the file. Returns its name if it has changed since the last call."""
        if self._pending:
            base, on_file = next(reversed(self._bytes_on_file.items()))
            write_all(self._disk, self._path(base), on_file, self._pending)
            self._bytes_on_file[base] = on_file + len(self._pending)
            if base in self._read:
                self._read[base] += self._pending
            self._pending = bytearray()
            self._is_file_changed = True
        if not self._is_file_changed:
            return None
        self._is_file_changed = False
        return offset_name(next(reversed(self._bytes_on_file)), TXN_INDEX)

    def cut(self, segment: int, offset: int) -> str | None:
        """Forgets transactions of the last segment whose marker is at or after `offset`. Returns the name of the file
        if there is one."""
        if segment not in self._bytes_on_file:
            return None
        self.write_pending()
        kept_bytes = _first_ending_at(self._on_file(segment), offset) * ENTRY.size
        cut_file(self._disk, self._path(segment), kept_bytes)
        self._bytes_on_file[segment] = kept_bytes
        self._read.pop(segment, None)
        return offset_name(segment, TXN_INDEX)

    def forget(self, segment: int) -> None:
        """The segment is no longer in the log."""
        if segment in self._bytes_on_file:
            if segment == next(reversed(self._bytes_on_file)):
                self._pending = bytearray()
                self._is_file_changed = False
            del self._bytes_on_file[segment]
            self._read.pop(segment, None)

    def release(self) -> None:
        """Keeps in memory only which files there are, and what they do not have yet."""
        self._read.clear()

    def _on_file(self, base: int) -> bytearray:
        data = self._read.get(base)
        if data is None:
            size = self._bytes_on_file[base]
            data = bytearray(read_all(self._disk, self._path(base)) if size else b"")
            if len(data) < size:
                raise CorruptIndexError(f"{self._path(base)} is shorter than it was")
            del data[size:]
            self._read[base] = data
        return data

    def _path(self, base: int) -> str:
        return offset_file(self._folder, base, TXN_INDEX)


def write_entries(disk: Disk, folder: str, segment: int, aborted: Iterable[AbortedTxn]) -> int:
    """Writes the index of a segment that has none. Returns its size."""
    entries = bytearray().join(ENTRY.pack(VERSION, *txn) for txn in aborted)
    write_all(disk, offset_file(folder, segment, TXN_INDEX), 0, entries)
    return len(entries)


def _collect(entries: bytearray, offset: int, end_offset: int, into: list[AbortedTxn]) -> bool:
    """Adds what of one segment has records between two offsets. True when no later segment has more."""
    for at in range(_first_ending_at(entries, offset) * ENTRY.size, len(entries), ENTRY.size):
        txn = AbortedTxn._make(ENTRY.unpack_from(entries, at)[1:])
        if txn.first_offset < end_offset:
            into.append(txn)
        if txn.last_stable_offset >= end_offset:
            return True
    return False


def _first_ending_at(entries: bytearray, offset: int) -> int:
    """The number of the first entry whose marker is at `offset` or after it."""
    count = len(entries) // ENTRY.size
    return bisect_left(
        range(count), offset, key=lambda number: _LAST_OFFSET.unpack_from(entries, number * ENTRY.size)[0]
    )
