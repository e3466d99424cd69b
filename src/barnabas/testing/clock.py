"""Time that moves when a test says so, or with the events of a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.testing.event_loop import Scheduler

_SOME_DAY_MS = 1_700_000_000_000


class ManualClock:
    """A `Clock` whose wall and monotonic time advance together, and only by `advance_ms`."""

    __slots__ = ("_monotonic_ms", "_now_ms")

    def __init__(self, now_ms: int = _SOME_DAY_MS) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic_ms / 1000

    def advance_ms(self, milliseconds: int) -> None:
        assert milliseconds >= 0, "time does not run backwards"
        self._now_ms += milliseconds
        self._monotonic_ms += milliseconds


class SimulatedClock:
    """A `Clock` of one simulated machine: it goes with the scheduler's time, from any wall time, which may jump."""

    __slots__ = ("_ahead_ms", "_scheduler", "off_ms")

    def __init__(self, scheduler: Scheduler, now_ms: int = _SOME_DAY_MS) -> None:
        self._scheduler = scheduler
        self._ahead_ms = now_ms - int(scheduler.now * 1000)
        self.off_ms = 0
        """By how much it has jumped, all in all."""

    def now_ms(self) -> int:
        return self._ahead_ms + int(self._scheduler.now * 1000)

    def monotonic(self) -> float:
        return self._scheduler.now

    def jump_ms(self, milliseconds: int) -> None:
        """Steps the wall clock of this machine, in either direction."""
        self._ahead_ms += milliseconds
        self.off_ms += milliseconds
