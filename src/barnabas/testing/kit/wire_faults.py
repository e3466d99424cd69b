"""Faults at the listeners of a node: what comes in waits, is answered with an error, or is never acknowledged.

They hit what clients send. What other nodes send, which name themselves in their requests, goes through, so that a
cluster stays a cluster. While there is no fault, nothing stands between a frame and its handler.
"""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.net.connection import BadRequestError
from barnabas.net.frames import LENGTH, encode_reply, has_answer
from barnabas.net.parts import FilePart
from barnabas.protocol import codec, messages
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.errors import Error
from barnabas.protocol.headers import parse_request_header, parse_response_header
from barnabas.testing.kit.error_answers import error_answer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from barnabas.net.connection import Connection, Slot
    from barnabas.net.parts import Part
    from barnabas.node.listener_servers import ListenerServers
    from barnabas.protocol.headers import RequestHeader

    Next = Callable[[Connection, memoryview], None]

logger = logging.getLogger("barnabas.faults")

_NODE: Final = re.compile(r"(?:broker|raft-client|controller)-\d+\b")
_LOOK_S: Final = 0.002
"""How often it is looked whether an answer that is to be dropped is there."""


class WireFault(Protocol):
    def concerns(self, header: RequestHeader) -> bool: ...

    def strike(self, connection: Connection, header: RequestHeader, frame: memoryview, go_on: Next) -> bool:
        """Does what it does, and returns True; or returns False, and the request goes on as if there were no fault.
        `go_on` hands a request to the next fault, or to its handler."""
        ...


class WireFaults:
    """Those of one node, on the loop of its listeners."""

    def __init__(self, servers: ListenerServers) -> None:
        self._servers = servers
        self._faults: tuple[WireFault, ...] = ()

    def add(self, fault: WireFault) -> None:
        self._change((*self._faults, fault))

    def remove(self, fault: WireFault) -> None:
        self._change(tuple(each for each in self._faults if each is not fault))

    def _change(self, faults: tuple[WireFault, ...]) -> None:
        self._faults = faults
        self._servers.put_in_front(self._intercept if faults else None)

    def _intercept(self, connection: Connection, frame: memoryview) -> None:
        self._pass(self._faults, connection, frame)

    def _pass(self, faults: Sequence[WireFault], connection: Connection, frame: memoryview) -> None:
        header = parse_request_header(frame, 0)
        if is_from_client(header):
            for at, fault in enumerate(faults):
                if not fault.concerns(header):
                    continue
                go_on = partial(self._pass, faults[at + 1 :])
                if fault.strike(connection, header, frame, go_on):
                    return
        self._servers.handle_frame(connection, frame)


def is_from_client(header: RequestHeader) -> bool:
    """Whether a request that can be read comes from a client."""
    api = APIS.get(header.api_key)
    is_known = api is not None and api.min_version <= header.api_version <= api.max_version
    return is_known and not _NODE.match(header.client_id or "")


class Delay:
    """Each request waits before it is handled, and those behind it on its connection wait with it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, api_key: ApiKey | None, count: Callable[[], bool]
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._api_key = api_key
        self._count = count

    def concerns(self, header: RequestHeader) -> bool:
        return self._api_key is None or header.api_key == self._api_key

    def strike(self, connection: Connection, header: RequestHeader, frame: memoryview, go_on: Next) -> bool:  # noqa: ARG002
        if not self._count():
            return False
        held = connection.hold(frame)
        self._loop.call_later(self._seconds, self._resume, connection, held, go_on)
        return True

    def _resume(self, connection: Connection, held: memoryview, go_on: Next) -> None:
        if connection.is_closed:
            return
        frame = memoryview(bytearray(held))
        connection.let_go()  # which has the connection flushed and read again, but not before this turn is over
        try:
            go_on(connection, frame)
        except (BadRequestError, codec.DecodeError) as error:
            connection.refuse(str(error))
        except Exception:
            logger.exception("%s: closed after an internal error in a request that was delayed", connection)
            connection.close()


class ErrorAnswer:
    """Requests of one API are answered with an error, and not carried out."""

    def __init__(self, api_key: ApiKey, error: Error, count: Callable[[], bool]) -> None:
        self._api_key = api_key
        self._error = error
        self._count = count

    def concerns(self, header: RequestHeader) -> bool:
        return header.api_key == self._api_key

    def strike(self, connection: Connection, header: RequestHeader, frame: memoryview, go_on: Next) -> bool:  # noqa: ARG002
        if not self._count():
            return False
        request = decode(header, frame)
        try:
            answer = error_answer(request, header.api_version, self._error)
        except ValueError as error:
            raise BadRequestError(f"cannot be answered as the test wants: {error}") from None
        connection.correlation_id = header.correlation_id
        if has_answer(request):
            connection.reply_bytes(encode_reply(header.api_key, header.api_version, header.correlation_id, answer))
        return True


class LostAcknowledgement:
    """A Produce is carried out. When its answer is there, and says that something was written, the connection is closed
    instead."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: Callable[[], bool]) -> None:
        self._loop = loop
        self._count = count

    def concerns(self, header: RequestHeader) -> bool:
        return header.api_key == ApiKey.PRODUCE

    def strike(self, connection: Connection, header: RequestHeader, frame: memoryview, go_on: Next) -> bool:
        if not has_answer(decode(header, frame)):
            return False
        # Whatever is answered from now on stays behind this place until it is known what that is.
        self._look(connection, header, connection.reserve())
        go_on(connection, frame)
        return True

    def _look(self, connection: Connection, header: RequestHeader, place: Slot) -> None:
        reply = connection.reply_behind(place)
        if connection.is_closed:
            return
        if reply is None:
            self._loop.call_later(_LOOK_S, self._look, connection, header, place)
        elif acknowledges(reply, header) and self._count():
            connection.close()
        else:
            place.fill([])


def acknowledges(reply: Sequence[Part], header: RequestHeader) -> bool:
    """Whether the answer to a Produce says of any partition that records were written."""
    frame = memoryview(b"".join(part for part in reply if not isinstance(part, FilePart)))[LENGTH.size :]
    _, body = parse_response_header(frame, header.api_key, header.api_version)
    response, _ = codec.decode_prefix(messages.ProduceResponse, frame, header.api_version, body)
    return any(each.error_code == Error.NONE for topic in response.responses for each in topic.partition_responses)


def decode(header: RequestHeader, frame: memoryview) -> Any:
    request_class = getattr(messages, APIS[header.api_key].request)
    request, _ = codec.decode_prefix(request_class, frame, header.api_version, header.body_offset)
    return request
