"""The simulated network behaves as TCP does, good and bad, and the same way for the same seed."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.testing.clock import SimulatedClock
from barnabas.testing.disk import SimulatedDisk
from barnabas.testing.event_loop import Scheduler, SimulatedLoop, SimulationError
from barnabas.testing.network import GIVE_UP_S, WINDOW_BYTES, SimulatedNetwork

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from barnabas.testing.network import SimulatedAcceptor, SimulatedSocket

PORT = 9092


class Wires:
    """Two hosts, a process on each, and one that listens."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler()
        self.network = SimulatedNetwork(self.scheduler, seed)
        self.one, self.two = self.network.host("one"), self.network.host("two")
        self.loop = self.scheduler.new_loop("one")
        self.acceptor: SimulatedAcceptor = self.two.listen("two", PORT, backlog=10)

    def run(self, work: Coroutine[Any, Any, Any], limit_s: float = 10.0) -> Any:
        return self.loop.run(work, limit_s=limit_s)

    async def pair(self) -> tuple[SimulatedSocket, SimulatedSocket]:
        client = await self.one.connect("two", PORT)
        await ready(self.acceptor.fileno())
        server, host, port = self.acceptor.accept()
        assert (host, port) == (self.one.address, client.port)
        return client, server


async def ready(fd: int) -> None:
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(fd, event.set)
    await event.wait()
    loop.remove_reader(fd)


async def writable(fd: int) -> None:
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_writer(fd, event.set)
    await event.wait()
    loop.remove_writer(fd)


async def receive(stream: SimulatedSocket, size: int) -> bytes:
    """So many bytes, or fewer if the stream ends before."""
    data = bytearray()
    while len(data) < size:
        buffer = bytearray(size - len(data))
        try:
            received = stream.recv_into(buffer)
        except BlockingIOError:
            await ready(stream.fileno())
            continue
        if not received:
            break
        data += buffer[:received]
    return bytes(data)


async def send(stream: SimulatedSocket, data: bytes) -> None:
    while data:
        try:
            data = data[stream.send(data) :]
        except BlockingIOError:
            await writable(stream.fileno())


def test_what_is_sent_arrives_whole_and_in_order_however_it_is_cut() -> None:
    wires = Wires()

    async def scenario() -> None:
        client, server = await wires.pair()
        data = os.urandom(3 * WINDOW_BYTES)
        sending = asyncio.ensure_future(send(client, data))
        assert await receive(server, len(data)) == data
        await sending
        server.sendmsg([b"thank", b" you"])
        server.close()
        assert await receive(client, 100) == b"thank you", "what was sent before the end arrives before it"
        client.close()

    wires.run(scenario())


def test_a_reader_that_does_not_read_stops_the_writer() -> None:
    wires = Wires()

    async def scenario() -> None:
        client, server = await wires.pair()
        assert client.send(bytes(2 * WINDOW_BYTES)) == WINDOW_BYTES
        with pytest.raises(BlockingIOError):
            client.send(b"more")
        await asyncio.sleep(1)
        with pytest.raises(BlockingIOError):
            client.send(b"more")
        await receive(server, 1000)
        await writable(client.fileno())
        assert client.send(bytes(2000)) == 1000

    wires.run(scenario())


def test_nobody_at_a_port_refuses_and_an_unknown_host_is_not_found() -> None:
    wires = Wires()

    async def scenario() -> None:
        with pytest.raises(ConnectionRefusedError):
            await wires.one.connect("two", PORT + 1)
        with pytest.raises(OSError, match="no host of this network"):
            await wires.one.connect("three", PORT)
        with pytest.raises(OSError, match="in use"):
            wires.two.listen("", PORT, backlog=1)
        here = wires.one.listen("", 0, backlog=1)
        stream = await wires.one.connect("localhost", here.port)
        stream.close()

    wires.run(scenario())


@pytest.mark.parametrize("way", ["both", "there", "back"])
def test_a_cut_delays_what_is_sent_until_it_is_healed(way: str) -> None:
    wires = Wires()

    def cut() -> None:
        if way == "both":
            wires.network.cut("one", "two")
        else:
            wires.network.cut_one_way(*(("one", "two") if way == "there" else ("two", "one")))

    async def scenario() -> None:
        client, server = await wires.pair()
        cut()
        await send(client, b"there")
        await send(server, b"back")
        await asyncio.sleep(5)
        assert (server.unread_bytes, client.unread_bytes) == {"both": (0, 0), "there": (0, 4), "back": (5, 0)}[way]
        wires.network.heal("one", "two")
        assert (await receive(server, 5), await receive(client, 4)) == (b"there", b"back")

    wires.run(scenario())


def test_a_connection_over_a_cut_is_made_when_it_is_healed_or_given_up() -> None:
    wires = Wires()

    async def scenario() -> None:
        wires.network.cut_one_way("two", "one")
        connecting = asyncio.ensure_future(wires.one.connect("two", PORT))
        await asyncio.sleep(2.5)
        assert not connecting.done()
        wires.network.heal_all()
        (await connecting).close()
        assert 3 < wires.scheduler.now < 3.1, "at the system's next attempt"
        wires.network.isolate("two")
        with pytest.raises(TimeoutError):
            await wires.one.connect("two", PORT)

    wires.run(scenario(), limit_s=200)


def test_a_sender_gives_up_on_a_cut_that_lasts() -> None:
    wires = Wires()

    async def scenario() -> None:
        client, _ = await wires.pair()
        wires.network.cut("one", "two")
        await send(client, b"hello?")
        with pytest.raises(OSError, match="timed out") as caught:
            await receive(client, 1)
        assert caught.value.errno == errno.ETIMEDOUT

    wires.run(scenario(), limit_s=2 * GIVE_UP_S)


def test_a_reset_is_met_by_both_sides() -> None:
    wires = Wires()

    async def scenario() -> None:
        client, server = await wires.pair()
        wires.network.reset("two", "one")
        for stream in (client, server):
            with pytest.raises(ConnectionResetError):
                await receive(stream, 1)
            with pytest.raises(ConnectionResetError):
                stream.send(b"x")

    wires.run(scenario())


def test_a_silent_stream_stays_open_and_carries_nothing_while_new_ones_work() -> None:
    wires = Wires()

    async def scenario() -> None:
        client, server = await wires.pair()
        wires.network.silence("one", "two")
        await send(client, b"hello?")
        await send(server, b"hello?")
        other_client, other_server = await wires.pair()
        await send(other_client, b"hello")
        assert await receive(other_server, 5) == b"hello"
        await asyncio.sleep(60)
        assert client.unread_bytes == server.unread_bytes == 0

    wires.run(scenario(), limit_s=100)


def test_the_streams_of_a_killed_process_end() -> None:
    wires = Wires()

    async def scenario() -> None:
        client, server = await wires.pair()
        await send(server, b"last words")
        wires.network.kill("two")
        assert await receive(client, 100) == b"last words"
        await send(client, b"?")
        await asyncio.sleep(1)
        with pytest.raises(ConnectionResetError):
            await receive(client, 1)
        with pytest.raises(ConnectionRefusedError):
            await wires.one.connect("two", PORT)

    wires.run(scenario())


def test_nobody_hears_of_a_machine_that_lost_power_until_it_is_back() -> None:
    wires = Wires()

    async def scenario() -> None:
        client, _ = await wires.pair()
        wires.network.vanish("two")
        await send(client, b"anybody?")
        await asyncio.sleep(60)
        with pytest.raises(BlockingIOError):
            client.recv_into(bytearray(1))
        wires.network.back("two")
        with pytest.raises(ConnectionResetError):
            await receive(client, 1)

    wires.run(scenario(), limit_s=100)


def test_closing_with_bytes_unread_resets_the_stream() -> None:
    wires = Wires()

    async def scenario() -> None:
        client, server = await wires.pair()
        await send(client, b"unread")
        await ready(server.fileno())
        server.close()
        with pytest.raises(ConnectionResetError):
            await receive(client, 1)
        with pytest.raises(OSError, match="Bad file descriptor"):
            server.send(b"x")

    wires.run(scenario())


def test_a_connection_that_nobody_waits_for_any_more_is_closed() -> None:
    wires = Wires()

    async def scenario() -> None:
        connecting = asyncio.ensure_future(wires.one.connect("two", PORT))
        await ready(wires.acceptor.fileno())
        connecting.cancel()
        server, _, _ = wires.acceptor.accept()
        assert await receive(server, 1) == b""

    wires.run(scenario())


def test_file_ranges_go_out_through_simulated_sockets() -> None:
    wires = Wires()

    async def scenario() -> None:
        disk = SimulatedDisk(SimulatedClock(wires.scheduler), write_to_socket=wires.network.write)
        fd = disk.open("/segment", os.O_RDWR | os.O_CREAT)
        disk.pwrite(fd, b"0123456789", 0)
        client, server = await wires.pair()
        assert disk.send_range(client.fileno(), fd, 2, 5) == 5
        assert await receive(server, 5) == b"23456"

    wires.run(scenario())


def trace_of(seed: int) -> list[str]:
    wires = Wires(seed)

    async def scenario() -> None:
        client, server = await wires.pair()
        await asyncio.gather(send(client, bytes(50_000)), receive(server, 50_000))
        client.close()
        await receive(server, 1)

    wires.run(scenario())
    return list(wires.network.trace)


def test_equal_seeds_give_equal_runs_and_others_do_not() -> None:
    assert trace_of(7) == trace_of(7)
    assert trace_of(7) != trace_of(8)


def test_waiting_for_what_cannot_come_is_an_error_and_so_is_a_standstill(monkeypatch: pytest.MonkeyPatch) -> None:
    wires = Wires()
    with pytest.raises(SimulationError, match="nothing is left to happen"):
        wires.run(asyncio.Event().wait())
    with pytest.raises(SimulationError, match="did not in 10 s"):
        wires.run(asyncio.sleep(20))
    monkeypatch.setattr("barnabas.testing.event_loop.STANDSTILL_EVENTS", 1000)

    async def spin() -> None:
        while True:  # noqa: ASYNC110 (an endless loop is what is wanted)
            await asyncio.sleep(0)

    with pytest.raises(SimulationError, match="no time has passed"):
        wires.run(spin())


def test_a_killed_loop_runs_nothing_more_not_even_what_would_tidy_up() -> None:
    scheduler = Scheduler()
    loop: SimulatedLoop = scheduler.new_loop("doomed")
    happened: list[str] = []

    async def work() -> None:
        try:
            happened.append("begun")
            await asyncio.sleep(1)
            happened.append("went on")
        finally:
            happened.append("tidied up")

    task = loop.create_task(work())
    scheduler.run_for(0.5)
    loop.kill()
    del task
    scheduler.run_for(10)
    assert happened == ["begun"]
