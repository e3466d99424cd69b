"""Open segment files: reference-counted, shared between the log and the connections that send from them, and few.

A fetched range (`FileRange`) holds its file, and so does the connection that still has bytes of it to send (`acquire`).
Meanwhile retention or a topic's deletion may drop the segment, and the pool may want the descriptor back; the
descriptor, and with it the data, lives until the last holder releases it (`release`). The pool limits how many
descriptors stay open for later use; a file that was not used since the pool last looked is closed first.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.log.segments.segment import Segment
    from barnabas.ports import Disk

OPEN_FILES_MAX = 4096
SHARE_OF_OPEN_FILES = 2
"""The pool takes one in so many of the files that the process may open; the rest is for connections and short use."""


class OpenFile:
    """A descriptor with a count of holders; the pool is the first of them.

    Invariant: the descriptor is open while `holders` > 0 and closed for good at 0.
    """

    __slots__ = ("_disk", "_holders", "fd", "recently_used", "segment")

    def __init__(self, disk: Disk, fd: int, segment: Segment) -> None:
        self._disk = disk
        self._holders = 1
        self.fd = fd
        self.segment: Segment | None = segment
        self.recently_used = True

    def acquire(self) -> OpenFile:
        assert self._holders > 0, "acquired after the last release"
        self._holders += 1
        return self

    def read(self, position: int, length: int) -> bytes:
        """Reads a range that is too short to be worth `send_range`."""
        return self._disk.pread(self.fd, length, position)

    def send(self, socket_fd: int, position: int, length: int) -> int:
        return self._disk.send_range(socket_fd, self.fd, position, length)

    def release(self) -> None:
        assert self._holders > 0, "released more often than acquired"
        self._holders -= 1
        if self._holders == 0:
            fd, self.fd = self.fd, -1
            self._disk.close(fd)


class FileRange:
    """Bytes of an open segment file. The file stays open while the range exists; whatever sends from it later without
    keeping the range must hold the file itself (`file.acquire()`)."""

    __slots__ = ("file", "length", "position", "segment")

    def __init__(self, file: OpenFile, position: int, length: int, segment: int) -> None:
        self.file = file.acquire()
        self.position = position
        self.length = length
        self.segment = segment
        """The base offset of the segment."""

    def __del__(self) -> None:
        self.file.release()


class FilePool:
    """Opens segment files, and closes the least recently used beyond `limit`. One pool serves many partitions of one
    thread; without a limit it takes a share of the files that the process may open."""

    __slots__ = ("_disk", "_open", "limit")

    def __init__(self, disk: Disk, limit: int | None = None) -> None:
        self._disk = disk
        self._open: deque[OpenFile] = deque()
        self.limit = min(OPEN_FILES_MAX, disk.open_files_max() // SHARE_OF_OPEN_FILES) if limit is None else limit

    def __len__(self) -> int:
        return sum(1 for file in self._open if file.segment is not None)

    def open(self, segment: Segment) -> OpenFile:
        """The segment's file, open for reading and writing, until the pool or the segment closes it."""
        if len(self._open) >= self.limit:
            self._make_room()
        file = OpenFile(self._disk, self._disk.open(segment.log_path, os.O_RDWR), segment)
        self._open.append(file)
        segment.file = file
        return file

    def close(self, file: OpenFile) -> None:
        """The segment no longer needs its file. Holders keep it open."""
        if file.segment is not None:
            file.segment.file = None
            file.segment = None
            file.release()

    def _make_room(self) -> None:
        """Closes the first file that was not used since the last look, going round at most twice."""
        for _ in range(2 * len(self._open)):
            file = self._open.popleft()
            if file.segment is None:
                return
            if not file.recently_used:
                self.close(file)
                return
            file.recently_used = False
            self._open.append(file)
