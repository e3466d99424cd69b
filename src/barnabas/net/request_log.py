"""Requests in the log of the node: all of them, or those that took long, with who asked and where the time went.

A `RequestLog` stands between a listener and its dispatcher, before the meter that counts (`net/request_metrics`), and
only while `barnabas.request.log.ms` asks for it: a node that is not to log requests pays nothing. Each line has the
correlation id, by which the client's own log names the request. In a log of JSON lines (`--log-format json`), what the
line says is in fields as well, under the names that Kafka's request log has.
"""

from __future__ import annotations

import logging
from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from barnabas.net.request_metrics import API_KEYS, request_name
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.headers import parse_request_header

if TYPE_CHECKING:
    from barnabas.net.connection import Connection, FrameHandler, Timing
    from barnabas.protocol.headers import RequestHeader

logger = logging.getLogger("barnabas.request")

WAIT_AS_ASKED: Final = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""Clients ask for answers that come later, when there are records or all members: what these wait for is not slow."""
_API_KEY: Final = Struct(">h")


class RequestLog:
    """Logs requests that take so long, or longer."""

    def __init__(self, threshold_ms: int) -> None:
        self._threshold_ns = threshold_ms * 1_000_000

    def in_front_of(self, dispatch: FrameHandler) -> FrameHandler:
        """What handles frames in place of `dispatch`, which it hands them to."""

        def handle(connection: Connection, frame: memoryview) -> None:
            # Read before the handler runs: it may change the frame.
            header = header_of(frame)
            size = len(frame)
            waiting = connection.newest_slot
            started_ns = perf_counter_ns()
            dispatch(connection, frame)
            if header is None or connection.is_closed:
                return
            request = LoggedRequest(
                connection, header, size, min(connection.server.read_ns, started_ns), started_ns, self._threshold_ns
            )
            slot = connection.newest_slot
            if slot is not None and slot is not waiting:
                request.also = slot.timing
                slot.timing = request
            else:
                connection.time_sending(request)

        return handle


class LoggedRequest:
    """One request on its way, from the moment in which it was read."""

    __slots__ = (
        "_answered_ns",
        "_connection",
        "_handled_ns",
        "_header",
        "_left_ns",
        "_read_ns",
        "_size",
        "_started_ns",
        "_threshold_ns",
        "also",
    )

    def __init__(
        self,
        connection: Connection,
        header: RequestHeader,
        size: int,
        read_ns: int,
        started_ns: int,
        threshold_ns: int,
    ) -> None:
        self._connection = connection
        self._header = header
        self._size = size
        self._read_ns = read_ns
        self._started_ns = started_ns
        self._handled_ns = self._answered_ns = self._left_ns = perf_counter_ns()
        self._threshold_ns = threshold_ns
        self.also: Timing | None = None
        """Who else wants to know of the answer."""

    def answered(self) -> None:
        self._answered_ns = self._left_ns = perf_counter_ns()
        if self.also is not None:
            self.also.answered()

    def left(self) -> None:
        self._left_ns = perf_counter_ns()
        if self.also is not None:
            self.also.left()

    def sent(self) -> None:
        now_ns = perf_counter_ns()
        if self.also is not None:
            self.also.sent()
        slow_ns = now_ns - self._read_ns
        if self._header.api_key in WAIT_AS_ASKED and self._threshold_ns:
            slow_ns -= self._answered_ns - self._handled_ns
        if slow_ns >= self._threshold_ns:
            self._log(now_ns)

    def _log(self, now_ns: int) -> None:
        header, connection = self._header, self._connection
        times = {
            "totalTimeMs": milliseconds(now_ns - self._read_ns),
            "requestQueueTimeMs": milliseconds(self._started_ns - self._read_ns),
            "localTimeMs": milliseconds(self._handled_ns - self._started_ns),
            "remoteTimeMs": milliseconds(self._answered_ns - self._handled_ns),
            "responseQueueTimeMs": milliseconds(self._left_ns - self._answered_ns),
            "sendTimeMs": milliseconds(now_ns - self._left_ns),
        }
        logger.info(
            "%s v%d, correlation id %d, client %s at %s:%d on %s, %d bytes: %s ms "
            "(queue %s, local %s, remote %s, response queue %s, send %s)",
            request_name(header.api_key),
            header.api_version,
            header.correlation_id,
            header.client_id,
            *connection.peer,
            connection.listener.name,
            self._size,
            *times.values(),
            extra={
                "fields": {
                    "requestApiKeyName": request_name(header.api_key),
                    "requestApiVersion": header.api_version,
                    "correlationId": header.correlation_id,
                    "clientId": header.client_id,
                    "connection": f"{connection.peer[0]}:{connection.peer[1]}",
                    "listener": connection.listener.name,
                    "requestBytes": self._size,
                    **times,
                }
            },
        )


def header_of(frame: memoryview) -> RequestHeader | None:
    """None for what is no request; its connection is closed by whoever handles it."""
    if len(frame) < _API_KEY.size or _API_KEY.unpack_from(frame)[0] not in API_KEYS:
        return None
    try:
        return parse_request_header(frame, 0)
    except DecodeError:
        return None


def milliseconds(duration_ns: int) -> float:
    return round(duration_ns / 1e6, 3)
