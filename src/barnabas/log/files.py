"""Open segment files: counted, shared between the log and the connections that send from them, and few.

A fetched range holds its file, and so does the connection that still has bytes of it to send (`acquire`): retention
or a topic's deletion may drop the segment meanwhile, and the pool may want the descriptor back; it, and with it the
data, lives until the last holder lets go (`release`). How many descriptors stay open for later use is the pool's
limit; a file that was not used since the pool last looked is closed first.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.log.segment import Segment
    from barnabas.ports import Disk

OPEN_FILES_MAX = 4096
SHARE_OF_OPEN_FILES = 2
"""The pool takes this part of the files that the process may open; the rest is for connections and short use."""


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
        """A few bytes at once, for ranges too short to be worth `send_range`."""
        return self._disk.pread(self.fd, length, position)

    def send(self, socket_fd: int, position: int, length: int) -> int:
        return self._disk.send_range(socket_fd, self.fd, position, length)

    def release(self) -> None:
        assert self._holders > 0, "released more often than acquired"
        self._holders -= 1
        if self._holders == 0:
            fd, self.fd = self.fd, -1
            self._disk.close(fd)


class FilePool:
    """Opens segment files and closes the ones least in use beyond `limit`. One pool serves many partitions of one
    thread; without a limit it takes a share of what the process may open."""

    __slots__ = ("_disk", "_open", "limit")

    def __init__(self, disk: Disk, limit: int | None = None) -> None:
        self._disk = disk
        self._open: deque[OpenFile] = deque()
        self.limit = min(OPEN_FILES_MAX, disk.open_files_max() // SHARE_OF_OPEN_FILES) if limit is None else limit

    def __len__(self) -> int:
        return sum(1 for file in self._open if file.segment is not None)

    def open(self, segment: Segment) -> OpenFile:
        """The segment's file, open for reading and writing. It stays open until the pool or the segment ends that."""
        if len(self._open) >= self.limit:
            self._make_room()
        file = OpenFile(self._disk, self._disk.open(segment.log_path, os.O_RDWR), segment)
        self._open.append(file)
        segment.file = file
        return file

    def close(self, file: OpenFile) -> None:
        """The segment has no more use for its file. Holders keep it."""
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
