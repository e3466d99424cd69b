"""Files and folders, as the operating system has them.

The protocol speaks in file descriptors and bytes, not in objects: the real disk is the `os` module itself, and a call
through this door costs no more than the call behind it.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import resource
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import ReadableBuffer, WriteableBuffer

_PROBE_STRIDE_BYTES = 1024 * 1024
_OPEN_FILES_UNLIMITED = 1 << 20
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


class Space(NamedTuple):
    """Of the file system that holds a folder."""

    total_bytes: int
    usable_bytes: int
    """What this process may still write."""


class Disk(Protocol):
    """Files by descriptor and folders by name. Failures are `OSError`s with the usual numbers.

    Written bytes are in the page cache; they survive the process, not the machine, until `fsync`. A new, renamed or
    removed name survives the machine only after `sync_dir` of its folder.
    """

    def open(self, path: str, flags: int, mode: int = 0o644) -> int: ...

    def close(self, fd: int, /) -> None: ...

    def pread(self, fd: int, length: int, offset: int, /) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def preadv(self, fd: int, buffers: Sequence[WriteableBuffer], offset: int, /) -> int: ...

    def pwrite(self, fd: int, data: ReadableBuffer, offset: int, /) -> int:
        """May write less than all when the disk fills up meanwhile."""
        ...

    def fsync(self, fd: int, /) -> None: ...

    def truncate(self, fd: int, length: int, /) -> None: ...

    def allocate(self, fd: int, length: int) -> None:
        """Makes the file `length` bytes long and reserves their space."""
        ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def space(self, path: str) -> Space: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Makes a file look as if it had last been written to then."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_folder(self, path: str) -> bool: ...

    def list_folder(self, path: str) -> list[str]: ...

    def make_folder(self, path: str) -> None: ...

    def make_folders(self, path: str) -> None:
        """Makes a folder and those above it, where they are missing."""
        ...

    def remove_folder(self, path: str) -> None:
        """Removes an empty folder."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Gives a file or folder another name, in one step, replacing a file of that name."""
        ...

    def unlink(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def lock(self, path: str) -> int:
        """Makes the file if it is missing and keeps every other process from locking it, until the returned
        descriptor is closed. BlockingIOError when another has it."""
        ...

    def send_range(self, socket_fd: int, fd: int, offset: int, length: int, /) -> int:
        """Sends file bytes to a non-blocking socket without copying them through this process."""
        ...

    def open_files_max(self) -> int:
        """How many descriptors this process may have open, sockets included."""
        ...

    def read_in_order(self, fd: int) -> None:
        """Says that a file is read from front to back, so that much may be fetched ahead."""
        ...

    def load(self, fd: int, offset: int, length: int) -> None:
        """Waits until a range is in memory, or the file ends."""
        ...

    def is_resident(self, fd: int, offset: int, length: int) -> bool:
        """Whether reading this range would not wait for the device, as far as a few probes tell."""
        ...


@functools.cache
def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY)


class SystemDisk:
    """The operating system's files."""

    __slots__ = ()

    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    preadv = staticmethod(os.preadv)
    pwrite = staticmethod(os.pwrite)
    fsync = staticmethod(os.fsync)
    truncate = staticmethod(os.ftruncate)
    send_range = staticmethod(os.sendfile)

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        return os.open(path, flags, mode)

    def allocate(self, fd: int, length: int) -> None:
        os.posix_fallocate(fd, 0, length)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def space(self, path: str) -> Space:
        found = os.statvfs(path)
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_folder(self, path: str) -> list[str]:
        return os.listdir(path)

    def make_folder(self, path: str) -> None:
        os.mkdir(path, 0o755)

    def make_folders(self, path: str) -> None:
        os.makedirs(path, 0o755, exist_ok=True)

    def remove_folder(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> int:
        """A POSIX record lock, the kind that Java takes: brokers of either kind see each other's."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def open_files_max(self) -> int:
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return allowed if allowed != resource.RLIM_INFINITY else _OPEN_FILES_UNLIMITED

    def read_in_order(self, fd: int) -> None:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def load(self, fd: int, offset: int, length: int) -> None:
        """Sends the range to nowhere: the kernel waits for the pages and copies none, in one call for all of them. A
        thread that came back for every few would take the interpreter from the event loop each time."""
        while length > 0 and (loaded := os.sendfile(_nowhere(), fd, offset, length)):
            offset += loaded
            length -= loaded

    def is_resident(self, fd: int, offset: int, length: int) -> bool:
        """Asks the kernel for single bytes of the range with the demand not to wait for them: first for the last one,
        which is what is missing when a reader has come to the end of what was read ahead for it."""
        if not _NOWAIT:
            return False
        byte = [bytearray(1)]
        last = offset + length - 1
        try:
            for position in (last, *range(offset, last, _PROBE_STRIDE_BYTES)):
                os.preadv(fd, byte, position, _NOWAIT)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
                return False
            raise
        return True
