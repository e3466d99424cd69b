"""From a frame to its handler, and from the handler's answer back to the connection.

Handlers register themselves with the version range they serve (`handles`, or `handles_frames` for the hot ones that
read and write bytes themselves), and what ApiVersions answers is made from that registry, so that it cannot lie.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from functools import partial
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.broker.connection import BadRequestError, Connection, Slot
from barnabas.broker.pending import Pending
from barnabas.protocol import codec, messages
from barnabas.protocol.api import APIS, ApiKey, response_header_version
from barnabas.protocol.headers import RequestHeader, parse_request_header

if TYPE_CHECKING:
    from barnabas.broker.server import Broker
    from barnabas.config.listeners import Listener

logger = logging.getLogger("barnabas.dispatch")

_LENGTH_AND_CORRELATION = Struct(">ii")
_REQUEST_PREFIX = Struct(">hhih")
_PREFIX_BYTES = _REQUEST_PREFIX.size
_NEVER = 1 << 15


class Caller:
    """Who sent a request, how, and in which version it wants its answer."""

    __slots__ = ("api_version", "client_id", "correlation_id", "host", "listener")

    def __init__(self, header: RequestHeader, connection: Connection) -> None:
        self.api_version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.host = connection.peer[0]
        self.listener: Listener = connection.listener


Handler = Callable[["Broker", Any, Caller], Any]
FrameHandler = Callable[["Broker", Connection, int, memoryview, int], None]
"""Takes the version, the frame, and where the body begins in it; the connection knows the correlation id."""

H = TypeVar("H", bound=Handler)
F = TypeVar("F", bound=FrameHandler)


class Route:
    """One API as this node serves it."""

    __slots__ = ("api_key", "flexible_from", "frame_handler", "handler", "is_async", "max_version", "min_version")

    def __init__(
        self,
        api_key: ApiKey,
        versions: tuple[int, int],
        handler: Handler | None,
        frame_handler: FrameHandler | None,
    ) -> None:
        self.api_key = api_key
        self.min_version, self.max_version = versions
        self.handler = handler
        self.frame_handler = frame_handler
        flexible_from = APIS[api_key].flexible_from
        self.flexible_from = _NEVER if flexible_from is None else flexible_from
        self.is_async = inspect.iscoroutinefunction(handler)


ROUTES: dict[int, Route] = {}


def handles(api_key: ApiKey, *, versions: tuple[int, int]) -> Callable[[H], H]:
    """Registers a handler of decoded requests: a function, which may return a `Pending` answer, or a coroutine function
    where more has to wait than the answer."""

    def register(handler: H) -> H:
        _add_route(Route(api_key, versions, handler, None))
        return handler

    return register


def handles_frames(api_key: ApiKey, *, versions: tuple[int, int]) -> Callable[[F], F]:
    """Registers a handler that reads the request's bytes and answers the connection itself."""

    def register(handler: F) -> F:
        _add_route(Route(api_key, versions, None, handler))
        return handler

    return register


def _add_route(route: Route) -> None:
    assert route.api_key not in ROUTES, f"{route.api_key.name} has two handlers"
    ROUTES[route.api_key] = route


class Dispatcher:
    """Hands frames to handlers. One for each kind of listener: brokers and controllers serve different APIs."""

    __slots__ = ("_broker", "_routes", "_tasks")

    def __init__(self, broker: Broker, routes: dict[int, Route]) -> None:
        self._broker = broker
        self._routes = routes
        self._tasks: set[asyncio.Task[None]] = set()

    def dispatch(self, connection: Connection, frame: memoryview) -> None:
        try:
            api_key, version, correlation_id, client_id_size = _REQUEST_PREFIX.unpack_from(frame)
        except struct_error:
            raise BadRequestError(f"sent a request of {len(frame)} bytes, less than a header") from None
        connection.correlation_id = correlation_id
        route = self._routes.get(api_key)
        if route is None or not route.min_version <= version <= route.max_version:
            self._refuse_version(connection, api_key, version, correlation_id)
            return
        if route.frame_handler is None:
            self._handle_message(connection, route, frame)
            return
        body = _PREFIX_BYTES + client_id_size if client_id_size > 0 else _PREFIX_BYTES
        if version >= route.flexible_from:
            if body < len(frame) and frame[body] == 0:
                body += 1
            else:
                body = parse_request_header(frame, 0).body_offset
        route.frame_handler(self._broker, connection, version, frame, body)

    def _handle_message(self, connection: Connection, route: Route, frame: memoryview) -> None:
        header = parse_request_header(frame, 0)
        request_class = getattr(messages, APIS[header.api_key].request)
        try:
            request, _ = codec.decode_prefix(request_class, frame, header.api_version, header.body_offset)
        except codec.DecodeError as error:
            raise BadRequestError(
                f"sent a {route.api_key.name} v{header.api_version} that breaks off: {error}"
            ) from error
        caller = Caller(header, connection)
        assert route.handler is not None
        if route.is_async:
            task = asyncio.ensure_future(
                self._answer_later(connection.reserve(), header, route.handler, request, caller)
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        answer = route.handler(self._broker, request, caller)
        if isinstance(answer, Pending):
            reply_with(connection, route.api_key, header.api_version, answer)
        else:
            connection.reply_bytes(encode_reply(route.api_key, header.api_version, header.correlation_id, answer))

    async def _answer_later(
        self, slot: Slot, header: RequestHeader, handler: Handler, request: Any, caller: Caller
    ) -> None:
        try:
            # Called here, not by whoever makes the task: one that is cancelled before its first step leaves nothing.
            answer = await handler(self._broker, request, caller)
            reply = encode_reply(header.api_key, header.api_version, header.correlation_id, answer)
        except asyncio.CancelledError:
            slot.connection.close()
            raise
        except Exception:
            _answer_failed(slot, header.api_key, header.api_version, header.correlation_id)
            return
        slot.fill([reply])

    def _refuse_version(self, connection: Connection, api_key: int, version: int, correlation_id: int) -> None:
        """An unknown API or version ends the connection, except that ApiVersions answers with what there is."""
        if api_key == ApiKey.API_VERSIONS:
            from barnabas.broker.api.api_versions import unsupported_version_reply

            connection.reply_bytes(frame_reply(correlation_id, b"", unsupported_version_reply(self._routes)))
            return
        raise BadRequestError(
            f"asked for API {api_key} version {version}, which this node does not serve "
            f"(correlation id {correlation_id})"
        )

    async def close(self) -> None:
        """Ends what still waits."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def reply_with(connection: Connection, api_key: ApiKey, version: int, answer: Pending[Any]) -> None:
    """Answers the request being handled when its answer comes, which may be at once."""
    if answer.done():
        connection.reply_bytes(encode_reply(api_key, version, connection.correlation_id, answer.result()))
    else:
        slot = connection.reserve()
        answer.when_done(partial(_answer_came, slot, api_key, version, connection.correlation_id, answer))


def _answer_came(slot: Slot, api_key: ApiKey, version: int, correlation_id: int, answer: Pending[Any]) -> None:
    try:
        reply = encode_reply(api_key, version, correlation_id, answer.result())
    except Exception:
        _answer_failed(slot, api_key, version, correlation_id)
        return
    slot.fill([reply])


def _answer_failed(slot: Slot, api_key: int, version: int, correlation_id: int) -> None:
    """To be called while the exception is handled. No answer can come that the client would understand."""
    logger.exception(
        "%s: %s v%d failed in the node, correlation id %d",
        slot.connection,
        ApiKey(api_key).name,
        version,
        correlation_id,
    )
    slot.connection.close()


def encode_reply(api_key: int, version: int, correlation_id: int, response: Any) -> bytes:
    """The whole frame of an answer: length, correlation id, header tags, body. `bytes` are a body encoded before."""
    body = response if isinstance(response, bytes) else codec.encode(response, version)
    tags = b"\0" if response_header_version(api_key, version) == 1 else b""
    return frame_reply(correlation_id, tags, body)


def frame_reply(correlation_id: int, tags: bytes, body: bytes) -> bytes:
    return _LENGTH_AND_CORRELATION.pack(4 + len(tags) + len(body), correlation_id) + tags + body
