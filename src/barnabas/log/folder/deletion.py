"""Deleting files and folders: out of sight at once, off the disk later, in whatever thread the owner chooses.

A segment that retention drops is renamed to `*.deleted` and unlinked `file.delete.delay.ms` later, so that readers that
still hold it can finish, and an operator who made a mistake has a minute to react. A deleted topic's folder is renamed
to `*-delete` as a whole. Whatever a crash leaves under these names, the next start removes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.segments.file_names import DELETED, LOG, PRODUCER_SNAPSHOT, SEGMENT_FILES, offset_file

if TYPE_CHECKING:
    from barnabas.ports import Disk

logger = logging.getLogger(__name__)

FILES_OF_SEGMENT = (*SEGMENT_FILES, PRODUCER_SNAPSHOT)


class Deletion(NamedTuple):
    """Paths to unlink once the wall clock passes `due_ms`."""

    due_ms: int
    paths: tuple[str, ...]
    has_failed: bool = False
    """Whether it was tried before."""

    def run(self, disk: Disk) -> None:
        """May take long, and may run in any thread: nothing refers to the files any more. Raises the first error after
        trying all of them; safe to repeat."""
        failure: OSError | None = None
        for path in self.paths:
            try:
                unlink_if_there(disk, path)
            except OSError as error:
                failure = failure or error
        if failure is not None:
            raise failure


def mark_deleted(disk: Disk, folder: str, base_offset: int) -> tuple[str, ...]:
    """Renames the files of a segment to `*.deleted`; returns the new names of those that existed. Raises OSError if the
    log file cannot be renamed, and then renames nothing. Once it is renamed, the segment is gone, whatever becomes of
    its other files."""
    marked = []
    for suffix in FILES_OF_SEGMENT:
        path = offset_file(folder, base_offset, suffix)
        try:
            disk.rename(path, path + DELETED)
        except FileNotFoundError:
            continue
        except OSError as error:
            if suffix == LOG:
                raise
            logger.warning("%s could not be deleted with its segment; the next start will remove it: %s", path, error)
            continue
        marked.append(path + DELETED)
    return tuple(marked)


def unlink_if_there(disk: Disk, path: str) -> None:
    try:
        disk.unlink(path)
    except FileNotFoundError:
        return


def remove_partition_folder(disk: Disk, folder: str) -> None:
    """Removes a folder that was renamed to `*-delete`, with all its files. Safe to repeat after a crash."""
    try:
        names = disk.list_folder(folder)
    except FileNotFoundError:
        return
    for name in names:
        unlink_if_there(disk, f"{folder}/{name}")
    disk.remove_folder(folder)
