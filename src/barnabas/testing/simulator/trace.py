"""What happened in a run, line by line, in simulated seconds. Equal seeds give equal traces.

A run is traced only when somebody will read it: a seed that fails is run again, and does the same again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.testing.event_loop import Scheduler


class Trace:
    """`note` costs nothing worth mentioning unless the trace is on."""

    def __init__(self, scheduler: Scheduler, *, is_on: bool) -> None:
        self.is_on = is_on
        self.lines: list[str] = []
        self._scheduler = scheduler

    def note(self, who: str, what: str) -> None:
        if self.is_on:
            self.lines.append(f"{self._scheduler.now:10.4f}  {who:<12}  {what}")
