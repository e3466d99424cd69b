"""A peer over real sockets, on both kinds of event loop that a node has, in plain text and in TLS."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from barnabas.net.frames import AuthenticationError, ConnectError, ConnectionLostError
from barnabas.net.peer import Peer, PeerEnvironment, PeerSettings
from barnabas.net.tls_stream import TlsStream
from barnabas.ports import SystemDisk, SystemNetwork, SystemRandom
from barnabas.protocol.api import ApiKey
from tests.certificates import Authority
from tests.unit.net.serving import FETCH_VERSION, Served, metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from pathlib import Path

    from barnabas.net.frames import VersionRange
    from barnabas.net.peer_link import PeerLink

LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
HOST = "127.0.0.1"


def run(new_loop: Callable[[], asyncio.AbstractEventLoop], scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(scenario, 60))


def environment() -> PeerEnvironment:
    return PeerEnvironment.of(asyncio.get_running_loop(), SystemNetwork(), SystemRandom())


@LOOPS
def test_requests_in_number_and_answers_in_megabytes(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    content = os.urandom(9_000_000)
    (tmp_path / f"{0:020}.log").write_bytes(content)

    async def scenario() -> None:
        surroundings = environment()
        served = Served(surroundings.loop, surroundings.network, HOST)
        served.offer_file(SystemDisk(), str(tmp_path), len(content))
        peer = Peer("node 2", HOST, served.port, surroundings)
        names = [f"topic-{number}" for number in range(2_000)]
        for start in range(0, len(names), 500):
            some = names[start : start + 500]
            responses = await asyncio.gather(*(peer.send(metadata(name)) for name in some))
            assert [response.cluster_id for response in responses] == some
        assert await peer.newest_version(ApiKey.FETCH) == FETCH_VERSION
        for _ in range(5):
            with await peer.send_raw(ApiKey.FETCH, FETCH_VERSION, b"") as response:
                assert response.body == content
        assert surroundings.space.pool.in_use_bytes == 0
        await peer.close()
        await served.close()

    run(new_loop, scenario())


@LOOPS
def test_a_listener_that_goes_and_comes_back_is_found_again(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scenario() -> None:
        surroundings = environment()
        served = Served(surroundings.loop, surroundings.network, HOST)
        peer = Peer("node 2", HOST, served.port, surroundings, PeerSettings(reconnect_backoff_s=0.01))
        assert (await peer.send(metadata("before"))).cluster_id == "before"
        await served.close()
        with pytest.raises((ConnectionLostError, ConnectError)):
            await peer.send(metadata("nobody"))
        with pytest.raises(ConnectError, match="refused"):
            await peer.send(metadata("nobody"))
        served = Served(surroundings.loop, surroundings.network, HOST, served.port)
        assert (await peer.send(metadata("after"))).cluster_id == "after"
        await peer.close()
        await served.close()

    run(new_loop, scenario())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "authority")


class Encrypted:
    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context

    def tls_context(self) -> ssl.SSLContext:
        return self.context

    async def authenticate(self, link: PeerLink, versions: Mapping[int, VersionRange]) -> None:
        pass


class Terminator:
    """A broker's TLS listener, as far as a peer can tell: decrypts with the standard library, and passes everything on
    to a plain listener and back."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        inner_reader, inner_writer = await asyncio.open_connection(HOST, self._port)
        await asyncio.gather(self._pass(reader, inner_writer), self._pass(inner_reader, writer))
        self.connections -= 1

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                target.write(data)
                await target.drain()
        except OSError:
            pass  # the other side is gone, and whoever waits for it will see that
        target.close()


@LOOPS
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_everything_works_the_same_way_in_tls(
    new_loop: Callable[[], asyncio.AbstractEventLoop], version: ssl.TLSVersion, authority: Authority, tmp_path: Path
) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / f"{0:020}.log").write_bytes(content)

    async def scenario() -> None:
        server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        identity = authority.sign("broker")
        server_context.load_cert_chain(identity.certificate, identity.key)
        context = ssl.create_default_context(cafile=str(authority.certificate))
        context.minimum_version = context.maximum_version = version
        plain = environment()
        served = Served(plain.loop, plain.network, HOST)
        served.offer_file(SystemDisk(), str(tmp_path), len(content))
        terminator = Terminator(served.port)
        door = await asyncio.start_server(terminator, HOST, 0, ssl=server_context)
        port = door.sockets[0].getsockname()[1]
        peer = Peer("node 2", HOST, port, plain._replace(security=Encrypted(context)))
        names = [f"topic-{number}" + "x" * 1000 for number in range(300)]
        responses = await asyncio.gather(*(peer.send(metadata(name)) for name in names))
        assert [response.cluster_id for response in responses] == names
        for _ in range(3):
            with await peer.send_raw(ApiKey.FETCH, FETCH_VERSION, b"") as response:
                assert response.body == content
        stranger = Peer("node 3", HOST, port, plain._replace(security=Encrypted(ssl.create_default_context())))
        with pytest.raises(AuthenticationError, match="its certificate was rejected"):
            await stranger.send(metadata("x"))
        deaf = Peer("node 4", HOST, served.port, plain._replace(security=Encrypted(context)))
        with pytest.raises((AuthenticationError, ConnectError), match="TLS"):
            await deaf.send(metadata("x"))
        for each in (peer, stranger, deaf):
            await each.close()
        door.close()
        await served.close()
        while terminator.connections:  # noqa: ASYNC110 (whose end has no event; all of this has a deadline)
            await asyncio.sleep(0.01)

    run(new_loop, scenario())


def test_a_sender_that_the_socket_takes_little_from_sends_everything_once(authority: Authority) -> None:
    """Both ends over sockets with small buffers: what was encrypted and not taken is neither lost nor sent twice."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        identity = authority.sign("broker")
        server_context.load_cert_chain(identity.certificate, identity.key)
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        client = TlsStream(
            ours, ssl.create_default_context(cafile=str(authority.certificate)), server_hostname="127.0.0.1"
        )
        server = TlsStream(theirs, server_context, server_side=True)
        await asyncio.gather(client.shake_hands(loop), server.shake_hands(loop))
        data = os.urandom(1_000_000)
        received = bytearray()
        buffer = bytearray(10_000)
        unsent = memoryview(data)
        while len(received) < len(data):
            if unsent:
                with suppress(BlockingIOError):
                    unsent = unsent[client.send(unsent) :]
            with suppress(BlockingIOError):
                received += memoryview(buffer)[: server.recv_into(buffer)]
        assert received == data
        assert not server.has_more()
        client.close()
        server.close()

    asyncio.run(scenario())
