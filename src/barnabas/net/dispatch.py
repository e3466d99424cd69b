"""From a frame to its handler, and from the handler's answer back to the connection.

A listener serves a table of routes: one handler for each API, with the range of versions that it serves. What
ApiVersions answers is made from that table (`api_versions`), so that it cannot lie. Whatever a handler works with
(parts of the broker, the controller) is its first argument, and nothing here knows what it is.

A frame of more than `Route.whole_bytes_max` is decoded with limits, and answered in pieces where its route says how
(`large_requests`).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from copy import copy
from functools import partial
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Any

from barnabas.net.api_versions import unsupported_version_reply
from barnabas.net.connection import BadRequestError, Connection, Slot
from barnabas.net.frames import encode_reply, frame_reply, reply_head
from barnabas.net.large_requests import (
    UNIT_BYTES_MAX,
    WHOLE_BYTES_MAX,
    ClientGoneError,
    Cut,
    LargeRequest,
    TooMuchAtOnceError,
    Turns,
    encode_in_slices,
    in_pieces,
)
from barnabas.net.pending import Pending
from barnabas.protocol import codec, messages, pieces
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.headers import RequestHeader, parse_request_header

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from barnabas.net.endpoint import Listener
    from barnabas.net.large_requests import LargeHandler
    from barnabas.net.parts import Part

logger = logging.getLogger("barnabas.dispatch")

_REQUEST_PREFIX = Struct(">hhih")
_PREFIX_BYTES = _REQUEST_PREFIX.size
_NEVER = 1 << 15
ANY_SIZE = 1 << 31
"""For handlers of frames that see for themselves which requests are to be answered in pieces."""


class Caller:
    """Who sent a request, how, and in which version it wants its answer."""

    __slots__ = ("api_version", "client_id", "connection", "correlation_id", "host", "listener")

    def __init__(
        self, header: RequestHeader, host: str, listener: Listener, connection: Connection | None = None
    ) -> None:
        self.api_version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.host = host
        """Its address."""
        self.listener = listener
        self.connection = connection
        """None if the request came in another."""


Handler = Callable[[Any, Any, Caller], Any]
"""Takes what it works with, the decoded request and its caller. Returns the response, or a `Pending` one. It is a
coroutine function if it has to wait itself; then it may also return the response's body as a list of bytes."""
FrameHandler = Callable[[Any, Any, int, memoryview, int], None]
"""Reads the request's bytes and answers the connection itself. Takes what it works with, the connection (of the kind
that its listener makes), the version, the frame, and where the body begins in it; the connection knows the correlation
id."""


AnswerObserver = Callable[[int, int, Any], None]
"""Takes the API, the version, and the answer."""


class Route:
    """One API as this node serves it."""

    __slots__ = (
        "api_key",
        "cuts",
        "flexible_from",
        "frame_handler",
        "handler",
        "host",
        "is_async",
        "large_handler",
        "long_answer",
        "max_version",
        "min_version",
        "whole_bytes_max",
    )

    def __init__(
        self,
        api_key: ApiKey,
        versions: tuple[int, int],
        handler: Handler | None,
        frame_handler: FrameHandler | None = None,
        *,
        cuts: Sequence[Cut] = (),
        large_handler: LargeHandler = in_pieces,
        whole_bytes_max: int = WHOLE_BYTES_MAX,
        long_answer: str | None = None,
    ) -> None:
        self.api_key = api_key
        self.min_version, self.max_version = versions
        self.handler = handler
        """None if the frame handler copes with requests of any size."""
        self.host: Any = None
        """What the handlers work with."""
        self.frame_handler = frame_handler
        self.cuts = cuts
        self.large_handler = large_handler
        self.long_answer = long_answer
        self.whole_bytes_max = ANY_SIZE if handler is None else whole_bytes_max
        flexible_from = APIS[api_key].flexible_from
        self.flexible_from = _NEVER if flexible_from is None else flexible_from
        self.is_async = inspect.iscoroutinefunction(handler)

    def served_by(self, host: object) -> Route:
        """The same route, with what its handlers work with."""
        route = copy(self)
        route.host = host
        return route

    def cut_of(self, version: int) -> Cut | None:
        for cut in self.cuts:
            if cut.first_version <= version <= cut.last_version:
                return cut
        return None


class Dispatcher:
    """Hands frames to handlers. One for each kind of listener: brokers and controllers serve different APIs."""

    __slots__ = ("_routes", "_tasks", "_turns", "on_answer")

    def __init__(self, routes: Mapping[int, Route]) -> None:
        self._routes = routes
        self.on_answer: AnswerObserver | None = None
        """Is shown every answer that is a message, before it is encoded."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns: Turns | None = None

    def dispatch(self, connection: Connection, frame: memoryview) -> None:
        try:
            api_key, version, correlation_id, client_id_size = _REQUEST_PREFIX.unpack_from(frame)
        except struct_error:
            raise BadRequestError(f"sent a request of {len(frame)} bytes, which is too short for a header") from None
        connection.correlation_id = correlation_id
        route = self._routes.get(api_key)
        if route is None or not route.min_version <= version <= route.max_version:
            self._refuse_version(connection, api_key, version, correlation_id)
            return
        if len(frame) > route.whole_bytes_max:
            self._handle_large(connection, route, frame)
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
        try:
            route.frame_handler(route.host, connection, version, frame, body)
        except TooMuchAtOnceError:
            self._handle_large(connection, route, frame)

    def _handle_message(self, connection: Connection, route: Route, frame: memoryview) -> None:
        header = parse_request_header(frame, 0)
        request_class = getattr(messages, APIS[header.api_key].request)
        try:
            request, _ = codec.decode_prefix(request_class, frame, header.api_version, header.body_offset)
        except codec.DecodeError as error:
            raise _breaks_off(route, header, error) from error
        self._handle_request(connection, route, header, request)

    def _handle_request(self, connection: Connection, route: Route, header: RequestHeader, request: Any) -> None:
        caller = Caller(header, connection.peer[0], connection.listener, connection)
        assert route.handler is not None
        if route.is_async:
            self._start(self._answer_later(connection.reserve(), header, route, request, caller))
            return
        answer = route.handler(route.host, request, caller)
        if isinstance(answer, Pending):
            reply_with(connection, route.api_key, header.api_version, answer, self.on_answer)
        else:
            if self.on_answer is not None:
                self.on_answer(route.api_key, header.api_version, answer)
            connection.reply_bytes(encode_reply(route.api_key, header.api_version, header.correlation_id, answer))

    def _handle_large(self, connection: Connection, route: Route, frame: memoryview) -> None:
        header = parse_request_header(frame, 0)
        cut = route.cut_of(header.api_version)
        request_class = getattr(messages, APIS[header.api_key].request)
        if cut is None:
            if len(frame) > UNIT_BYTES_MAX:
                raise BadRequestError(
                    f"sent a {route.api_key.name} v{header.api_version} of {len(frame)} bytes, but the limit "
                    f"is {UNIT_BYTES_MAX}"
                )
            try:
                request = pieces.read_unit(request_class, frame, header.api_version, header.body_offset)
            except codec.DecodeError as error:
                raise _breaks_off(route, header, error) from error
            self._handle_request(connection, route, header, request)
            return
        if self._turns is None:
            self._turns = Turns(connection.server.loop)
        classes = request_class, getattr(messages, APIS[header.api_key].response)
        request = LargeRequest(connection, header, connection.hold(frame), cut, classes, self._turns)
        caller = Caller(header, connection.peer[0], connection.listener)
        self._start(self._answer_large(connection.reserve(), header, route, request, caller))

    def _start(self, answering: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(answering)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_large(
        self, slot: Slot, header: RequestHeader, route: Route, request: LargeRequest, caller: Caller
    ) -> None:
        connection = slot.connection
        assert route.handler is not None
        with request.in_the_making():
            try:
                response = await route.large_handler(route.handler, route.host, request, caller)
                if not isinstance(response, list):
                    response = reply_parts(header, request.answer.finish(response))
                slot.fill(response)
            except asyncio.CancelledError:
                connection.close()
                raise
            except ClientGoneError:
                logger.debug("%s: disconnected while a large %s was being answered", connection, route.api_key.name)
            except codec.DecodeError as error:
                connection.refuse(str(_breaks_off(route, header, error)))
            except BadRequestError as error:
                connection.refuse(f"{route.api_key.name} v{header.api_version}: {error}")
            except Exception:
                _answer_failed(slot, header.api_key, header.api_version, header.correlation_id)
        connection.let_go()

    async def _answer_later(
        self, slot: Slot, header: RequestHeader, route: Route, request: Any, caller: Caller
    ) -> None:
        assert route.handler is not None
        try:
            # Called here, not where the task is made: one that is cancelled before its first step leaves nothing.
            answer = await route.handler(route.host, request, caller)
            if self.on_answer is not None:
                self.on_answer(route.api_key, header.api_version, answer)
            if route.long_answer is not None and getattr(answer, route.long_answer):
                parts = reply_parts(header, await encode_in_slices(answer, header.api_version, route.long_answer))
            elif isinstance(answer, list):
                parts = reply_parts(header, answer)
            else:
                parts = [encode_reply(header.api_key, header.api_version, header.correlation_id, answer)]
        except asyncio.CancelledError:
            slot.connection.close()
            raise
        except BadRequestError as error:
            slot.connection.refuse(f"{route.api_key.name} v{header.api_version}: {error}")
            return
        except Exception:
            _answer_failed(slot, header.api_key, header.api_version, header.correlation_id)
            return
        slot.fill(parts)

    def _refuse_version(self, connection: Connection, api_key: int, version: int, correlation_id: int) -> None:
        """An unknown API or version ends the connection, except that ApiVersions answers with what there is."""
        if api_key == ApiKey.API_VERSIONS:
            connection.reply_bytes(frame_reply(correlation_id, b"", unsupported_version_reply(self._routes)))
            return
        raise BadRequestError(
            f"asked for API {api_key} version {version}, which this node does not serve "
            f"(correlation id {correlation_id})"
        )

    async def close(self) -> None:
        """Cancels the requests that are still being answered."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def _breaks_off(route: Route, header: RequestHeader, error: codec.DecodeError) -> BadRequestError:
    return BadRequestError(f"sent a malformed {route.api_key.name} v{header.api_version}: {error}")


class PendingSlot(Slot):
    """The place of a `Pending` answer, which learns of it when the client goes away."""

    __slots__ = ("_answer",)

    def __init__(self, connection: Connection, answer: Pending[Any]) -> None:
        super().__init__(connection)
        self._answer = answer

    def cancel(self) -> None:
        self._answer.abandon()


def reply_with(
    connection: Connection,
    api_key: ApiKey,
    version: int,
    answer: Pending[Any],
    on_answer: AnswerObserver | None = None,
) -> None:
    """Answers the request being handled when its answer comes, which may be at once."""
    if answer.done():
        if on_answer is not None:
            on_answer(api_key, version, answer.result())
        connection.reply_bytes(encode_reply(api_key, version, connection.correlation_id, answer.result()))
    else:
        slot = PendingSlot(connection, answer)
        connection.line_up(slot)
        answer.when_done(partial(_answer_came, slot, api_key, version, connection.correlation_id, answer, on_answer))


def _answer_came(
    slot: Slot,
    api_key: ApiKey,
    version: int,
    correlation_id: int,
    answer: Pending[Any],
    on_answer: AnswerObserver | None,
) -> None:
    try:
        response = answer.result()
        if on_answer is not None:
            on_answer(api_key, version, response)
        reply = encode_reply(api_key, version, correlation_id, response)
    except Exception:
        _answer_failed(slot, api_key, version, correlation_id)
        return
    slot.fill([reply])


def _answer_failed(slot: Slot, api_key: int, version: int, correlation_id: int) -> None:
    """Call it while an exception is handled. There is no answer that the client would understand."""
    logger.exception(
        "%s: %s v%d failed with an internal error, correlation id %d",
        slot.connection,
        ApiKey(api_key).name,
        version,
        correlation_id,
    )
    slot.connection.close()


def reply_parts(header: RequestHeader, body: Sequence[bytes]) -> list[Part]:
    """As `encode_reply`, of a body in parts."""
    head = reply_head(header.api_key, header.api_version, header.correlation_id, sum(map(len, body)))
    return [head, *filter(None, body)]
