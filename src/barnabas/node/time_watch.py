"""Says in the log when time did not pass as it should: the node was stalled, or the machine's clock was set.

A node is stalled when its process is suspended or starved of CPU. What a cluster does to such a node, from
elections to fencing, is in the logs of all others. In its own, nothing else would tell why.

A clock that is set moves what is compared with timestamps: retention, and the timestamps of `LogAppendTime`. The log
then explains why records went or stayed. Elections, sessions, groups and time limits go by the monotonic clock, which
cannot be set, so they do not notice.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

    from barnabas.ports import Clock

logger = logging.getLogger("barnabas.node")

LOOK_S: Final = 0.25
LATE_S_MAX: Final = 0.5
"""No request holds an event loop for a tenth of this."""
JUMP_MS: Final = 1_000
"""A clock that is only steered, as time servers do, drifts by less than a millisecond from one look to the next."""


class TimeWatch:
    """A timer of the node's event loop that knows when it should have gone off, and what the wall clock should show."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, node_id: int) -> None:
        """A clock that is set from now on is reported, though at the first look: `start` comes when the node serves,
        because what it does until then may hold the event loop for longer."""
        self._loop = loop
        self._clock = clock
        self._node_id = node_id
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._ahead_ms = self._wall_clock_ahead_ms()

    def start(self) -> None:
        self._due = self._loop.time() + LOOK_S
        self._timer = self._loop.call_at(self._due, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        late_s = self._loop.time() - self._due
        if late_s > LATE_S_MAX:
            self._report_stall(late_s)
        before, self._ahead_ms = self._ahead_ms, self._wall_clock_ahead_ms()
        jumped_ms = self._ahead_ms - before
        if abs(jumped_ms) >= JUMP_MS:
            self._report_jump(jumped_ms)
        self.start()

    def _wall_clock_ahead_ms(self) -> int:
        """By how much the wall clock is ahead of the monotonic one, which stays the same until somebody sets it."""
        return self._clock.now_ms() - int(self._clock.monotonic() * 1000)

    def _report_stall(self, late_s: float) -> None:
        logger.warning(
            "node %d was stalled for %.1f s: the process was suspended or starved of CPU", self._node_id, late_s
        )

    def _report_jump(self, jumped_ms: int) -> None:
        how = "was set forward, or the machine slept," if jumped_ms > 0 else "was set back"
        logger.warning(
            "the clock of this machine %s by %.1f s: this affects retention and log append times, but not elections, "
            "sessions, groups and transactions",
            how,
            abs(jumped_ms) / 1000,
        )
