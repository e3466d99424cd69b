"""What a reply is made of: bytes, and ranges of segment files that go out by `sendfile`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections import deque

    from barnabas.log.files import OpenFile


class FilePart:
    """A range of an open segment file on its way out. Holds the file until it is sent or dropped."""

    __slots__ = ("file", "is_cold", "length", "position")

    def __init__(self, file: OpenFile, position: int, length: int, *, is_cold: bool) -> None:
        self.file = file.acquire()
        self.position = position
        self.length = length
        self.is_cold = is_cold


Part = bytes | memoryview | FilePart


def release_parts(parts: list[Part] | deque[Part] | tuple[()]) -> None:
    """Gives back the segment files of parts that will not be sent."""
    for part in parts:
        if type(part) is FilePart:
            part.file.release()
