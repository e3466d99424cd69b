"""Whether a node is configured to know no node but itself: broker and controller, the only voter, and no other address
to ask.

Only such a node formats an empty folder by itself, as a cluster of its own. If any other did, a wrong path would make
it accept writes that were meant for the cluster that its settings name.
"""

import socket
from collections.abc import Iterable

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listeners import WILDCARD_HOSTS, canonical_host_name
from barnabas.config.quorum import QuorumServer
from barnabas.net.endpoint import Listener

_LOOPBACK_NAMES = {"localhost", "127.0.0.1", "::1"}


def is_sole_node(config: BrokerConfig) -> bool:
    """May resolve host names. Voters are compared by id only: the address of the sole voter does not matter."""
    if not (config.is_broker and config.is_controller):
        return False
    if any(voter.node_id != config.node_id for voter in config.quorum_voters):
        return False
    own = (*config.controller_listeners, *config.advertised_controller_listeners)
    servers = () if config.quorum_voters else config.quorum_servers
    return all(_is_own(server, own) for server in servers)


def _is_own(server: QuorumServer, own: Iterable[Listener]) -> bool:
    host = server.host.lower()
    hosts = {listener.host.lower() for listener in own if listener.port == server.port}
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
