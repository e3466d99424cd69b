"""The listeners of one event loop: bound first, so that their ports are known, and opened last, when they can serve.

Listeners for clients run on the broker's loop, those for the quorum on the controller's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.config.broker_config import ConfigSource
from barnabas.net.connection import Connection
from barnabas.net.dispatch import Dispatcher
from barnabas.net.listener import ConnectionCensus, ConnectionLimits, ListenerServer
from barnabas.ports import SocketBuffers

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Mapping

    from barnabas.config.broker_config import BrokerConfig
    from barnabas.net.connection import FrameHandler
    from barnabas.net.dispatch import Route
    from barnabas.net.endpoint import Listener
    from barnabas.net.listener import MakeConnection
    from barnabas.ports import Network


logger = logging.getLogger("barnabas.listener")


class ListenerServers:
    """`bind` may be called from any thread; `open` and `close` only on the loop."""

    def __init__(
        self,
        config: BrokerConfig,
        listeners: Iterable[Listener],
        loop: asyncio.AbstractEventLoop,
        network: Network,
        make_connection: MakeConnection = Connection,
    ) -> None:
        self._config = config
        self._network = network
        self._loop = loop
        self._make_connection = make_connection
        self._census = ConnectionCensus()
        self._dispatcher: Dispatcher | None = None
        self._intercept: FrameHandler | None = None
        self._looking_up: asyncio.Task[None] | None = None
        limits = connection_limits(config)
        listeners = list(listeners)
        self._servers = [self._make(listener, limits, is_alone=len(listeners) == 1) for listener in listeners]
        self._ports: dict[str, int] = {}

    def bind(self) -> None:
        """Binds all ports, or none."""
        try:
            for server in self._servers:
                self._ports[server.listener.name] = server.bind(self._config.socket_listen_backlog_size)
        except OSError:
            self.stop_accepting()
            raise

    def with_ports(self, listeners: Iterable[Listener]) -> tuple[Listener, ...]:
        """The advertised listeners, with port 0 replaced by the port that was bound."""
        return tuple(each if each.port else each._replace(port=self._ports[each.name]) for each in listeners)

    def open(self, routes: Mapping[int, Route]) -> None:
        """Starts to accept connections, whose requests go to `routes`."""
        self._dispatcher = Dispatcher(routes)
        self._look_up_hosts(self._config)
        for server in self._servers:
            server.handle_frame = self._intercept or self._dispatcher.dispatch
            server.open()

    def put_in_front(self, intercept: FrameHandler | None) -> None:
        """Has all frames go to `intercept`, which hands on to `handle_frame` what it does not keep; None has them go
        straight to their handlers again. For those who test with a node that fails on demand: there is no cost for
        what nobody asked for."""
        self._intercept = intercept
        for server in self._servers:
            server.handle_frame = intercept or self.handle_frame

    @property
    def handle_frame(self) -> FrameHandler:
        """The listeners' own way from a frame to its handler."""
        return handle_nothing if self._dispatcher is None else self._dispatcher.dispatch

    def accept_again(self) -> None:
        """After `stop_accepting`: goes on with the same ports."""
        for server in self._servers:
            server.accept_again(self._config.socket_listen_backlog_size, self._ports[server.listener.name])

    def cut(self) -> None:
        """Closes all connections, whatever is under way on them."""
        for server in self._servers:
            for connection in list(server.connections):
                connection.close()

    def configure(self, config: BrokerConfig) -> None:
        """Applies the limits of a changed configuration."""
        self._limit(connection_limits(config))
        for server in self._servers:
            server.max_connections = max_connections(config, server.listener)
        self._census.look_for_room()
        self._look_up_hosts(config)

    def _limit(self, limits: ConnectionLimits) -> None:
        for server in self._servers:
            server.limits = limits

    def _look_up_hosts(self, config: BrokerConfig) -> None:
        """The limits of some addresses may be given by the names of hosts, of which connections do not know."""
        if self._looking_up is not None:
            self._looking_up.cancel()
            self._looking_up = None
        if config.max_connections_by_ip:
            self._looking_up = self._loop.create_task(self._limit_hosts(config))

    async def _limit_hosts(self, config: BrokerConfig) -> None:
        by_address: dict[str, int] = {}
        for host, limit in config.max_connections_by_ip.items():
            try:
                by_address |= dict.fromkeys(await self._network.addresses(host), limit)
            except OSError as error:
                logger.error("max.connections.per.ip.overrides has %s, which cannot be looked up: %s", host, error)
        self._limit(connection_limits(config, by_address))

    def stop_accepting(self) -> None:
        for server in self._servers:
            server.stop_accepting()

    async def close(self) -> None:
        """Sends the responses that are ready and closes all connections."""
        if self._looking_up is not None:
            self._looking_up.cancel()
        if self._dispatcher is not None:
            await self._dispatcher.close()
        for server in self._servers:
            server.close()

    def _make(self, listener: Listener, limits: ConnectionLimits, *, is_alone: bool) -> ListenerServer:
        """Other brokers depend on the listener for them, if there is another one for clients."""
        config = self._config
        return ListenerServer(
            self._loop,
            self._network,
            listener,
            handle_nothing,
            limits,
            self._census,
            max_connections=max_connections(config, listener),
            max_frame_bytes=config.socket_request_max_bytes,
            max_buffered_bytes=config.queued_max_request_bytes,
            socket_buffers=SocketBuffers(
                buffer_bytes(config, "socket.send.buffer.bytes"), buffer_bytes(config, "socket.receive.buffer.bytes")
            ),
            make_connection=self._make_connection,
            is_protected=not is_alone and listener.name == config.inter_broker_listener_name,
        )


def handle_nothing(connection: Connection, frame: memoryview) -> None:  # noqa: ARG001
    raise AssertionError("a connection was accepted before its listener was opened")


def buffer_bytes(config: BrokerConfig, name: str) -> int:
    """The configured size of a socket buffer, or -1 if it is not set: the system's own tuning does better than a fixed
    default."""
    value = config.get(name)
    return value if isinstance(value, int) and config.source_of(name) is not ConfigSource.DEFAULT else -1


def connection_limits(config: BrokerConfig, by_address: Mapping[str, int] | None = None) -> ConnectionLimits:
    """With `by_address` in place of what is set by host, once hosts have been looked up."""
    return ConnectionLimits(
        config.max_connections,
        config.max_connections_per_ip,
        config.max_connections_by_ip if by_address is None else by_address,
        config.connections_max_idle_ms / 1000,
    )


def max_connections(config: BrokerConfig, listener: Listener) -> int:
    """`listener.name.<name>.max.connections`, else `max.connections`."""
    own = config.listener_override(listener.name, "max.connections")
    return own if isinstance(own, int) else config.max_connections
