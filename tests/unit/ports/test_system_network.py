"""Streams over the machine's own TCP, on the event loops that a node runs on."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from barnabas.ports import SocketBuffers, SystemNetwork
from barnabas.ports import network as network_port

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


def run(new_loop: Callable[[], asyncio.AbstractEventLoop], scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(scenario, 30))


async def readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


@LOOPS
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_a_stream_reaches_whoever_listens(new_loop: Callable[[], asyncio.AbstractEventLoop], host: str) -> None:
    async def scenario() -> None:
        network = SystemNetwork()
        acceptor = network.listen("", 0, backlog=5, buffers=SocketBuffers(send_bytes=32 * 1024))
        client = await network.connect(host, acceptor.port, buffers=SocketBuffers(receive_bytes=32 * 1024))
        await readable(acceptor.fileno())
        server, peer_host, peer_port = acceptor.accept()
        assert (peer_host, peer_port) == (host if host != "localhost" else peer_host, client.getsockname()[1])
        with pytest.raises(BlockingIOError):
            server.recv_into(bytearray(1))
        assert client.sendmsg([b"hel", b"lo"]) == 5
        await readable(server.fileno())
        buffer = bytearray(10)
        assert server.recv_into(buffer) == 5
        client.close()
        await readable(server.fileno())
        assert server.recv_into(buffer) == 0
        server.close()
        acceptor.close()

    run(new_loop, scenario())


@LOOPS
def test_nobody_there_is_an_error_of_the_connection(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scenario() -> None:
        network = SystemNetwork()
        acceptor = network.listen("127.0.0.1", 0, backlog=5)
        port = acceptor.port
        acceptor.close()
        with pytest.raises(ConnectionRefusedError):
            await network.connect("127.0.0.1", port)
        with pytest.raises(socket.gaierror):
            await network.connect("no.such.host.invalid", port)

    run(new_loop, scenario())


def test_each_attempt_begins_with_the_next_address_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        network = SystemNetwork()
        acceptors = [network.listen("127.0.0.1", 0, backlog=5) for _ in range(2)]

        async def resolve(host: str, port: int) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", acceptor.port)) for acceptor in acceptors]

        monkeypatch.setattr(network_port, "_resolve", resolve)
        for attempt, expected in enumerate([0, 1, 0, 1]):
            stream = await network.connect("both", 1, attempt=attempt)
            assert stream.getpeername()[1] == acceptors[expected].port
            stream.close()
        first, second = (acceptor.port for acceptor in acceptors)
        acceptors[0].close()
        stream = await network.connect("both", 1, attempt=0)
        assert stream.getpeername()[1] == second != first, "one that refuses does not hide the other"
        stream.close()
        acceptors[1].close()

    asyncio.run(scenario())


def test_a_port_that_is_taken_is_an_error() -> None:
    acceptor = SystemNetwork().listen("127.0.0.1", 0, backlog=5)
    with pytest.raises(OSError, match="in use") as caught:
        SystemNetwork().listen("127.0.0.1", acceptor.port, backlog=5)
    assert caught.value.errno == errno.EADDRINUSE
    acceptor.close()
