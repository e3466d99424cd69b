"""The process: processor time, memory, files, and how busy its event loops are."""

from __future__ import annotations

import os
import resource
import time
from typing import TYPE_CHECKING, Final

from barnabas.metrics.exposition import COUNTER, GAUGE, Family

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

LOOK_S: Final = 0.05
_PAGE_BYTES: Final = resource.getpagesize()


class LoopWatch:
    """A timer that notices how late it is, for no turn of its event loop was longer than that, and how much processor
    time the thread of the loop has had. What it has seen may be taken by another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._longest_s = 0.0
        self._worked = (0.0, 0.0)
        """Processor time of the thread, and when it was read."""
        self._taken = (0.0, 0.0)

    def start(self) -> None:
        self._worked = self._taken = (time.thread_time(), time.monotonic())
        self._look_later()

    def _look_later(self) -> None:
        self._due = self._loop.time() + LOOK_S
        self._timer = self._loop.call_at(self._due, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def take_longest_s(self) -> float:
        """For how long the loop was held at the most since this was last asked for."""
        longest, self._longest_s = self._longest_s, 0.0
        return longest

    def take_idle_share(self) -> float:
        """How much of the time since this was last asked for the thread had nothing to do."""
        before, now = self._taken, self._worked
        if now[1] <= before[1]:
            return 1.0
        self._taken = now
        return min(max(1.0 - (now[0] - before[0]) / (now[1] - before[1]), 0.0), 1.0)

    def _look(self) -> None:
        self._longest_s = max(self._longest_s, self._loop.time() - self._due)
        self._worked = (time.thread_time(), time.monotonic())
        self._look_later()


def process_families(started_s: float) -> Iterator[Family]:
    """Under the names that every Prometheus client uses."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = Family("process_cpu_seconds_total", COUNTER, "processor time of the process, user and system")
    cpu.add(usage.ru_utime + usage.ru_stime)
    yield cpu
    memory = Family("process_resident_memory_bytes", GAUGE, "resident memory of the process")
    with open("/proc/self/statm", "rb") as statm:
        memory.add(int(statm.read().split()[1]) * _PAGE_BYTES)
    yield memory
    files = Family("process_open_fds", GAUGE, "open files and sockets")
    files.add(len(os.listdir("/proc/self/fd")))
    yield files
    most = Family("process_max_fds", GAUGE, "how many files and sockets may be open")
    most.add(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield most
    started = Family("process_start_time_seconds", GAUGE, "when the process was started, in seconds since 1970")
    started.add(started_s)
    yield started
