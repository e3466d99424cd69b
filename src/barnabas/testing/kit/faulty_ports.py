"""The system's disk and clock, with faults that can be switched on and off while a node runs on them."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

from barnabas.ports import SystemClock, SystemDisk

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer

    Strike = Callable[[], bool]


class FaultyDisk(SystemDisk):
    """May be used by several threads at once, as any disk.

    It syncs nothing: what a test has written is to survive the broker's end, and no failure of power, and much of the
    time in which a broker starts would go into that.

    A full disk refuses bytes beyond the end of a file, and takes what replaces others, as file systems do.
    """

    __slots__ = ("_lock", "_strike_space", "_strike_sync", "free_bytes")

    def __init__(self) -> None:
        self.free_bytes: int | None = None
        """How much more files may grow; None for as much as the real disk has."""
        self._strike_space: Strike = lambda: False
        self._strike_sync: Strike | None = None
        self._lock = threading.Lock()

    def fill(self, free_bytes: int | None, strike: Strike = lambda: False) -> None:
        """`strike` is told of every refusal."""
        with self._lock:
            self.free_bytes = free_bytes
            self._strike_space = strike

    def fail_syncs(self, strike: Strike | None) -> None:
        """While there is a `strike`, it says of each sync whether that fails."""
        with self._lock:
            self._strike_sync = strike

    def pwrite(self, fd: int, data: ReadableBuffer, offset: int, /) -> int:
        if self.free_bytes is not None:
            data = memoryview(data)[: self._take(fd, offset + len(memoryview(data))) - offset]
        return os.pwrite(fd, data, offset)

    def allocate(self, fd: int, length: int) -> None:
        if self.free_bytes is not None and self._take(fd, length) < length:
            raise no_space()
        super().allocate(fd, length)

    def fsync(self, fd: int, /) -> None:  # type: ignore[override]  # noqa: ARG002
        self._sync()

    def sync_dir(self, path: str) -> None:  # noqa: ARG002
        self._sync()

    def _take(self, fd: int, end: int) -> int:
        """Up to where the file may be written: as on a real disk, less than `end` where only a part fits."""
        with self._lock:
            if self.free_bytes is None:
                return end
            size = os.fstat(fd).st_size
            growth = end - size
            if growth <= 0:
                return end
            if self.free_bytes == 0:
                self._strike_space()
                raise no_space()
            taken = min(growth, self.free_bytes)
            self.free_bytes -= taken
            return size + taken

    def _sync(self) -> None:
        if self._strike_sync is None:
            return
        with self._lock:
            fails = self._strike_sync is not None and self._strike_sync()
        if fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FaultyClock(SystemClock):
    """A wall clock that is off by as much as it was told to jump."""

    __slots__ = ("off_ms",)

    def __init__(self) -> None:
        self.off_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.off_ms
