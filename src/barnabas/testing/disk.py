"""A disk in memory that fails on demand and forgets, when it crashes, whatever was not synced.

`crash` is the machine losing power: of each file what was there at its last `fsync` stays, plus, if the test wants
torn writes, a part of what came after; of names, what was there at the last `sync_dir` of their folder. Running full,
and errors of single operations, can be switched on and off at any time. File ranges go out through real sockets, or
through those of a simulated network (`write_to_socket=network.write`).
"""

from __future__ import annotations

import copy
import errno
import itertools
import os
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from barnabas.ports.disk import Space

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from _typeshed import ReadableBuffer, WriteableBuffer

    from barnabas.ports import Clock

_FIRST_FD = 10_000
ENDLESS_BYTES = 1 << 50
"""The size of a disk without a limit."""
_numbers = itertools.count()


class _File:
    __slots__ = ("data", "modified_ms", "synced")

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.synced = b""
        self.modified_ms = modified_ms


class SimulatedDisk:
    """A `Disk`. Paths are absolute; the root folder exists."""

    def __init__(self, clock: Clock, *, write_to_socket: Callable[[int, ReadableBuffer], int] = os.write) -> None:
        self.clock = clock
        self._write_to_socket = write_to_socket
        self._files: dict[str, _File] = {}
        self._folders: set[str] = {"/"}
        self._synced_files: dict[str, _File] = {}
        self._synced_folders: set[str] = {"/"}
        self._open: dict[int, _File] = {}
        self._locks: dict[int, str] = {}
        self._next_fd = _FIRST_FD
        self._failures: dict[str, int] = {}
        self.capacity_bytes: int | None = None
        """Bytes that fit on the disk; None for any number."""
        self.calls: dict[str, int] = {}
        """How often each operation was asked for."""
        self._number = next(_numbers)
        _disks[self._number] = self

    def __reduce__(self) -> tuple[Callable[[int], SimulatedDisk], tuple[int]]:
        """What travels to a simulated worker process is not the disk, but the way to it."""
        return _disk_of_number, (self._number,)

    def __deepcopy__(self, memo: dict[int, object]) -> SimulatedDisk:
        """Another disk with the same content, as a test keeps it of a moment."""
        copied = SimulatedDisk.__new__(SimulatedDisk)
        memo[id(self)] = copied
        number = next(_numbers)
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo), _number=number)
        _disks[number] = copied
        return copied

    def fail(self, operation: str, error_number: int) -> None:
        """Lets an operation, by its method's name, fail from now on."""
        self._failures[operation] = error_number

    def heal_operation(self, operation: str) -> None:
        self._failures.pop(operation, None)

    @property
    def is_failing(self) -> bool:
        return bool(self._failures)

    @property
    def used_bytes(self) -> int:
        return sum(len(each.data) for each in self._files.values())

    def heal(self) -> None:
        self._failures.clear()
        self.capacity_bytes = None

    def crash(self, keep_unsynced_bytes: Callable[[int], int] = lambda _unsynced: 0) -> None:
        """Forgets what was not synced. Of bytes beyond the synced length of a file, as many stay as
        `keep_unsynced_bytes` answers to their number."""
        self.release()
        self._files = dict(self._synced_files)
        self._folders = set(self._synced_folders)
        for file in self._files.values():
            unsynced = bytes(file.data[len(file.synced) :])
            file.data = bytearray(file.synced + unsynced[: keep_unsynced_bytes(len(unsynced))])

    def release(self) -> None:
        """The process that used the disk has ended: its descriptors and locks are gone, what it wrote stays."""
        self._open.clear()
        self._locks.clear()

    def sync_all(self) -> None:
        """As `sync` by an operator: everything that there is outlives a crash."""
        for file in self._files.values():
            file.synced = bytes(file.data)
        self._synced_files = dict(self._files)
        self._synced_folders = set(self._folders)

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:  # noqa: ARG002 (as the port has it)
        self._count("open")
        if path in self._folders:
            raise _error(errno.EISDIR, path)
        file = self._files.get(path)
        if file is None:
            if not flags & os.O_CREAT or os.path.dirname(path) not in self._folders:
                raise _error(errno.ENOENT, path)
            file = self._files[path] = _File(self.clock.now_ms())
        if flags & os.O_TRUNC:
            file.data.clear()
        self._next_fd += 1
        self._open[self._next_fd] = file
        return self._next_fd

    def close(self, fd: int, /) -> None:
        self._locks.pop(fd, None)
        if self._open.pop(fd, None) is None:
            raise _error(errno.EBADF)

    def pread(self, fd: int, length: int, offset: int, /) -> bytes:
        self._count("pread")
        return bytes(self._file(fd).data[offset : offset + length])

    def preadv(self, fd: int, buffers: Sequence[WriteableBuffer], offset: int, /) -> int:
        self._count("preadv")
        data = self._file(fd).data
        read = 0
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            piece = data[offset + read : offset + read + len(view)]
            view[: len(piece)] = piece
            read += len(piece)
        return read

    def pwrite(self, fd: int, data: ReadableBuffer, offset: int, /) -> int:
        self._count("pwrite")
        file = self._file(fd)
        data = bytes(data)
        if self.capacity_bytes is not None:
            used = self.used_bytes
            growth = offset + len(data) - len(file.data)
            if growth > 0 and used + growth > self.capacity_bytes:
                data = data[: max(len(data) - (used + growth - self.capacity_bytes), 0)]
                if not data:
                    raise _error(errno.ENOSPC)
        if len(file.data) < offset:
            file.data += bytes(offset - len(file.data))
        file.data[offset : offset + len(data)] = data
        file.modified_ms = self.clock.now_ms()
        return len(data)

    def fsync(self, fd: int, /) -> None:
        self._count("fsync")
        file = self._file(fd)
        file.synced = bytes(file.data)

    def truncate(self, fd: int, length: int, /) -> None:
        self._count("truncate")
        file = self._file(fd)
        del file.data[length:]
        file.data += bytes(length - len(file.data))

    def allocate(self, fd: int, length: int) -> None:
        self._count("allocate")
        file = self._file(fd)
        file.data += bytes(max(length - len(file.data), 0))

    def size(self, path: str) -> int:
        return len(self._at(path).data)

    def space(self, path: str) -> Space:
        self._count("space")
        if path not in self._folders:
            raise _error(errno.ENOENT)
        used = self.used_bytes
        total = ENDLESS_BYTES if self.capacity_bytes is None else self.capacity_bytes
        return Space(total, max(total - used, 0))

    def modified_ms(self, path: str) -> int:
        return self._at(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._at(path).modified_ms = modified_ms

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._folders

    def is_folder(self, path: str) -> bool:
        return path in self._folders

    def list_folder(self, path: str) -> list[str]:
        if path not in self._folders:
            raise _error(errno.ENOENT, path)
        return [os.path.basename(name) for name in (*self._files, *self._folders) if _is_in(name, path)]

    def make_folder(self, path: str) -> None:
        self._count("make_folder")
        if self.exists(path):
            raise _error(errno.EEXIST, path)
        if os.path.dirname(path) not in self._folders:
            raise _error(errno.ENOENT, path)
        self._folders.add(path)

    def make_folders(self, path: str) -> None:
        """The folder and those above it, as far as they are missing."""
        if not self.is_folder(path):
            self.make_folders(os.path.dirname(path))
            self.make_folder(path)

    def remove_folder(self, path: str) -> None:
        self._count("remove_folder")
        if self.list_folder(path):
            raise _error(errno.ENOTEMPTY, path)
        self._folders.remove(path)

    def rename(self, old: str, new: str) -> None:
        self._count("rename")
        if old in self._files:
            self._files[new] = self._files.pop(old)
        elif old in self._folders:
            self._files = {_moved(path, old, new): file for path, file in self._files.items()}
            self._folders = {_moved(path, old, new) for path in self._folders}
        else:
            raise _error(errno.ENOENT, old)

    def unlink(self, path: str) -> None:
        self._count("unlink")
        self._at(path)
        del self._files[path]

    def sync_dir(self, path: str) -> None:
        self._count("sync_dir")
        if path not in self._folders:
            raise _error(errno.ENOENT, path)
        gone = {name for name in self._synced_folders if _is_in(name, path)} - self._folders
        self._synced_folders -= gone
        self._synced_folders |= {name for name in self._folders if _is_in(name, path)}
        kept = {
            name: file
            for name, file in self._synced_files.items()
            if not _is_in(name, path) and not any(name.startswith(f"{folder}/") for folder in gone)
        }
        self._synced_files = kept | {name: file for name, file in self._files.items() if _is_in(name, path)}

    def lock(self, path: str) -> int:
        if path in self._locks.values():
            raise _error(errno.EAGAIN, path)
        fd = self.open(path, os.O_RDWR | os.O_CREAT)
        self._locks[fd] = path
        return fd

    def send_range(self, socket_fd: int, fd: int, offset: int, length: int, /) -> int:
        self._count("send_range")
        return self._write_to_socket(socket_fd, self._file(fd).data[offset : offset + length])

    def open_files_max(self) -> int:
        return 1024

    def read_in_order(self, fd: int) -> None:
        self._file(fd)

    def load(self, fd: int, offset: int, length: int) -> None:  # noqa: ARG002 (all of it is in memory)
        self._file(fd)

    def is_resident(self, fd: int, offset: int, length: int) -> bool:
        return offset + length <= len(self._file(fd).data)

    def _count(self, operation: str) -> None:
        self.calls[operation] = self.calls.get(operation, 0) + 1
        if operation in self._failures:
            raise _error(self._failures[operation])

    def _file(self, fd: int) -> _File:
        file = self._open.get(fd)
        if file is None:
            raise _error(errno.EBADF)
        return file

    def _at(self, path: str) -> _File:
        file = self._files.get(path)
        if file is None:
            raise _error(errno.ENOENT, path)
        return file


_disks: WeakValueDictionary[int, SimulatedDisk] = WeakValueDictionary()


def _disk_of_number(number: int) -> SimulatedDisk:
    return _disks[number]


def _is_in(path: str, folder: str) -> bool:
    return path != folder and os.path.dirname(path) == folder


def _moved(path: str, old: str, new: str) -> str:
    return new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path


def _error(number: int, path: str = "") -> OSError:
    return OSError(number, os.strerror(number), path) if path else OSError(number, os.strerror(number))
