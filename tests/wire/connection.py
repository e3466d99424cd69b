"""A raw connection to a broker: frames out, frames in, nothing retried and nothing hidden."""

from __future__ import annotations

import itertools
import socket
import struct
from typing import TYPE_CHECKING, TypeVar

from barnabas.protocol import messages
from barnabas.protocol.api import APIS
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.headers import parse_response_header, write_request_header

if TYPE_CHECKING:
    from barnabas.protocol.compiler.structs import Message, Struct

    R = TypeVar("R", bound=Struct)

HOST = "127.0.0.1"
TIMEOUT_S = 30.0
CLIENT_ID = "wire-test"

_LENGTH = struct.Struct(">i")


class ClosedError(Exception):
    """The broker closed the connection."""


class Connection:
    """One client connection. Requests may be sent ahead of their answers, which come in the order of the requests."""

    def __init__(self, port: int, timeout_s: float = TIMEOUT_S) -> None:
        self.socket = socket.create_connection((HOST, port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_ids = itertools.count(1)
        self._received = bytearray()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def call(self, request: Message, version: int, response: type[R]) -> R:
        """Send a request, wait for its answer and decode it to the last byte."""
        correlation_id = self.send(request, version)
        answered, answer = self.receive(response, version)
        assert answered == correlation_id
        return answer

    def send(self, request: Message, version: int) -> int:
        correlation_id = next(self._correlation_ids)
        self.send_bytes(request_frame(request, version, correlation_id))
        return correlation_id

    def send_bytes(self, data: bytes | bytearray | memoryview) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as closed:
            raise ClosedError from closed

    def receive(self, response: type[R], version: int) -> tuple[int, R]:
        """The next answer as (correlation id, message)."""
        frame = self.receive_frame()
        correlation_id, start = parse_response_header(frame, api_key_of(response), version)
        return correlation_id, decode(response, frame, version, start)

    def receive_frame(self) -> bytes:
        (length,) = _LENGTH.unpack(self._read(4))
        return self._read(length)

    def is_closed(self) -> bool:
        """Whether the broker closes the connection, after whatever answers it still sends, before the timeout."""
        try:
            while self.socket.recv(65_536):
                pass
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        return True

    def _read(self, size: int) -> bytes:
        while len(self._received) < size:
            try:
                chunk = self.socket.recv(1 << 20)
            except ConnectionResetError as closed:
                raise ClosedError from closed
            if not chunk:
                raise ClosedError(f"{len(self._received)} of {size} bytes had come")
            self._received += chunk
        data = bytes(self._received[:size])
        del self._received[:size]
        return data


def request_frame(request: Message, version: int, correlation_id: int = 1, client_id: str | None = CLIENT_ID) -> bytes:
    """The whole frame of a request, length included."""
    out = bytearray(4)
    write_request_header(out, api_key_of(type(request)), version, correlation_id, client_id)
    out += encode(request, version)
    _LENGTH.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def frame(payload: bytes) -> bytes:
    """Any bytes with a true length in front."""
    return _LENGTH.pack(len(payload)) + payload


def api_key_of(message: type[Struct]) -> int:
    key = getattr(message, "api_key", None)
    assert isinstance(key, int), f"{message.__name__} is neither a request nor a response"
    return key


def response_of(request: type[Message]) -> type[Message]:
    response: type[Message] = getattr(messages, APIS[api_key_of(request)].response)
    return response
