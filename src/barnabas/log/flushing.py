"""Making a log durable, away from the thread that appends to it.

The log's owner takes a `Flush` from the log, runs it wherever waiting for the device hurts nobody, and reports back
with `PartitionLog.flushed`, which moves the recovery point. Batches appended meanwhile belong to the next one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.ports import Disk


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
