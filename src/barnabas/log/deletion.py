"""Files and folders on their way out: out of sight at once, off the disk later, in whatever thread the owner has.

A segment that retention removes is renamed to `*.deleted` and unlinked `file.delete.delay.ms` later, so that readers
which still hold it finish in peace and a hasty operator has a minute. A deleted topic's folder is renamed to
`*-delete` as a whole. Whatever a crash leaves under these names, the next start removes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.names import DELETED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.ports import Disk


class Deletion(NamedTuple):
    """Paths to unlink once the wall clock passes `due_ms`."""

    due_ms: int
    paths: tuple[str, ...]

    def run(self, disk: Disk) -> None:
        """May take long, and may run in any thread: nothing refers to the files any more."""
        for path in self.paths:
            unlink_if_there(disk, path)


def mark_deleted(disk: Disk, paths: Iterable[str]) -> tuple[str, ...]:
    """Renames the files that exist to `*.deleted`; returns their new names."""
    marked = []
    for path in paths:
        try:
            disk.rename(path, path + DELETED)
        except FileNotFoundError:
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
