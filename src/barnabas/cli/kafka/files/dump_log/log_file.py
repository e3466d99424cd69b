"""A file of batches as Kafka reads one from start to end: what it takes for a batch, and where it stops.

A batch that the file ends in the middle of is not there. One whose length cannot be is an error, also in the zeros
behind the last batch of a file that was made larger in advance, or that a crash left behind.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from barnabas.cli.kafka.tool import ToolError
from barnabas.protocol.batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, MAGIC_AT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

INT32_MAX: Final = (1 << 31) - 1
BEGINNING_BYTES: Final = MAGIC_AT + 1
"""What batches of all formats begin with: offset, length, a number that has changed its meaning, and the magic."""
_LENGTH_MIN: Final = 14
"""Of a batch in the oldest format."""
_OFFSET_AND_LENGTH: Final = Struct(">qi")
_CHUNK_BYTES: Final = 1 << 20


class FoundBatch(NamedTuple):
    position: int
    data: memoryview
    """The whole batch."""

    @property
    def magic(self) -> int:
        magic = self.data[MAGIC_AT]
        return magic if magic < 0x80 else magic - 0x100

    @property
    def is_legacy(self) -> bool:
        return self.magic < MAGIC

    @property
    def last_offset(self) -> int:
        fields = HEADER.unpack_from(self.data)
        # What a batch of the formats before 2 begins with is the last offset.
        return int(fields[0]) if self.is_legacy else int(fields[0] + fields[6])


class LogFile:
    """A segment or snapshot that is open for reading."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = min(os.fstat(self._fd).st_size, INT32_MAX)

    def end_of(self, start: int, length: int) -> int:
        """The end of a part of the file; ToolError if there is none."""
        shown = f"FileRecords(size={self.size}, file={self.path}, start=0, end={INT32_MAX})"
        if start < 0:
            raise ToolError(f"Invalid position: {start} in read from {shown}")
        if start > self.size:
            raise ToolError(f"Slice from position {start} exceeds end position of {shown}")
        if length < 0:
            raise ToolError(f"Invalid size: {length} in read from {shown}")
        return min(start + length, self.size)

    def batches(self, start: int, end: int) -> Iterator[FoundBatch]:
        position = start
        chunk, chunk_at = memoryview(b""), start
        while position < end - BEGINNING_BYTES:
            if position + BEGINNING_BYTES > chunk_at + len(chunk):
                chunk, chunk_at = self._read(position, _CHUNK_BYTES), position
                if len(chunk) < BEGINNING_BYTES:
                    return
            _, length = _OFFSET_AND_LENGTH.unpack_from(chunk, position - chunk_at)
            if length < _LENGTH_MIN:
                raise ToolError(
                    f"Found record size {length} smaller than minimum record overhead ({_LENGTH_MIN}) "
                    f"in file {self.path}."
                )
            size = length + LENGTH_OVERHEAD
            if position > end - size:
                return
            # The header of a batch that is too short for one is read beyond its end, as by Kafka.
            needed = max(size, HEADER_SIZE)
            if position + needed > chunk_at + len(chunk):
                chunk, chunk_at = self._read(position, max(needed, _CHUNK_BYTES)), position
                if len(chunk) < needed:
                    raise ToolError(
                        f"Failed to read `record batch header` from file channel, expected to read {HEADER_SIZE} "
                        f"bytes, but reached end of file after reading {len(chunk)} bytes."
                    )
            at = position - chunk_at
            yield FoundBatch(position, chunk[at : at + needed])
            position += size

    def _read(self, position: int, size: int) -> memoryview:
        return memoryview(os.pread(self._fd, size, position))

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
