"""How many bytes per second replication may take of partitions that an operator has marked, on the leader's side and on
the follower's. Off unless a rate is set.

The rate is measured as Kafka does it, over a number of windows of a second, the present one included. While it is above
the limit, marked partitions whose follower is not in sync are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.net.windowed_rate import DEFAULT_QUOTA_WINDOWS, QuotaWindows, WindowedRate

if TYPE_CHECKING:
    from barnabas.replication.hosted import HostedPartition

__all__ = ["DEFAULT_QUOTA_WINDOWS", "QuotaWindows", "ReplicationThrottle", "is_marked"]

EVERYBODY = ("*",)


class ReplicationThrottle(WindowedRate):
    """Of one side."""

    __slots__ = ()

    @property
    def limit_bytes(self) -> int | None:
        """Per second; None for any rate."""
        return self.limit

    @limit_bytes.setter
    def limit_bytes(self, limit_bytes: int | None) -> None:
        self.limit = limit_bytes


def is_marked(hosted: HostedPartition, marks: tuple[str, ...], broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas names this one."""
    return bool(marks) and (marks == EVERYBODY or f"{hosted.index}:{broker_id}" in marks)
