"""Says in the log when the machine's clock was set, or the machine slept.

Elections, sessions, groups and time limits go by the monotonic clock, which nobody sets, so they do not notice. What is
compared with timestamps does: retention, and the timestamps of `LogAppendTime`. Whoever wonders later why records went
or stayed finds the moment here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.ports import Clock

logger = logging.getLogger("barnabas.clock")

LOOK_S: Final = 5.0
JUMP_MS: Final = 1_000
"""A clock that is only steered, as time servers do, drifts by a few milliseconds from one look to the next."""


class ClockWatch:
    """How far the wall clock and the monotonic one have moved apart since the last look."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._difference_ms = self._difference()

    def look(self) -> int:
        """By how many milliseconds the wall clock has jumped since the last look; 0 if it has not."""
        before, self._difference_ms = self._difference_ms, self._difference()
        moved_ms = self._difference_ms - before
        return moved_ms if abs(moved_ms) >= JUMP_MS else 0

    def _difference(self) -> int:
        return self._clock.now_ms() - int(self._clock.monotonic() * 1000)


async def watch_clock(clock: Clock) -> None:
    """Looks now and then, until it is cancelled."""
    watch = ClockWatch(clock)
    while True:
        await asyncio.sleep(LOOK_S)
        if jumped_ms := watch.look():
            report(jumped_ms)


def report(jumped_ms: int) -> None:
    how = "was set forward, or the machine slept," if jumped_ms > 0 else "was set back"
    logger.warning(
        "the clock of this machine %s by %.1f s: retention and the timestamps that this node gives go by it, but "
        "not elections, sessions, groups and transactions",
        how,
        abs(jumped_ms) / 1000,
    )
