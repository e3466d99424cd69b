"""Time: wall time for what is written down or shown, monotonic time for what is measured or awaited."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time, in milliseconds since 1970. It may be set back."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment. They never go back."""
        ...


def turn_clock(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """The clock by which long work on an event loop is cut into turns: real time, which goes on during a turn. A
    simulated loop brings its own, so that what happens does not depend on how fast the machine is."""
    return cast("Callable[[], float]", getattr(loop, "turn_clock", time.perf_counter))


class SystemClock:
    __slots__ = ()

    monotonic = staticmethod(time.monotonic)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
