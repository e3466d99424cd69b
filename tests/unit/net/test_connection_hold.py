"""A request that must take effect before any other holds back those behind it, and only those of its connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.unit.net.test_connection import Served, framed, read_frame, run, until

if TYPE_CHECKING:
    from barnabas.net.connection import Connection, Slot

HOLD = b"hold"


class Desk:
    """Holds the connection at requests that say so, and answers the others at once."""

    def __init__(self) -> None:
        self.handled: list[bytes] = []
        self.held: list[Slot] = []
        self.copies: list[memoryview] = []

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        body = bytes(frame)
        self.handled.append(body)
        if body.startswith(HOLD):
            self.copies.append(connection.hold(frame))
            self.held.append(connection.reserve())
        else:
            connection.reply_bytes(framed(body))

    def let_go(self) -> None:
        slot = self.held.pop()
        slot.fill([framed(HOLD)])
        slot.connection.let_go()


@pytest.mark.parametrize("size", [10, 20_000, 400_000])
def test_requests_behind_one_that_holds_are_handled_after_it(size: int) -> None:
    async def scenario() -> None:
        desk = Desk()
        served = Served(desk)
        reader, writer = await served.client()
        _, other_writer = other = await served.client()
        bodies = [bytes([number]) * size for number in range(1, 5)]
        for _ in range(2):
            writer.write(framed(HOLD) + b"".join(map(framed, bodies)))
            await until(lambda: bool(desk.held))
            other_writer.write(framed(b"other"))
            assert await read_frame(other[0]) == b"other"
            assert desk.handled == [HOLD, b"other"]
            desk.let_go()
            assert [await read_frame(reader) for _ in range(5)] == [HOLD, *bodies]
            assert desk.handled == [HOLD, b"other", *bodies]
            desk.handled.clear()
        writer.close()
        other_writer.close()
        served.server.close()

    run(scenario)


def test_one_held_request_may_follow_another() -> None:
    async def scenario() -> None:
        desk = Desk()
        served = Served(desk)
        reader, writer = await served.client()
        writer.write(framed(HOLD) * 3 + framed(b"last"))
        for number in range(1, 4):
            await until(lambda: bool(desk.held))
            assert len(desk.handled) == number
            desk.let_go()
            assert await read_frame(reader) == HOLD
        assert await read_frame(reader) == b"last"
        writer.close()
        served.server.close()

    run(scenario)


def test_requests_go_on_while_an_earlier_one_still_waits_for_its_answer() -> None:
    async def scenario() -> None:
        desk = Desk()
        served = Served(desk)
        reader, writer = await served.client()
        writer.write(framed(HOLD))
        await until(lambda: bool(desk.held))
        first = desk.held.pop()
        first.connection.let_go()
        writer.write(framed(HOLD) + framed(b"last"))
        await until(lambda: bool(desk.held))
        desk.let_go()
        await until(lambda: desk.handled[-1] == b"last")
        first.fill([framed(b"first")])
        assert [await read_frame(reader) for _ in range(3)] == [b"first", HOLD, b"last"]
        writer.close()
        served.server.close()

    run(scenario)


@pytest.mark.parametrize("size", [10, 400_000])
def test_a_request_that_holds_lasts_and_counts_as_memory_in_use_until_it_lets_go(size: int) -> None:
    async def scenario() -> None:
        desk = Desk()
        served = Served(desk, max_buffered_bytes=300_000)
        reader, writer = await served.client()
        _, other_writer = other = await served.client()
        held = HOLD + bytes(range(10)) * (size // 10)
        writer.write(framed(held))
        await until(lambda: bool(desk.held))
        assert served.server.buffers.in_use_bytes >= size
        other_writer.write(framed(b"x" * 300_000))
        await asyncio.sleep(0.05)
        assert desk.handled == [held], "no large request comes in beside it"
        assert desk.copies == [held]
        desk.let_go()
        assert await read_frame(reader) == HOLD
        assert await read_frame(other[0]) == b"x" * 300_000
        assert served.server.buffers.in_use_bytes == 0
        writer.close()
        other_writer.close()
        served.server.close()

    run(scenario)


def test_a_client_that_leaves_while_it_is_held_is_forgotten() -> None:
    async def scenario() -> None:
        desk = Desk()
        served = Served(desk)
        _, writer = await served.client()
        writer.write(framed(HOLD) + framed(b"never"))
        await until(lambda: bool(desk.held))
        connection = desk.held[0].connection
        connection.close()
        assert served.server.buffers.in_use_bytes == 0
        desk.let_go()
        assert desk.handled == [HOLD]
        writer.close()
        served.server.close()

    run(scenario)
