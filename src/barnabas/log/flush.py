"""Making a log durable, away from the thread that appends to it.

The log's owner takes a `Flush` from the log, runs it where nothing else has to wait for the device, and reports back
with `PartitionLog.flushed`, which moves the recovery point. Batches appended meanwhile belong to the next one.

A sync that failed must never be tried again: Linux has dropped the pages that it could not write, and takes the file
for clean. A second sync would succeed, and the recovery point would pass what is not there.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.ports import Disk


_OF_THE_NAME_OR_PROCESS = frozenset(
    {
        errno.EACCES,
        errno.EBADF,
        errno.EEXIST,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOENT,
        errno.ENOMEM,
        errno.ENOTDIR,
        errno.EPERM,
    }
)
"""The device was not even asked, so that nothing on it is in doubt."""
_OF_SPACE = frozenset({errno.EDQUOT, errno.EFBIG, errno.ENOSPC})


def is_failed_sync(error: BaseException | None) -> bool:
    """Whether nobody knows any longer what is on the device. A full one is no exception: its pages are dropped too."""
    return isinstance(error, OSError) and error.errno not in _OF_THE_NAME_OR_PROCESS


def is_failed_write(error: BaseException | None) -> bool:
    """Whether a device does not take what it has room for. One that is full takes it again when there is space."""
    return isinstance(error, OSError) and error.errno not in (_OF_THE_NAME_OR_PROCESS | _OF_SPACE)


class Flush(NamedTuple):
    """What has to be synced so that the log is durable up to `end_offset`."""

    end_offset: int
    paths: tuple[str, ...]
    folders: tuple[str, ...]
    """Those in which names changed."""
    truncations: int
    """How often the log was truncated before: one that is truncated meanwhile ends with other batches."""

    def run(self, disk: Disk) -> None:
        """Waits for the device; may run in any thread. Files are opened by name, as the log may close its own."""
        for path in self.paths:
            sync_file(disk, path)
        for folder in self.folders:
            disk.sync_dir(folder)


def sync_file(disk: Disk, path: str) -> None:
    """Syncs a file by name. One that retention removed meanwhile needs no sync."""
    try:
        fd = disk.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        disk.fsync(fd)
    finally:
        disk.close(fd)
