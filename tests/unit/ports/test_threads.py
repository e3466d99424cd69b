"""Pools of threads, and event loops in threads of their own."""

from __future__ import annotations

import asyncio
import threading

import pytest

from barnabas.ports import SystemThreads
from barnabas.ports.threads import ThreadsBusyError


def test_a_function_runs_in_a_thread_that_has_the_name_of_its_pool() -> None:
    async def scenario() -> None:
        pool = SystemThreads().pool("disk", 1)
        assert (await pool.run(threading.current_thread)).name.startswith("disk")
        with pytest.raises(ZeroDivisionError):
            await pool.run(divmod, 1, 0)
        pool.shutdown()

    asyncio.run(scenario())


def test_a_pool_whose_queue_is_full_refuses_at_once_and_takes_more_when_it_is_not() -> None:
    async def scenario() -> None:
        pool = SystemThreads().pool("disk", 2, queue_max=1)
        gate = threading.Event()
        waiting = [pool.run(gate.wait, 30.0) for _ in range(3)]
        with pytest.raises(ThreadsBusyError, match="3 functions are waiting for the threads of 'disk'"):
            pool.run(gate.wait, 30.0)
        gate.set()
        assert await asyncio.gather(*waiting) == [True] * 3
        assert await pool.run(gate.wait, 30.0)
        pool.shutdown()

    asyncio.run(scenario())


def test_a_loop_thread_runs_what_others_submit_and_cancels_the_rest_when_it_stops() -> None:
    async def scenario() -> None:
        thread = SystemThreads().loop_thread("controller")
        begun, cancelled = threading.Event(), threading.Event()

        async def name() -> str:
            return threading.current_thread().name

        async def wait() -> None:
            begun.set()
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        assert await asyncio.wrap_future(thread.submit(name())) == "controller"
        thread.submit(wait())
        assert await asyncio.to_thread(begun.wait, 30.0)
        await thread.stop()
        assert cancelled.is_set()
        assert thread.loop.is_closed()

    asyncio.run(scenario())


def test_each_item_has_its_outcome_also_one_that_fails() -> None:
    def halve(number: int) -> int:
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number // 2

    outcomes = dict(SystemThreads().each("halve", 2, halve, range(4)))
    assert [outcomes[number].result() for number in (0, 2)] == [0, 1]
    with pytest.raises(ValueError, match="3 is odd"):
        outcomes[3].result()
