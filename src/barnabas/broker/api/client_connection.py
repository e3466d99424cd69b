"""The connection of a client, with what handlers keep of its last requests.

Consumers repeat their requests with only a few bytes changed. So the last one is kept in decoded form for as long as
its connection lives, and the next one need not be decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.net.connection import Connection

if TYPE_CHECKING:
    from barnabas.broker.api.fetch.fetch_requests import StandingFetch
    from barnabas.broker.api.groups.standing_commits import StandingCommit
    from barnabas.net.listener import ListenerServer
    from barnabas.ports.network import Socket


class ClientConnection(Connection):
    __slots__ = ("last_commit", "last_fetch", "software")

    def __init__(self, server: ListenerServer, sock: Socket, peer: tuple[str, int]) -> None:
        super().__init__(server, sock, peer)
        self.last_commit: StandingCommit | None = None
        self.last_fetch: StandingFetch | None = None
        self.software: tuple[str, str] | None = None
        """The client's name and version, as it said itself."""

    def close(self) -> None:
        super().close()
        self.last_commit = None
        self.last_fetch = None
