"""The aborted transactions of a partition: what a reader of committed data is told to leave out.

A segment has an index of the transactions whose abort marker lies in it, in the order of the markers. The file
(`.txnindex`) is created with the first entry, so most segments have none, and looking for one then costs nothing.

    version int16 = 0 · producer id · first offset · last offset · last stable offset, int64 each

The last offset is the marker's. The last stable offset is the one after it, or the start of the earliest transaction
that was open then: no later entry of the partition has records before it, so a search can end there.

A file may have very many entries, and one transaction that stays open for long makes a search go through all that were
aborted meanwhile. So files are neither kept in memory nor read from end to end: for every block of entries it is known
(`Outline`) which offsets its transactions cover, and only blocks that matter are read. Outlines of files found on disk
are made when the log is opened, which happens in a thread.

As with the other indexes, only that of the active segment grows, its newest entries wait in memory until the segment is
flushed, rolled or closed, and entries that are lost in a crash are rebuilt from the log by recovery.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.segments.file_names import TXN_INDEX, offset_file, offset_name
from barnabas.log.segments.segment_index import CorruptIndexError, cut_file, write_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from barnabas.ports import Disk

ENTRY = Struct(">hqqqq")
VERSION = 0

BLOCK_ENTRIES = 128
"""Entries that are read together."""
BLOCK_BYTES = BLOCK_ENTRIES * ENTRY.size
READ_BYTES = 256 * BLOCK_BYTES
"""How much is read at a time when a log is opened."""


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Outline:
    """What is known of one segment's entries without reading them.

    Invariant: the arrays have one item per block, and every block but the last is full; `last_offsets` increase.
    """

    __slots__ = ("count", "first_offsets", "last_offsets", "stable_offsets")

    def __init__(self, entries: Iterable[AbortedTxn] = ()) -> None:
        self.count = 0
        self.first_offsets = array("q")
        """The smallest in the block."""
        self.last_offsets = array("q")
        """The largest, which is the last."""
        self.stable_offsets = array("q")
        """The largest, which is the last."""
        for entry in entries:
            self.add(entry)

    def add(self, entry: AbortedTxn) -> None:
        _, first, last, stable = entry
        if self.count % BLOCK_ENTRIES == 0:
            self.first_offsets.append(first)
            self.last_offsets.append(last)
            self.stable_offsets.append(stable)
        else:
            self.first_offsets[-1] = min(self.first_offsets[-1], first)
            self.last_offsets[-1] = last
            self.stable_offsets[-1] = stable
        self.count += 1

    def keep_blocks(self, count: int) -> None:
        """Forgets what follows the first blocks."""
        for offsets in (self.first_offsets, self.last_offsets, self.stable_offsets):
            del offsets[count:]
        self.count = min(self.count, count * BLOCK_ENTRIES)


class AbortedTxns:
    """Invariants: `_outlines` has every segment that has entries, oldest first; the pending entries are the last
    ones of the last of these segments, and its file has those before them."""

    __slots__ = ("_disk", "_is_file_changed", "_outlines", "_pending", "folder")

    def __init__(self, disk: Disk, folder: str, outlines: Mapping[int, Outline]) -> None:
        """`outlines` has one outline per index file, by the base offset of its segment."""
        self._disk = disk
        self.folder = folder
        self._outlines = dict(sorted(outlines.items()))
        self._pending = bytearray()
        self._is_file_changed = False

    def __bool__(self) -> bool:
        return bool(self._outlines)

    def add(self, segment: int, aborted: AbortedTxn) -> None:
        """An abort marker was written to the segment with this base offset, which is the active one."""
        self._outlines.setdefault(segment, Outline()).add(aborted)
        self._pending += ENTRY.pack(VERSION, *aborted)
        if len(self._pending) % BLOCK_BYTES == 0:
            try:
                self._is_file_changed = self.write_pending() is not None
            except OSError:
                # The marker is in the log, so its append has succeeded. The entries stay in memory, and the next block,
                # flush or close tries again; only the latter two report the failure.
                return

    def between(self, segment: int, offset: int, end_offset: int) -> list[AbortedTxn]:
        """The transactions that have records between two offsets, in the order of their markers. `segment` is the base
        offset of the segment that holds the first offset: markers before it do not matter. Raises OSError or
        CorruptIndexError."""
        aborted: list[AbortedTxn] = []
        for base, outline in self._outlines.items():
            if base < segment:
                continue
            for block in range(bisect_left(outline.last_offsets, offset), len(outline.last_offsets)):
                if outline.first_offsets[block] < end_offset:
                    aborted += (
                        txn
                        for txn in self._block(base, block)
                        if txn.first_offset < end_offset and txn.last_offset >= offset
                    )
                if outline.stable_offsets[block] >= end_offset:
                    return aborted
        return aborted

    def write_pending(self) -> str | None:
        """Moves the pending entries to the file. Returns its name if it has changed since the last call."""
        if self._pending:
            base, outline = next(reversed(self._outlines.items()))
            on_file = outline.count * ENTRY.size - len(self._pending)
            write_all(self._disk, self._path(base), on_file, self._pending)
            self._pending = bytearray()
            self._is_file_changed = True
        if not self._is_file_changed:
            return None
        self._is_file_changed = False
        return offset_name(next(reversed(self._outlines)), TXN_INDEX)

    def cut(self, segment: int, offset: int) -> str | None:
        """Forgets the transactions of the last segment whose marker is at or after `offset`. Returns the name of the
        file if there is one."""
        outline = self._outlines.get(segment)
        if outline is None:
            return None
        self.write_pending()
        cut_block = bisect_left(outline.last_offsets, offset)
        kept = []
        if cut_block < len(outline.last_offsets):
            kept = [txn for txn in self._block(segment, cut_block) if txn.last_offset < offset]
        outline.keep_blocks(cut_block)
        for txn in kept:
            outline.add(txn)
        cut_file(self._disk, self._path(segment), outline.count * ENTRY.size)
        return offset_name(segment, TXN_INDEX)

    def forget(self, segment: int) -> None:
        """The segment is no longer in the log."""
        if segment in self._outlines:
            if segment == next(reversed(self._outlines)):
                self._pending = bytearray()
                self._is_file_changed = False
            del self._outlines[segment]

    def replace(self, segments: Iterable[int], segment: int, outline: Outline | None) -> None:
        """Closed segments became one, whose index has this outline."""
        for base in segments:
            self._outlines.pop(base, None)
        if outline is not None:
            self._outlines[segment] = outline
            self._outlines = dict(sorted(self._outlines.items()))

    def _block(self, base: int, number: int) -> list[AbortedTxn]:
        """The entries of one block: those in the file, followed by pending ones."""
        pending = self._pending if base == next(reversed(self._outlines)) else b""
        end = min((number + 1) * BLOCK_ENTRIES, self._outlines[base].count) * ENTRY.size
        file_end = self._outlines[base].count * ENTRY.size - len(pending)
        start = number * BLOCK_BYTES
        data = self._read(base, start, min(end, file_end)) if start < file_end else b""
        data += bytes(pending[max(start - file_end, 0) : max(end - file_end, 0)])
        return list(_unpacked(data))

    def _read(self, base: int, start: int, end: int) -> bytes:
        path = self._path(base)
        fd = self._disk.open(path, os.O_RDONLY)
        try:
            data = self._disk.pread(fd, end - start, start)
        finally:
            self._disk.close(fd)
        if len(data) < end - start:
            raise CorruptIndexError(f"{path} is shorter than it was")
        return data

    def _path(self, base: int) -> str:
        return offset_file(self.folder, base, TXN_INDEX)


def write_entries(disk: Disk, folder: str, segment: int, aborted: list[AbortedTxn], mark: str = "") -> Outline:
    """Writes the index of a segment that has none, to a file whose name ends in `mark`."""
    entries = bytearray().join(ENTRY.pack(VERSION, *txn) for txn in aborted)
    write_all(disk, offset_file(folder, segment, TXN_INDEX + mark), 0, entries)
    return Outline(aborted)


def read_outline(disk: Disk, folder: str, segment: int) -> Outline:
    """The outline of a segment's index file. Raises CorruptIndexError if the file is not an index."""
    path = offset_file(folder, segment, TXN_INDEX)
    size = disk.size(path)
    if size % ENTRY.size:
        raise CorruptIndexError(f"{path} is cut off within an entry")
    outline = Outline()
    last = segment - 1
    fd = disk.open(path, os.O_RDONLY)
    try:
        for start in range(0, size, READ_BYTES):
            for txn in _unpacked(disk.pread(fd, min(READ_BYTES, size - start), start)):
                if txn.last_offset <= last:
                    raise CorruptIndexError(f"{path} has an entry with the last offset {txn.last_offset} after {last}")
                last = txn.last_offset
                outline.add(txn)
    finally:
        disk.close(fd)
    return outline


def _unpacked(entries: bytes) -> Iterator[AbortedTxn]:
    return (AbortedTxn(*fields[1:]) for fields in ENTRY.iter_unpack(entries))
