"""Reading segments from end to end: for recovery, for rebuilding indexes, for replaying batches.

Files are read in large chunks. `scan` yields batch after batch, `scan_chunks` as many as were read; `check_segment`, on
which the time to restart after a crash depends, is one tight loop that checks and indexes a gigabyte in well under a
second if batches have the usual size.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.log.segments.segment_index import NO_TIMESTAMP, RELATIVE_OFFSET_MAX
from barnabas.protocol.batch import (
    ATTRIBUTES_AT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    crc_is_valid,
)
from barnabas.protocol.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.log.segments.segment import Segment
    from barnabas.ports import Disk

_CHUNK_BYTES = 1024 * 1024


class _Reader:
    """Reads a file in large chunks into one buffer, which grows only for a batch that is larger."""

    __slots__ = ("_buffer", "_disk", "_end", "_fd")

    def __init__(self, disk: Disk, path: str, end: int, chunk_bytes: int = _CHUNK_BYTES) -> None:
        self._disk = disk
        self._fd = disk.open(path, os.O_RDONLY)
        self._end = end
        self._buffer = memoryview(bytearray(min(chunk_bytes, end)))

    def read(self, position: int, needed: int) -> memoryview | None:
        """At least `needed` bytes from `position` on; None if there are fewer. Overwrites what was read before."""
        if needed > self._end - position:
            return None
        if needed > len(self._buffer):
            self._buffer = memoryview(bytearray(needed))
        wanted = min(len(self._buffer), self._end - position)
        filled = 0
        while filled < wanted:
            read = self._disk.preadv(self._fd, [self._buffer[filled:wanted]], position + filled)
            if not read:
                break
            filled += read
        return self._buffer[:filled] if filled >= needed else None

    def close(self) -> None:
        self._disk.close(self._fd)


class Chunk(NamedTuple):
    """Whole batches that follow one another."""

    position: int
    """Where the first of them begins in the file."""
    data: memoryview
    batches: list[tuple[int, BatchHeader]]
    """Where each begins in `data`, and its header."""


def scan_chunks(disk: Disk, path: str, position: int, end: int, chunk_bytes: int = _CHUNK_BYTES) -> Iterator[Chunk]:
    """The batches between two positions, as many at a time as fit into `chunk_bytes`, at least one; ends early where no
    whole batch follows.

    The bytes are valid until the next chunk is taken. Checksums are not verified.
    """
    reader = _Reader(disk, path, end, chunk_bytes)
    unpack = HEADER.unpack_from
    try:
        needed = HEADER_SIZE
        while (data := reader.read(position, needed)) is not None:
            at, needed, is_valid = 0, HEADER_SIZE, True
            batches = []
            while at + HEADER_SIZE <= len(data):
                header = BatchHeader._make(unpack(data, at))
                is_valid = header.magic == MAGIC and header.size >= HEADER_SIZE
                if not is_valid:
                    break
                if at + header.size > len(data):
                    needed = header.size
                    break
                batches.append((at, header))
                at += header.size
            if batches:
                yield Chunk(position, data, batches)
            if not is_valid:
                return
            position += at
    finally:
        reader.close()


def scan(disk: Disk, path: str, position: int, end: int) -> Iterator[tuple[BatchHeader, int, memoryview]]:
    """The header, position and bytes of each batch between two positions; ends early where no whole batch follows.

    The bytes are valid until the next batch is taken. Checksums are not verified.
    """
    for chunk in scan_chunks(disk, path, position, end):
        for at, header in chunk.batches:
            yield header, chunk.position + at, chunk.data[at : at + header.size]


class BatchIndex(Protocol):
    """What hears of batches while a segment is gone over: an index that is rebuilt, or something that compares one."""

    def add(self, batch_last_offset: int, position: int, timestamp: int, timestamp_offset: int) -> None: ...

    def add_timestamp(self, timestamp: int, timestamp_offset: int) -> None: ...


class _NoIndex:
    def add(self, batch_last_offset: int, position: int, timestamp: int, timestamp_offset: int) -> None: ...

    def add_timestamp(self, timestamp: int, timestamp_offset: int) -> None: ...


def check_batches(disk: Disk, segment: Segment) -> tuple[int, int]:
    """Goes over a segment's batches as `check_segment` does, and writes nothing."""
    nothing_new = RELATIVE_OFFSET_MAX
    return check_segment(disk, segment, segment.size, _NoIndex(), nothing_new, lambda _header, _batch: None)


def find_batch(disk: Disk, path: str, position: int, end: int, least_offset: int) -> tuple[BatchHeader, int] | None:
    """The first whole batch with a valid checksum that begins anywhere between two positions and has records at
    `least_offset` or later, with its position. If there is one, what precedes it is not just a torn end."""
    reader = _Reader(disk, path, end)
    try:
        while (chunk := reader.read(position, HEADER_SIZE)) is not None:
            data = bytes(chunk)
            magic_at = data.find(MAGIC, MAGIC_AT)
            while 0 <= magic_at <= len(data) - HEADER_SIZE + MAGIC_AT:
                at = magic_at - MAGIC_AT
                header = BatchHeader._make(HEADER.unpack_from(data, at))
                if header.size >= HEADER_SIZE and header.base_offset >= 0 and header.last_offset >= least_offset:
                    batch = reader.read(position + at, header.size)
                    if batch is not None and crc_is_valid(batch, 0, header.size):
                        return header, position + at
                magic_at = data.find(MAGIC, magic_at + 1)
            position += len(data) - HEADER_SIZE + 1
    finally:
        reader.close()
    return None


def check_segment(
    disk: Disk,
    segment: Segment,
    index_interval_bytes: int,
    into: BatchIndex,
    latest_epoch: int,
    take: Callable[[BatchHeader, memoryview], None],
) -> tuple[int, int]:
    """Goes over a segment's batches up to the first invalid one, and adds them to an empty index.

    `take` gets only those that matter beyond their offsets: batches of producers with an id, and the first of each
    leader epoch after `latest_epoch`. Returns (where the last valid batch ends, the offset that follows it). Sets the
    segment's largest timestamp.
    """
    next_offset = segment.base_offset
    offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
    largest_ms, largest_at = NO_TIMESTAMP, segment.base_offset
    position = entry_at = at = 0
    needed = HEADER_SIZE
    is_valid = True
    unpack = HEADER.unpack_from
    reader = _Reader(disk, segment.log_path, segment.size)
    try:
        while is_valid and (chunk := reader.read(position, needed)) is not None:
            at, needed, limit = 0, HEADER_SIZE, len(chunk)
            while at + HEADER_SIZE <= limit:
                base, length, epoch, magic, crc, _, last_delta, _, max_ms, producer_id, _, _, _ = unpack(chunk, at)
                batch_end = at + length + LENGTH_OVERHEAD
                if batch_end > limit and magic == MAGIC:
                    needed = batch_end - at
                    break
                last_offset = base + last_delta
                if (
                    magic != MAGIC
                    or batch_end < at + HEADER_SIZE
                    or crc32c(chunk[at + ATTRIBUTES_AT : batch_end]) != crc
                    or not next_offset <= base <= last_offset <= offset_max
                ):
                    is_valid = False
                    break
                if max_ms > largest_ms:
                    largest_ms, largest_at = max_ms, last_offset
                if position + at - entry_at > index_interval_bytes:
                    entry_at = position + at
                    into.add(last_offset, entry_at, largest_ms, largest_at)
                if producer_id >= 0 or epoch > latest_epoch:
                    latest_epoch = max(latest_epoch, epoch)
                    take(BatchHeader._make(unpack(chunk, at)), chunk[at:batch_end])
                next_offset = last_offset + 1
                at = batch_end
            position += at
    finally:
        reader.close()
    into.add_timestamp(largest_ms, largest_at)
    segment.max_timestamp, segment.max_timestamp_offset = largest_ms, largest_at
    return position, next_offset
