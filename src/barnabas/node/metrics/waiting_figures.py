"""What waits, and what is kept for those who come again: delayed operations, fetch sessions, connections."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from barnabas.broker.api.client_connection import ClientConnection
from barnabas.metrics.exposition import COUNTER, GAUGE, Family, counter, gauge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.broker.api.fetch.fetch_sessions import FetchSessions
    from barnabas.net.listener import ListenerServer
    from barnabas.net.purgatory import Purgatory

OPERATIONS: Final = ("Produce", "Fetch", "DeleteRecords")
"""Those of Kafka's that wait here."""
SOCKETS: Final = "kafka_server_socket_server_metrics_"
SESSIONS: Final = "kafka_server_fetchsessioncache_"
UNKNOWN: Final = ("unknown", "unknown")
"""As Kafka calls the software of clients that do not name it."""


def purgatory_families(purgatory: Purgatory) -> Iterator[Family]:
    """Kafka's purgatory keeps what has been answered until it is swept out; here both figures are the same."""
    waiting = Counter(request.operation for request in purgatory.waiting())
    for name in ("numdelayedoperations", "purgatorysize"):
        family = Family(
            f"kafka_server_delayedoperationpurgatory_{name}",
            GAUGE,
            "requests that wait for replicas or for records, by what they are",
        )
        for operation in sorted({*OPERATIONS, *waiting}):
            family.add(waiting[operation], delayedOperation=operation)
        yield family


def session_families(sessions: FetchSessions) -> Iterator[Family]:
    yield gauge(f"{SESSIONS}numincrementalfetchsessions", "fetch sessions that are open", len(sessions))
    yield gauge(
        f"{SESSIONS}numincrementalfetchpartitionscached",
        "partitions of all fetch sessions",
        sessions.partition_count(),
    )
    yield counter(
        f"{SESSIONS}incrementalfetchsessionevictions_total",
        "fetch sessions that made room for others",
        sessions.evictions,
    )


def connection_families(servers: Iterable[ListenerServer]) -> Iterator[Family]:
    count = Family(f"{SOCKETS}connection_count", GAUGE, "connections that are open")
    total = Family(f"{SOCKETS}connection_creation_total", COUNTER, "connections accepted")
    closed = Family(f"{SOCKETS}connection_close_total", COUNTER, "connections that have ended")
    by_software = Family(f"{SOCKETS}connections", GAUGE, "connections that are open, by what clients say that they are")
    idle_count = 0
    for server in servers:
        listener = server.listener.name
        connections = list(server.connections)
        count.add(len(connections), listener=listener)
        total.add(server.accepted, listener=listener)
        closed.add(max(server.accepted - len(connections), 0), listener=listener)
        idle_count += server.closed_idle
        software = Counter((each.software or UNKNOWN) for each in connections if isinstance(each, ClientConnection))
        for (name, version), clients in sorted(software.items()):
            by_software.add(clients, listener=listener, clientSoftwareName=name, clientSoftwareVersion=version)
    yield from (count, total, closed, by_software)
    yield counter(
        "kafka_network_socketserver_expiredconnectionskilledcount",
        "connections that were closed because nothing came from them for too long",
        idle_count,
    )
