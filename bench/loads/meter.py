"""The clock of a load: wall time, CPU seconds of the broker and CPU seconds of the client, from start to stop."""

from __future__ import annotations

import time

from bench import procfs


class Meter:
    __slots__ = ("_broker_cpu", "_broker_pid", "_client_cpu", "_started")

    def __init__(self, broker_pid: int) -> None:
        self._broker_pid = broker_pid
        self._broker_cpu = procfs.cpu_seconds(broker_pid)
        self._client_cpu = time.process_time()
        self._started = time.perf_counter()

    def elapsed_seconds(self) -> float:
        return time.perf_counter() - self._started

    def figures(self, units: int) -> dict[str, float]:
        """What `units` of work, done since the meter was made, took: the rate, and CPU seconds per million units."""
        seconds = self.elapsed_seconds()
        millions = units / 1e6
        return {
            "units": units,
            "seconds": seconds,
            "rate": units / seconds,
            "cpu_per_million": (procfs.cpu_seconds(self._broker_pid) - self._broker_cpu) / millions,
            "client_cpu_per_million": (time.process_time() - self._client_cpu) / millions,
        }
