"""Reading segments from end to end: for recovery, for making indexes again, for replaying what batches say.

Files are read in large pieces. `scan` yields batch after batch; `check_segment`, on which the time to restart after a
crash depends, is one tight loop that checks and indexes a gigabyte in well under a second when batches are of the
usual size.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from crc32c import crc32c

from barnabas.log.index import NO_TIMESTAMP, RELATIVE_OFFSET_MAX
from barnabas.protocol.batch import (
    ATTRIBUTES_AT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.log.index import ActiveIndex
    from barnabas.log.segment import Segment
    from barnabas.ports import Disk

_CHUNK_BYTES = 1024 * 1024


class _Reader:
    """Reads a file in large pieces into one buffer, which grows only for a batch that is larger."""

    __slots__ = ("_buffer", "_disk", "_end", "_fd")

    def __init__(self, disk: Disk, path: str, end: int) -> None:
        self._disk = disk
        self._fd = disk.open(path, os.O_RDONLY)
        self._end = end
        self._buffer = memoryview(bytearray(min(_CHUNK_BYTES, end)))

    def read(self, position: int, needed: int) -> memoryview | None:
        """At least `needed` bytes from `position` on; None when there are fewer. Overwrites what was read before."""
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


def scan(disk: Disk, path: str, position: int, end: int) -> Iterator[tuple[BatchHeader, int, memoryview]]:
    """Header, position and bytes of each batch between two positions; ends early where no whole batch follows.

    The bytes are valid until the next batch is asked for. Checksums are not checked.
    """
    reader = _Reader(disk, path, end)
    try:
        needed = HEADER_SIZE
        while (chunk := reader.read(position, needed)) is not None:
            at, needed = 0, HEADER_SIZE
            while at + HEADER_SIZE <= len(chunk):
                header = BatchHeader._make(HEADER.unpack_from(chunk, at))
                if header.magic != MAGIC or header.size < HEADER_SIZE:
                    return
                if at + header.size > len(chunk):
                    needed = header.size
                    break
                yield header, position + at, chunk[at : at + header.size]
                at += header.size
            position += at
    finally:
        reader.close()


def check_segment(
    disk: Disk,
    segment: Segment,
    index_interval_bytes: int,
    into: ActiveIndex,
    latest_epoch: int,
    take: Callable[[BatchHeader, memoryview], None],
) -> tuple[int, int]:
    """Walks over a segment's batches up to the first that is not valid, and adds them to an empty index.

    `take` gets those that say more than their offsets: batches of producers with an id, and the first of each leader
    epoch after `latest_epoch`. Returns (where the last valid batch ends, the offset that follows it). The segment
    learns its largest timestamp.
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
