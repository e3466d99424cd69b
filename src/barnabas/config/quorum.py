"""The metadata quorum as settings name it: `controller.quorum.voters` and `controller.quorum.bootstrap.servers`.

Voters with their ids are the older way (kraft.version 0): the list must be the same on every node and never changes.
Bootstrap servers are addresses at which some controller answers; the set of voters is in the metadata log
(kraft.version 1).
"""

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.config.values import ConfigError

VOTERS = "controller.quorum.voters"
BOOTSTRAP_SERVERS = "controller.quorum.bootstrap.servers"
AUTO_JOIN = "controller.quorum.auto.join.enable"


def address_text(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class QuorumServer(NamedTuple):
    """An address at which a controller is expected."""

    host: str
    port: int

    def __str__(self) -> str:
        return address_text(self.host, self.port)


class QuorumVoter(NamedTuple):
    """A voter that the settings name: one that is not in the metadata log."""

    node_id: int
    host: str
    port: int


def parse_servers(entries: Iterable[str]) -> tuple[QuorumServer, ...]:
    """The addresses of validated entries `host:port`."""
    return tuple(_parse_server(entry) for entry in entries)


def parse_voters(entries: Iterable[str]) -> tuple[QuorumVoter, ...]:
    """The voters of validated entries `id@host:port`; if an id occurs twice, the last one counts, as for Kafka."""
    voters = {}
    for entry in entries:
        node_id, _, address = entry.partition("@")
        voters[int(node_id)] = QuorumVoter(int(node_id), *_parse_server(address))
    return tuple(voters.values())


def _parse_server(entry: str) -> QuorumServer:
    host, _, port = entry.rpartition(":")
    return QuorumServer(host.strip("[]"), int(port))


def require_named_quorum(voters: str, bootstrap_servers: str) -> None:
    """A node that has been given roles must be told where its quorum is; else three nodes with both roles would
    become three clusters."""
    if not voters.strip() and not bootstrap_servers.strip():
        raise ConfigError(
            BOOTSTRAP_SERVERS,
            f"If using process.roles, either {BOOTSTRAP_SERVERS} must contain the set of bootstrap controllers "
            f"or {VOTERS} must contain a parseable set of controllers.",
        )


def check_voters(roles: Iterable[str], node_id: int, voters: Iterable[QuorumVoter]) -> None:
    """A controller must be among the voters that it is told, a node that is only a broker must not."""
    ids = sorted({voter.node_id for voter in voters})
    if not ids:
        return
    shown = f"{VOTERS}=Set({', '.join(map(str, ids))})"
    if "controller" in roles and node_id not in ids:
        raise ConfigError(
            VOTERS,
            f"If process.roles contains the 'controller' role, the node id {node_id} must be included "
            f"in the set of voters {shown}",
        )
    if "controller" not in roles and node_id in ids:
        raise ConfigError(
            VOTERS,
            f"If process.roles contains just the 'broker' role, the node id {node_id} must not be included "
            f"in the set of voters {shown}",
        )


def check_auto_join(roles: Iterable[str], *, is_enabled: bool) -> None:
    if is_enabled and "controller" not in roles:
        raise ConfigError(
            AUTO_JOIN, f"{AUTO_JOIN} is only supported when process.roles contains the 'controller' role."
        )
