"""The listening sockets of a node: accepting, the limits on connections, and what all connections share."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.net.buffers import SCRATCH_BYTES, BufferPool
from barnabas.net.connection import BACKLOG_BYTES, Connection, FrameHandler
from barnabas.net.connection_rates import ConnectionRates
from barnabas.net.large_requests import ANSWERS_BYTES_MAX
from barnabas.net.windowed_rate import DEFAULT_QUOTA_WINDOWS, WindowedRate
from barnabas.ports.clock import turn_clock
from barnabas.ports.network import TUNED_BY_SYSTEM

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from barnabas.net.endpoint import Listener
    from barnabas.net.large_requests import LargeRequest
    from barnabas.net.windowed_rate import QuotaWindows
    from barnabas.ports.network import Acceptor, Network, Socket, SocketBuffers

logger = logging.getLogger("barnabas.listener")

ACCEPTS_PER_TURN = 64
BACKLOG_MIN = 1024
"""Connections are accepted between two turns of the loop. Kafka has a thread for that, and can do with the 50 that are
the default of `socket.listen.backlog.size`; here the 51st client to come within one turn would wait a second."""
ALONE_SECONDS = 0.1


REFUSED_LATE_MAX = 1000
"""Connections that are closed later because they came too often; more of them are closed at once."""


MakeConnection = Callable[["ListenerServer", "Socket", tuple[str, int]], Connection]


class ConnectionLimits:
    """`max.connections` and its kin. Replaced as a whole when the configuration changes."""

    __slots__ = ("idle_seconds_max", "per_ip", "per_ip_overrides", "total")

    def __init__(self, total: int, per_ip: int, per_ip_overrides: Mapping[str, int], idle_seconds_max: float) -> None:
        self.total = total
        self.per_ip = per_ip
        self.per_ip_overrides = per_ip_overrides
        self.idle_seconds_max = idle_seconds_max

    def for_ip(self, host: str) -> int:
        return self.per_ip_overrides.get(host, self.per_ip)


class ConnectionCensus:
    """How many connections there are, over all listeners that share a limit."""

    __slots__ = ("by_ip", "rates", "servers", "total", "waiting")

    def __init__(self, windows: QuotaWindows = DEFAULT_QUOTA_WINDOWS) -> None:
        self.by_ip: Counter[str] = Counter()
        self.rates = ConnectionRates(windows)
        self.total = 0
        self.servers: list[ListenerServer] = []
        self.waiting: dict[ListenerServer, None] = {}
        """Those that had no room for another connection."""

    def joined(self, host: str) -> None:
        self.by_ip[host] += 1
        self.total += 1

    def left(self, host: str) -> None:
        self.total -= 1
        self.by_ip[host] -= 1
        if not self.by_ip[host]:
            del self.by_ip[host]
        self.look_for_room()

    def look_for_room(self) -> None:
        """There may be room again: a connection of any listener has left, or the limits are others."""
        waiting, self.waiting = self.waiting, {}
        for server in waiting:
            server.resume_accepting()

    def idlest(self) -> Connection | None:
        """The connection that has been silent for longest, of the listeners that nobody depends on."""
        open_to_all = (server.connections for server in self.servers if not server.is_protected)
        return min(
            (connection for connections in open_to_all for connection in connections),
            key=lambda connection: connection.last_active,
            default=None,
        )


class ListenerServer:
    """One listener: its socket, its connections, and the receive buffers they share."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        network: Network,
        listener: Listener,
        handle_frame: FrameHandler,
        limits: ConnectionLimits,
        census: ConnectionCensus,
        *,
        max_connections: int,
        max_frame_bytes: int,
        max_buffered_bytes: int,
        socket_buffers: SocketBuffers = TUNED_BY_SYSTEM,
        make_connection: MakeConnection = Connection,
        is_protected: bool = False,
    ) -> None:
        """A listener that `is_protected` always has room, as far as its own limit goes: others make way for it.
        `make_connection` is called for each client: the handlers of a listener may keep more with its connections
        than what is common to all."""
        self.loop = loop
        self._network = network
        self.listener = listener
        self.handle_frame = handle_frame
        self.limits = limits
        self.census = census
        self.is_protected = is_protected
        census.servers.append(self)
        self.max_connections = max_connections
        self.max_frame_bytes = max_frame_bytes
        self.max_buffered_bytes = max_buffered_bytes
        self.scratch = bytearray(SCRATCH_BYTES)
        self.scratch_view = memoryview(self.scratch)
        self.buffers = BufferPool()
        self.connections: dict[Connection, None] = {}
        """In the order of their arrival, so that a loop over them goes the same way in every run."""
        self.last_sender: Connection | None = None
        self.last_sender_change_s = 0.0
        """When `last_sender` last changed, by the clock of the event loop."""
        self.turn_clock = turn_clock(loop)
        self.accepted = 0
        """Connections that were let in."""
        self.closed_idle = 0
        """Connections that were closed because nothing came from them for too long."""
        self.is_metered = False
        self.read_ns = 0
        """When what is handled now was read, by the performance counter, if requests are metered."""
        self.answers_in_the_making: dict[LargeRequest, None] = {}
        """The oldest first."""
        self.answers_in_the_making_bytes = 0
        self._socket_buffers = socket_buffers
        self._make_connection = make_connection
        self.rate = WindowedRate(census.rates.windows)
        """Of the connections that come."""
        self._late: tuple[Socket, asyncio.TimerHandle] | None = None
        """One that was accepted, and is taken later. Others wait behind it."""
        self._refused_late: dict[Socket, asyncio.TimerHandle] = {}
        """Those that are closed later."""
        self._acceptor: Acceptor | None = None
        self._is_accepting = False
        self._to_flush: list[Connection] = []
        self._waiting_for_memory: dict[Connection, None] = {}
        self._answers_waiting: list[asyncio.Future[None]] = []
        self._idle_timer: asyncio.TimerHandle | None = None

    def bind(self, backlog: int) -> int:
        """Binds the port and returns it, since 0 means any free one. Connections wait until `open`."""
        host, port = self.listener.host, self.listener.port
        try:
            self._acceptor = self._network.listen(
                host, port, backlog=max(backlog, BACKLOG_MIN), buffers=self._socket_buffers
            )
        except OSError as error:
            raise OSError(
                error.errno, f"cannot listen on {self.listener.name}://{host}:{port}: {error.strerror}"
            ) from error
        return self._acceptor.port

    def open(self) -> None:
        """Starts accepting connections."""
        self.resume_accepting()
        self._schedule_idle_check()

    def close(self) -> None:
        """Stops accepting connections, and closes those that are open."""
        self.stop_accepting()
        late = [*self._refused_late.items(), *filter(None, (self._late,))]
        self._refused_late.clear()
        self._late = None
        for sock, timer in late:
            timer.cancel()
            sock.close()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for connection in list(self.connections):
            connection.flush()
            connection.close()

    def retire(self) -> None:
        """There is no such listener any more."""
        self.census.servers.remove(self)
        self.census.waiting.pop(self, None)

    def stop_accepting(self) -> None:
        self._pause_accepting()
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None

    def accept_again(self, backlog: int, port: int) -> None:
        """After `stop_accepting`: binds the port that it had, and goes on."""
        if self._acceptor is None:
            self.listener = self.listener._replace(port=port)
            self.bind(backlog)
            self.resume_accepting()

    # ── accepting ────────────────────────────────────────────────────────────────────────────────────────────

    def _on_acceptable(self) -> None:
        assert self._acceptor is not None
        for _ in range(ACCEPTS_PER_TURN):
            if not self._has_room():
                logger.warning(
                    "%s has reached its limit of %d connections (max.connections): new ones wait",
                    self.listener.name,
                    min(self.limits.total, self.max_connections),
                )
                self._pause_accepting()
                self.census.waiting[self] = None
                return
            try:
                sock, host, port = self._acceptor.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of file descriptors: open connections go on, and new ones wait until one is closed.
                logger.error("%s cannot accept connections: %s", self.listener.name, error)
                self._pause_accepting()
                self.loop.call_later(1.0, self.resume_accepting)
                return
            throttle_s = self._count_connection(1)
            if throttle_s > 0:
                self._pause_accepting()
                timer = self.loop.call_later(throttle_s, self._admit_late, sock, host, port)
                self._late = sock, timer
                return
            self._admit(sock, host, port)

    def _count_connection(self, count: int) -> float:
        """Returns for how long the connection has to wait, and others behind it."""
        now = self.loop.time()
        rates = [self.rate] if self.is_protected else [self.rate, self.census.rates.total]
        for rate in rates:
            rate.record(count, now)
        return max(rate.excess_s(now) for rate in rates)

    def _admit_late(self, sock: Socket, host: str, port: int) -> None:
        self._late = None
        self._admit(sock, host, port)
        self.resume_accepting()

    def _is_too_frequent(self, sock: Socket, host: str) -> bool:
        """Whether an address sends more connections than its quota. Then this one is closed after a while, and does not
        count."""
        now = self.loop.time()
        rate = self.census.rates.of_address(host, now)
        if rate is None:
            return False
        rate.record(1, now)
        throttle_s = rate.excess_s(now)
        if throttle_s <= 0:
            return False
        rate.record(-1, now)
        self._count_connection(-1)
        if len(self._refused_late) >= REFUSED_LATE_MAX:
            sock.close()
        else:
            self._refused_late[sock] = self.loop.call_later(throttle_s, self._close_late, sock)
        return True

    def _close_late(self, sock: Socket) -> None:
        del self._refused_late[sock]
        sock.close()

    def _admit(self, sock: Socket, host: str, port: int) -> None:
        if self._is_too_frequent(sock, host):
            return
        if self.census.by_ip[host] >= self.limits.for_ip(host):
            logger.warning(
                "%s refused %s:%d: it has reached its limit of %d connections (max.connections.per.ip)",
                self.listener.name,
                host,
                port,
                self.limits.for_ip(host),
            )
            sock.close()
            return
        self.census.joined(host)
        self.connections[self._make_connection(self, sock, (host, port))] = None
        self.accepted += 1
        if self.census.total > self.limits.total and (idlest := self.census.idlest()) is not None:
            logger.warning("%s is closed to make way for a connection of %s", idlest, self.listener.name)
            idlest.close()

    def _has_room(self) -> bool:
        if len(self.connections) >= self.max_connections:
            return False
        return self.is_protected or self.census.total < self.limits.total

    def _pause_accepting(self) -> None:
        if self._is_accepting and self._acceptor is not None:
            self._is_accepting = False
            self.loop.remove_reader(self._acceptor.fileno())

    def resume_accepting(self) -> None:
        if not self._is_accepting and self._acceptor is not None and self._late is None:
            self._is_accepting = True
            self.loop.add_reader(self._acceptor.fileno(), self._on_acceptable)

    # ── what connections ask of us ───────────────────────────────────────────────────────────────────────────

    def connection_closed(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        if self.last_sender is connection:
            self.last_sender = None
        self.frame_memory_freed()
        self.census.left(connection.peer[0])
        if not self._is_accepting:
            self.resume_accepting()

    def has_one_sender(self) -> bool:
        """Whether one connection alone has been sending for a while."""
        return self.loop.time() - self.last_sender_change_s > ALONE_SECONDS

    def has_memory_for(self, frame_bytes: int) -> bool:
        """Whether `queued.max.request.bytes` lets one more large frame in. The first always may."""
        in_use = self.buffers.in_use_bytes + self.answers_in_the_making_bytes
        return self.max_buffered_bytes <= 0 or not in_use or in_use + frame_bytes <= self.max_buffered_bytes

    def resume_when_memory_is_free(self, connection: Connection) -> None:
        self._waiting_for_memory[connection] = None

    def frame_memory_freed(self) -> None:
        if self._waiting_for_memory:
            waiting, self._waiting_for_memory = self._waiting_for_memory, {}
            for connection in waiting:
                self.loop.call_soon(connection.resume_if_paused)
        self.answer_memory_freed()

    def has_memory_for_answer(self, answer: LargeRequest) -> bool:
        """Whether the answer to a large request may be as large as it is now, and go on growing."""
        limit = self.max_buffered_bytes if self.max_buffered_bytes > 0 else ANSWERS_BYTES_MAX
        not_taken = sum(connection.backlog_bytes for connection in self.connections)
        if next(iter(self.answers_in_the_making)) is answer:
            return not_taken <= BACKLOG_BYTES or not_taken + answer.charged_bytes <= limit
        return not_taken + self.answers_in_the_making_bytes + self.buffers.in_use_bytes <= limit

    def memory_freed(self) -> asyncio.Future[None]:
        """Done when it is worth asking again."""
        freed = self.loop.create_future()
        self._answers_waiting.append(freed)
        return freed

    def answer_memory_freed(self) -> None:
        if self._answers_waiting:
            waiting, self._answers_waiting = self._answers_waiting, []
            for freed in waiting:
                if not freed.done():
                    freed.set_result(None)

    def flush_soon(self, connection: Connection) -> None:
        """Replies completed in this turn of the loop leave at its end, together."""
        if not self._to_flush:
            self.loop.call_soon(self._flush)
        self._to_flush.append(connection)

    def _flush(self) -> None:
        connections, self._to_flush = self._to_flush, []
        for connection in connections:
            connection.flush()

    # ── idle connections ─────────────────────────────────────────────────────────────────────────────────────

    def _schedule_idle_check(self) -> None:
        interval = min(max(self.limits.idle_seconds_max / 4, 0.05), 60.0)
        self._idle_timer = self.loop.call_later(interval, self._close_idle)

    def _close_idle(self) -> None:
        limit = self.limits.idle_seconds_max
        now = self.loop.time()
        for connection in [c for c in self.connections if now - c.last_active > limit]:
            connection.close_idle(now - connection.last_active)
            self.closed_idle += 1
        self._schedule_idle_check()
