"""Clusters that this process keeps connected from one task to the next.

    with borrowed(settings) as cluster:
        ...

A task of a pipeline lives for milliseconds, and the worker process that runs it for much longer: connecting, logging in
and asking for metadata once per process rather than once per task is most of what a short task would take. A borrower
has the cluster to itself. It comes back when the block ends well; after an exception, which may have left an answer on
its way, it is closed.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

from barnabas.client.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.client.client_settings import ClientSettings

IDLE_MAX: Final = 4
"""How many are kept; beyond that the one that has been idle for longest goes."""

_idle: Final[list[Cluster]] = []


@contextlib.contextmanager
def borrowed(settings: ClientSettings) -> Iterator[Cluster]:
    """A cluster with these settings, connected already if an earlier block has left one."""
    cluster = _take(settings) or Cluster.connect(settings)
    try:
        yield cluster
    except BaseException:
        cluster.close()
        raise
    _give_back(cluster)


def close_idle() -> None:
    """Close what nobody has borrowed."""
    while _idle:
        _idle.pop().close()


def _take(settings: ClientSettings) -> Cluster | None:
    for position in reversed(range(len(_idle))):
        if _idle[position].settings == settings:
            return _idle.pop(position)
    return None


def _give_back(cluster: Cluster) -> None:
    cluster.close_busy()
    _idle.append(cluster)
    while len(_idle) > IDLE_MAX:
        _idle.pop(0).close()


# A connection has one owner: what a parent process keeps is not for its children.
os.register_at_fork(after_in_child=close_idle)
