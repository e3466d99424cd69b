"""Replies that wait behind an unfinished one count against the limits, so that reading pauses; and it goes on after.

The first request of each scenario is answered last, so that nothing can leave: what the others' answers cost is what
the connection must notice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from barnabas.log.segments.open_files import FilePool
from barnabas.log.segments.segment import Segment
from barnabas.net.connection import BACKLOG_BYTES, MAX_IN_FLIGHT, Connection, Slot
from barnabas.net.parts import FilePart, Part
from barnabas.ports import SystemDisk
from tests.unit.net.test_connection import Served, framed, read_frame, run, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ANSWER = framed(b"x" * 100_000)
ANSWERS_IN_BACKLOG = -(-BACKLOG_BYTES // len(ANSWER))
HOLD = b"hold"


class Desk:
    """A handler that holds back the requests that say so and answers the others at once."""

    def __init__(self, answer: Callable[[Connection, bytes], None]) -> None:
        self.held: list[Slot] = []
        self.handled = 0
        self._answer = answer

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        self.handled += 1
        body = bytes(frame)
        if body == HOLD:
            self.held.append(connection.reserve())
        else:
            self._answer(connection, body)


def as_bytes(connection: Connection, body: bytes) -> None:
    connection.reply_bytes(ANSWER)


def as_parts(connection: Connection, body: bytes) -> None:
    connection.reply([ANSWER[:1000], ANSWER[1000:]])


async def settle(desk: Desk) -> int:
    """How many requests were handled when no more are."""
    seen = -1
    while desk.handled != seen:
        seen = desk.handled
        await asyncio.sleep(0.05)
    return seen


@pytest.mark.parametrize("answer", [as_bytes, as_parts])
def test_reading_pauses_when_the_answers_behind_an_unfinished_one_fill_the_backlog(
    answer: Callable[[Connection, bytes], None],
) -> None:
    async def scenario() -> None:
        desk = Desk(answer)
        served = Served(desk)
        reader, writer = await served.client()
        requests = 3 * ANSWERS_IN_BACKLOG
        for round_number in (1, 2):
            writer.write(framed(HOLD) + framed(b"more") * requests)
            already = (round_number - 1) * (1 + requests)
            assert await settle(desk) - already == 1 + ANSWERS_IN_BACKLOG
            desk.held.pop().fill([framed(b"at last")])
            assert await read_frame(reader) == b"at last"
            for _ in range(requests):
                assert await read_frame(reader) == ANSWER[4:]
            assert desk.handled == already + 1 + requests, "and in the next round no byte of this one counts"
        writer.close()
        served.server.close()

    run(scenario)


def test_answers_that_become_ready_behind_an_unfinished_one_count_from_then_on() -> None:
    async def scenario() -> None:
        desk = Desk(as_bytes)
        served = Served(desk)
        reader, writer = await served.client()
        writer.write(framed(HOLD) * (1 + ANSWERS_IN_BACKLOG))
        await until(lambda: len(desk.held) == 1 + ANSWERS_IN_BACKLOG)
        first, *others = desk.held
        for slot in reversed(others):
            slot.fill([ANSWER])
        writer.write(framed(b"more") * 10)
        assert await settle(desk) <= 1 + ANSWERS_IN_BACKLOG + 1, "one is read before the backlog is looked at"
        first.fill([framed(b"at last")])
        assert await read_frame(reader) == b"at last"
        for _ in range(ANSWERS_IN_BACKLOG + 10):
            assert await read_frame(reader) == ANSWER[4:]
        writer.close()
        served.server.close()

    run(scenario)


def test_small_answers_behind_an_unfinished_one_count_as_requests_in_flight() -> None:
    async def scenario() -> None:
        desk = Desk(lambda connection, body: connection.reply_bytes(framed(body)))
        served = Served(desk)
        reader, writer = await served.client()
        bodies = [str(number).encode() for number in range(3 * MAX_IN_FLIGHT)]
        for round_number in (1, 2):
            writer.write(framed(HOLD) + b"".join(map(framed, bodies)))
            already = (round_number - 1) * (1 + len(bodies))
            assert await settle(desk) - already == MAX_IN_FLIGHT
            desk.held.pop().fill([framed(b"at last")])
            assert [await read_frame(reader) for _ in range(1 + len(bodies))] == [b"at last", *bodies]
        writer.close()
        served.server.close()

    run(scenario)


def test_a_connection_that_was_resumed_pauses_again_at_the_next_unfinished_answer() -> None:
    async def scenario() -> None:
        desk = Desk(as_bytes)
        served = Served(desk)
        reader, writer = await served.client()
        block = framed(HOLD) + framed(b"more") * ANSWERS_IN_BACKLOG
        writer.write(block * 3)
        for blocks in (1, 2, 3):
            await until(lambda: len(desk.held) == 1)
            assert await settle(desk) == blocks * (1 + ANSWERS_IN_BACKLOG)
            desk.held.pop().fill([framed(b"at last")])
            assert await read_frame(reader) == b"at last"
            for _ in range(ANSWERS_IN_BACKLOG):
                assert await read_frame(reader) == ANSWER[4:]
        writer.close()
        served.server.close()

    run(scenario)


def test_a_paused_connection_keeps_no_other_waiting() -> None:
    async def scenario() -> None:
        desk = Desk(as_bytes)
        served = Served(desk)
        _, paused = await served.client()
        paused.write(framed(HOLD) + framed(b"more") * 3 * ANSWERS_IN_BACKLOG)
        assert await settle(desk) == 1 + ANSWERS_IN_BACKLOG
        reader, writer = await served.client()
        for _ in range(3 * ANSWERS_IN_BACKLOG):
            writer.write(framed(b"more"))
            assert await read_frame(reader) == ANSWER[4:]
        for each in (paused, writer):
            each.close()
        served.server.close()

    run(scenario)


def test_ranges_of_files_wait_without_counting_and_come_in_order(tmp_path: Path) -> None:
    """They hold a file open, not memory: requests in flight are what limits them."""

    async def scenario() -> None:
        (tmp_path / f"{0:020}.log").write_bytes(ANSWER)
        segment = Segment(str(tmp_path), 0, len(ANSWER))
        pool = FilePool(SystemDisk())
        file = pool.open(segment)

        def ranges(connection: Connection, body: bytes) -> None:
            parts: list[Part] = [FilePart(file, 0, len(ANSWER), is_cold=False)]
            connection.reply(parts)

        desk = Desk(ranges)
        served = Served(desk)
        reader, writer = await served.client()
        requests = 3 * ANSWERS_IN_BACKLOG
        writer.write(framed(HOLD) + framed(b"more") * requests)
        assert await settle(desk) == 1 + requests
        desk.held.pop().fill([framed(b"at last")])
        assert await read_frame(reader) == b"at last"
        for _ in range(requests):
            assert await read_frame(reader) == ANSWER[4:]

        writer.write(framed(HOLD) + framed(b"more") * requests)
        await until(lambda: desk.handled == 2 * (1 + requests))
        writer.close()
        (connection,) = served.server.connections
        await until(lambda: connection.is_closed)
        served.server.close()
        pool.close(file)
        assert file.fd == -1, "answers that were never sent hold it no longer"

    run(scenario)
