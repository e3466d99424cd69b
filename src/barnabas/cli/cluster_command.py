"""`barnabas cluster status`: the nodes of a cluster, the leader of its quorum, and what is behind or missing.

It asks one broker of the cluster (DescribeCluster, Metadata, DescribeQuorum), whichever software runs it. A broker that
does not tell about the quorum still tells the rest. Without an active controller the rest is only what that broker last
knew, of nodes that may be dead since: it is shown, and the command fails.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.actions import Action, run_action
from barnabas.cli.cluster_connection import connect, error_text, fetch_topics
from barnabas.cli.command_line import (
    EXIT_FAILED,
    EXIT_OK,
    CommandError,
    Parser,
    add_bootstrap_server,
    join_address,
)
from barnabas.cli.output import Column, comma_list, number, print_json, print_table
from barnabas.net.frames import AnswerTimeoutError, UnsupportedVersionError, WireError
from barnabas.protocol import messages as m
from barnabas.protocol import uuids
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from barnabas.cli.cluster_connection import Topic
    from barnabas.client.broker_connection import Connection

    Quorum = m.DescribeQuorumResponse.PartitionData
    Replica = m.DescribeQuorumResponse.ReplicaState

METADATA_TOPIC = "__cluster_metadata"
FENCED_BROKERS_SINCE = 2
"""The first version of DescribeCluster that lists fenced brokers, if it is asked to."""
QUORUM_PATIENCE_S = 10.0
"""A broker passes the question about the quorum on to the active controller, and waits for one: for longer than an
election takes there is none."""
NO_CONTROLLER = frozenset({Error.NOT_CONTROLLER, Error.NOT_LEADER_OR_FOLLOWER, Error.REQUEST_TIMED_OUT})
UNKNOWN_OFFSET = -1
NOTHING = "-"

COLUMNS = (
    number("node"),
    Column("address"),
    Column("roles"),
    Column("rack"),
    Column("state"),
    Column("quorum"),
    number("lag"),
    number("leads"),
    number("replicas"),
    number("not in sync"),
    number("offline"),
)


class UnknownQuorumError(Exception):
    """The broker does not tell about the quorum; the message says why."""


class NoControllerError(Exception):
    """There is no active controller; the message says how that shows."""


class QuorumView(NamedTuple):
    """What DescribeQuorum told: the quorum's own partition, and the addresses of its nodes."""

    partition: Quorum
    addresses: dict[int, str]

    @property
    def leader_log_end(self) -> int:
        return next(
            (each.log_end_offset for each in self.partition.current_voters if each.replica_id == self.leader_id),
            UNKNOWN_OFFSET,
        )

    @property
    def leader_id(self) -> int:
        return self.partition.leader_id

    def lag_of(self, replica: Replica) -> int | None:
        """How many records of the metadata log a node has still to fetch; None if the leader does not know."""
        if replica.log_end_offset == UNKNOWN_OFFSET or self.leader_log_end == UNKNOWN_OFFSET:
            return None
        return max(self.leader_log_end - replica.log_end_offset, 0)


class NodeStatus(NamedTuple):
    node_id: int
    address: str | None
    roles: tuple[str, ...]
    rack: str | None
    is_fenced: bool | None
    """None if the node is not a broker."""
    quorum_role: str | None
    directory_id: str | None
    lag: int | None
    leads: int
    replicas: int
    not_in_sync: int
    offline: int


class PartitionCounts(NamedTuple):
    """Partitions of all topics; `under_replicated` lack a replica in sync, `offline` have no leader."""

    total: int
    under_replicated: int
    offline: int


class ClusterStatus(NamedTuple):
    cluster_id: str
    quorum: QuorumView | None
    nodes: tuple[NodeStatus, ...]
    partitions: PartitionCounts
    has_controller: bool = True
    """Without an active controller everything else is what the broker last knew."""


def run(arguments: Sequence[str]) -> int:
    return run_action("cluster", ACTIONS, arguments)


def add_status_arguments(parser: Parser) -> None:
    add_bootstrap_server(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def show_status(options: argparse.Namespace) -> int:
    try:
        with connect(options.bootstrap_server) as connection:
            status = fetch_status(connection)
    except WireError as error:
        raise CommandError(str(error)) from error
    if options.json:
        print_json(status_facts(status))
    else:
        print_table(COLUMNS, [node_row(node) for node in status.nodes], heading(status))
    return EXIT_OK if status.has_controller else EXIT_FAILED


def fetch_status(connection: Connection) -> ClusterStatus:
    cluster = describe_cluster(connection)
    topics = fetch_topics(connection, None)
    quorum = None
    has_controller = True
    try:
        # Last, because a connection on which an answer is overdue is of no more use.
        quorum = describe_quorum(connection)
    except UnknownQuorumError as error:
        print(f"barnabas: cannot get the quorum's state: {error}", file=sys.stderr)
    except NoControllerError as error:
        has_controller = False
        print(
            f"barnabas: there is no active controller, as when no majority of the voters is up ({error}): nodes and "
            f"partitions are shown as {connection.address} last knew them",
            file=sys.stderr,
        )
    return make_status(cluster, quorum, topics)._replace(has_controller=has_controller)


def describe_cluster(connection: Connection) -> m.DescribeClusterResponse:
    version = connection.newest_version(ApiKey.DESCRIBE_CLUSTER)
    request = m.DescribeClusterRequest(include_fenced_brokers=version >= FENCED_BROKERS_SINCE)
    response: m.DescribeClusterResponse = connection.send(request, version)
    if response.error_code != Error.NONE:
        raise CommandError(f"the cluster: {error_text(response.error_code, response.error_message)}")
    return response


def describe_quorum(connection: Connection) -> QuorumView:
    request = m.DescribeQuorumRequest
    topic = request.TopicData(topic_name=METADATA_TOPIC, partitions=[request.PartitionData(partition_index=0)])
    try:
        response: m.DescribeQuorumResponse = connection.send(request(topics=[topic]), timeout_s=QUORUM_PATIENCE_S)
    except UnsupportedVersionError as error:
        raise UnknownQuorumError(str(error)) from error
    except AnswerTimeoutError as error:
        raise NoControllerError(str(error)) from error
    require_quorum(response.error_code, response.error_message)
    partition = next((part for topic in response.topics for part in topic.partitions), None)
    if partition is None:
        raise UnknownQuorumError(f"{connection.address} described no partition of {METADATA_TOPIC}")
    require_quorum(partition.error_code, partition.error_message)
    if partition.leader_id < 0:
        raise NoControllerError(f"the quorum has no leader in epoch {partition.leader_epoch}")
    addresses = {
        node.node_id: join_address(node.listeners[0].host, node.listeners[0].port)
        for node in response.nodes
        if node.listeners
    }
    return QuorumView(partition, addresses)


def require_quorum(code: int, message: str | None) -> None:
    """Raises what an error in the answer about the quorum means."""
    if code in NO_CONTROLLER:
        raise NoControllerError(error_text(code, message))
    if code != Error.NONE:
        raise UnknownQuorumError(error_text(code, message))


def make_status(
    cluster: m.DescribeClusterResponse, quorum: QuorumView | None, topics: Iterable[Topic]
) -> ClusterStatus:
    partitions = [partition for topic in topics for partition in topic.partitions]
    leads = Counter(partition.leader_id for partition in partitions)
    replicas = Counter(node for partition in partitions for node in partition.replica_nodes)
    not_in_sync = Counter(
        node for partition in partitions for node in partition.replica_nodes if node not in partition.isr_nodes
    )
    offline = Counter(node for partition in partitions for node in partition.offline_replicas)
    brokers = {broker.broker_id: broker for broker in cluster.brokers}
    voters = {each.replica_id: each for each in quorum.partition.current_voters} if quorum else {}
    observers = {each.replica_id: each for each in quorum.partition.observers} if quorum else {}
    nodes = []
    for node_id in sorted({*brokers, *voters, *observers, *replicas}):
        broker = brokers.get(node_id)
        member = voters.get(node_id) or observers.get(node_id)
        nodes.append(
            NodeStatus(
                node_id=node_id,
                address=node_address(broker, quorum, node_id),
                roles=node_roles(node_id, broker, voters, observers),
                rack=broker.rack if broker else None,
                is_fenced=broker.is_fenced if broker else None,
                quorum_role=quorum_role(node_id, quorum, voters, observers),
                directory_id=directory_text(member),
                lag=quorum.lag_of(member) if quorum and member else None,
                leads=leads[node_id],
                replicas=replicas[node_id],
                not_in_sync=not_in_sync[node_id],
                offline=offline[node_id],
            )
        )
    counts = PartitionCounts(
        total=len(partitions),
        under_replicated=sum(len(each.isr_nodes) < len(each.replica_nodes) for each in partitions),
        offline=sum(each.leader_id < 0 for each in partitions),
    )
    return ClusterStatus(cluster.cluster_id, quorum, tuple(nodes), counts)


def node_address(
    broker: m.DescribeClusterResponse.DescribeClusterBroker | None, quorum: QuorumView | None, node_id: int
) -> str | None:
    """Where clients reach the node; for a controller that is no broker, where its peers do."""
    if broker is not None:
        return join_address(broker.host, broker.port)
    return quorum.addresses.get(node_id) if quorum else None


def node_roles(
    node_id: int, broker: object | None, voters: dict[int, Replica], observers: dict[int, Replica]
) -> tuple[str, ...]:
    """A voter is a controller, and so is an observer that is no broker. A broker with the role of a controller that has
    not become a voter looks like any other broker from here."""
    is_controller = node_id in voters or (broker is None and node_id in observers)
    return (*(("broker",) if broker is not None else ()), *(("controller",) if is_controller else ()))


def quorum_role(
    node_id: int, quorum: QuorumView | None, voters: dict[int, Replica], observers: dict[int, Replica]
) -> str | None:
    if quorum is not None and node_id == quorum.leader_id:
        return "leader"
    if node_id in voters:
        return "voter"
    return "observer" if node_id in observers else None


def directory_text(member: Replica | None) -> str | None:
    if member is None or member.replica_directory_id == uuids.ZERO_UUID:
        return None
    return uuids.to_text(member.replica_directory_id)


def heading(status: ClusterStatus) -> str:
    if status.quorum is None:
        quorum = "quorum unknown" if status.has_controller else "no active controller"
    else:
        partition = status.quorum.partition
        leader = "none" if partition.leader_id < 0 else partition.leader_id
        quorum = f"quorum leader {leader}, epoch {partition.leader_epoch}, high watermark {partition.high_watermark}"
    counts = status.partitions
    partitions = f"partitions {counts.total}, under-replicated {counts.under_replicated}, offline {counts.offline}"
    return f"cluster {status.cluster_id}  {quorum}  {partitions}"


def node_row(node: NodeStatus) -> tuple[object, ...]:
    state = {None: NOTHING, True: "fenced", False: "alive"}[node.is_fenced]
    return (
        node.node_id,
        node.address or NOTHING,
        comma_list(node.roles) or "unknown",
        node.rack or NOTHING,
        state,
        node.quorum_role or NOTHING,
        NOTHING if node.lag is None else node.lag,
        node.leads,
        node.replicas,
        node.not_in_sync,
        node.offline,
    )


def status_facts(status: ClusterStatus) -> dict[str, object]:
    return {
        "cluster_id": status.cluster_id,
        "quorum": quorum_facts(status.quorum),
        "partitions": status.partitions._asdict(),
        "nodes": [
            {
                "id": node.node_id,
                "address": node.address,
                "roles": list(node.roles),
                "rack": node.rack,
                "fenced": node.is_fenced,
                "quorum_role": node.quorum_role,
                "directory_id": node.directory_id,
                "lag": node.lag,
                "leads": node.leads,
                "replicas": node.replicas,
                "not_in_sync": node.not_in_sync,
                "offline": node.offline,
            }
            for node in status.nodes
        ],
    }


def quorum_facts(quorum: QuorumView | None) -> dict[str, object] | None:
    if quorum is None:
        return None
    partition = quorum.partition
    return {
        "leader": partition.leader_id,
        "leader_epoch": partition.leader_epoch,
        "high_watermark": partition.high_watermark,
        "voters": sorted(each.replica_id for each in partition.current_voters),
        "observers": sorted(each.replica_id for each in partition.observers),
    }


ACTIONS = {
    "status": Action("show the nodes of a cluster, its quorum, and what is behind", add_status_arguments, show_status)
}
