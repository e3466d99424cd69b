"""How nodes with properties files of the ZooKeeper era find each other: `zookeeper.connect` is where they meet.

No ZooKeeper runs there. Whichever node of a new cluster first binds the first address of `zookeeper.connect` that is on
its machine becomes the quorum's only voter, with its controller listener at that address, and a broker. All others
become brokers whose quorum is there; they wait for it, and learn the cluster's id from it. The data folder remembers
which of the two a node is, so that a broker that comes back first does not found a second cluster.

Nothing here touches a socket or a file: the caller, which starts the node, tries to bind and passes on what happened.
"""

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from barnabas.config import legacy
from barnabas.config.properties import format_properties, parse_properties
from barnabas.config.quorum import BOOTSTRAP_SERVERS, QuorumServer
from barnabas.config.settings import BROKER
from barnabas.config.startup import CONTROLLER, add_controller_listener, map_controller_listener
from barnabas.config.values import ConfigError
from barnabas.net.endpoint import Listener

CONNECT = "zookeeper.connect"
MEMORY_FILE = "meeting-point.properties"
"""What the first entry of `log.dirs` remembers, beside `meta.properties`."""

_DEFAULT_PORT = 2181
_SERVER = r"(?:\[([0-9A-Fa-f:.%a-z]+)\]|([^:\[\]\s]+))(?::([0-9]{1,5}))?"


class EraRole(Enum):
    """What a node is in such a cluster."""

    FOUNDER = "founder"
    """The only voter, and a broker."""
    BROKER = "broker"


class Memory(NamedTuple):
    """What a data folder remembers of the first start."""

    role: EraRole
    server: QuorumServer
    """Where the voter listens; for a broker, the first address that it was given."""


class BindOutcome(Enum):
    """What became of the attempt to bind the first address that is on this machine."""

    BOUND = "bound"
    IN_USE = "in use"


class Attempt(NamedTuple):
    server: QuorumServer
    outcome: BindOutcome


class Meeting(NamedTuple):
    """What a node is to do: its role, where its quorum is, and what to say about it."""

    role: EraRole
    servers: tuple[QuorumServer, ...]
    is_new: bool
    """Whether the folder does not remember it yet. A new founder formats a quorum of one."""
    warning: str


def is_of_the_era(properties: Mapping[str, str]) -> bool:
    """A file that has `zookeeper.connect` and no roles."""
    return CONNECT in properties and "process.roles" not in properties


def parse_connect(text: str) -> tuple[QuorumServer, ...]:
    """The addresses of `host:port,host:port/chroot`. The path at the end has no meaning here."""
    servers = []
    for entry in text.partition("/")[0].split(","):
        parsed = re.fullmatch(_SERVER, entry.strip())
        if parsed is None or int(parsed[3] or _DEFAULT_PORT) > 65535:
            raise ConfigError(CONNECT, f"{CONNECT}={text} is not a list of host:port: cannot read {entry.strip()!r}")
        servers.append(QuorumServer(parsed[1] or parsed[2], int(parsed[3] or _DEFAULT_PORT)))
    return tuple(servers)


def addresses_to_bind(servers: Sequence[QuorumServer], remembered: Memory | None) -> tuple[QuorumServer, ...]:
    """The addresses to try, in this order, until one is on this machine. A broker never takes the voter's place."""
    if remembered is None:
        return tuple(servers)
    return (remembered.server,) if remembered.role is EraRole.FOUNDER else ()


def meet(node_id: int, servers: Sequence[QuorumServer], remembered: Memory | None, attempt: Attempt | None) -> Meeting:
    """Decides what the node is. `attempt` is None if no address was to be bound, or none is on this machine.

    Raises ConfigError where a founder cannot have its address any more: another quorum would know nothing of the
    cluster.
    """
    if remembered is not None and remembered.role is EraRole.FOUNDER:
        _require_old_address(node_id, servers, remembered, attempt)
        return _founder(node_id, remembered.server, is_new=False)
    if attempt is not None and attempt.outcome is BindOutcome.BOUND:
        assert remembered is None, "a folder that belongs to a broker must not bind the quorum's address"
        return _founder(node_id, attempt.server, is_new=True)
    where = (attempt.server,) if attempt is not None else tuple(servers)
    shown = ", ".join(map(str, where))
    warning = f"{CONNECT}: node {node_id} is a broker of the cluster whose only voter is expected at {shown}"
    return Meeting(EraRole.BROKER, where, remembered is None, warning)


def _founder(node_id: int, server: QuorumServer, *, is_new: bool) -> Meeting:
    warning = (
        f"{CONNECT}: node {node_id} is the only voter of this cluster, at {server}, and a single point of "
        "failure: while it is down, no leader is elected and no topic created. A quorum of three has no such node"
    )
    return Meeting(EraRole.FOUNDER, (server,), is_new, warning)


def _require_old_address(
    node_id: int, servers: Sequence[QuorumServer], remembered: Memory, attempt: Attempt | None
) -> None:
    holds = f"the folder of node {node_id} has the only vote of its cluster, which is expected at {remembered.server}"
    if remembered.server not in servers:
        raise ConfigError(
            CONNECT, f"{holds}, but {CONNECT}={','.join(map(str, servers))} does not name it: add it again"
        )
    if attempt is None:
        raise ConfigError(CONNECT, f"{holds}, and that address is not on this machine any more")
    if attempt.outcome is BindOutcome.IN_USE:
        raise ConfigError(CONNECT, f"{holds}, and another process listens there: stop it first")


def era_properties(properties: Mapping[str, str], meeting: Meeting) -> tuple[dict[str, str], list[str]]:
    """The file with roles and a quorum in place of `zookeeper.connect`, under current names, and the warnings to print.
    `broker.id` is the node's id, as ever."""
    complete, notes = legacy.translate({name: value for name, value in properties.items() if name != CONNECT})
    if complete.get("broker.id", "-1").strip() == "-1":
        raise ConfigError(
            "broker.id", f"nodes that meet at {CONNECT} need ids that differ: set broker.id, which is not generated"
        )
    complete["controller.listener.names"] = CONTROLLER
    complete[BOOTSTRAP_SERVERS] = ",".join(map(str, meeting.servers))
    listeners = complete.get("listeners", BROKER["listeners"].default_text)
    if meeting.role is EraRole.FOUNDER:
        complete["process.roles"] = "broker,controller"
        add_controller_listener(complete, listeners, Listener(CONTROLLER, "PLAINTEXT", *meeting.servers[0]))
    else:
        complete["process.roles"] = "broker"
        map_controller_listener(complete, listeners, CONTROLLER)
    return complete, notes


def format_memory(meeting: Meeting) -> str:
    return format_properties({"role": meeting.role.value, "server": str(meeting.servers[0])})


def parse_memory(text: str) -> Memory:
    """What `format_memory` wrote. Raises ValueError for anything else."""
    properties = parse_properties(text)
    try:
        (server,) = parse_connect(properties["server"])
        return Memory(EraRole(properties["role"]), server)
    except (KeyError, ValueError) as error:
        raise ValueError(f"{MEMORY_FILE} cannot be read: {error}") from None
