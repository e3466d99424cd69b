"""What does not agree in the files, which is printed when all of them have been shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.kafka.java.java_order import in_hash_order, string_hash
from barnabas.cli.kafka.tool import warn

if TYPE_CHECKING:
    from collections.abc import Iterable


class Complaints:
    """By kind and by the full path of the file."""

    def __init__(self) -> None:
        self._mismatches: dict[str, dict[int, int]] = {}
        self._timestamps: dict[str, list[tuple[int, int]]] = {}
        self._disorders: dict[str, list[tuple[int, int]]] = {}
        self._missing: dict[str, list[tuple[int, int]]] = {}
        self._gaps: dict[str, dict[int, int]] = {}

    def index_leads_elsewhere(self, path: str, index_offset: int, log_offset: int) -> None:
        """An index has an entry for an offset, and at its place is the batch of another."""
        self._mismatches.setdefault(path, {})[index_offset] = log_offset

    def timestamp_differs(self, path: str, index_timestamp: int, log_timestamp: int) -> None:
        self._timestamps.setdefault(path, []).append((index_timestamp, log_timestamp))

    def timestamp_out_of_order(self, path: str, index_timestamp: int, previous: int) -> None:
        self._disorders.setdefault(path, []).append((index_timestamp, previous))

    def offset_not_found(self, path: str, index_offset: int, log_offset: int) -> None:
        """A time index has an offset that is no batch's last; -1 if none comes after it."""
        self._missing.setdefault(path, []).append((index_offset, log_offset))

    def offset_does_not_follow(self, path: str, previous: int, offset: int) -> None:
        self._gaps.setdefault(path, {})[previous] = offset

    def print(self) -> None:
        for path in _ordered(self._mismatches):
            warn(f"Mismatches in :{path}")
            for index_offset, log_offset in sorted(self._mismatches[path].items(), reverse=True):
                warn(f"  Index offset: {index_offset}, log offset: {log_offset}")
        for path in _ordered(self._timestamps):
            warn(f"Found timestamp mismatch in :{path}")
            for index_timestamp, log_timestamp in self._timestamps[path]:
                warn(f"  Index timestamp: {index_timestamp}, log timestamp: {log_timestamp}")
        for path in _ordered(self._disorders):
            warn(f"Found out of order timestamp in :{path}")
            for index_timestamp, previous in self._disorders[path]:
                warn(f"  Index timestamp: {index_timestamp}, Previously indexed timestamp: {previous}")
        for path in _ordered(self._missing):
            warn(f"The following indexed offsets are not found in :{path}")
            for index_offset, log_offset in self._missing[path]:
                warn(f"Indexed offset: {index_offset}, found log offset: {log_offset}")
        for path in _ordered(self._gaps):
            warn(f"Non-consecutive offsets in {path}")
            for before, after in sorted(self._gaps[path].items()):
                warn(f"  {before} is followed by {after}")


def _ordered(paths: Iterable[str]) -> list[str]:
    return in_hash_order(paths, string_hash)
