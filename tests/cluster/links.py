"""A cluster whose nodes are reached, by each other and by clients, through proxies that can cut the link between two.

Each node advertises a proxy for its broker and one for its controller. Who has connected is seen from the client id of
the first request, in which nodes name themselves. A link that is cut is silent: what was connected stays connected, and
nobody hears from the other side any more, as when a cable is pulled or a firewall drops packets. When it is healed,
those connections end, and new ones go through.
"""

from __future__ import annotations

import contextlib
import re
import struct
from typing import TYPE_CHECKING

from barnabas.testing.several_nodes import HOST
from tests.clients.proxy import Direction, Proxy
from tests.nodes import Cluster

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping
    from pathlib import Path

NODE = re.compile(rb"(?:broker|raft-client|controller)-(\d+)\b")
CLIENT_ID_AT = 12
"""After the length, API key, version and correlation id."""


class LinkProxy(Proxy):
    """The way to one node. `silenced` are the ids of nodes from which nothing comes, and to which nothing goes."""

    def __init__(self) -> None:
        super().__init__()
        self.silenced: frozenset[int] = frozenset()
        self.client_bytes = 0
        """What was sent to clients, that is, to no node."""
        self._requests: set[Direction] = set()
        self._node_of: dict[socket.socket, int | None] = {}
        """By the socket of whoever has connected; None for a client."""
        self._silent: list[Direction] = []

    def _opened(self, out: Direction, back: Direction) -> None:
        self._requests.add(out)

    def _may_pass(self, direction: Direction, data: bytes) -> bool:
        is_request = direction in self._requests
        who = direction.source if is_request else direction.sink
        if is_request and who not in self._node_of:
            self._node_of[who] = node_of(data)
        node_id = self._node_of.get(who)
        if node_id is None and not is_request:
            self.client_bytes += len(data)
        if node_id not in self.silenced:
            return True
        self._silence(direction)
        return False

    def _silence(self, direction: Direction) -> None:
        """Both sides stay connected."""
        for side in (direction.source, direction.sink):
            self._selector.unregister(side)
        self._silent.append(direction)

    def _turn(self) -> None:
        if self._silent and not self.silenced:
            self._end_silent()

    def _end_silent(self) -> None:
        while self._silent:
            self._end(self._silent.pop())

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._end_silent()

    def _close(self, side: object) -> None:
        super()._close(side)
        self._node_of.pop(side, None)  # type: ignore[call-overload]

    def _end(self, direction: Direction) -> None:
        super()._end(direction)
        self._requests.discard(direction)


def node_of(first_bytes: bytes) -> int | None:
    """Which node a connection comes from, by its first request; None for a client."""
    (length,) = struct.unpack_from(">h", first_bytes, CLIENT_ID_AT)
    name = NODE.match(first_bytes[CLIENT_ID_AT + 2 : CLIENT_ID_AT + 2 + max(length, 0)])
    return None if name is None else int(name[1])


class LinkedCluster:
    """A cluster of three nodes, and the links between them."""

    def __init__(self, folder: Path, settings: Mapping[str, str], settings_of: Mapping[int, Mapping[str, str]]) -> None:
        self.brokers = {node_id: LinkProxy() for node_id in (1, 2, 3)}
        self.controllers = {node_id: LinkProxy() for node_id in (1, 2, 3)}
        servers = ",".join(f"{HOST}:{proxy.port}" for proxy in self.controllers.values())
        links = {
            node_id: {
                "advertised.listeners": f"PLAINTEXT://{HOST}:{self.brokers[node_id].port},"
                f"CONTROLLER://{HOST}:{self.controllers[node_id].port}",
                "controller.quorum.bootstrap.servers": servers,
                **settings_of.get(node_id, {}),
            }
            for node_id in (1, 2, 3)
        }
        self.cluster = Cluster(folder, settings=settings, settings_of=links)
        voters = self.cluster.layout.voters
        for voter in voters:
            self.brokers[voter.node_id].target_port = self.cluster[voter.node_id].port
            self.controllers[voter.node_id].target_port = voter.port
        linked = tuple(voter._replace(port=self.controllers[voter.node_id].port) for voter in voters)
        self.cluster.layout = self.cluster.layout._replace(voters=linked)

    def cut(self, one: int, other: int) -> None:
        """From now on these two nodes do not hear from each other. All others, and clients, hear from both."""
        for proxies in (self.brokers, self.controllers):
            proxies[one].silenced |= {other}
            proxies[other].silenced |= {one}

    def heal(self) -> None:
        for proxies in (self.brokers, self.controllers):
            for proxy in proxies.values():
                proxy.silenced = frozenset()


@contextlib.contextmanager
def linked_cluster(
    folder: Path, settings: Mapping[str, str], settings_of: Mapping[int, Mapping[str, str]]
) -> Iterator[LinkedCluster]:
    linked = LinkedCluster(folder, settings, settings_of)
    with contextlib.ExitStack() as stack:
        for proxy in (*linked.brokers.values(), *linked.controllers.values()):
            stack.enter_context(proxy)
        stack.enter_context(linked.cluster)
        yield linked
