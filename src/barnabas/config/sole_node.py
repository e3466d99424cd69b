"""Rejects settings that need other nodes: this version runs as the sole node of its cluster, broker and controller.

The check comes first at startup, before any folder is touched. If a node ignored that its settings name others, it
would format an empty folder as a cluster of its own and accept writes that were meant for theirs. With
`settings.CLUSTERS_RUN` the check is over.
"""

import socket
from collections.abc import Iterable

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listeners import WILDCARD_HOSTS, canonical_host_name
from barnabas.config.values import ConfigError
from barnabas.net.endpoint import Listener

_ROLES = {"broker", "controller"}
_LOOPBACK_NAMES = {"localhost", "127.0.0.1", "::1"}
_ALONE = "clusters of several nodes are not supported yet"


def require_sole_node(config: BrokerConfig) -> None:
    """Rejects roles and quorums that need another node. May resolve host names."""
    _require_both_roles(config)
    _require_own_vote(config)
    _require_own_address(config)


def _require_both_roles(config: BrokerConfig) -> None:
    if {*config.process_roles} != _ROLES:
        raise ConfigError(
            "process.roles",
            f"process.roles={','.join(config.process_roles)} needs other nodes, and {_ALONE}: "
            "set process.roles=broker,controller to run both roles on this node",
        )


def _require_own_vote(config: BrokerConfig) -> None:
    """Voters are compared by id only: the address of the sole voter does not matter."""
    voters = config.controller_quorum_voters
    others = [voter for voter in voters if int(voter.partition("@")[0]) != config.node_id]
    if others:
        raise ConfigError(
            "controller.quorum.voters",
            f"controller.quorum.voters={','.join(voters)} names {', '.join(others)} besides node {config.node_id}, "
            f"and {_ALONE}: name only this node, or remove the setting",
        )


def _require_own_address(config: BrokerConfig) -> None:
    servers = config.controller_quorum_bootstrap_servers
    own = (*config.controller_listeners, *config.advertised_controller_listeners)
    others = [server for server in servers if not _is_own(server, own)]
    if others:
        listeners = ", ".join(map(str, config.controller_listeners))
        raise ConfigError(
            "controller.quorum.bootstrap.servers",
            f"controller.quorum.bootstrap.servers={','.join(servers)} names {', '.join(others)}, which is not the "
            f"controller listener of this node ({listeners}), and {_ALONE}: name that listener, or remove the "
            "setting",
        )


def _is_own(server: str, own: Iterable[Listener]) -> bool:
    host, _, port = server.rpartition(":")
    host = host.strip("[]").lower()
    hosts = {listener.host.lower() for listener in own if listener.port == int(port)}
    if not hosts:
        return False
    if not hosts.isdisjoint(("", *WILDCARD_HOSTS)):
        hosts |= {*_LOOPBACK_NAMES, socket.gethostname().lower(), canonical_host_name().lower()}
    elif not hosts.isdisjoint(_LOOPBACK_NAMES):
        hosts |= _LOOPBACK_NAMES
    return host in hosts or not _addresses(host).isdisjoint(address for name in hosts for address in _addresses(name))


def _addresses(host: str) -> set[str]:
    """The addresses of a host; empty if its name cannot be resolved."""
    if not host or host in WILDCARD_HOSTS:
        return set()
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return set()
