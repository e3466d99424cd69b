"""A rate as Kafka measures it, over a number of windows of a second or more, the present one included."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class QuotaWindows(NamedTuple):
    """How many windows there are, and how long each of them is: `quota.window.num`, `quota.window.size.seconds`."""

    number: int = 11
    seconds: int = 1


DEFAULT_QUOTA_WINDOWS = QuotaWindows()


class WindowedRate:
    """`limit` per second; None for any rate."""

    __slots__ = ("_samples", "_window_s", "_windows", "limit")

    def __init__(self, windows: QuotaWindows = DEFAULT_QUOTA_WINDOWS, limit: int | None = None) -> None:
        self.limit = limit
        self._windows, self._window_s = windows
        self._samples: deque[tuple[int, int]] = deque(maxlen=self._windows)
        """The number of a window, and what was counted in it."""

    def record(self, size: int, now_s: float) -> None:
        """What was recorded in vain is recorded again, with another sign."""
        window = int(now_s / self._window_s)
        if self._samples and self._samples[-1][0] == window:
            size += self._samples.pop()[1]
        self._samples.append((window, size))

    def is_exceeded(self, now_s: float) -> bool:
        return self.limit is not None and self.excess_s(now_s) > 0

    def excess_s(self, now_s: float) -> float:
        """How long nothing more should come, so that the rate falls to its limit; a window at most."""
        if self.limit is None:
            return 0
        oldest = int(now_s / self._window_s) - self._windows
        while self._samples and self._samples[0][0] <= oldest:
            self._samples.popleft()
        if not self._samples:
            return 0
        measured_s = max(now_s - self._samples[0][0] * self._window_s, self._window_s * (self._windows - 1))
        excess = sum(count for _, count in self._samples) - self.limit * measured_s
        if excess <= 0:
            return 0
        return min(excess / self.limit, self._window_s) if self.limit else self._window_s

    def is_idle(self, now_s: float) -> bool:
        """Whether nothing was counted in any window that still counts."""
        return not self._samples or self._samples[-1][0] <= int(now_s / self._window_s) - self._windows
