"""How many bytes per second replication may take of partitions that an operator has marked, on the leader's side and on
the follower's. Off unless a rate is set.

The rate is measured as Kafka does it, over a number of windows of a second, the present one included. While it is above
the limit, marked partitions whose follower is not in sync are left out.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.replication.hosted import HostedPartition

EVERYBODY = ("*",)


class QuotaWindows(NamedTuple):
    """`replication.quota.window.num` and `replication.quota.window.size.seconds`."""

    number: int = 11
    seconds: int = 1


DEFAULT_QUOTA_WINDOWS = QuotaWindows()


class ReplicationThrottle:
    """Of one side. `limit_bytes` per second; None for any rate."""

    __slots__ = ("_samples", "_window_s", "_windows", "limit_bytes")

    def __init__(self, windows: QuotaWindows = DEFAULT_QUOTA_WINDOWS) -> None:
        self.limit_bytes: int | None = None
        self._windows, self._window_s = windows
        self._samples: deque[tuple[int, int]] = deque(maxlen=self._windows)
        """The number of a window, and the bytes that it took."""

    def record(self, size: int, now_s: float) -> None:
        window = int(now_s / self._window_s)
        if self._samples and self._samples[-1][0] == window:
            size += self._samples.pop()[1]
        self._samples.append((window, size))

    def is_exceeded(self, now_s: float) -> bool:
        if self.limit_bytes is None:
            return False
        oldest = int(now_s / self._window_s) - self._windows
        while self._samples and self._samples[0][0] <= oldest:
            self._samples.popleft()
        if not self._samples:
            return False
        measured_s = max(now_s - self._samples[0][0] * self._window_s, self._window_s * (self._windows - 1))
        return sum(taken for _, taken in self._samples) > self.limit_bytes * measured_s


def is_marked(hosted: HostedPartition, marks: tuple[str, ...], broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas names this one."""
    return bool(marks) and (marks == EVERYBODY or f"{hosted.index}:{broker_id}" in marks)
