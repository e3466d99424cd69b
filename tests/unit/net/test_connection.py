"""A connection over real sockets: frames in any cut, replies in order, limits that hold."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from typing import TYPE_CHECKING

import pytest

from barnabas.net.connection import BACKLOG_BYTES, MAX_IN_FLIGHT, Connection, Slot
from barnabas.net.endpoint import Listener
from barnabas.net.listener import ConnectionCensus, ConnectionLimits, ListenerServer
from barnabas.ports import SocketBuffers, SystemNetwork
from barnabas.protocol.codec import DecodeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

UNLIMITED = 2**31 - 1


def echo(connection: Connection, frame: memoryview) -> None:
    connection.reply_bytes(framed(bytes(frame)))


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Served:
    """A listener with a handler of the test's own, and clients to talk to it."""

    def __init__(
        self,
        handler: Callable[[Connection, memoryview], None],
        census: ConnectionCensus | None = None,
        *,
        is_protected: bool = False,
        **limits: int,
    ) -> None:
        self.server = ListenerServer(
            asyncio.get_running_loop(),
            SystemNetwork(),
            Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 0),
            handler,
            ConnectionLimits(
                limits.get("total", UNLIMITED), limits.get("per_ip", UNLIMITED), {}, limits.get("idle_seconds", 600)
            ),
            ConnectionCensus() if census is None else census,
            max_connections=UNLIMITED,
            max_frame_bytes=limits.get("max_frame_bytes", 8 * 1024 * 1024),
            max_buffered_bytes=limits.get("max_buffered_bytes", -1),
            socket_buffers=SocketBuffers(send_bytes=limits.get("send_buffer_bytes", -1)),
            is_protected=is_protected,
        )
        self.port = self.server.bind(50)
        self.server.open()

    async def client(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, limit=64 * 1024 * 1024)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await asyncio.wait_for(reader.readexactly(4), 10))
    return await asyncio.wait_for(reader.readexactly(size), 10)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (the condition has no event)
            await asyncio.sleep(0.001)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 1, 100, 16 * 1024, 16 * 1024 + 1, 300_000, 3_000_000])
def test_a_frame_of_any_size_comes_whole_to_its_handler(size: int) -> None:
    async def scenario() -> None:
        served = Served(echo)
        reader, writer = await served.client()
        for fill in (b"a", b"b"):
            writer.write(framed(fill * size))
            assert await read_frame(reader) == fill * size
        writer.close()
        served.server.close()

    run(scenario)


def test_frames_sent_byte_by_byte_and_many_at_once_are_cut_alike() -> None:
    async def scenario() -> None:
        served = Served(echo)
        reader, writer = await served.client()
        bodies = [bytes([n]) * n for n in range(1, 40)]
        for byte in b"".join(map(framed, bodies[:5])):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(b"".join(map(framed, bodies[5:])))
        assert [await read_frame(reader) for _ in bodies] == bodies
        writer.close()
        served.server.close()

    run(scenario)


def test_replies_leave_in_the_order_of_their_requests_whatever_order_they_are_ready_in() -> None:
    async def scenario() -> None:
        slots: dict[bytes, Slot] = {}

        def handler(connection: Connection, frame: memoryview) -> None:
            if bytes(frame[:4]) == b"slow":
                slots[bytes(frame)] = connection.reserve()
            else:
                connection.reply_bytes(framed(bytes(frame)))

        served = Served(handler)
        reader, writer = await served.client()
        sent = [b"quick0", b"slow1", b"quick2", b"slow3", b"quick4"]
        writer.write(b"".join(map(framed, sent)))
        assert await read_frame(reader) == b"quick0"
        await until(lambda: len(slots) == 2)
        slots[b"slow3"].fill([framed(b"slow3")])
        slots[b"slow1"].fill([framed(b"slow1")[:6], framed(b"slow1")[6:]])
        assert [await read_frame(reader) for _ in sent[1:]] == sent[1:]
        writer.close()
        served.server.close()

    run(scenario)


def test_a_client_that_does_not_read_costs_a_bounded_backlog_and_gets_everything_when_it_does() -> None:
    async def scenario() -> None:
        answer = framed(b"x" * 100_000)
        handled = 0

        def handler(connection: Connection, frame: memoryview) -> None:
            nonlocal handled
            handled += 1
            connection.reply_bytes(answer)

        served = Served(handler, send_buffer_bytes=64 * 1024)
        sock = socket.create_connection(("127.0.0.1", served.port))
        sock.setblocking(False)
        requests = 2_000
        await asyncio.get_running_loop().sock_sendall(sock, framed(b"") * requests)
        await until(lambda: handled > 0)
        (connection,) = served.server.connections
        before = -1
        while handled != before:
            before = handled
            await asyncio.sleep(0.05)
        assert handled < requests
        assert connection._backlog_bytes < BACKLOG_BYTES + 2 * len(answer)
        received = 0
        while received < requests * len(answer):
            received += len(await asyncio.get_running_loop().sock_recv(sock, 1 << 20))
        assert handled == requests
        sock.close()
        served.server.close()

    run(scenario)


def test_reading_pauses_while_too_many_requests_are_unanswered() -> None:
    async def scenario() -> None:
        slots: list[Slot] = []
        served = Served(lambda connection, _: slots.append(connection.reserve()))
        reader, writer = await served.client()
        writer.write(framed(b"r") * (MAX_IN_FLIGHT + 50))
        await until(lambda: len(slots) == MAX_IN_FLIGHT)
        await asyncio.sleep(0.02)
        assert len(slots) == MAX_IN_FLIGHT
        answered = 0
        while answered < MAX_IN_FLIGHT + 50:
            await until(lambda: len(slots) > answered)  # noqa: B023
            slots[answered].fill([framed(str(answered).encode())])
            assert await read_frame(reader) == str(answered).encode()
            answered += 1
        writer.close()
        served.server.close()

    run(scenario)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (struct.pack(">i", -1), "negative length"),
        (struct.pack(">i", 2_000_000), "socket.request.max.bytes allows 1000000"),
        (bytes.fromhex("16030100c8010000c40303"), "TLS handshake"),
        (b"GET / HTTP/1.1\r\n\r\n", "socket.request.max.bytes"),
    ],
)
def test_a_bad_length_closes_that_connection_with_one_line_and_no_other(
    sent: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        served = Served(echo, max_frame_bytes=1_000_000)
        good_reader, good_writer = await served.client()
        reader, writer = await served.client()
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        good_writer.write(framed(b"still here"))
        assert await read_frame(good_reader) == b"still here"
        for each in (writer, good_writer):
            each.close()
        served.server.close()

    with caplog.at_level(logging.WARNING):
        run(scenario)
    (line,) = [record.getMessage() for record in caplog.records]
    assert reason in line


def test_a_request_that_cannot_be_read_closes_its_connection() -> None:
    async def scenario() -> None:
        def handler(connection: Connection, frame: memoryview) -> None:
            raise DecodeError("nonsense")

        served = Served(handler)
        reader, writer = await served.client()
        writer.write(framed(b"?"))
        assert await asyncio.wait_for(reader.read(), 10) == b""
        assert not served.server.connections
        writer.close()
        served.server.close()

    run(scenario)


def test_a_frame_length_alone_makes_no_buffer_of_that_size() -> None:
    async def scenario() -> None:
        served = Served(echo, max_frame_bytes=UNLIMITED)
        _, writer = await served.client()
        writer.write(struct.pack(">i", 1_000_000_000) + b"x" * 20_000)
        await until(lambda: served.server.buffers.in_use_bytes > 0)
        assert served.server.buffers.in_use_bytes <= 256 * 1024
        writer.close()
        await until(lambda: not served.server.connections)
        assert served.server.buffers.in_use_bytes == 0
        served.server.close()

    run(scenario)


def test_large_frames_wait_for_each_other_where_their_memory_is_limited() -> None:
    async def scenario() -> None:
        served = Served(echo, max_buffered_bytes=1_000_000)
        clients = [await served.client() for _ in range(4)]
        body = b"m" * 700_000
        for _, writer in clients:
            writer.write(framed(body)[:400_000])
        await until(lambda: served.server.buffers.in_use_bytes > 0)
        for _, writer in clients:
            writer.write(framed(body)[400_000:])
        for reader, writer in clients:
            assert await read_frame(reader) == body
            writer.close()
        served.server.close()

    run(scenario)


def test_one_address_may_have_no_more_than_its_share_of_connections() -> None:
    async def scenario() -> None:
        served = Served(echo, per_ip=1)
        reader, writer = await served.client()
        second, other_writer = await served.client()
        assert await asyncio.wait_for(second.read(), 10) == b""
        writer.write(framed(b"first"))
        assert await read_frame(reader) == b"first"
        for each in (writer, other_writer):
            each.close()
        served.server.close()

    run(scenario)


def test_beyond_max_connections_new_ones_wait_until_one_leaves() -> None:
    async def scenario() -> None:
        served = Served(echo, total=1)
        _, writer = await served.client()
        await until(lambda: len(served.server.connections) == 1)
        reader, waiting = await served.client()
        waiting.write(framed(b"hello"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(1), 0.05)
        writer.close()
        assert await read_frame(reader) == b"hello"
        waiting.close()
        served.server.close()

    run(scenario)


def test_a_connection_of_one_listener_makes_room_at_another() -> None:
    async def scenario() -> None:
        census = ConnectionCensus()
        one, other = Served(echo, census, total=1), Served(echo, census, total=1)
        _, writer = await one.client()
        await until(lambda: census.total == 1)
        reader, waiting = await other.client()
        waiting.write(framed(b"hello"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(1), 0.05)
        writer.close()
        assert await read_frame(reader) == b"hello"
        waiting.close()
        for each in (one, other):
            each.server.close()

    run(scenario)


def test_a_higher_limit_makes_room() -> None:
    async def scenario() -> None:
        served = Served(echo, total=1)
        _, writer = await served.client()
        reader, waiting = await served.client()
        waiting.write(framed(b"hello"))
        await until(lambda: bool(served.server.census.waiting))
        served.server.limits = ConnectionLimits(2, UNLIMITED, {}, 600)
        served.server.census.look_for_room()
        assert await read_frame(reader) == b"hello"
        for each in (writer, waiting):
            each.close()
        served.server.close()

    run(scenario)


def test_the_idlest_client_makes_way_for_another_broker() -> None:
    async def scenario() -> None:
        census = ConnectionCensus()
        clients, brokers = Served(echo, census, total=2), Served(echo, census, is_protected=True, total=2)
        idle_reader, idle_writer = await clients.client()
        await until(lambda: census.total == 1)
        busy_reader, busy_writer = await clients.client()
        await until(lambda: census.total == 2)
        busy_writer.write(framed(b"busy"))
        assert await read_frame(busy_reader) == b"busy"
        reader, writer = await brokers.client()
        writer.write(framed(b"hello"))
        assert await read_frame(reader) == b"hello"
        assert await idle_reader.read() == b""
        busy_writer.write(framed(b"still here"))
        assert await read_frame(busy_reader) == b"still here"
        for each in (idle_writer, busy_writer, writer):
            each.close()
        for served in (clients, brokers):
            served.server.close()

    run(scenario)


def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    async def scenario() -> None:
        served = Served(echo, idle_seconds=1)
        idle_reader, idle_writer = await served.client()
        busy_reader, busy_writer = await served.client()
        closing = asyncio.ensure_future(idle_reader.read())
        while not closing.done():
            busy_writer.write(framed(b"busy"))
            assert await read_frame(busy_reader) == b"busy"
            await asyncio.sleep(0.01)
        assert closing.result() == b""
        for each in (idle_writer, busy_writer):
            each.close()
        served.server.close()

    run(scenario)


def test_a_taken_port_is_named() -> None:
    async def scenario() -> None:
        served = Served(echo)
        second = ListenerServer(
            asyncio.get_running_loop(),
            SystemNetwork(),
            Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", served.port),
            echo,
            served.server.limits,
            ConnectionCensus(),
            max_connections=1,
            max_frame_bytes=1,
            max_buffered_bytes=-1,
        )
        with pytest.raises(OSError, match=f"cannot listen on PLAINTEXT://127.0.0.1:{served.port}"):
            second.bind(1)
        served.server.close()

    run(scenario)
