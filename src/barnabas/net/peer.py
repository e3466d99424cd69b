"""Another node, to be asked in Kafka's messages: connected when needed, and again when the connection is lost.

    peer = Peer("node 2", "10.0.0.2", 9093, environment)
    response = await peer.send(m.VoteRequest(…))

    with await peer.send_raw(ApiKey.FETCH, version, body) as response:
        log.append(response.body)

Theory of operation. Requests wait in a queue while there is no connection, or as many are under way as may be; they
leave in the order in which they were sent, any number behind one another, and their answers come in that order. There
is no task for a request, only a future; one task makes connections. A new connection is first asked which versions the
other side speaks (ApiVersions) and, where security wants it, authenticated. `peer_link` is one such connection.

What a caller has to know:

- A request is sent at most once. What fails may have had its effect or not, and is never repeated here.
- A connection that cannot be made fails everything that waits for it, at once and with the reason. The next attempt
  comes no sooner than `reconnect_backoff_s` after this one, twice as late with every failure in a row, up to
  `reconnect_backoff_max_s`, shortened or lengthened by chance so that nodes do not knock in step; what is sent
  meanwhile waits for it. No connection is made for its own sake: a peer that is not asked anything stays as it is.
- A lost connection fails what was under way on it. What was still in the queue waits for the next one.
- An answer that does not come in time ends the connection, as answers come in order and so none can come any more. A
  request that was not even sent by then fails alone.
- A caller that is cancelled while it waits is forgotten: what is queued is not sent, and an answer that comes is
  dropped.

All errors are `WireError`s and name the peer. Everything is bounded: the queue (`PeerBusyError`), what is under way,
and the size of an answer. To be used on the event loop it was made for, of which a node has several.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from barnabas.net import frames
from barnabas.net.buffers import ReceiveSpace
from barnabas.net.frames import (
    AnswerTimeoutError,
    AuthenticationError,
    ConnectError,
    UnsupportedVersionError,
    VersionRange,
    WireError,
)
from barnabas.net.peer_link import Exchange, PeerLink, RawResponse
from barnabas.net.tls_stream import TlsStream
from barnabas.ports.network import TUNED_BY_SYSTEM
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from barnabas.ports.network import Network, Socket, SocketBuffers
    from barnabas.ports.randomness import Random
    from barnabas.protocol.messages import Message

logger = logging.getLogger("barnabas.peer")

BACKOFF_GROWTH: Final = 2.0
BACKOFF_JITTER: Final = 0.2
COMPLAINT_SECONDS: Final = 10.0
"""How often a warning is logged about a peer that cannot be reached."""

_JITTER_STEPS: Final = 1_000
_NEGOTIATED: Final = -1
"""In place of a version: the newest that both sides know."""


class PeerBusyError(WireError):
    """As many requests as may wait are waiting."""


class PeerClosedError(WireError):
    """The peer was closed by its owner, in this node."""


class PeerSettings(NamedTuple):
    client_id: str = "barnabas"
    request_timeout_s: float = 30.0
    """`request.timeout.ms`, from the moment a request is queued."""
    connection_setup_timeout_s: float = 10.0
    """`socket.connection.setup.timeout.ms`, until the versions are known and both sides trust each other."""
    reconnect_backoff_s: float = 0.05
    """`reconnect.backoff.ms`"""
    reconnect_backoff_max_s: float = 1.0
    """`reconnect.backoff.max.ms`"""
    in_flight_max: int = 100
    queue_max: int = 1_000
    response_bytes_max: int = 128 * 1024 * 1024
    buffers: SocketBuffers = TUNED_BY_SYSTEM
    software_version: str = "peer"
    """What the other side is told in ApiVersions."""


class PeerSecurity(Protocol):
    """How this node and a peer come to trust each other. Asked anew for each connection, so that renewed keys and
    passwords are used."""

    def tls_context(self) -> ssl.SSLContext | None:
        """What to encrypt with; None for plain text."""
        ...

    async def authenticate(self, link: PeerLink, versions: Mapping[int, VersionRange]) -> None:
        """Shows the other side who we are, before anything else is sent. AuthenticationError if it does not accept
        that."""
        ...


class Plaintext:
    """Everybody is trusted."""

    def tls_context(self) -> ssl.SSLContext | None:
        return None

    async def authenticate(self, link: PeerLink, versions: Mapping[int, VersionRange]) -> None:
        pass


class PeerEnvironment(NamedTuple):
    """What all peers of one event loop have in common."""

    loop: asyncio.AbstractEventLoop
    network: Network
    random: Random
    space: ReceiveSpace
    security: PeerSecurity = Plaintext()

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop, network: Network, random: Random) -> PeerEnvironment:
        """Plain text, and buffers of its own."""
        return cls(loop, network, random, ReceiveSpace())


class _Waiting(Exchange):
    """A request in the queue. Which version it leaves in, and so what it looks like, is known when there is a link."""

    __slots__ = ("at_most", "make_request", "timeout_s")

    def __init__(self, api_key: int, version: int, done: asyncio.Future[Any], timeout_s: float) -> None:
        super().__init__(api_key, version, done)
        self.timeout_s = timeout_s
        self.at_most: int | None = None
        self.make_request: Callable[[int], Message] | None = None

    def __str__(self) -> str:
        return frames.api_name(self.api_key) if self.version == _NEGOTIATED else super().__str__()


class Peer:
    """`name` is what messages call the other node, next to its address."""

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        environment: PeerEnvironment,
        settings: PeerSettings | None = None,
        *,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """`on_lost` is called when a connection that was in use is lost, unless this peer was closed."""
        self.host = host
        self.port = port
        self.settings = settings or PeerSettings()
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.name = f"{name} at {address}"
        self._environment = environment
        self._loop = environment.loop
        self._queue: deque[_Waiting] = deque()
        self._link: PeerLink | None = None
        self._versions: Mapping[int, VersionRange] = {}
        self._connecting: asyncio.Task[None] | None = None
        self._is_closed = False
        self._on_lost = on_lost
        self._failures = 0
        """How many attempts in a row have failed."""
        self._failures_ever = 0
        self._last_failure = "no connection attempt has been made yet"
        self._last_attempt = float("-inf")
        self._next_complaint = float("-inf")

    def __str__(self) -> str:
        return self.name

    @property
    def is_connected(self) -> bool:
        return self._link is not None and not self._link.is_lost

    @property
    def in_flight(self) -> int:
        """How many answers are due."""
        return 0 if self._link is None else self._link.in_flight

    @property
    def queued(self) -> int:
        """How many requests wait to be sent."""
        return len(self._queue)

    async def send(self, request: Message, version: int | None = None, *, timeout_s: float | None = None) -> Any:
        """The answer to a request, in a version or in the newest that both sides know."""
        if not frames.has_answer(request):
            raise ValueError("a Produce request with acks=0 is never answered")
        exchange = self._exchange(frames.request_api_key(request), version, timeout_s)
        exchange.request = request
        return await self._answer_to(exchange)

    async def send_made(
        self,
        api_key: int,
        make_request: Callable[[int], Message],
        *,
        at_most: int | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """The answer to a request that looks different in different versions: it is made when its version is known,
        which is the newest that both sides and, by `at_most`, the caller know."""
        exchange = self._exchange(api_key, None, timeout_s)
        exchange.make_request = make_request
        exchange.at_most = at_most
        return await self._answer_to(exchange)

    async def send_raw(
        self, api_key: int, version: int, body: bytes | memoryview, *, timeout_s: float | None = None
    ) -> RawResponse:
        """The answer to an encoded request, not decoded. It has to be released."""
        exchange = self._exchange(api_key, version, timeout_s)
        exchange.body = body
        exchange.is_raw = True
        try:
            response: RawResponse = await self._answer_to(exchange)
        except asyncio.CancelledError:
            if exchange.done.done() and not exchange.done.cancelled() and exchange.done.exception() is None:
                exchange.done.result().release()
            raise
        return response

    async def newest_version(self, api_key: int, *, at_most: int | None = None, timeout_s: float | None = None) -> int:
        """The newest version of an API that both sides know. Connects for that if need be."""
        if not self.is_connected:
            await self.send(frames.api_versions_request(self.settings.software_version), timeout_s=timeout_s)
        return frames.newest_version(api_key, self._versions, self.name, at_most=at_most)

    async def close(self) -> None:
        """Ends the connection. Whoever waits is told so."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._link is not None:
            self._link.lose("it was closed by this node", PeerClosedError)
            self._link = None
        self._fail_queue(lambda exchange: PeerClosedError(f"{self}: {exchange} was not sent: the peer was closed"))

    # ── sending ──────────────────────────────────────────────────────────────────────────────────────────────

    def _exchange(self, api_key: int, version: int | None, timeout_s: float | None) -> _Waiting:
        if self._is_closed:
            raise PeerClosedError(f"{self}: {frames.api_name(api_key)} was not sent: the peer was closed")
        if len(self._queue) >= self.settings.queue_max:
            raise PeerBusyError(
                f"{self}: {frames.api_name(api_key)} was not sent: {len(self._queue)} requests already queued"
            )
        timeout_s = self.settings.request_timeout_s if timeout_s is None else timeout_s
        return _Waiting(api_key, _NEGOTIATED if version is None else version, self._loop.create_future(), timeout_s)

    async def _answer_to(self, exchange: _Waiting) -> Any:
        exchange.timer = self._loop.call_later(exchange.timeout_s, self._timed_out, exchange)
        self._queue.append(exchange)
        self._pump()
        try:
            return await exchange.done
        except asyncio.CancelledError:
            # One that is under way keeps its timer: nothing behind it can be answered before it is.
            if exchange in self._queue:
                exchange.timer.cancel()
                self._queue.remove(exchange)
            raise

    def _pump(self) -> None:
        """Sends what may be sent, and sees to it that there is a connection as long as anything waits."""
        link = self._link
        if link is None or link.is_lost:
            if self._queue and self._connecting is None and not self._is_closed:
                self._connecting = self._loop.create_task(self._connect())
                self._connecting.add_done_callback(self._connecting_ended)
            return
        while self._queue and link.has_room():
            exchange = self._queue.popleft()
            try:
                self._settle_version(exchange)
                link.submit(exchange)
            except Exception as error:  # a request that cannot be made or encoded harms no other
                exchange.fail(error)

    def _settle_version(self, exchange: _Waiting) -> None:
        if exchange.version == _NEGOTIATED:
            exchange.version = frames.newest_version(
                exchange.api_key, self._versions, self.name, at_most=exchange.at_most
            )
        else:
            offered = self._versions.get(exchange.api_key)
            if offered is None or not offered.lowest <= exchange.version <= offered.highest:
                raise UnsupportedVersionError(f"{self} does not support {exchange}")
        if exchange.make_request is not None:
            exchange.request = exchange.make_request(exchange.version)

    def _timed_out(self, exchange: _Waiting) -> None:
        seconds = f"{exchange.timeout_s:g} s"
        if exchange in self._queue:
            self._queue.remove(exchange)
            state = f"{self.in_flight} requests are in flight" if self.is_connected else self._last_failure
            exchange.fail(AnswerTimeoutError(f"{self}: {exchange} could not be sent within {seconds}: {state}"))
        elif self._link is not None and self._link.is_waiting_for(exchange):
            logger.warning("%s: no answer to %s within %s, closing the connection", self, exchange, seconds)
            exchange.fail(AnswerTimeoutError(f"{self} did not answer {exchange} within {seconds}"))
            self._link.lose(f"it did not answer {exchange} within {seconds}")

    def _fail_queue(self, error: Callable[[_Waiting], WireError]) -> None:
        queue, self._queue = self._queue, deque()
        for exchange in queue:
            exchange.fail(error(exchange))

    # ── connecting ───────────────────────────────────────────────────────────────────────────────────────────

    async def _connect(self) -> None:
        """Makes one attempt, when it is due."""
        due_in = self._last_attempt + self._backoff_s() - self._loop.time()
        if due_in > 0:
            await asyncio.sleep(due_in)
        if not self._queue:
            return  # whoever wanted a connection has given up meanwhile
        self._last_attempt = self._loop.time()
        limit_s = self.settings.connection_setup_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                link, versions = await self._open_link()
        except TimeoutError as error:
            # The system has a time limit of its own, which says so itself.
            self._attempt_failed(ConnectError(error.strerror or f"no connection within {limit_s:g} s"))
        except (WireError, OSError) as error:
            self._attempt_failed(error)
        else:
            self._connected(link, versions)

    async def _open_link(self) -> tuple[PeerLink, Mapping[int, VersionRange]]:
        environment, settings = self._environment, self.settings
        stream: Socket = await environment.network.connect(
            # The address that was last connected to is tried first again.
            self.host,
            self.port,
            attempt=self._failures_ever,
            buffers=settings.buffers,
        )
        try:
            context = environment.security.tls_context()
            if context is not None:
                stream = TlsStream(stream, context, server_hostname=self.host)
                await stream.shake_hands(self._loop)
            link = PeerLink(
                self._loop,
                stream,
                environment.space,
                name=self.name,
                client_id=settings.client_id,
                in_flight_max=settings.in_flight_max,
                response_bytes_max=settings.response_bytes_max,
                on_lost=self._link_lost,
                on_room=self._pump,
            )
        except BaseException:
            stream.close()
            raise
        try:
            versions = await self._ask_versions(link)
            await environment.security.authenticate(link, versions)
        except BaseException:
            link.lose("it was not used")
            raise
        return link, versions

    async def _ask_versions(self, link: PeerLink) -> Mapping[int, VersionRange]:
        request = frames.api_versions_request(self.settings.software_version)
        response = await link.ask(request, APIS[ApiKey.API_VERSIONS].max_version)
        if response.error_code == Error.UNSUPPORTED_VERSION:
            response = await link.ask(request, frames.offered_api_versions(response))
        return frames.offered_versions(response, self.name)

    def _connected(self, link: PeerLink, versions: Mapping[int, VersionRange]) -> None:
        if self._failures:
            logger.info("%s: connected after %d failed attempts", self, self._failures)
        self._failures = 0
        self._next_complaint = float("-inf")
        self._versions = versions
        self._link = link

    def _attempt_failed(self, error: WireError | OSError) -> None:
        self._failures += 1
        self._failures_ever += 1
        kind = AuthenticationError if isinstance(error, AuthenticationError) else ConnectError
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        self._last_failure = f"cannot connect to {self}: {reason}"
        now = self._loop.time()
        is_due = now >= self._next_complaint
        if is_due:
            self._next_complaint = now + COMPLAINT_SECONDS
        logger.log(logging.WARNING if is_due else logging.DEBUG, "%s (attempt %d)", self._last_failure, self._failures)
        self._fail_queue(lambda _: kind(self._last_failure))

    def _connecting_ended(self, task: asyncio.Task[None]) -> None:
        self._connecting = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s: connecting failed with an internal error", self, exc_info=error)
            self._failures += 1
            self._last_failure = f"cannot connect to {self}: internal error: {error}"
            self._fail_queue(lambda _: ConnectError(self._last_failure))
        self._pump()

    def _link_lost(self, link: PeerLink, reason: str) -> None:
        if link is self._link:
            logger.debug("%s: connection lost: %s", self, reason)
            self._last_failure = f"the connection to {self} was lost: {reason}"
            self._link = None
            self._pump()
            if self._on_lost is not None and not self._is_closed:
                self._on_lost()

    def _backoff_s(self) -> float:
        """How long after the last attempt the next may begin. A peer that has answered begins anew, but even one that
        answers and leaves at once is not knocked at without a pause."""
        settings = self.settings
        grown = settings.reconnect_backoff_s * pow(BACKOFF_GROWTH, min(max(self._failures - 1, 0), 30))
        steps = self._environment.random.below(2 * _JITTER_STEPS + 1) - _JITTER_STEPS
        longest = max(settings.reconnect_backoff_s, settings.reconnect_backoff_max_s)
        return min(grown, longest) * (1 + BACKOFF_JITTER * steps / _JITTER_STEPS)
