"""The files of a log, other than those that hold batches, which have changed since the last flush.

Indexes, snapshots and checkpoints are written without waiting for the device, and so are new and changed names. The
next flush syncs what is noted here; if it fails, the one after it syncs the same files again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER_ITSELF = "."
"""Stands for the log's folder, in which names changed."""
PARENT_FOLDER = ".."
"""Stands for the folder above it, which holds the name of a new log."""


class UnflushedFiles:
    """Invariant: what a flush is syncing stays noted until that flush has succeeded."""

    __slots__ = ("_names", "_syncing", "folder")

    def __init__(self, folder: str, names: Iterable[str]) -> None:
        self.folder = folder
        self._names = set(names)
        self._syncing: frozenset[str] = frozenset()
        if self._names:
            self._names.add(FOLDER_ITSELF)

    def __bool__(self) -> bool:
        return bool(self._names or self._syncing)

    def note(self, *names: str) -> None:
        self._names.update(names)

    def begin_sync(self) -> tuple[list[str], tuple[str, ...]]:
        """(the files to sync, the folders to sync after them), including those of an earlier sync that failed."""
        self._syncing |= self._names
        self._names.clear()
        folders = [self.folder] if FOLDER_ITSELF in self._syncing else []
        if PARENT_FOLDER in self._syncing:
            folders.append(self.folder.rpartition("/")[0] or "/")
        files = self._syncing - {FOLDER_ITSELF, PARENT_FOLDER}
        return [f"{self.folder}/{name}" for name in sorted(files)], tuple(folders)

    def end_sync(self) -> None:
        """Everything that `begin_sync` returned is on the device."""
        self._syncing = frozenset()
