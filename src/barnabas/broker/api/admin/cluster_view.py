"""The cluster as a client of one listener sees it: which brokers it can reach there, and which replicas it cannot.

Metadata, DescribeCluster and DescribeTopicPartitions all answer from this. A view belongs to one state of the brokers'
registrations, so it is made once per change, not once per request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.metadata.image import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    PartitionImage,
)
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.protocol.uuids import Uuid

NO_CONTROLLER = -1


class Node(NamedTuple):
    """Where a broker can be reached on the client's own listener."""

    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class ClusterView:
    __slots__ = ("_directories", "_leaders", "brokers", "listener_name", "nodes")

    def __init__(self, brokers: Mapping[int, BrokerImage], listener_name: str) -> None:
        self.brokers = brokers
        self.listener_name = listener_name
        self.nodes = reachable_nodes(brokers, listener_name)
        self._leaders = {node.id for node in self.nodes}
        self._directories = {node.id: brokers[node.id].directories for node in self.nodes if not node.is_fenced}

    @property
    def alive(self) -> list[Node]:
        return [node for node in self.nodes if not node.is_fenced]

    @property
    def bootstrap(self) -> list[Node]:
        """The brokers to name to a client that looks for some. A client that learns of no broker at all may have nobody
        left to ask, and librdkafka never recovers from that: so while all are fenced, which the only broker of a
        cluster is in the moment before it stops, all are named."""
        return self.alive or self.nodes

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self._directories

    def controller_id(self, node_id: int) -> int:
        """Where clients should send requests for the controller: to the broker they asked, since every broker forwards
        them."""
        if self.is_alive(node_id):
            return node_id
        return min(self._directories, default=NO_CONTROLLER)

    def leader_of(self, partition: PartitionImage) -> tuple[Error, int]:
        """The leader as the client can reach it, or why it cannot."""
        leader = partition.leader
        if leader in self._leaders:
            return Error.NONE, leader
        return (Error.LISTENER_NOT_FOUND if leader in self.brokers else Error.LEADER_NOT_AVAILABLE), NO_LEADER

    def offline_replicas(self, partition: PartitionImage) -> list[int]:
        """Replicas on brokers that are gone or cannot be reached, or in folders that are lost."""
        return [
            replica
            for replica, directory in zip(partition.replicas, partition.directories, strict=False)
            if (online := self._directories.get(replica)) is None or not is_online(directory, online)
        ]


def reachable_nodes(brokers: Mapping[int, BrokerImage], listener_name: str) -> list[Node]:
    nodes = []
    for broker in brokers.values():
        endpoint = broker.endpoint(listener_name)
        if endpoint is not None:
            nodes.append(Node(broker.id, endpoint.host, endpoint.port, broker.rack, broker.fenced))
    return nodes


def is_online(directory: Uuid, online: tuple[Uuid, ...]) -> bool:
    """Whether a replica's folder is online. A broker that lists no folders does not say, and is taken to be online."""
    if directory in online or directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
        return True
    return directory != LOST_DIRECTORY and not online
