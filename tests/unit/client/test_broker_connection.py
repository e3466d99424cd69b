"""The wire client against a server that plays a script: what it sends, and how it takes good and bad answers."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from barnabas.client import broker_connection as wire
from barnabas.client.broker_connection import Connection
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey, response_header_version
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOST = "127.0.0.1"
METADATA = m.MetadataRequest(topics=None)
ANSWER = m.MetadataResponse(cluster_id="a cluster", controller_id=7)


class Request(NamedTuple):
    api_key: int
    version: int
    correlation_id: int


class Peer:
    """The server's end of the connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def read(self) -> Request:
        (length,) = struct.unpack(">i", self._read_exactly(4))
        frame = self._read_exactly(length)
        api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
        return Request(api_key, version, correlation_id)

    def write(self, data: bytes) -> None:
        self.connection.sendall(data)

    def answer(self, request: Request, response: m.Message) -> None:
        self.write(framed(request, response))

    def offer(self, *ranges: tuple[int, int, int]) -> None:
        """Take an ApiVersions request and say what is spoken here: (api key, lowest, highest)."""
        self.answer(self.read(), versions_response(*ranges))

    def _read_exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.connection.recv(size - len(data))
            assert part, "the client left"
            data += part
        return data


def framed(request: Request, response: m.Message, version: int | None = None) -> bytes:
    """An answer as it travels, with the request's correlation id."""
    header_version = response_header_version(request.api_key, request.version)
    header = codec.encode(m.ResponseHeader(correlation_id=request.correlation_id), header_version)
    body = codec.encode(response, request.version if version is None else version)
    return struct.pack(">i", len(header) + len(body)) + header + body


def versions_response(*ranges: tuple[int, int, int], error: Error = Error.NONE) -> m.ApiVersionsResponse:
    keys = [
        m.ApiVersionsResponse.ApiVersion(api_key=key, min_version=lowest, max_version=highest)
        for key, lowest, highest in ranges
    ]
    return m.ApiVersionsResponse(error_code=error, api_keys=keys)


@contextlib.contextmanager
def server(script: Callable[[Peer], object]) -> Iterator[int]:
    """The port of a server that plays the script with its one client, then closes the connection."""
    failures: list[BaseException] = []

    def play() -> None:
        try:
            connection, _ = listening.accept()
            with connection:
                script(Peer(connection))
        except BaseException as failure:
            failures.append(failure)

    with socket.create_server((HOST, 0)) as listening:
        thread = threading.Thread(target=play)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            thread.join(10)
    assert not thread.is_alive()
    if failures:
        raise failures[0]


def test_the_newest_version_that_both_sides_know_is_used() -> None:
    def script(peer: Peer) -> None:
        peer.offer((ApiKey.METADATA, 1, 9))
        request = peer.read()
        assert (request.api_key, request.version) == (ApiKey.METADATA, 9)
        peer.answer(request, ANSWER)

    with server(script) as port, Connection(HOST, port) as connection:
        assert connection.send(METADATA) == ANSWER


def test_a_newer_broker_is_spoken_to_in_our_newest_version() -> None:
    ours = APIS[ApiKey.METADATA].max_version

    def script(peer: Peer) -> None:
        peer.offer((ApiKey.METADATA, 1, ours + 5))
        request = peer.read()
        assert request.version == ours
        peer.answer(request, ANSWER)

    with server(script) as port, Connection(HOST, port) as connection:
        assert connection.send(METADATA) == ANSWER


def test_versions_are_asked_for_once() -> None:
    def script(peer: Peer) -> None:
        peer.offer((ApiKey.METADATA, 0, 12))
        for _ in range(3):
            request = peer.read()
            assert request.api_key == ApiKey.METADATA
            peer.answer(request, ANSWER)

    with server(script) as port, Connection(HOST, port) as connection:
        assert [connection.send(METADATA) for _ in range(3)] == [ANSWER] * 3


def test_a_broker_that_refuses_our_api_versions_is_asked_again_in_its_own() -> None:
    def script(peer: Peer) -> None:
        refused = peer.read()
        assert refused.version == APIS[ApiKey.API_VERSIONS].max_version
        refusal = versions_response((ApiKey.API_VERSIONS, 0, 2), error=Error.UNSUPPORTED_VERSION)
        peer.write(framed(refused, refusal, version=0))
        again = peer.read()
        assert again.version == 2
        peer.answer(again, versions_response((ApiKey.API_VERSIONS, 0, 2), (ApiKey.METADATA, 0, 5)))

    with server(script) as port, Connection(HOST, port) as connection:
        assert connection.versions()[ApiKey.METADATA] == (0, 5)


def test_an_explicit_version_needs_no_negotiation() -> None:
    def script(peer: Peer) -> None:
        request = peer.read()
        assert (request.api_key, request.version) == (ApiKey.METADATA, 4)
        peer.answer(request, ANSWER)

    with server(script) as port, Connection(HOST, port) as connection:
        assert connection.send(METADATA, 4) == ANSWER


@pytest.mark.parametrize("offer", [(), ((ApiKey.METADATA, 90, 99),)], ids=["unknown API", "no common version"])
def test_an_api_that_the_broker_does_not_speak_is_named(offer: tuple[tuple[int, int, int], ...]) -> None:
    with (
        server(lambda peer: peer.offer(*offer)) as port,
        Connection(HOST, port) as connection,
        pytest.raises(wire.UnsupportedVersionError, match="Metadata"),
    ):
        connection.send(METADATA)


def test_an_answer_that_comes_byte_by_byte_is_put_together() -> None:
    def script(peer: Peer) -> None:
        data = framed(peer.read(), ANSWER)
        peer.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for position in range(len(data)):
            peer.write(data[position : position + 1])

    with server(script) as port, Connection(HOST, port) as connection:
        assert connection.send(METADATA, 12) == ANSWER


def test_many_requests_may_be_in_flight_and_are_answered_in_order() -> None:
    def script(peer: Peer) -> None:
        requests = [peer.read() for _ in range(50)]
        assert [request.correlation_id for request in requests] == list(range(50))
        peer.write(b"".join(framed(r, m.MetadataResponse(controller_id=r.correlation_id)) for r in requests))

    with server(script) as port, Connection(HOST, port) as connection:
        for _ in range(50):
            connection.send_nowait(METADATA, 12)
        assert connection.in_flight == 50
        assert [connection.receive().controller_id for _ in range(50)] == list(range(50))
        assert connection.in_flight == 0


def test_a_produce_without_acknowledgement_expects_no_answer() -> None:
    def script(peer: Peer) -> None:
        assert peer.read().api_key == ApiKey.PRODUCE
        peer.answer(peer.read(), ANSWER)

    with server(script) as port, Connection(HOST, port) as connection:
        unacknowledged = m.ProduceRequest(acks=0)
        with pytest.raises(wire.WireError, match="never answered"):
            connection.send(unacknowledged, 9)
        connection.send_nowait(unacknowledged, 9)
        assert connection.send(METADATA, 12) == ANSWER


def test_an_answer_with_another_correlation_id_is_not_taken_for_ours() -> None:
    def script(peer: Peer) -> None:
        request = peer.read()
        peer.answer(request._replace(correlation_id=request.correlation_id + 1), ANSWER)

    with server(script) as port, Connection(HOST, port) as connection:
        with pytest.raises(wire.MalformedAnswerError, match="correlation id 1, expected 0"):
            connection.send(METADATA, 12)
        with pytest.raises(wire.ConnectionLostError):
            connection.send(METADATA, 12)


@pytest.mark.parametrize("cut", [0, 2, 4, 10], ids=lambda cut: f"after {cut} bytes")
def test_a_connection_closed_in_the_middle_of_an_answer_is_lost(cut: int) -> None:
    with (
        server(lambda peer: peer.write(framed(peer.read(), ANSWER)[:cut])) as port,
        Connection(HOST, port) as connection,
        pytest.raises(wire.ConnectionLostError, match="closed the connection instead of answering Metadata v12"),
    ):
        connection.send(METADATA, 12)


@pytest.mark.parametrize("length", [-1, 0, 3, wire.RESPONSE_BYTES_MAX + 1, 0x15030100])
def test_an_impossible_length_is_refused_before_any_memory_is_taken(length: int) -> None:
    def script(peer: Peer) -> None:
        peer.read()
        peer.write(struct.pack(">i", length))

    with (
        server(script) as port,
        Connection(HOST, port) as connection,
        pytest.raises(wire.MalformedAnswerError, match=f"a response of {length} bytes"),
    ):
        connection.send(METADATA, 12)


@pytest.mark.parametrize("spoil", [lambda data: data[:-1], lambda data: data + b"\0"], ids=["too short", "too long"])
def test_an_answer_that_does_not_fill_its_frame_is_malformed(spoil: Callable[[bytes], bytes]) -> None:
    def script(peer: Peer) -> None:
        frame = spoil(framed(peer.read(), ANSWER)[4:])
        peer.write(struct.pack(">i", len(frame)) + frame)

    with (
        server(script) as port,
        Connection(HOST, port) as connection,
        pytest.raises(wire.MalformedAnswerError, match="malformed response to Metadata v12"),
    ):
        connection.send(METADATA, 12)


def test_a_broker_that_does_not_answer_in_time_is_given_up() -> None:
    given_up = threading.Event()

    def script(peer: Peer) -> None:
        peer.write(framed(peer.read(), ANSWER)[:6])
        assert given_up.wait(10)

    with server(script) as port, Connection(HOST, port) as connection:
        with pytest.raises(wire.AnswerTimeoutError, match="did not answer Metadata v12 in time"):
            connection.send(METADATA, 12, timeout_s=0.05)
        given_up.set()


def test_an_address_where_nobody_listens_is_named() -> None:
    with socket.create_server((HOST, 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(wire.ConnectError, match=f"cannot connect to {HOST}:{port}: .*refused"):
        Connection(HOST, port)


def test_the_number_of_requests_in_flight_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "IN_FLIGHT_MAX", 2)
    with server(lambda peer: [peer.read(), peer.read()]) as port, Connection(HOST, port) as connection:
        connection.send_nowait(METADATA, 12)
        connection.send_nowait(METADATA, 12)
        with pytest.raises(wire.WireError, match="2 requests are in flight"):
            connection.send_nowait(METADATA, 12)


def test_a_blocking_request_does_not_overtake_answers_that_are_due() -> None:
    with server(lambda peer: peer.read()) as port, Connection(HOST, port) as connection:
        connection.send_nowait(METADATA, 12)
        with pytest.raises(wire.WireError, match="1 earlier answers"):
            connection.send(METADATA, 12)


def test_there_is_nothing_to_receive_before_something_was_sent() -> None:
    with (
        server(lambda _: None) as port,
        Connection(HOST, port) as connection,
        pytest.raises(wire.WireError, match="no request is waiting"),
    ):
        connection.receive()


def test_only_requests_can_be_sent() -> None:
    with (
        server(lambda _: None) as port,
        Connection(HOST, port) as connection,
        pytest.raises(ValueError, match="MetadataResponse is not a request"),
    ):
        connection.send_nowait(ANSWER, 12)


def test_a_caller_may_want_no_version_newer_than_one() -> None:
    with server(lambda peer: peer.offer((ApiKey.METADATA, 1, 9))) as port, Connection(HOST, port) as connection:
        assert connection.newest_version(ApiKey.METADATA, 5) == 5
        assert connection.newest_version(ApiKey.METADATA, 12) == 9
        with pytest.raises(wire.UnsupportedVersionError, match="this client supports v0 to v0"):
            connection.newest_version(ApiKey.METADATA, 0)


def test_a_connection_is_usable_until_the_other_side_leaves_it() -> None:
    may_leave = threading.Event()
    with server(lambda _: may_leave.wait(10)) as port, Connection(HOST, port) as connection:
        assert connection.is_usable()
        may_leave.set()
        connection._socket.settimeout(10)
        assert connection._socket.recv(1, socket.MSG_PEEK) == b""
        assert not connection.is_usable()


def test_a_connection_is_usable_for_as_long_as_the_broker_accepts_its_login() -> None:
    with server(lambda peer: peer.connection.recv(1)) as port, Connection(HOST, port) as connection:
        connection.usable_until = time.monotonic() + 3_600
        assert connection.is_usable()
        connection.usable_until = time.monotonic()
        assert not connection.is_usable()


def test_a_connection_with_an_answer_to_come_is_not_taken_for_one_that_was_left() -> None:
    with server(lambda peer: peer.answer(peer.read(), ANSWER)) as port, Connection(HOST, port) as connection:
        connection.send_nowait(METADATA, 12)
        connection._socket.recv(1, socket.MSG_PEEK)
        assert connection.is_usable()
        assert connection.receive() == ANSWER
