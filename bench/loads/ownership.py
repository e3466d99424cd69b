"""Who owns which partition of a topic at every moment, as its owners see it, and what must never be seen.

A member counts as owner from the moment it learns that a partition is its own until it gives it up, and gives it up
before it says so. So two owners at a time are two owners indeed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class OwnershipError(RuntimeError):
    """A partition had two owners at once, or none for too long."""


class Ownership:
    __slots__ = ("_idle_seconds_max", "_idle_since", "_owners", "longest_idle_seconds")

    def __init__(self, partitions: int, idle_seconds_max: float) -> None:
        self._idle_since: dict[int, float | None] = dict.fromkeys(range(partitions))
        """Since when, or nothing for what never had an owner: before its first member there was no group."""
        self._owners: dict[int, str] = {}
        self._idle_seconds_max = idle_seconds_max
        self.longest_idle_seconds = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether every partition has an owner."""
        return not self._idle_since

    def acquire(self, member: str, partitions: Iterable[int]) -> None:
        for partition in partitions:
            if partition in self._owners:
                raise OwnershipError(f"{member} got partition {partition}, which {self._owners[partition]} still has")
            self._owners[partition] = member
            self._note_idle(partition, self._idle_since.pop(partition))

    def release(self, member: str, partitions: Iterable[int]) -> None:
        now = time.monotonic()
        for partition in partitions:
            if self._owners.get(partition) != member:
                raise OwnershipError(f"{member} gave up partition {partition} of {self._owners.get(partition)}")
            del self._owners[partition]
            self._idle_since[partition] = now

    def check_idle(self) -> None:
        """Of those that have no owner now."""
        for partition, since in self._idle_since.items():
            self._note_idle(partition, since)

    def _note_idle(self, partition: int, since: float | None) -> None:
        if since is None:
            return
        idle_seconds = time.monotonic() - since
        if idle_seconds > self._idle_seconds_max:
            raise OwnershipError(f"partition {partition} had no owner for {idle_seconds:.1f} s")
        self.longest_idle_seconds = max(self.longest_idle_seconds, idle_seconds)
