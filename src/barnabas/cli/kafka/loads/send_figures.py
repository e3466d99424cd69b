"""The figures of records that were sent: how many, how fast, and how long each took until it was acknowledged."""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

from barnabas.cli.kafka.loads.java_format import fixed

PERCENTILES: Final = (0.5, 0.95, 0.99, 0.999)
_MIB: Final = 1_048_576


class SendFigures:
    """Latencies are whole milliseconds, as with Kafka's tool, and all of them count for the percentiles."""

    def __init__(self, interval_ms: int, *, is_steady: bool = False) -> None:
        self._interval_ms = interval_ms
        self._is_steady = is_steady
        self.is_silent = False
        """Whether intervals are left to somebody else to print."""
        self._started_ms = self._window_started_ms = now_ms()
        self._latencies: Counter[int] = Counter()
        self._bytes = 0
        self._window: Counter[int] = Counter()
        self._window_bytes = 0
        self._has_reported = False

    def record(self, latency_ms: int, count: int, size_bytes: int) -> None:
        """So many records took so long."""
        self._window[latency_ms] += count
        self._window_bytes += size_bytes
        if now_ms() - self._window_started_ms >= self._interval_ms:
            self._report()

    def print_total(self) -> None:
        self._close_window()
        count, seconds = self._latencies.total(), max(now_ms() - self._started_ms, 1) / 1000
        steady = " steady state" if self._is_steady else ""
        at = [f"{self._percentile(share)} ms {100 * share:.4g}th" for share in PERCENTILES]
        print(
            f"{count}{steady} records sent, {fixed(_ratio(count, seconds), 6)} records/sec "
            f"({fixed(_ratio(self._bytes / _MIB, seconds), 2)} MB/sec), "
            f"{fixed(_ratio(_total(self._latencies), count), 2)} ms avg latency, "
            f"{fixed(max(self._latencies, default=0), 2)} ms max latency, {', '.join(at)}."
        )

    def _report(self) -> None:
        if self._is_steady and not self._has_reported:
            print("In steady state.", flush=True)
        self._has_reported = True
        if not self.is_silent:
            count = self._window.total()
            seconds = max(now_ms() - self._window_started_ms, 1) / 1000
            print(
                f"{count} records sent, {fixed(_ratio(count, seconds), 1)} records/sec "
                f"({fixed(_ratio(self._window_bytes / _MIB, seconds), 2)} MB/sec), "
                f"{fixed(_ratio(_total(self._window), count), 1)} ms avg latency, "
                f"{fixed(max(self._window), 1)} ms max latency.",
                flush=True,
            )
        self._close_window()

    def _close_window(self) -> None:
        self._latencies.update(self._window)
        self._bytes += self._window_bytes
        self._window.clear()
        self._window_bytes = 0
        self._window_started_ms = now_ms()

    def _percentile(self, share: float) -> int:
        """What stands at this share of all latencies in their order; 0 where there are none."""
        position = int(share * self._latencies.total())
        for latency_ms in sorted(self._latencies):
            position -= self._latencies[latency_ms]
            if position < 0:
                return latency_ms
        return 0


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _total(latencies: Counter[int]) -> int:
    return sum(latency_ms * count for latency_ms, count in latencies.items())


def _ratio(value: float, by: float) -> float:
    """As Java divides: nothing by nothing is no number."""
    if by:
        return value / by
    return float("inf") if value else float("nan")
