"""The clusters under comparison: three nodes that are broker and controller each, with the same settings.

Settings are the defaults of both, apart from those that a cluster of three is to have: three replicas of internal
topics. Folders are formatted when the cluster is made, which is a command of its own on both sides and so no part of a
start.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

from tools import apache_kafka

from barnabas.testing import cluster_processes
from bench.nodes import HOST, Side

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

NODES = 3
REPLICAS = 3


class Member(Protocol):
    """One node of a cluster, as a process that keeps its port and its folder when it is started again."""

    @property
    def port(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def data_dir(self) -> Path: ...
    def launch(self) -> None:
        """Starts the node without waiting until it serves."""


class Cluster(Protocol):
    """Nodes by their ids."""

    @property
    def nodes(self) -> Mapping[int, Member]: ...
    @property
    def running(self) -> Sequence[int]: ...
    def start(self) -> object:
        """Starts all nodes, and returns when each of them serves."""

    def stop(self) -> None: ...
    def stop_node(self, node_id: int) -> None: ...
    def kill(self, *node_ids: int) -> None: ...


def bootstrap(cluster: Cluster) -> str:
    """All nodes that run, as clients take them."""
    return ",".join(f"{HOST}:{cluster.nodes[each].port}" for each in cluster.running)


def pids(cluster: Cluster) -> list[int]:
    return [cluster.nodes[each].pid for each in cluster.running]


@contextlib.contextmanager
def _barnabas(folder: Path) -> Iterator[Cluster]:
    cluster = cluster_processes.Cluster(folder, nodes=NODES)
    try:
        cluster.format()
        yield cluster
    finally:
        cluster.close()


@contextlib.contextmanager
def _apache_kafka(folder: Path) -> Iterator[Cluster]:
    cluster = apache_kafka.KafkaCluster(folder, nodes=NODES, flags=apache_kafka.SERVER_FLAGS)
    try:
        cluster.format()
        yield cluster
    finally:
        cluster.close()


BARNABAS: Side[Cluster] = Side("3 × Barnabas", _barnabas, pids)
APACHE_KAFKA: Side[Cluster] = Side("3 × Kafka", _apache_kafka, pids)
