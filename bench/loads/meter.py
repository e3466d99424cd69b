"""The clock of a load: wall time, CPU seconds of all brokers and CPU seconds of the client, from start to stop."""

from __future__ import annotations

import time

from bench import procfs


class Meter:
    __slots__ = ("_broker_cpu", "_broker_pids", "_client_cpu", "_started")

    def __init__(self, *broker_pids: int) -> None:
        self._broker_pids = broker_pids
        self._broker_cpu = self._cpu_seconds()
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
            "cpu_per_million": self.cpu_per_million(units),
            "client_cpu_per_million": (time.process_time() - self._client_cpu) / millions,
        }

    def cpu_per_million(self, units: int) -> float:
        """CPU seconds of the brokers so far, per million of these units."""
        return (self._cpu_seconds() - self._broker_cpu) / (units / 1e6)

    def _cpu_seconds(self) -> float:
        return sum(map(procfs.cpu_seconds, self._broker_pids))
