"""A small blocking client: one connection, Kafka's messages in, Kafka's messages out.

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
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self

from barnabas.net import frames
from barnabas.net.frames import (
    LENGTH,
    TRANSIENT,
    AnswerTimeoutError,
    AuthenticationError,
    ConnectError,
    ConnectionLostError,
    Expected,
    MalformedAnswerError,
    UnsupportedVersionError,
    VersionRange,
    WireError,
    api_name,
    has_answer,
)
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from barnabas.protocol.messages import Message

__all__ = [
    "TRANSIENT",
    "AnswerTimeoutError",
    "AuthenticationError",
    "ConnectError",
    "Connection",
    "ConnectionLostError",
    "MalformedAnswerError",
    "UnsupportedVersionError",
    "VersionRange",
    "WireError",
    "api_name",
]

TIMEOUT_S: Final = 30.0
IN_FLIGHT_MAX: Final = 1_000
RESPONSE_BYTES_MAX: Final = 128 * 1024 * 1024
_SOFTWARE_VERSION: Final = "wire"
"""What brokers that keep count of their clients' software have us under."""


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
        api_key = frames.request_api_key(request)
        if version is None:
            version = self.newest_version(api_key)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = frames.next_correlation_id(correlation_id)
        frame = frames.request_frame(request, version, correlation_id, self.client_id)
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
            return frames.parse_response(frame, expected, self.address)
        except BaseException:
            self.close()
            raise

    def newest_version(self, api_key: int, at_most: int | None = None) -> int:
        """The newest version of an API that both sides know, or the newest up to one that the caller can use."""
        return frames.newest_version(api_key, self.versions(), self.address, at_most=at_most)

    def versions(self) -> dict[int, VersionRange]:
        """What the broker speaks, by API key; asked for once per connection."""
        if self._versions is None:
            request = frames.api_versions_request(_SOFTWARE_VERSION)
            response = self.send(request, APIS[ApiKey.API_VERSIONS].max_version)
            if response.error_code == Error.UNSUPPORTED_VERSION:
                response = self.send(request, frames.offered_api_versions(response))
            self._versions = frames.offered_versions(response, self.address)
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
        (length,) = LENGTH.unpack(self._read_exactly(LENGTH.size, expected, deadline))
        frames.check_response_length(length, RESPONSE_BYTES_MAX, self.address, expected)
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
                raise AnswerTimeoutError(f"{self.address} did not answer {expected} in time") from None
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
