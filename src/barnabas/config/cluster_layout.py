"""The layout of a cluster on one machine: ports, roles, folders and settings of each node. Pure.

Nodes have the ids 1 … N. The first of them are voters of the quorum as well as brokers: one voter for one or two nodes,
three for three or four, five beyond; the others are only brokers. Clients connect to PORT, PORT+1 …; the controllers'
ports follow, on loopback, because no other machine has to reach them.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.config.initial_controllers import (
    InitialController,
    format_initial_controllers,
    parse_initial_controllers,
)
from barnabas.config.listeners import WILDCARD_HOSTS
from barnabas.config.metrics_listener import metrics_listener_of
from barnabas.config.properties import format_properties, parse_properties
from barnabas.config.quorum import address_text
from barnabas.net.endpoint import Listener

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.protocol.uuids import Uuid

PORT_MAX: Final = 65_535
CONTROLLER_HOST: Final = "127.0.0.1"
CLIENT_LISTENER: Final = "PLAINTEXT"
CONTROLLER_LISTENER: Final = "CONTROLLER"
REPLICAS_MAX: Final = 3
"""Replicas of internal topics where there are nodes enough."""
NODES_FOR_MIN_ISR_OF_TWO: Final = 3
INTERNAL_REPLICATION_FACTORS: Final = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
"""Of the topics in which groups and transactions are."""

HAS_SERVED: Final = "has.served"
_FLAGS: Final = {None: None, "true": True, "false": False}

DECIDED: Final = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
        "security.inter.broker.protocol",
    }
)
"""Settings in which the nodes differ, or on which they must agree: the layout decides them."""


class LayoutError(ValueError):
    """There is no such cluster; the message says why."""


class Layout(NamedTuple):
    """A cluster on one machine, as its folder remembers it."""

    cluster_id: str
    host: str
    client_ports: tuple[int, ...]
    voters: tuple[InitialController, ...]
    has_served: bool | None = False
    """Whether some node of it was ready for clients once; None if the folder does not say, as in earlier versions."""

    @property
    def node_ids(self) -> range:
        return range(1, len(self.client_ports) + 1)

    def is_voter(self, node_id: int) -> bool:
        return any(voter.node_id == node_id for voter in self.voters)

    def client_address(self, node_id: int) -> str:
        return address_text(self.host, self.client_ports[node_id - 1])

    @property
    def bootstrap(self) -> str:
        """What clients take as `bootstrap.servers`."""
        return ",".join(map(self.client_address, self.node_ids))


def voter_count(nodes: int) -> int:
    if nodes <= 2:
        return 1
    return 3 if nodes <= 4 else 5


def consecutive_ports(port: int, nodes: int) -> tuple[int, ...]:
    """The ports of all clients' listeners, and then those of the controllers."""
    ports = tuple(range(port, port + nodes + voter_count(nodes)))
    if ports[-1] > PORT_MAX:
        raise LayoutError(
            f"{nodes} nodes from port {port} on need ports up to {ports[-1]}, and there are only {PORT_MAX}: "
            "use a lower port"
        )
    return ports


def make_layout(cluster_id: str, host: str, nodes: int, ports: Sequence[int], directory_ids: Sequence[Uuid]) -> Layout:
    """`ports` are those of the clients' listeners, then of the controllers; `directory_ids` are the voters'."""
    controllers = zip(ports[nodes:], directory_ids, strict=True)
    voters = tuple(
        InitialController(node_id, CONTROLLER_HOST, port, directory_id)
        for node_id, (port, directory_id) in enumerate(controllers, start=1)
    )
    assert len(voters) == voter_count(nodes)
    return Layout(cluster_id, host, tuple(ports[:nodes]), voters)


def format_layout(layout: Layout) -> str:
    """The text of `cluster.properties`."""
    properties = {
        "version": "1",
        "cluster.id": layout.cluster_id,
        "host": layout.host,
        "client.ports": ",".join(map(str, layout.client_ports)),
        "voters": format_initial_controllers(layout.voters),
    }
    if layout.has_served is not None:
        properties[HAS_SERVED] = str(layout.has_served).lower()
    return format_properties(properties)


def parse_layout(text: str) -> Layout:
    """The layout that `format_layout` wrote. Raises LayoutError for anything else."""
    try:
        properties = parse_properties(text)
        if properties["version"] != "1":
            raise LayoutError(f"has version {properties['version']}, only 1 is supported")
        ports = tuple(int(port) for port in properties["client.ports"].split(","))
        voters = parse_initial_controllers(properties["voters"])
        flag = properties.get(HAS_SERVED)
        if flag not in _FLAGS:
            raise LayoutError(f"has {HAS_SERVED}={flag}, which is neither true nor false")
        return Layout(properties["cluster.id"], properties["host"], ports, voters, _FLAGS[flag])
    except KeyError as missing:
        raise LayoutError(f"has no {missing.args[0]}") from None
    except LayoutError:
        raise
    except ValueError as error:
        raise LayoutError(f"cannot be read: {error}") from None


def is_same_cluster(layout: Layout, *, nodes: int, listen: tuple[str, int] | None) -> bool:
    """Whether this is the cluster that was asked for; port 0 is any."""
    return nodes == len(layout.client_ports) and (
        listen is None or (listen[0] == layout.host and listen[1] in (0, layout.client_ports[0]))
    )


def require_same_cluster(layout: Layout, folder: str, *, nodes: int, listen: tuple[str, int] | None) -> None:
    """Refuses to start the cluster of a folder with another number of nodes, or elsewhere: its nodes, and those who
    know it, would look for each other at the old addresses."""
    if nodes != len(layout.client_ports):
        raise LayoutError(
            f"{folder} has a cluster of {len(layout.client_ports)} nodes, not of {nodes}: "
            f"start it with --nodes {len(layout.client_ports)}, or use another folder"
        )
    if not is_same_cluster(layout, nodes=nodes, listen=listen):
        raise LayoutError(
            f"{folder} has a cluster that listens at {layout.bootstrap}, with controllers at "
            f"{quorum_servers(layout.voters)}; its nodes know each other by these ports: start it with --listen "
            f"{layout.client_address(1)}, without --listen, or use another folder"
        )


def require_folders(layout: Layout, folder: str, found: Mapping[int, Uuid | None]) -> None:
    """Refuses to start a cluster that has served without the folders of some nodes. `found` are the directory ids of
    all nodes, None where the folder is not formatted.

    Formatted again with its old directory id, such a node would be the same voter, without the votes and the records
    that others count on: two of three could elect each other, and have the third throw away what only it still has.
    """
    gone = [node_id for node_id in layout.node_ids if found[node_id] is None]
    if not gone:
        return
    folders = " and ".join(f"{folder}/node-{node_id} of node {node_id}" for node_id in gone)
    is_or_are, it, what = ("are", "them", "they") if len(gone) > 1 else ("is", "it", "it")
    problem = (
        f"{folder} has a cluster that was started before, and {folders} {is_or_are} empty or gone: "
        f"mount or restore {it}"
    )
    voters_left = sum(found[voter.node_id] == voter.directory_id for voter in layout.voters)
    if voters_left <= len(layout.voters) // 2:
        raise LayoutError(
            f"{problem}; of {len(layout.voters)} voters only {voters_left} would be left, which is no majority, so "
            "that the cluster cannot continue without them, and a new one needs another folder"
        )
    commands = " and ".join(f"`{replacement_command(layout, folder, node_id)}`" for node_id in gone)
    vote = ", without a vote" if any(map(layout.is_voter, gone)) else ""
    raise LayoutError(
        f"{problem}; to give up what {what} had, first have the other nodes lead all partitions, as docs/cluster.md "
        f"says, and only then format {it} anew{vote}: {commands}"
    )


def replacement_command(layout: Layout, folder: str, node_id: int) -> str:
    """Formats the folder of a node with a new directory id: it joins as one that has no vote to remember.

    It is still in sync in the eyes of the controller where it was when it was lost, and the others cut their logs to
    its empty one if it leads; hence they must have taken over before it comes back."""
    # With an equals sign, because an id may begin with a dash.
    config = shlex.quote(f"{folder}/node-{node_id}.properties")
    return f"barnabas format --config {config} --cluster-id={layout.cluster_id} --no-initial-controllers"


def node_properties(
    layout: Layout, node_id: int, folder: str, given: Mapping[str, str], *, machine: str
) -> dict[str, str]:
    """The settings of one node. `given` wins over what is only a better default for so many nodes."""
    listeners = [Listener(CLIENT_LISTENER, CLIENT_LISTENER, layout.host, layout.client_ports[node_id - 1])]
    voter = next((voter for voter in layout.voters if voter.node_id == node_id), None)
    roles = ["broker"]
    if voter is not None:
        roles.append("controller")
        listeners.append(Listener(CONTROLLER_LISTENER, CLIENT_LISTENER, voter.host, voter.port))
    decided = {
        "process.roles": ",".join(roles),
        "node.id": str(node_id),
        "controller.listener.names": CONTROLLER_LISTENER,
        "controller.quorum.bootstrap.servers": quorum_servers(layout.voters),
        "listeners": ",".join(map(str, listeners)),
        "log.dirs": folder,
    }
    if layout.host in WILDCARD_HOSTS:
        decided["advertised.listeners"] = str(listeners[0]._replace(host=machine))
    return {
        **replication_defaults(len(layout.client_ports)),
        "broker.rack": machine,
        **{name: value for name, value in given.items() if name not in DECIDED},
        **metrics_listener_of(node_id, given),
        **decided,
    }


def replication_defaults(nodes: int) -> dict[str, str]:
    """Internal topics have as many replicas as there are nodes, up to three. From three nodes on what they acknowledge
    is on two, and they outlive the loss of one."""
    replicas = str(min(REPLICAS_MAX, nodes))
    min_isr = "2" if nodes >= NODES_FOR_MIN_ISR_OF_TWO else "1"
    defaults = {
        "offsets.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": min_isr,
        "share.coordinator.state.topic.replication.factor": replicas,
        "transaction.state.log.min.isr": min_isr,
        "transaction.state.log.replication.factor": replicas,
    }
    if nodes >= NODES_FOR_MIN_ISR_OF_TWO:
        defaults["barnabas.offsets.topic.min.isr"] = min_isr
    return defaults


def quorum_servers(voters: Iterable[InitialController]) -> str:
    return ",".join(address_text(voter.host, voter.port) for voter in voters)
