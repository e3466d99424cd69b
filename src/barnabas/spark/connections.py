"""Clusters that the tasks of a Python worker have connected to, kept for its next tasks.

Spark uses a worker process for one task after the other. A task borrows a cluster for itself and gives it back, with
connections and metadata. Whatever of these has become stale meanwhile, a `Cluster` replaces when it notices.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.client.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.client.settings import ClientSettings

IDLE_MAX: Final = 8
"""More than a worker can use at a time; the ones unused for longest are closed."""


class _Idle(NamedTuple):
    process_id: int
    """A process that was forked must not use the connections of the one that it came from."""
    cluster: Cluster


_idle: list[_Idle] = []


@contextmanager
def borrowed_cluster(settings: ClientSettings) -> Iterator[Cluster]:
    """A cluster with these settings for the caller alone. No answer may be due on its connections in the end."""
    cluster = _take(settings) or Cluster(settings)
    try:
        yield cluster
    finally:
        _idle.append(_Idle(os.getpid(), cluster))
        while len(_idle) > IDLE_MAX:
            _idle.pop(0).cluster.close()


def _take(settings: ClientSettings) -> Cluster | None:
    """The one that was used last, whose connections are the most likely to be open still."""
    for index in range(len(_idle) - 1, -1, -1):
        if _idle[index].process_id == os.getpid() and _idle[index].cluster.settings == settings:
            return _idle.pop(index).cluster
    return None
