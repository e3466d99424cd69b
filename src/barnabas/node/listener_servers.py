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
from barnabas.net.request_log import RequestLog
from barnabas.net.windowed_rate import QuotaWindows
from barnabas.ports import SocketBuffers

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.config.broker_config import BrokerConfig
    from barnabas.net.connection import FrameHandler
    from barnabas.net.dispatch import Route
    from barnabas.net.endpoint import Listener
    from barnabas.net.listener import MakeConnection
    from barnabas.net.request_metrics import RequestMeter
    from barnabas.ports import Network


logger = logging.getLogger("barnabas.listener")

ANY_RATE = (1 << 31) - 1


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
        windows = QuotaWindows(config.quota_window_num, config.quota_window_size_seconds)
        self._census = ConnectionCensus(windows)
        self._dispatcher: Dispatcher | None = None
        self._meter: RequestMeter | None = None
        self._request_log = request_log(config)
        self._intercept: FrameHandler | None = None
        self._looking_up: asyncio.Task[None] | None = None
        self._rates_by_host: Mapping[str, int] = {}
        self._limits = connection_limits(config)
        self._servers = [self._make(listener) for listener in listeners]
        self._ports: dict[str, int] = {}
        self._protect()
        self._limit_rates()

    def bind(self) -> None:
        """Binds all ports, or none."""
        try:
            for server in self._servers:
                self._bind(server)
        except OSError:
            self.stop_accepting()
            raise

    def _bind(self, server: ListenerServer) -> None:
        self._ports[server.listener.name] = server.bind(self._config.socket_listen_backlog_size)

    def with_ports(self, listeners: Iterable[Listener]) -> tuple[Listener, ...]:
        """The advertised listeners, with port 0 replaced by the port that was bound; without those that could not be
        bound when they were added."""
        return tuple(
            each if each.port else each._replace(port=self._ports[each.name])
            for each in listeners
            if each.name in self._ports
        )

    def open(self, routes: Mapping[int, Route]) -> None:
        """Starts to accept connections, whose requests go to `routes`."""
        self._dispatcher = Dispatcher(routes)
        if self._meter is not None:
            self._dispatcher.on_answer = self._meter.answered
        self._look_up_hosts(self._config)
        for server in self._servers:
            self._open(server)

    def _open(self, server: ListenerServer) -> None:
        self._route(server)
        server.open()

    def _route(self, server: ListenerServer) -> None:
        """Has the frames of a listener go where they are to go now."""
        server.handle_frame = self._intercept or self.handle_frame
        server.is_metered = self._meter is not None or self._request_log is not None

    def meter_by(self, meter: RequestMeter) -> None:
        """Has all requests counted and timed, from the moment on in which the listeners are opened."""
        self._meter = meter

    @property
    def servers(self) -> Sequence[ListenerServer]:
        """The listeners as they are now, for figures about their connections."""
        return tuple(self._servers)

    def put_in_front(self, intercept: FrameHandler | None) -> None:
        """Has all frames go to `intercept`, which hands on to `handle_frame` what it does not keep; None has them go
        straight to their handlers again. For those who test with a node that fails on demand: there is no cost for
        what nobody asked for."""
        self._intercept = intercept
        for server in self._servers:
            self._route(server)

    @property
    def handle_frame(self) -> FrameHandler:
        """The listeners' own way from a frame to its handler."""
        if self._dispatcher is None:
            return handle_nothing
        dispatch: FrameHandler = self._dispatcher.dispatch
        if self._meter is not None:
            dispatch = self._meter.in_front_of(dispatch)
        return dispatch if self._request_log is None else self._request_log.in_front_of(dispatch)

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
        """Applies the limits of a changed configuration, opens listeners that are new in it, and closes those that are
        not in it any more. One that it has already stays as it is, whatever its address is now."""
        if config.barnabas_request_log_ms != self._config.barnabas_request_log_ms:
            self._request_log = request_log(config)
            if self._dispatcher is not None:
                for server in self._servers:
                    self._route(server)
        self._config = config
        self._follow_listeners({listener.name: listener for listener in config.listeners})
        self._limit(connection_limits(config))
        for server in self._servers:
            server.max_connections = max_connections(config, server.listener)
        self._limit_rates()
        self._census.look_for_room()
        self._look_up_hosts(config)

    def _follow_listeners(self, wanted: Mapping[str, Listener]) -> None:
        for server in [server for server in self._servers if server.listener.name not in wanted]:
            logger.info("%s closed: no longer in `listeners`", server.listener)
            self._servers.remove(server)
            self._ports.pop(server.listener.name, None)
            server.close()
            server.retire()
        for listener in [listener for name, listener in wanted.items() if name not in self._ports]:
            server = self._make(listener)
            try:
                self._bind(server)
            except OSError as error:
                logger.error("%s could not be opened: %s", listener, error)
                server.retire()
                continue
            self._servers.append(server)
            logger.info("%s opened", listener)
            if self._dispatcher is not None:
                self._open(server)
        self._protect()

    def _protect(self) -> None:
        """Other brokers depend on the listener for them, if there is another one for clients."""
        for server in self._servers:
            is_for_brokers = server.listener.name == self._config.inter_broker_listener_name
            server.is_protected = is_for_brokers and len(self._servers) > 1

    def _limit(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        for server in self._servers:
            server.limits = limits

    def _limit_rates(self) -> None:
        """How many connections may come in a second."""
        most = self._config.max_connection_creation_rate
        self._census.rates.total.limit = rate_limit(most)
        for server in self._servers:
            own = self._config.listener_override(server.listener.name, "max.connection.creation.rate")
            server.rate.limit = rate_limit(own if isinstance(own, int) else most)

    def limit_addresses(self, rates: Mapping[str | None, int]) -> None:
        """How many connections may come in a second from each address; under None, from every other one."""
        self._census.rates.default_max = rates.get(None)
        self._rates_by_host = {host: rate for host, rate in rates.items() if host is not None}
        self._census.rates.by_address_max = self._rates_by_host
        self._look_up_hosts(self._config)

    def _look_up_hosts(self, config: BrokerConfig) -> None:
        """The limits of some addresses may be given by the names of hosts, of which connections do not know."""
        if self._looking_up is not None:
            self._looking_up.cancel()
            self._looking_up = None
        if config.max_connections_by_ip or self._rates_by_host:
            self._looking_up = self._loop.create_task(self._limit_hosts(config))

    async def _limit_hosts(self, config: BrokerConfig) -> None:
        by_address = await self._by_address(config.max_connections_by_ip, "max.connections.per.ip.overrides has")
        self._limit(connection_limits(config, by_address))
        self._census.rates.by_address_max = await self._by_address(self._rates_by_host, "there is a quota of")

    async def _by_address(self, by_host: Mapping[str, int], what: str) -> dict[str, int]:
        by_address: dict[str, int] = {}
        for host, limit in by_host.items():
            try:
                by_address |= dict.fromkeys(await self._network.addresses(host), limit)
            except OSError as error:
                logger.error("%s %s, which cannot be looked up: %s", what, host, error)
        return by_address

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

    def _make(self, listener: Listener) -> ListenerServer:
        config = self._config
        return ListenerServer(
            self._loop,
            self._network,
            listener,
            handle_nothing,
            self._limits,
            self._census,
            max_connections=max_connections(config, listener),
            max_frame_bytes=config.socket_request_max_bytes,
            max_buffered_bytes=config.queued_max_request_bytes,
            socket_buffers=SocketBuffers(
                buffer_bytes(config, "socket.send.buffer.bytes"), buffer_bytes(config, "socket.receive.buffer.bytes")
            ),
            make_connection=self._make_connection,
        )


def handle_nothing(connection: Connection, frame: memoryview) -> None:  # noqa: ARG001
    raise AssertionError("a connection was accepted before its listener was opened")


def request_log(config: BrokerConfig) -> RequestLog | None:
    threshold_ms = config.barnabas_request_log_ms
    return None if threshold_ms < 0 else RequestLog(threshold_ms)


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


def rate_limit(rate: int) -> int | None:
    """None where there is no limit."""
    return rate if rate < ANY_RATE else None


def max_connections(config: BrokerConfig, listener: Listener) -> int:
    """`listener.name.<name>.max.connections`, else `max.connections`."""
    own = config.listener_override(listener.name, "max.connections")
    return own if isinstance(own, int) else config.max_connections
