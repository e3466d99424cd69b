"""How busy an event loop is, and for how long one thing at the most has held it.

A timer goes off every `LOOK_S` and notices how late it is: for so long whatever came meanwhile waited for its turn, and
no turn of the loop was longer than that and `LOOK_S`. The figures are of the last `SLICES` slices of `SLICE_S`, whoever
asks for them and however often.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.metrics.histogram import Histogram

if TYPE_CHECKING:
    import asyncio

LOOK_S: Final = 0.05
SLICE_S: Final = 1.0
SLICES: Final = 30


class Slice(NamedTuple):
    """A second or so in the life of a loop, when it had ended."""

    ended_s: float
    worked_s: float
    """How much processor time the thread had had by then."""
    longest_s: float


class LoopWatch:
    """To be started and stopped on the loop. What it has seen may be read by another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._longest_s = 0.0
        self._slice_ends_s = 0.0
        self._slices: deque[Slice] = deque(maxlen=SLICES + 1)
        self.waits = Histogram()
        """How long something that comes waits for its turn, as far as the timer shows it."""

    def start(self) -> None:
        self._end_slice(self._loop.time())
        self._look_later()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def longest_s(self) -> float:
        """For how long the loop was held at the most, lately."""
        return max([self._longest_s, *(each.longest_s for each in list(self._slices)[1:])])

    @property
    def idle_share(self) -> float:
        """In how much of the time, lately, the thread had nothing to do."""
        slices = list(self._slices)
        if len(slices) < 2 or slices[-1].ended_s <= slices[0].ended_s:
            return 1.0
        worked_s = slices[-1].worked_s - slices[0].worked_s
        return min(max(1.0 - worked_s / (slices[-1].ended_s - slices[0].ended_s), 0.0), 1.0)

    def _look_later(self) -> None:
        self._due_s = self._loop.time() + LOOK_S
        self._timer = self._loop.call_at(self._due_s, self._look)

    def _look(self) -> None:
        now_s = self._loop.time()
        late_s = max(now_s - self._due_s, 0.0)
        self.waits.add(int(late_s * 1e9))
        self._longest_s = max(self._longest_s, late_s)
        if now_s >= self._slice_ends_s:
            self._end_slice(now_s)
        self._look_later()

    def _end_slice(self, now_s: float) -> None:
        self._slices.append(Slice(now_s, time.thread_time(), self._longest_s))
        self._longest_s = 0.0
        self._slice_ends_s = now_s + SLICE_S
