"""Threads and worker processes of a simulation: events in simulated time, with the manners of the real ones."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.ports.processes import TaskTooLargeError, WorkerLimits, WorkersBusyError, WorkersClosedError
from barnabas.ports.threads import ThreadsBusyError
from barnabas.protocol.errors import Error, KafkaError
from barnabas.testing.clock import SimulatedClock
from barnabas.testing.event_loop import Scheduler
from barnabas.testing.processes import InlineProcesses
from barnabas.testing.randomness import SeededRandom
from barnabas.testing.threads import SimulatedThreads
from tests.unit.ports import tasks


def test_functions_of_a_pool_take_simulated_time_and_only_so_many_at_once() -> None:
    scheduler = Scheduler()
    loop = scheduler.new_loop("node")
    clock = SimulatedClock(scheduler)
    threads = SimulatedThreads(scheduler)
    threads.takes_s = lambda pool: {"disk": 1.0}[pool]

    async def scenario() -> None:
        pool = threads.pool("disk", 2, queue_max=3)
        times = [pool.run(clock.monotonic) for _ in range(5)]
        with pytest.raises(ThreadsBusyError):
            pool.run(clock.monotonic)
        assert await asyncio.gather(*times) == [1.0, 1.0, 2.0, 2.0, 3.0]
        with pytest.raises(ZeroDivisionError):
            await pool.run(divmod, 1, 0)
        pool.shutdown()
        with pytest.raises(RuntimeError, match="have ended"):
            pool.run(clock.monotonic)

    loop.run(scenario(), limit_s=10)


def test_each_item_has_its_outcome_in_order_and_in_no_time() -> None:
    outcomes = list(SimulatedThreads(Scheduler()).each("divide", 2, lambda number: 6 // number, [3, 0, 2]))
    assert [item for item, _ in outcomes] == [3, 0, 2]
    assert [outcomes[0][1].result(), outcomes[2][1].result()] == [2, 3]
    with pytest.raises(ZeroDivisionError):
        outcomes[1][1].result()


def test_a_loop_thread_is_one_more_loop_in_the_same_order_of_events() -> None:
    scheduler = Scheduler()
    loop = scheduler.new_loop("node")

    async def scenario() -> None:
        thread = SimulatedThreads(scheduler, "node 1").loop_thread("controller")

        async def where() -> object:
            await asyncio.sleep(2)
            return asyncio.get_running_loop()

        assert await asyncio.wrap_future(thread.submit(where())) is thread.loop
        assert scheduler.now == 2
        endless = thread.submit(asyncio.sleep(1000))
        await asyncio.sleep(1)
        await thread.stop()
        assert endless.cancelled()

    loop.run(scenario(), limit_s=10)


def test_tasks_run_inline_under_the_limits_of_real_workers() -> None:
    scheduler = Scheduler()
    loop = scheduler.new_loop("node")

    async def scenario() -> None:
        limits = WorkerLimits(workers_max=1, queue_max=1, task_bytes_max=1000, result_bytes_max=1000)
        pool = InlineProcesses(limits, takes_s=lambda: 1.0)
        assert await pool.run(tasks.total, 1, 2) == 3
        assert scheduler.now == 1
        with pytest.raises(KafkaError) as caught:
            await pool.run(tasks.refuse, "no")
        assert caught.value.error is Error.CORRUPT_MESSAGE
        with pytest.raises(TaskTooLargeError):
            await pool.run(tasks.reverse, bytes(1000))
        with pytest.raises(ValueError, match="1000 are allowed"):
            await pool.run(tasks.zeros, 1000)
        with pytest.raises(ValueError, match="lambda"):
            await pool.run(lambda: 1)
        two = [asyncio.ensure_future(pool.run(tasks.total, number)) for number in (1, 2)]
        await asyncio.sleep(0.5)
        with pytest.raises(WorkersBusyError):
            await pool.run(tasks.total, 3)
        assert await asyncio.gather(*two) == [1, 2]
        await pool.close()
        with pytest.raises(WorkersClosedError):
            await pool.run(tasks.total, 3)

    loop.run(scenario(), limit_s=100)


def test_a_clock_goes_with_the_simulation_and_jumps_by_itself() -> None:
    scheduler = Scheduler()
    one, two = SimulatedClock(scheduler, now_ms=1_000), SimulatedClock(scheduler, now_ms=5_000)
    scheduler.run_for(1.5)
    two.jump_ms(-4_000)
    assert (one.now_ms(), two.now_ms(), one.monotonic()) == (2_500, 2_500, 1.5)


def test_seeded_chance_repeats() -> None:
    one, same, other = SeededRandom(1), SeededRandom(1), SeededRandom(2)
    drawn = [(each.uuid(), each.below(1_000_000)) for each in (one, same, other)]
    assert drawn[0] == drawn[1] != drawn[2]
