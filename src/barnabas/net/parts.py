"""What a reply is made of: bytes, and ranges of files that go out by `sendfile`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections import deque


class SendableFile(Protocol):
    """An open file that is shared by counting its holders."""

    fd: int

    def acquire(self) -> SendableFile: ...

    def read(self, position: int, length: int) -> bytes: ...

    def send(self, socket_fd: int, position: int, length: int) -> int:
        """Sends from the file to a socket; returns how many bytes the socket took."""
        ...

    def release(self) -> None: ...


class FilePart:
    """A range of an open file on its way out. Holds the file until it is sent or dropped."""

    __slots__ = ("file", "is_cold", "length", "position")

    def __init__(self, file: SendableFile, position: int, length: int, *, is_cold: bool) -> None:
        self.file = file.acquire()
        self.position = position
        self.length = length
        self.is_cold = is_cold


Part = bytes | memoryview | FilePart


def release_parts(parts: list[Part] | deque[Part] | tuple[()]) -> None:
    """Gives back the files of parts that will not be sent."""
    for part in parts:
        if type(part) is FilePart:
            part.file.release()
