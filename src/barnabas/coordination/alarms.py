"""Which groups, or transactions, may have something due, without asking all of them.

A group's deadline moves with every heartbeat, nearly always back. An alarm stays where it was set, and only an earlier
one replaces it: so a heartbeat costs nothing here. Whoever's alarm goes off too early is asked, finds nothing due, and
gets a new one.
"""

from __future__ import annotations

from heapq import heappop, heappush


class Alarms:
    """Invariant: each name with an alarm has it in `_queue`, among alarms that an earlier one has replaced."""

    __slots__ = ("_at_ms", "_queue")

    def __init__(self) -> None:
        self._at_ms: dict[str, int] = {}
        self._queue: list[tuple[int, str]] = []

    @property
    def next_ms(self) -> int | None:
        return self._queue[0][0] if self._queue else None

    def set(self, name: str, at_ms: int) -> None:
        """Sees to it that the alarm of this name goes off at this time or earlier."""
        current_ms = self._at_ms.get(name)
        if current_ms is None or at_ms < current_ms:
            self._at_ms[name] = at_ms
            heappush(self._queue, (at_ms, name))

    def take_due(self, now_ms: int) -> list[str]:
        """The names whose alarm goes off, in the order of their time. They have none until one is set again."""
        due = []
        while self._queue and self._queue[0][0] <= now_ms:
            at_ms, name = heappop(self._queue)
            if self._at_ms.get(name) == at_ms:
                del self._at_ms[name]
                due.append(name)
        return due
