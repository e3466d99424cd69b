"""Frames: cut anywhere, many in flight, too long, too short, or no frames at all."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.errors import Error
from tests.nodes import Node
from tests.peers import open_files, resident_bytes, wait_until
from tests.wire.batches import batch
from tests.wire.connection import HOST, ClosedError, Connection, frame, request_frame
from tests.wire.requests import (
    LATEST,
    REQUESTS,
    Context,
    Topic,
    fetch,
    fetch_request,
    list_offsets,
    produce,
    produce_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.protocol.compiler.structs import Message
    from tests.peers import Peer

SOCKET_REQUEST_MAX_BYTES = 104_857_600
GROWTH_MAX_BYTES = 20_000_000

API_VERSIONS = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")


def answers(connection: Connection) -> bool:
    return connection.call(API_VERSIONS, 3, m.ApiVersionsResponse).error_code == Error.NONE


def test_requests_in_flight_are_answered_in_their_order(connection: Connection, wire_topic: Topic) -> None:
    """Also where a later one could be answered first: the fetch in the middle waits for its time."""
    sent: list[tuple[int, type[Message], int]] = []
    for n in range(200):
        sent.append((connection.send(produce_request(wire_topic, batch([b"%d" % n]), 9), 9), m.ProduceResponse, 9))
        if n % 50 == 25:
            waiting = fetch_request(wire_topic, 12, offset=200, max_wait_ms=200)
            sent.append((connection.send(waiting, 12), m.FetchResponse, 12))
        sent.append((connection.send(API_VERSIONS, 3), m.ApiVersionsResponse, 3))
    for correlation_id, response, version in sent:
        assert connection.receive(response, version)[0] == correlation_id
    assert list_offsets(connection, wire_topic, LATEST).offset == 200


def test_a_request_that_comes_byte_by_byte_is_answered(connection: Connection, wire_topic: Topic) -> None:
    for byte in request_frame(produce_request(wire_topic, batch(), 12), 12, correlation_id=5):
        connection.send_bytes(bytes([byte]))
    correlation_id, answer = connection.receive(m.ProduceResponse, 12)
    assert correlation_id == 5
    assert answer.responses[0].partition_responses[0].error_code == Error.NONE


@pytest.mark.parametrize("seed", range(5))
def test_requests_cut_at_any_byte_are_answered(connection: Connection, wire_topic: Topic, seed: int) -> None:
    chance = random.Random(seed)
    frames = [
        request_frame(produce_request(wire_topic, batch([b"x" * chance.randrange(5_000)]), 12), 12, correlation_id=n)
        for n in range(50)
    ]
    stream = b"".join(frames)
    cuts = sorted(chance.randrange(len(stream)) for _ in range(100))
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        connection.send_bytes(stream[start:end])
    assert [connection.receive(m.ProduceResponse, 12)[0] for _ in range(50)] == list(range(50))
    assert list_offsets(connection, wire_topic, LATEST).offset == 50


def test_a_client_that_half_closes_still_gets_its_answers(connection: Connection, wire_topic: Topic) -> None:
    sent = [connection.send(produce_request(wire_topic, batch(), 9), 9) for _ in range(10)]
    assert [connection.receive(m.ProduceResponse, 9)[0] for _ in range(10)] == sent
    connection.socket.shutdown(socket.SHUT_WR)
    assert connection.is_closed()


def tls_client_hello() -> bytes:
    return bytes.fromhex("16030100c8010000c40303") + random.Random(1).randbytes(190)


NO_FRAMES: dict[str, Callable[[], bytes]] = {
    "a frame longer than allowed": lambda: struct.pack(">i", SOCKET_REQUEST_MAX_BYTES + 1) + bytes(100),
    "the longest length": lambda: struct.pack(">i", 2**31 - 1) + bytes(100),
    "a negative length": lambda: struct.pack(">i", -1) + bytes(100),
    "the lowest length": lambda: struct.pack(">i", -(2**31)) + bytes(100),
    "an empty frame": lambda: frame(b""),
    "a frame of one byte": lambda: frame(b"\x00"),
    "a header cut off": lambda: frame(b"\x00\x12\x00\x03\x00\x00"),
    "a TLS client hello": tls_client_hello,
    "an HTTP request": lambda: b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a client id longer than the frame": lambda: frame(b"\x00\x12\x00\x03\x00\x00\x00\x01\x7f\xff"),
    "a client id that is not UTF-8": lambda: frame(b"\x00\x03\x00\x01\x00\x00\x00\x01\x00\x02\xff\xfe\x00\x00\x00\x00"),
}


@pytest.mark.parametrize("case", NO_FRAMES)
def test_what_is_no_request_closes_that_connection_and_no_other(
    connect: Callable[[], Connection], connection: Connection, case: str
) -> None:
    assert answers(connection)
    doomed = connect()
    doomed.send_bytes(NO_FRAMES[case]())
    if case == "a client id that is not UTF-8":
        _either_closed_or_answered(doomed)
    else:
        with pytest.raises(ClosedError):
            doomed.receive_frame()
    assert answers(connection)


def test_a_connection_closed_for_what_it_sent_leaves_one_line_in_the_log(tmp_path: Path) -> None:
    """The line names the client, so that its owner can be found."""
    with Node(tmp_path / "data") as node:
        for case, make in NO_FRAMES.items():
            with Connection(node.port) as doomed:
                client = f"{HOST}:{doomed.socket.getsockname()[1]}"
                doomed.send_bytes(make())
                _either_closed_or_answered(doomed)
            lines = [line for line in node.log_text().splitlines() if client in line]
            assert len(lines) == 1 or case == "a client id that is not UTF-8", f"{case}: {lines}"
        assert "Traceback" not in node.log_text()


def _either_closed_or_answered(connection: Connection) -> None:
    """Java replaces what is not UTF-8 and goes on; to close is as good."""
    with contextlib.suppress(ClosedError):
        connection.receive_frame()


@pytest.mark.parametrize("api", REQUESTS, ids=lambda api: api.name)
def test_a_body_cut_off_at_any_byte_closes_that_connection(
    connect: Callable[[], Connection], connection: Connection, wire_topic: Topic, api: ApiKey
) -> None:
    version = APIS[api].max_version
    whole = request_frame(REQUESTS[api](Context(wire_topic, f"{wire_topic.name}-free", version, batch())), version)[4:]
    header_bytes = 8 + 2 + len("wire-test") + 1
    is_lenient = api in (ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CLUSTER)
    for end in range(header_bytes, len(whole), max(1, (len(whole) - header_bytes) // 12)):
        doomed = connect()
        doomed.send_bytes(frame(whole[:end]))
        if is_lenient:
            _either_closed_or_answered(doomed)
            continue
        with pytest.raises(ClosedError):
            doomed.receive_frame()
    assert answers(connection)
    assert list_offsets(connection, wire_topic, LATEST).offset == 0


def test_an_array_longer_than_its_frame_closes_that_connection(
    connect: Callable[[], Connection], connection: Connection, node: Peer
) -> None:
    """No memory is set aside by a length that the frame cannot hold."""
    before_bytes = resident_bytes(node.pid)
    for count in (2**31 - 1, 10_000_000, 1_000):
        doomed = connect()
        header = struct.pack(">hhih", ApiKey.METADATA, 1, 1, -1)
        doomed.send_bytes(frame(header + struct.pack(">i", count)))
        with pytest.raises(ClosedError):
            doomed.receive_frame()
    assert answers(connection)
    assert resident_bytes(node.pid) - before_bytes < GROWTH_MAX_BYTES


def test_a_client_that_never_reads_its_answers_holds_little_memory_and_no_one_else(
    connect: Callable[[], Connection], connection: Connection, node: Peer, wire_topic: Topic
) -> None:
    """Each answer is a megabyte; the broker stops reading requests when it cannot get rid of answers."""
    produce(connection, wire_topic, batch([b"x" * 1_000_000]))
    before_bytes = resident_bytes(node.pid)
    deaf = connect()
    deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    deaf.socket.settimeout(0.5)
    request = request_frame(fetch_request(wire_topic, 12), 12)
    is_blocked = False
    started = time.monotonic()
    sent_count = 0
    while not is_blocked and time.monotonic() - started < 20 and sent_count < 200_000:
        try:
            deaf.socket.sendall(request * 20)
            sent_count += 20
        except (TimeoutError, ConnectionError):
            is_blocked = True
    assert is_blocked, "the broker took requests without end from a client that reads nothing"
    assert len(fetch(connection, wire_topic).records or b"") > 1_000_000
    assert resident_bytes(node.pid) - before_bytes < GROWTH_MAX_BYTES


def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind(
    connect: Callable[[], Connection], connection: Connection, node: Peer, wire_topic: Topic
) -> None:
    before = open_files(node.pid)
    half = request_frame(produce_request(wire_topic, batch(), 12), 12)[:-10]
    for _ in range(50):
        leaving = connect()
        leaving.send_bytes(half)
        leaving.close()
    for _ in range(50):
        waiting = connect()
        waiting.send(fetch_request(wire_topic, 12, max_wait_ms=30_000), 12)
        waiting.close()
    wait_until(lambda: open_files(node.pid) <= before + 10, "the broker has closed what the clients left")
    assert list_offsets(connection, wire_topic, LATEST).offset == 0
