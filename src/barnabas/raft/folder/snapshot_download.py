"""A snapshot that comes from the leader piece by piece: written to a file of another name, checked, synced and renamed.

A file that is left over by a crash is removed at the next start, as one that this node was writing itself.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from barnabas.raft.folder.snapshots import (
    PART_SUFFIX,
    SUFFIX,
    CorruptCheckpointError,
    Snapshot,
    read_snapshot,
    snapshot_name,
)

if TYPE_CHECKING:
    from barnabas.ports import Disk
    from barnabas.raft.consensus.log_history import SnapshotId
    from barnabas.raft.consensus.messages import SnapshotPart

_FETCHED = "-fetched"
"""In the name of the file, so that it is never the one that this node is writing itself."""


def write_part(disk: Disk, folder: str, part: SnapshotPart) -> None:
    """Writes a piece; the first one begins the file anew. Blocks."""
    path = _part_path(folder, part.snapshot)
    if part.position == 0 and disk.exists(path):
        disk.unlink(path)
    flags = os.O_WRONLY | (os.O_CREAT | os.O_EXCL if part.position == 0 else 0)
    fd = disk.open(path, flags, 0o600)
    try:
        view, position = memoryview(part.data), part.position
        while view:
            written = disk.pwrite(fd, view, position)
            position += written
            view = view[written:]
        if part.is_last:
            disk.fsync(fd)
    finally:
        disk.close(fd)


def complete(disk: Disk, folder: str, snapshot_id: SnapshotId) -> Snapshot:
    """Puts a snapshot that has arrived as a whole into the folder, and reads it. Returns when it is durable. Blocks.

    Raises CorruptCheckpointError if it is not valid.
    """
    part, path = _part_path(folder, snapshot_id), f"{folder}/{snapshot_name(snapshot_id)}"
    try:
        snapshot = read_snapshot(disk, folder, snapshot_id, part)
    except CorruptCheckpointError:
        disk.unlink(part)
        raise
    disk.rename(part, path)
    disk.sync_dir(folder)
    return snapshot


def _part_path(folder: str, snapshot_id: SnapshotId) -> str:
    return f"{folder}/{snapshot_name(snapshot_id).removesuffix(SUFFIX)}{_FETCHED}{PART_SUFFIX}"
