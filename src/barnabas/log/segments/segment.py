"""One segment of a partition's log: a file of record batches that begins at a base offset, with its indexes.

Every segment but the last is closed: its files no longer change, and nothing of it is kept in memory except where it
begins, how long it is and, once asked for, its largest timestamp. The last one is active: while it is written to, its
newest index entries (`ActiveIndex`) and the positions of its newest batches are in memory too, so that finding the tail
takes no reads.

Positions are found from the sparse index and a walk over batch headers; records are not looked at.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.segments import segment_index
from barnabas.log.segments.file_names import LOG, offset_file
from barnabas.protocol.batch import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.log.segments.open_files import FilePool, OpenFile
    from barnabas.ports import Disk

# base offset, length, leader epoch (skipped), magic, crc and attributes (skipped), last offset delta,
# base timestamp (skipped), max timestamp
_WALK = Struct(">qi4xb6xi8xq")

_WALK_CHUNK_BYTES = 8192
RECENT_BATCHES_MAX = 512

UNKNOWN_TIMESTAMP = -2
"""Not read from the files yet; -1, in contrast, means that no record has a timestamp."""


class CorruptSegmentError(Exception):
    """There is no batch at a position where one must begin."""


class BatchPlace(NamedTuple):
    """Where a batch lies in its segment's file."""

    base_offset: int
    last_offset: int
    position: int
    size: int
    max_timestamp: int


class RecentBatches:
    """First offsets and positions of the newest batches of an active segment, oldest first: never more than
    `RECENT_BATCHES_MAX`, which whoever adds one sees to."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")

    def forget_older_half(self) -> None:
        del self.offsets[: RECENT_BATCHES_MAX // 2]
        del self.positions[: RECENT_BATCHES_MAX // 2]


class Segment:
    """Invariant: `size` counts the bytes of whole batches; the file may be longer only while it is preallocated, or
    while a failed write has yet to be cut off."""

    __slots__ = (
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "file",
        "first_timestamp",
        "folder",
        "index",
        "index_is_full",
        "jitter_ms",
        "max_timestamp",
        "max_timestamp_offset",
        "recent",
        "size",
    )

    def __init__(self, folder: str, base_offset: int, size: int) -> None:
        self.folder = folder
        self.base_offset = base_offset
        self.size = size
        self.file: OpenFile | None = None
        self.index: segment_index.ActiveIndex | None = None
        self.index_is_full = False
        self.recent: RecentBatches | None = None
        self.bytes_since_index_entry = 0
        self.max_timestamp = UNKNOWN_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.first_timestamp = UNKNOWN_TIMESTAMP
        self.created_ms = 0
        self.jitter_ms = 0

    @property
    def log_path(self) -> str:
        return offset_file(self.folder, self.base_offset, LOG)

    def whole_batches(self, position: int, length: int) -> int:
        """The length of a range, shortened to whole batches if it ends among those whose positions are in memory."""
        if self.recent is None or not self.recent.positions or position + length < self.recent.positions[0]:
            return length
        end = self.recent.positions[bisect_right(self.recent.positions, position + length) - 1]
        return end - position if end > position else length

    def load_max_timestamp(self, disk: Disk) -> int:
        """The largest timestamp of a record, -1 if none has one. It is in the last entry of the time index."""
        if self.max_timestamp == UNKNOWN_TIMESTAMP:
            entry = segment_index.last_time_entry(disk, self.folder, self.base_offset)
            self.max_timestamp, self.max_timestamp_offset = entry
        return self.max_timestamp

    def load_first_timestamp(self, disk: Disk, files: FilePool) -> int:
        """The largest timestamp of the first batch, from which the age of the segment is measured."""
        if self.first_timestamp == UNKNOWN_TIMESTAMP and self.size:
            self.first_timestamp = next(self.batches_from(disk, files, 0)).max_timestamp
        return self.first_timestamp

    def find_batch(self, disk: Disk, files: FilePool, offset: int) -> BatchPlace | None:
        """The first batch that ends at or after `offset`, or None if the segment has none."""
        for batch in self.batches_around(disk, files, offset):
            if batch.last_offset >= offset:
                return batch
        return None

    def batches_around(self, disk: Disk, files: FilePool, offset: int) -> Iterator[BatchPlace]:
        """The batches from the nearest known one that is not after `offset` to the end of the segment."""
        entry = self._entry_before(disk, offset)
        if entry.position and entry.position >= self.size:
            raise segment_index.CorruptIndexError(
                f"the index of {self.log_path} points past its end, to {entry.position}"
            )
        for batch in self.batches_from(disk, files, entry.position):
            if batch.position == entry.position and entry.position and batch.base_offset > entry.offset:
                raise segment_index.CorruptIndexError(f"the index of {self.log_path} points past offset {entry.offset}")
            yield batch

    def _entry_before(self, disk: Disk, offset: int) -> segment_index.OffsetPosition:
        recent = self.recent
        if recent is not None:
            slot = bisect_right(recent.offsets, offset) - 1
            if slot >= 0:
                return segment_index.OffsetPosition(recent.offsets[slot], recent.positions[slot])
        if self.index is not None:
            return self.index.lookup_offset(offset)
        return segment_index.lookup_offset(disk, self.folder, self.base_offset, offset)

    def batches_from(self, disk: Disk, files: FilePool, position: int) -> Iterator[BatchPlace]:
        """The batches from `position`, where one begins, to the end of the segment."""
        file = self.file or files.open(self)
        return walk(disk, file.fd, self.base_offset, position, self.size)


def walk(disk: Disk, fd: int, base_offset: int, position: int, end: int) -> Iterator[BatchPlace]:
    """Goes from header to header. Raises CorruptSegmentError where it finds anything else."""
    chunk, chunk_position = b"", position
    while position < end:
        at = position - chunk_position
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_position, at = disk.pread(fd, min(_WALK_CHUNK_BYTES, end - position), position), position, 0
            if len(chunk) < HEADER_SIZE:
                raise CorruptSegmentError(f"no whole batch at position {position}, before the end at {end}")
        first_offset, length, magic, last_offset_delta, max_timestamp = _WALK.unpack_from(chunk, at)
        size = length + LENGTH_OVERHEAD
        if (
            magic != MAGIC
            or size < HEADER_SIZE
            or position + size > end
            or first_offset < base_offset
            or last_offset_delta < 0
        ):
            raise CorruptSegmentError(f"no batch at position {position}, before the end at {end}")
        yield BatchPlace(first_offset, first_offset + last_offset_delta, position, size, max_timestamp)
        position += size


def create_segment(disk: Disk, folder: str, base_offset: int, allocate_bytes: int) -> Segment:
    """A new, empty segment with its files; `allocate_bytes` > 0 preallocates space for batches."""
    segment = Segment(folder, base_offset, 0)
    fd = disk.open(segment.log_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        if allocate_bytes:
            disk.allocate(fd, allocate_bytes)
    finally:
        disk.close(fd)
    segment_index.create_index_files(disk, folder, base_offset)
    segment.max_timestamp = segment_index.NO_TIMESTAMP
    return segment
