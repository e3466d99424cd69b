"""How many requests of each API and version came, how long they took, and which errors they were answered with.

A `RequestMeter` stands between a listener and its dispatcher (`ListenerServers.put_in_front`), so a node that nobody
watches pays nothing. Every request is counted. Of each API, some `TIMED_PER_SECOND` are timed, each of which then
stands for those since the one before it: at low rates that is every request.

Kafka divides the time of a request into phases, and dashboards know them by these names. Here a request is handled in
the moment in which it is read, so that it waits for its turn only while others of the same wake-up are handled. What it
waits for after that (replicas, more records, other members) is *remote*; the *response queue* is the line of answers
before it on its connection, and *sending* ends when the socket has taken the last byte.
"""

from __future__ import annotations

import functools
import re
import time
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from barnabas.metrics.histogram import Histogram
from barnabas.protocol.api import ApiKey
from barnabas.protocol.compiler.schema import message_schema
from barnabas.protocol.compiler.structs import Message
from barnabas.protocol.errors import DecodeError, Error
from barnabas.protocol.headers import parse_request_header

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.net.connection import Connection, FrameHandler
    from barnabas.protocol.compiler.schema import StructSchema

TIMED_PER_SECOND: Final = 200
TIMED_EVERY_NS: Final = 1_000_000_000 // TIMED_PER_SECOND
MASK_MAX: Final = 4_095
CODES_MAX: Final = 1_000
"""How many error codes of one answer are counted."""
NO_API: Final = -1
FOLLOWER_ID: Final = re.compile(r"broker-\d+-fetcher-\d+")
"""The client id under which a broker copies from another, here as in Kafka."""
API_KEYS: Final = frozenset(map(int, ApiKey))
PHASES: Final = (
    "RequestQueueTimeMs",
    "LocalTimeMs",
    "RemoteTimeMs",
    "ThrottleTimeMs",
    "ResponseQueueTimeMs",
    "ResponseSendTimeMs",
    "TotalTimeMs",
)

_KEY: Final = Struct(">i")
"""API key and version at the head of a frame, as one number."""


class PhaseTimes:
    """The histograms of one API."""

    __slots__ = ("local", "queue", "remote", "response_queue", "send", "throttle", "total")

    def __init__(self) -> None:
        self.queue = Histogram()
        self.local = Histogram()
        self.remote = Histogram()
        self.throttle = Histogram()
        self.response_queue = Histogram()
        self.send = Histogram()
        self.total = Histogram()

    def by_phase(self) -> tuple[Histogram, ...]:
        """In the order of `PHASES`."""
        return self.queue, self.local, self.remote, self.throttle, self.response_queue, self.send, self.total


class RequestTiming:
    """One timed request on its way, from the moment in which it was read."""

    __slots__ = ("_answered_ns", "_handled_ns", "_left_ns", "_read_ns", "_started_ns", "_times", "_weight")

    def __init__(self, times: PhaseTimes, weight: int, read_ns: int, started_ns: int, handled_ns: int) -> None:
        self._times = times
        self._weight = weight
        self._read_ns = read_ns
        self._started_ns = started_ns
        self._handled_ns = handled_ns
        self._answered_ns = handled_ns
        self._left_ns = handled_ns

    def answered(self) -> None:
        """Its answer is there."""
        self._answered_ns = self._left_ns = time.perf_counter_ns()

    def left(self) -> None:
        """All answers before it are on their way."""
        self._left_ns = time.perf_counter_ns()

    def sent(self) -> None:
        """The socket has taken the answer."""
        now = time.perf_counter_ns()
        times, weight = self._times, self._weight
        times.queue.add(self._started_ns - self._read_ns, weight)
        times.local.add(self._handled_ns - self._started_ns, weight)
        times.remote.add(self._answered_ns - self._handled_ns, weight)
        times.throttle.add(0, weight)
        times.response_queue.add(self._left_ns - self._answered_ns, weight)
        times.send.add(now - self._left_ns, weight)
        times.total.add(now - self._read_ns, weight)


class RequestKind:
    """One version of one API: how often it was asked for, and when the next request is timed."""

    __slots__ = ("count", "mask", "timed_ns")

    def __init__(self) -> None:
        self.count = 0
        self.mask = 0
        """Requests whose number has none of these bits are timed: all, every second, every fourth …"""
        self.timed_ns = 0

    def timed(self, now: int) -> int:
        """One is timed now. Returns how many it stands for, and chooses the next."""
        weight = self.mask + 1
        elapsed, self.timed_ns = now - self.timed_ns, now
        if elapsed < TIMED_EVERY_NS:
            self.mask = min(2 * self.mask + 1, MASK_MAX)
        elif elapsed > 2 * TIMED_EVERY_NS:
            self.mask >>= 1
        return weight


class RequestMeter:
    """The figures of all listeners of one event loop. Written to by that loop alone, read by any thread."""

    def __init__(self) -> None:
        self.kinds: dict[int, RequestKind] = {}
        """By API key and version as `api_and_version` splits it."""
        self.errors: dict[tuple[int, int], int] = {}
        """Answers, or parts of them, by API key and error code."""
        self.times: dict[str, PhaseTimes] = {}
        """By the name that Kafka gives a kind of request: consumers' and followers' fetches are two."""

    def in_front_of(self, dispatch: FrameHandler) -> FrameHandler:
        """What handles frames in place of `dispatch`, which it hands them to."""
        kinds, key_of = self.kinds, _KEY.unpack_from

        def handle(connection: Connection, frame: memoryview) -> None:
            if len(frame) < _KEY.size:
                dispatch(connection, frame)
                return
            key = key_of(frame)[0]
            kind = kinds.get(key)
            if kind is None:
                if key >> 16 not in API_KEYS:
                    dispatch(connection, frame)
                    return
                kind = kinds[key] = RequestKind()
            kind.count += 1
            if kind.count & kind.mask:
                dispatch(connection, frame)
            else:
                self._time(connection, frame, dispatch, key, kind)

        return handle

    def _time(
        self, connection: Connection, frame: memoryview, dispatch: FrameHandler, key: int, kind: RequestKind
    ) -> None:
        api_key, _ = api_and_version(key)
        # Read before the handler runs: it may change the frame.
        client_id = client_id_of(frame) if api_key == ApiKey.FETCH else None
        waiting = connection.newest_slot
        started = time.perf_counter_ns()
        weight = kind.timed(started)
        dispatch(connection, frame)
        handled = time.perf_counter_ns()
        if connection.is_closed:
            return
        name = kind_of(api_key, client_id)
        times = self.times.get(name)
        if times is None:
            times = self.times[name] = PhaseTimes()
        timing = RequestTiming(times, weight, min(connection.server.read_ns, started), started, handled)
        slot = connection.newest_slot
        if slot is not None and slot is not waiting:
            slot.timing = timing
        else:
            connection.time_sending(timing)

    def answered(self, api_key: int, version: int, answer: Any) -> None:
        """Counts the errors of an answer, each part for itself, `NONE` among them."""
        for code in error_codes(answer, version):
            self.count_error(api_key, code)

    def count_error(self, api_key: int, code: int) -> None:
        self.errors[api_key, code] = self.errors.get((api_key, code), 0) + 1

    def turn_over(self) -> None:
        """Forget durations that are no longer recent. May be called by another thread."""
        for times in list(self.times.values()):
            for histogram in times.by_phase():
                histogram.turn_over()


_NAMES: Final = {int(key): "".join(word.capitalize() for word in key.name.split("_")) for key in ApiKey}


def request_name(api_key: int) -> str:
    """`Produce`, `ApiVersions`, `AddPartitionsToTxn`, as Kafka's metrics call requests."""
    return _NAMES.get(api_key, str(api_key))


def kind_of(api_key: int, client_id: str | None) -> str:
    """The same, with the fetches of followers apart from those of consumers, by what brokers call themselves there."""
    if api_key != ApiKey.FETCH:
        return request_name(api_key)
    return "FetchFollower" if client_id is not None and FOLLOWER_ID.fullmatch(client_id) else "FetchConsumer"


def client_id_of(frame: memoryview) -> str | None:
    try:
        return parse_request_header(frame, 0).client_id
    except DecodeError:
        return None


def api_and_version(key: int) -> tuple[int, int]:
    return key >> 16, key & 0xFFFF


def error_codes(answer: Any, version: int) -> Iterable[int]:
    """The error codes in an answer, as many as are looked at. One that was encoded before has been a success."""
    if not isinstance(answer, Message):
        return (Error.NONE,)
    found: list[int] = []
    for path in paths_of(type(answer).__name__, version):
        gather(answer, path, found)
        if len(found) >= CODES_MAX:
            break
    return found


def gather(value: Any, path: tuple[str, ...], found: list[int]) -> None:
    for depth, name in enumerate(path):
        value = getattr(value, name, None)
        if value is None:
            return
        if isinstance(value, list):
            rest = path[depth + 1 :]
            for each in value[:CODES_MAX]:
                gather(each, rest, found)
            return
    found.append(int(value))


@functools.cache
def paths_of(message: str, version: int) -> tuple[tuple[str, ...], ...]:
    """Where answers of this kind have error codes in this version."""
    schema = message_schema(message)

    def paths(struct: StructSchema, before: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for field in struct.fields:
            if not field.versions.covers(version):
                continue
            if field.attribute == "error_code":
                yield (*before, field.attribute)
            elif field.is_struct:
                yield from paths(schema.structs[field.type], (*before, field.attribute))

    return tuple(paths(schema.root, ()))
