"""A small blocking client on `protocol/`: one connection, Kafka's messages in, Kafka's messages out.

    with Connection("127.0.0.1", 9092) as connection:
        response = connection.send(m.MetadataRequest(topics=None))

It is for traffic that librdkafka has no call for, and for programs that must see the messages themselves. It does no
retries, no routing and no metadata: the caller knows which broker it talks to. Without an explicit version a request
leaves in the newest one that both sides know, which the first such request asks for by ApiVersions.

A broker answers the requests of a connection in their order, so many may be under way: `send_nowait` sends, `receive`
takes the next answer. Any failure leaves the stream in an unknown state and closes the connection.
"""

from __future__ import annotations

import math
import select
import socket
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.errors import Error
from barnabas.protocol.headers import parse_response_header, write_request_header

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from barnabas.protocol.messages import Message

TIMEOUT_S: Final = 30.0
IN_FLIGHT_MAX: Final = 1_000
RESPONSE_BYTES_MAX: Final = 128 * 1024 * 1024
CORRELATION_ID_MAX: Final = (1 << 31) - 1

_LENGTH: Final = struct.Struct(">i")
_FIRST_API_VERSIONS: Final = 0
"""The version in which a broker refuses an ApiVersions request that is newer than it knows."""


class WireError(Exception):
    """Something failed on a connection; the text says to whom, in which request, and what."""


class ConnectError(WireError):
    """Nobody answers at the address."""


class ConnectionLostError(WireError):
    """The other side closed or reset the connection, as a broker does with a request that it cannot read."""


class AnswerTimeoutError(WireError):
    """No whole answer within the time allowed."""


class MalformedAnswerError(WireError):
    """The answer is not what the protocol says: wrong correlation id, impossible length, undecodable body."""


class UnsupportedVersionError(WireError):
    """The two sides have no version of this API in common."""


class AuthenticationError(WireError):
    """The two sides do not trust each other: a certificate, a password or a mechanism is not accepted."""


TRANSIENT: Final = (ConnectError, ConnectionLostError, AnswerTimeoutError)
"""Failures that a new connection may not meet, once a broker is back."""


class VersionRange(NamedTuple):
    lowest: int
    highest: int


class Expected(NamedTuple):
    """An answer that is due: which request it belongs to, and how it is to be read."""

    correlation_id: int
    api_key: int
    version: int


class Connection:
    """One TCP connection to one broker. Not for use by several threads at once."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "barnabas",
        timeout_s: float = TIMEOUT_S,
        secure: Callable[[socket.socket], socket.socket] | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.usable_until = math.inf
        """When, by the monotonic clock, the broker stops accepting requests here."""
        self._expected: deque[Expected] = deque()
        self._next_correlation_id = 0
        self._versions: dict[int, VersionRange] | None = None
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise ConnectError(f"cannot connect to {self.address}: {error.strerror or error}") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if secure is not None:
                self._socket = secure(self._socket)
        except BaseException:
            self._socket.close()
            raise

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def in_flight(self) -> int:
        """How many answers are due."""
        return len(self._expected)

    def send(self, request: Message, version: int | None = None, *, timeout_s: float | None = None) -> Any:
        """Send one request and wait for its answer."""
        if self._expected:
            raise WireError(f"{self.address}: {len(self._expected)} earlier answers have not been received yet")
        if not has_answer(request):
            raise WireError("a Produce request with acks=0 is never answered: use send_nowait")
        self.send_nowait(request, version)
        return self.receive(timeout_s)

    def send_nowait(self, request: Message, version: int | None = None) -> int:
        """Send one request without waiting; returns its correlation id. Its answer is for `receive` to take."""
        if len(self._expected) >= IN_FLIGHT_MAX:
            raise WireError(f"{self.address}: {IN_FLIGHT_MAX} requests are in flight; receive answers first")
        api_key = request_api_key(request)
        if version is None:
            version = self.newest_version(api_key)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = 0 if correlation_id == CORRELATION_ID_MAX else correlation_id + 1
        frame = request_frame(request, version, correlation_id, self.client_id)
        try:
            self._socket.settimeout(self.timeout_s)
            self._socket.sendall(frame)
        except TimeoutError:
            self.close()
            raise AnswerTimeoutError(
                f"{self.address} took no {api_name(api_key)} request of {len(frame)} bytes in {self.timeout_s} s"
            ) from None
        except OSError as error:
            self.close()
            raise ConnectionLostError(
                f"{self.address}: sending {api_name(api_key)} v{version} failed: {error}"
            ) from error
        if has_answer(request):
            self._expected.append(Expected(correlation_id, api_key, version))
        return correlation_id

    def receive(self, timeout_s: float | None = None) -> Any:
        """The answer to the oldest request that has none yet."""
        if not self._expected:
            raise WireError(f"{self.address}: no request is waiting for an answer")
        expected = self._expected.popleft()
        try:
            frame = self._read_frame(expected, self.timeout_s if timeout_s is None else timeout_s)
            return parse_response(frame, expected, self.address)
        except BaseException:
            self.close()
            raise

    def newest_version(self, api_key: int, at_most: int | None = None) -> int:
        """The newest version of an API that both sides know, or the newest up to one that the caller can use."""
        ours = APIS[api_key]
        newest = ours.max_version if at_most is None else min(at_most, ours.max_version)
        theirs = self.versions().get(api_key)
        if theirs is None:
            raise UnsupportedVersionError(f"{self.address} does not know {api_name(api_key)}")
        version = min(newest, theirs.highest)
        if version < max(ours.min_version, theirs.lowest):
            raise UnsupportedVersionError(
                f"{self.address} speaks {api_name(api_key)} {theirs.lowest} to {theirs.highest}, "
                f"this client {ours.min_version} to {newest}"
            )
        return version

    def versions(self) -> dict[int, VersionRange]:
        """What the broker speaks, by API key; asked for once per connection."""
        if self._versions is None:
            response = self.send(api_versions_request(), APIS[ApiKey.API_VERSIONS].max_version)
            if response.error_code == Error.UNSUPPORTED_VERSION:
                response = self.send(api_versions_request(), offered_api_versions(response))
            if response.error_code != Error.NONE:
                raise UnsupportedVersionError(f"{self.address} refused ApiVersions: error {response.error_code}")
            self._versions = {key.api_key: VersionRange(key.min_version, key.max_version) for key in response.api_keys}
        return self._versions

    def is_usable(self) -> bool:
        """Whether it makes sense to send: nothing has failed here, and the other side has not left meanwhile.

        Brokers close connections that are idle for long. When no answer is due, something to read can only be that.
        """
        if self._socket.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if self._expected or (time.monotonic() < self.usable_until and not poll.poll(0)):
            return True
        self.close()
        return False

    def close(self) -> None:
        self._socket.close()
        self._expected.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_frame(self, expected: Expected, timeout_s: float) -> memoryview:
        deadline = time.monotonic() + timeout_s
        (length,) = _LENGTH.unpack(self._read_exactly(_LENGTH.size, expected, deadline))
        if not _LENGTH.size <= length <= RESPONSE_BYTES_MAX:
            raise MalformedAnswerError(
                f"{self.address} announced an answer of {length} bytes to {api_name(expected.api_key)} "
                f"(allowed: {_LENGTH.size} to {RESPONSE_BYTES_MAX}); is this a Kafka listener, and one without TLS?"
            )
        return self._read_exactly(length, expected, deadline)

    def _read_exactly(self, size: int, expected: Expected, deadline: float) -> memoryview:
        buffer = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            try:
                # A timeout of 0 would make the socket non-blocking, which is another thing than "no time left".
                self._socket.settimeout(max(deadline - time.monotonic(), 1e-6))
                received = self._socket.recv_into(buffer[filled:])
            except TimeoutError:
                raise AnswerTimeoutError(
                    f"{self.address} did not answer {api_name(expected.api_key)} v{expected.version} in time"
                ) from None
            except OSError as error:
                raise ConnectionLostError(
                    f"{self.address}: waiting for the answer to {api_name(expected.api_key)} "
                    f"v{expected.version} failed: {error}"
                ) from error
            if received == 0:
                raise ConnectionLostError(
                    f"{self.address} closed the connection instead of answering {api_name(expected.api_key)} "
                    f"v{expected.version}"
                )
            filled += received
        return buffer


def request_frame(request: Message, version: int, correlation_id: int, client_id: str) -> bytes:
    """A request as it travels: length, header, body."""
    frame = bytearray(_LENGTH.size)
    write_request_header(frame, request_api_key(request), version, correlation_id, client_id)
    codec.writer(type(request), version)(request, frame)
    _LENGTH.pack_into(frame, 0, len(frame) - _LENGTH.size)
    return bytes(frame)


def parse_response(frame: memoryview, expected: Expected, address: str) -> Any:
    """The answer in a frame (without its length), checked to be the one that is due."""
    name = api_name(expected.api_key)
    try:
        correlation_id, position = parse_response_header(frame, expected.api_key, expected.version)
        if correlation_id != expected.correlation_id:
            raise MalformedAnswerError(
                f"{address} answered {name} with correlation id {correlation_id}, {expected.correlation_id} was due"
            )
        response_class = getattr(m, APIS[expected.api_key].response)
        return codec.decode(response_class, frame, answer_version(frame, position, expected), position)
    except codec.DecodeError as error:
        raise MalformedAnswerError(
            f"{address}: the answer to {name} v{expected.version} is malformed: {error}"
        ) from error


def answer_version(frame: memoryview, position: int, expected: Expected) -> int:
    """The version an answer is written in: the request's, except where a broker refuses an ApiVersions request."""
    if expected.api_key == ApiKey.API_VERSIONS:
        error_code = int.from_bytes(frame[position : position + 2], "big", signed=True)
        if error_code == Error.UNSUPPORTED_VERSION:
            return _FIRST_API_VERSIONS
    return expected.version


def api_versions_request() -> m.ApiVersionsRequest:
    return m.ApiVersionsRequest(client_software_name="barnabas", client_software_version="wire")


def offered_api_versions(refusal: m.ApiVersionsResponse) -> int:
    """The version of ApiVersions that a broker, refusing ours, says it speaks; an old one says nothing."""
    for key in refusal.api_keys:
        if key.api_key == ApiKey.API_VERSIONS:
            return min(key.max_version, APIS[ApiKey.API_VERSIONS].max_version)
    return _FIRST_API_VERSIONS


def has_answer(request: Message) -> bool:
    """Every request is answered, except a Produce that asked for no acknowledgement."""
    return not (isinstance(request, m.ProduceRequest) and request.acks == 0)


def request_api_key(request: Message) -> int:
    name, api_key = type(request).__name__, request.api_key
    if api_key is None or api_key not in APIS or APIS[api_key].request != name:
        raise ValueError(f"{name} is not a request")
    return api_key


def api_name(api_key: int) -> str:
    return APIS[api_key].request.removesuffix("Request")
