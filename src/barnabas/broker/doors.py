"""All listeners of a node: bound first, so that their ports are known, and opened last, when the node can serve."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.broker.api.controller import CONTROLLER_ROUTES
from barnabas.broker.dispatch import ROUTES, Dispatcher
from barnabas.broker.listener import ConnectionCensus, ConnectionLimits, ListenerServer
from barnabas.config.broker import ConfigSource

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from barnabas.broker.connection import Connection
    from barnabas.broker.server import Broker
    from barnabas.config.broker import BrokerConfig
    from barnabas.config.listeners import Listener

logger = logging.getLogger("barnabas.listener")


class Doors:
    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self._config = config
        self._census = ConnectionCensus()
        self._dispatchers: list[Dispatcher] = []
        limits = connection_limits(config)
        self._for_clients = [self._make(loop, listener, limits) for listener in config.listeners]
        self._for_controllers = [self._make(loop, listener, limits) for listener in config.controller_listeners]
        self._ports: dict[str, int] = {}

    @property
    def _all(self) -> list[ListenerServer]:
        return [*self._for_clients, *self._for_controllers]

    def bind(self) -> None:
        """Takes every port, or none."""
        try:
            for server in self._all:
                self._ports[server.listener.name] = server.bind(self._config.socket_listen_backlog_size)
        except OSError:
            self.stop_accepting()
            raise

    @property
    def advertised(self) -> tuple[Listener, ...]:
        """What clients are told to connect to."""
        return self._with_ports(self._config.advertised_listeners)

    @property
    def advertised_controller(self) -> tuple[Listener, ...]:
        return self._with_ports(self._config.advertised_controller_listeners)

    def _with_ports(self, listeners: Iterable[Listener]) -> tuple[Listener, ...]:
        return tuple(each if each.port else each._replace(port=self._ports[each.name]) for each in listeners)

    def open(self, broker: Broker) -> None:
        """From now on frames are handled."""
        for servers, routes in ((self._for_clients, ROUTES), (self._for_controllers, CONTROLLER_ROUTES)):
            dispatcher = Dispatcher(broker, routes)
            self._dispatchers.append(dispatcher)
            for server in servers:
                server.handle_frame = dispatcher.dispatch
                server.open()

    def configure(self, config: BrokerConfig) -> None:
        """Takes over the limits of a changed configuration."""
        limits = connection_limits(config)
        for server in self._all:
            server.limits = limits
            server.max_connections = max_connections(config, server.listener)

    def stop_accepting(self) -> None:
        for server in self._all:
            server.stop_accepting()

    async def close(self) -> None:
        """Sends the replies that are ready and lets everybody go."""
        for dispatcher in self._dispatchers:
            await dispatcher.close()
        for server in self._all:
            server.close()

    def _make(self, loop: asyncio.AbstractEventLoop, listener: Listener, limits: ConnectionLimits) -> ListenerServer:
        config = self._config
        return ListenerServer(
            loop,
            listener,
            handle_nothing,
            limits,
            self._census,
            max_connections=max_connections(config, listener),
            max_frame_bytes=config.socket_request_max_bytes,
            max_buffered_bytes=config.queued_max_request_bytes,
            send_buffer_bytes=given(config, "socket.send.buffer.bytes"),
            receive_buffer_bytes=given(config, "socket.receive.buffer.bytes"),
        )


def handle_nothing(connection: Connection, frame: memoryview) -> None:  # noqa: ARG001
    raise AssertionError("no connection is accepted before the doors are open")


def given(config: BrokerConfig, name: str) -> int:
    """A socket buffer's size as it was set. Where it was not, the system's own tuning does better than a fixed size,
    and -1 leaves it to that."""
    value = config.get(name)
    return value if isinstance(value, int) and config.source_of(name) is not ConfigSource.DEFAULT else -1


def connection_limits(config: BrokerConfig) -> ConnectionLimits:
    return ConnectionLimits(
        config.max_connections,
        config.max_connections_per_ip,
        config.max_connections_by_ip,
        config.connections_max_idle_ms / 1000,
    )


def max_connections(config: BrokerConfig, listener: Listener) -> int:
    """`listener.name.<name>.max.connections`, or the limit of the whole broker."""
    own = config.listener_override(listener.name, "max.connections")
    return own if isinstance(own, int) else config.max_connections
