"""Clusters of three nodes, ours or Apache Kafka's, behind the same few calls: who leads, who coordinates, and one node
less for a while."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from confluent_kafka.admin import AdminClient
from tests.clients.with_confluent import ConfluentClient
from tests.peers import wait_until
from tests.wire.connection import Connection
from tools import apache_kafka

from barnabas.protocol import messages as m
from barnabas.testing.cluster_processes import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.peers import PeerKind

SETTINGS = {
    "broker.heartbeat.interval.ms": "300",
    "broker.rack": "this-machine",
    "broker.session.timeout.ms": "3000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}
"""Records outlive the loss of a node, and a node that is lost is missed early."""

ON_BOTH = pytest.mark.on("one node", "three nodes")
"""For checks of clients that three nodes must pass, too."""

DEADLINE_S = 60.0
FOR_GROUPS, FOR_TRANSACTIONS = 0, 1
"""Kinds of coordinators."""
WITH_SEVERAL_KEYS = 4
"""The version of FindCoordinator from which on it names several."""


class NodeOfCluster(Protocol):
    """A process of its own with a data folder of its own."""

    data_dir: Path
    port: int

    @property
    def bootstrap(self) -> str: ...


class ThreeNodes(Protocol):
    """Nodes with the ids 1, 2 and 3, each a broker and a voter of the quorum."""

    @property
    def nodes(self) -> Mapping[int, NodeOfCluster]: ...
    @property
    def bootstrap(self) -> str: ...
    @property
    def bootstrap_controllers(self) -> str: ...
    @property
    def running(self) -> list[int]: ...
    def kill(self, *node_ids: int) -> None: ...
    def start_node(self, node_id: int) -> object: ...
    def stop(self) -> None: ...


@contextlib.contextmanager
def running_cluster(kind: PeerKind, folder: Path, settings: Mapping[str, str]) -> Iterator[ThreeNodes]:
    """Three nodes for as long as the block lasts; what they leave behind is their folders."""
    everywhere = {**SETTINGS, **settings}
    if kind == "kafka":
        with apache_kafka.KafkaCluster(folder, properties=everywhere) as kafka:
            yield kafka
    else:
        with Cluster(folder, settings=everywhere) as ours:
            yield ours


def leader_of(cluster: ThreeNodes, topic: str, partition: int = 0) -> int:
    leader: int = _described(cluster, topic)[topic].partitions[partition].leader
    return leader


def coordinator_of(cluster: ThreeNodes, key: str, kind: int = FOR_GROUPS) -> int:
    """The node that coordinates a group or a transactional id, once there is one."""
    found: list[int] = []

    def is_known() -> bool:
        with Connection(cluster.nodes[cluster.running[0]].port) as connection:
            request = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            (answer,) = connection.call(request, WITH_SEVERAL_KEYS, m.FindCoordinatorResponse).coordinators
        found.append(answer.node_id)
        return answer.error_code == 0

    wait_until(is_known, f"{key} has a coordinator", DEADLINE_S)
    return found[-1]


def end_offsets(cluster: ThreeNodes, topic: str, partitions: int) -> int:
    """How far the partitions of a topic have got, together; no way at all before there is such a topic."""
    client = ConfluentClient(cluster.bootstrap)
    if topic not in client.topic_names():
        return 0
    return sum(client.offset_range(topic, partition)[1] for partition in range(partitions))


@contextlib.contextmanager
def without(cluster: ThreeNodes, node_id: int) -> Iterator[None]:
    """Kills a node at the begin of the block. At its end the node is started again and the cluster as it was."""
    cluster.kill(node_id)
    try:
        yield
    finally:
        cluster.start_node(node_id)
        wait_until_in_sync(cluster)


def wait_until_in_sync(cluster: ThreeNodes) -> None:
    """Returns when every partition has a leader and all its replicas are in sync."""

    def is_whole() -> bool:
        return all(
            partition.leader in partition.isrs and sorted(partition.isrs) == sorted(partition.replicas)
            for topic in _described(cluster).values()
            for partition in topic.partitions.values()
        )

    wait_until(is_whole, "all replicas are in sync", DEADLINE_S)


def _described(cluster: ThreeNodes, *topics: str) -> Any:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}).list_topics(*topics, timeout=30).topics
