"""A disk on which a start can be rehearsed: it reads the files of another disk, and keeps what is written in memory.

Whatever runs on it sees its own changes, as on any disk; the disk below never does. What would have been changed there
can be asked for afterwards (`changes`). The lock of a data folder is taken where its file exists, because that writes
nothing, and is held until `close_all`. If another process has it, the rehearsal goes on without.
"""

from __future__ import annotations

import errno
import os
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from _typeshed import ReadableBuffer, WriteableBuffer

    from barnabas.ports import Disk
    from barnabas.ports.disk import Space

_FIRST_FD = 1 << 24
"""No system has as many files open in one process."""
_COMPARED_BYTES = 1024 * 1024


class ChangeKind(Enum):
    CREATED = "created"
    REMOVED = "removed"
    TRUNCATED = "truncated"
    REWRITTEN = "rewritten"


class Change(NamedTuple):
    """What would become of a file."""

    kind: ChangeKind
    path: str
    old_bytes: int = 0
    new_bytes: int = 0


class _File:
    """A file of which the first `kept` bytes are those of a file of the disk below, and the rest is in memory."""

    __slots__ = ("backing", "kept", "modified_ms", "tail")

    def __init__(self, backing: str | None, kept: int) -> None:
        self.backing = backing
        self.kept = kept
        self.tail = bytearray()
        self.modified_ms: int | None = None
        """If it was set."""

    @property
    def size(self) -> int:
        return self.kept + len(self.tail)


class _Handle:
    __slots__ = ("fd_below", "file")

    def __init__(self, file: _File) -> None:
        self.file = file
        self.fd_below: int | None = None


class RehearsalDisk:
    """A `Disk`. Of the operations of one path, those that change it are called by one thread at a time."""

    def __init__(self, below: Disk) -> None:
        self._below = below
        self._files: dict[str, _File] = {}
        """Those that were opened or renamed."""
        self._made_folders: set[str] = set()
        self._gone: set[str] = set()
        """Files and folders of the disk below that were removed or renamed."""
        self._made_in: dict[str, set[str]] = {}
        """Names that folders got, by folder."""
        self._handles: dict[int, _Handle] = {}
        self._numbers = count(_FIRST_FD)
        self._locks: dict[str, int] = {}
        self.in_use: set[str] = set()
        """Lock files that another process holds."""
        self.not_lockable: dict[str, OSError] = {}
        """Lock files of which this process cannot find that out."""

    # Files

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:  # noqa: ARG002 (as the port has it)
        if self.is_folder(path):
            raise _error(errno.EISDIR, path)
        if not self.exists(path):
            if not flags & os.O_CREAT or not self.is_folder(os.path.dirname(path)):
                raise _error(errno.ENOENT, path)
            self._put(path, _File(None, 0))
        elif flags & os.O_EXCL:
            raise _error(errno.EEXIST, path)
        file = self._file(path)
        if flags & os.O_TRUNC:
            file.kept = 0
            file.tail.clear()
        handle = _Handle(file)
        if file.backing is not None:
            # At once, so that what may not be read is not taken for empty.
            handle.fd_below = self._below.open(file.backing, os.O_RDONLY)
        fd = next(self._numbers)
        self._handles[fd] = handle
        return fd

    def close(self, fd: int, /) -> None:
        handle = self._handles.pop(fd, None)
        if handle is None:
            raise _error(errno.EBADF)
        if handle.fd_below is not None:
            self._below.close(handle.fd_below)

    def pread(self, fd: int, length: int, offset: int, /) -> bytes:
        handle = self._handle(fd)
        file = handle.file
        data = b""
        if offset < file.kept and handle.fd_below is not None:
            data = self._below.pread(handle.fd_below, min(length, file.kept - offset), offset)
        rest = length - len(data)
        if rest and offset + len(data) >= file.kept:
            start = offset + len(data) - file.kept
            data += bytes(file.tail[start : start + rest])
        return data

    def preadv(self, fd: int, buffers: Sequence[WriteableBuffer], offset: int, /) -> int:
        handle = self._handle(fd)
        if handle.fd_below is not None and offset + sum(len(memoryview(each)) for each in buffers) <= handle.file.kept:
            return self._below.preadv(handle.fd_below, buffers, offset)
        read = 0
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            data = self.pread(fd, len(view), offset + read)
            view[: len(data)] = data
            read += len(data)
        return read

    def pwrite(self, fd: int, data: ReadableBuffer, offset: int, /) -> int:
        handle = self._handle(fd)
        file, written = handle.file, bytes(data)
        if offset < file.kept:
            # What is overwritten, and what follows it, is in memory from now on.
            file.tail[:0] = self.pread(fd, file.kept - offset, offset)
            file.kept = offset
        start = offset - file.kept
        if len(file.tail) < start:
            file.tail += bytes(start - len(file.tail))
        file.tail[start : start + len(written)] = written
        return len(written)

    def fsync(self, fd: int, /) -> None:
        self._handle(fd)

    def truncate(self, fd: int, length: int, /) -> None:
        file = self._handle(fd).file
        file.kept = min(file.kept, length)
        del file.tail[length - file.kept :]
        file.tail += bytes(length - file.size)

    def allocate(self, fd: int, length: int) -> None:  # noqa: ARG002 (as the port has it)
        """Reserves nothing: what is not written is not read either."""
        self._handle(fd)

    def send_range(self, socket_fd: int, fd: int, offset: int, length: int, /) -> int:
        return os.write(socket_fd, self.pread(fd, length, offset))

    def read_in_order(self, fd: int) -> None:
        handle = self._handle(fd)
        if handle.fd_below is not None:
            self._below.read_in_order(handle.fd_below)

    def load(self, fd: int, offset: int, length: int) -> None:
        self.pread(fd, length, offset)

    def is_resident(self, fd: int, offset: int, length: int) -> bool:
        handle = self._handle(fd)
        if offset >= handle.file.kept or handle.fd_below is None:
            return True
        return self._below.is_resident(handle.fd_below, offset, min(length, handle.file.kept - offset))

    # Names

    def size(self, path: str) -> int:
        known = self._files.get(path)
        if known is not None:
            return known.size
        if path in self._gone:
            raise _error(errno.ENOENT, path)
        return self._below.size(path)

    def modified_ms(self, path: str) -> int:
        file = self._file(path)
        if file.modified_ms is not None:
            return file.modified_ms
        return self._below.modified_ms(file.backing or os.path.dirname(path))

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._file(path).modified_ms = modified_ms

    def space(self, path: str) -> Space:
        return self._below.space(path)

    def exists(self, path: str) -> bool:
        if path in self._files or path in self._made_folders:
            return True
        return path not in self._gone and self._below.exists(path)

    def is_folder(self, path: str) -> bool:
        if path in self._made_folders:
            return True
        return path not in self._files and path not in self._gone and self._below.is_folder(path)

    def list_folder(self, path: str) -> list[str]:
        if path in self._gone and path not in self._made_folders:
            raise _error(errno.ENOENT, path)
        made = self._made_in.get(path, set())
        if path in self._made_folders:
            return sorted(made)
        below = [name for name in self._below.list_folder(path) if f"{path}/{name}" not in self._gone]
        return [*below, *sorted(made.difference(below))]

    def make_folder(self, path: str) -> None:
        if self.exists(path):
            raise _error(errno.EEXIST, path)
        if not self.is_folder(os.path.dirname(path)):
            raise _error(errno.ENOENT, path)
        self._made_folders.add(path)
        self._name(path)

    def make_folders(self, path: str) -> None:
        if not self.is_folder(path):
            self.make_folders(os.path.dirname(path))
            self.make_folder(path)

    def remove_folder(self, path: str) -> None:
        if self.list_folder(path):
            raise _error(errno.ENOTEMPTY, path)
        self._forget(path)

    def rename(self, old: str, new: str) -> None:
        if not self.is_folder(old):
            file = self._file(old)
            self._forget(old)
            self._put(new, file)
            return
        self.make_folder(new)
        for name in self.list_folder(old):
            self.rename(f"{old}/{name}", f"{new}/{name}")
        self._forget(old)

    def unlink(self, path: str) -> None:
        self._file(path)
        self._forget(path)

    def sync_dir(self, path: str) -> None:
        if not self.is_folder(path):
            raise _error(errno.ENOENT, path)

    def lock(self, path: str) -> int:
        """Takes the lock of the disk below if its file exists; no process has one that does not."""
        fd = self.open(path, os.O_RDWR | os.O_CREAT)
        if path not in self._locks and self._below.exists(path):
            try:
                self._locks[path] = self._below.lock(path)
            except BlockingIOError:
                self.in_use.add(path)
            except OSError as error:  # a file system or a file that this process may only read
                self.not_lockable[path] = error
        return fd

    def open_files_max(self) -> int:
        return self._below.open_files_max()

    # The rehearsal

    def changes(self) -> Iterator[Change]:
        """What would be another file, by path, once the rehearsal has taken place. Reads files that were rewritten."""
        for path in sorted({*self._files, *self._gone}):
            was_there = self._below.exists(path) and not self._below.is_folder(path)
            file = self._files.get(path)
            if file is None:
                if was_there:
                    yield Change(ChangeKind.REMOVED, path, self._below.size(path))
            elif not was_there:
                yield Change(ChangeKind.CREATED, path, 0, file.size)
            else:
                size = self._below.size(path)
                if file.backing == path and not file.tail:
                    if file.kept < size:
                        yield Change(ChangeKind.TRUNCATED, path, size, file.kept)
                elif file.size != size or not self._is_same(path, size):
                    yield Change(ChangeKind.REWRITTEN, path, size, file.size)

    def close_all(self) -> None:
        for fd in list(self._handles):
            self.close(fd)
        for fd in self._locks.values():
            self._below.close(fd)
        self._locks.clear()

    def _is_same(self, path: str, size: int) -> bool:
        below, here = self._below.open(path, os.O_RDONLY), self.open(path, os.O_RDONLY)
        try:
            return all(
                self._below.pread(below, _COMPARED_BYTES, at) == self.pread(here, _COMPARED_BYTES, at)
                for at in range(0, size, _COMPARED_BYTES)
            )
        finally:
            self._below.close(below)
            self.close(here)

    def _handle(self, fd: int) -> _Handle:
        handle = self._handles.get(fd)
        if handle is None:
            raise _error(errno.EBADF)
        return handle

    def _file(self, path: str) -> _File:
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = _File(path, self.size(path))
        return file

    def _put(self, path: str, file: _File) -> None:
        self._files[path] = file
        self._name(path)

    def _name(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self._made_in.setdefault(folder, set()).add(name)

    def _forget(self, path: str) -> None:
        self._files.pop(path, None)
        self._made_folders.discard(path)
        self._gone.add(path)
        folder, _, name = path.rpartition("/")
        self._made_in.get(folder, set()).discard(name)


def _error(number: int, path: str = "") -> OSError:
    return OSError(number, os.strerror(number), path) if path else OSError(number, os.strerror(number))
