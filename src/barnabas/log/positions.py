"""What a log answers with: positions, results of appends, ranges of files."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.log.files import OpenFile


class LogPosition(NamedTuple):
    """An offset and where its batch lies: the base offset of the segment, and the byte in its file."""

    offset: int
    segment: int
    position: int


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the log stamped the batch. For a repeated batch, the timestamp of the first, as Kafka answers."""
    log_start_offset: int
    is_duplicate: bool


class FileRange:
    """Bytes of an open segment file. The file stays open while the range exists; whoever sends from it later, without
    keeping the range, holds the file itself (`file.acquire()`)."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: OpenFile, position: int, length: int) -> None:
        self.file = file.acquire()
        self.position = position
        self.length = length

    def __del__(self) -> None:
        self.file.release()
