"""Time that moves when a test says so."""

from __future__ import annotations


class ManualClock:
    """A `Clock` whose wall and monotonic time advance together, and only by `advance_ms`."""

    __slots__ = ("_monotonic_ms", "_now_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic_ms / 1000

    def advance_ms(self, milliseconds: int) -> None:
        assert milliseconds >= 0, "time does not run backwards; set_wall_ms moves the wall clock alone"
        self._now_ms += milliseconds
        self._monotonic_ms += milliseconds

    def set_wall_ms(self, now_ms: int) -> None:
        """Steps the wall clock, as an operator or a time server may, in either direction."""
        self._now_ms = now_ms
