"""Worker processes: real ones, that are killed, left alone, overloaded and outlived."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from barnabas import worker_process
from barnabas.ports.processes import (
    SystemProcesses,
    TaskFailedError,
    TaskTimeoutError,
    TaskTooLargeError,
    WorkerDiedError,
    WorkerLimits,
    WorkersBusyError,
    WorkersClosedError,
    pickled_task,
)
from barnabas.protocol.errors import Error, KafkaError
from tests.unit.ports import tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

DEADLINE_S = 30.0
MIB = 1 << 20


@asynccontextmanager
async def workers(limits: WorkerLimits | None = None) -> AsyncIterator[SystemProcesses]:
    pool = SystemProcesses(limits)
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield pool
    finally:
        await pool.close()
        assert pool.pids == []


def is_running(pid: int) -> bool:
    """Whether any thread of a process has yet to end."""
    try:
        states = []
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/stat") as file:
                states.append(file.read().rpartition(")")[2].split()[0])
    except (FileNotFoundError, ProcessLookupError):
        return os.path.exists(f"/proc/{pid}/task")
    return states != ["Z"]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (another process has no event)
        await asyncio.sleep(0.01)


def test_a_task_runs_in_another_process_and_its_result_comes_back() -> None:
    async def scenario() -> None:
        async with workers() as pool:
            assert await pool.run(tasks.total, 1, 2, 3) == 6
            assert await pool.run(tasks.reverse, b"abc" * MIB) == b"cba" * MIB
            assert await pool.run(tasks.pid) != os.getpid()

    asyncio.run(scenario())


def test_there_is_no_process_before_the_first_task_and_none_after_a_while_without_one() -> None:
    async def scenario() -> None:
        async with workers(WorkerLimits(idle_seconds=0.2)) as pool:
            assert pool.pids == []
            first = await pool.run(tasks.pid)
            assert pool.pids == [first]
            await until(lambda: not pool.pids)
            await until(lambda: not is_running(first))
            assert await pool.run(tasks.pid) != first

    asyncio.run(scenario())


def test_an_idle_worker_is_used_again_and_another_is_started_only_when_none_is_idle() -> None:
    async def scenario() -> None:
        async with workers(WorkerLimits(workers_max=2)) as pool:
            assert len({await pool.run(tasks.pid) for _ in range(10)}) == 1
            await asyncio.gather(*(pool.run(tasks.spin, 0.1) for _ in range(6)))
            assert len(pool.pids) == 2

    asyncio.run(scenario())


def test_what_a_task_raises_is_raised_here_with_the_trace_of_the_worker() -> None:
    async def scenario() -> None:
        async with workers() as pool:
            with pytest.raises(KafkaError, match="not a batch") as caught:
                await pool.run(tasks.refuse, "not a batch")
            assert caught.value.error is Error.CORRUPT_MESSAGE
            assert "in refuse" in "".join(caught.value.__notes__)
            with pytest.raises(TaskFailedError, match="UnpicklableError: this and that"):
                await pool.run(tasks.refuse_in_own_way)
            assert await pool.run(tasks.total, 1) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(("task", "how"), [(tasks.kill_oneself, "SIGKILL"), (tasks.leave, "exit code 3")])
def test_a_worker_that_dies_fails_its_task_alone_and_is_replaced(task: Callable[[], None], how: str) -> None:
    async def scenario() -> None:
        async with workers(WorkerLimits(workers_max=1)) as pool:
            before = await pool.run(tasks.pid)
            dying = asyncio.ensure_future(pool.run(task))
            waiting = asyncio.ensure_future(pool.run(tasks.pid))
            with pytest.raises(WorkerDiedError, match=f"worker process {before}, .*{task.__name__}.*{how}"):
                await dying
            assert await waiting != before
            assert not is_running(before)

    asyncio.run(scenario())


def test_a_worker_that_was_killed_while_it_was_idle_is_replaced_without_a_failure() -> None:
    async def scenario() -> None:
        async with workers() as pool:
            before = await pool.run(tasks.pid)
            os.kill(before, signal.SIGKILL)
            await until(lambda: not is_running(before))
            assert await pool.run(tasks.pid) != before

    asyncio.run(scenario())


def test_a_full_queue_refuses_at_once() -> None:
    async def scenario() -> None:
        async with workers(WorkerLimits(workers_max=1, queue_max=2)) as pool:
            running = asyncio.ensure_future(pool.run(tasks.spin, 0.3))
            await until(lambda: bool(pool.pids))
            waiting = [asyncio.ensure_future(pool.run(tasks.total, number)) for number in (1, 2)]
            await asyncio.sleep(0)
            with pytest.raises(WorkersBusyError, match=r"total was not begun: 2 tasks wait"):
                await pool.run(tasks.total, 3)
            await running
            assert await asyncio.gather(*waiting) == [1, 2]
            assert await pool.run(tasks.total, 3) == 3

    asyncio.run(scenario())


def test_what_goes_in_and_what_comes_out_is_limited() -> None:
    async def scenario() -> None:
        async with workers(WorkerLimits(task_bytes_max=MIB, result_bytes_max=MIB)) as pool:
            with pytest.raises(TaskTooLargeError, match=r"reverse has \d+ bytes, and 1048576 are allowed"):
                await pool.run(tasks.reverse, bytes(MIB))
            with pytest.raises(ValueError, match=r"the result has \d+ bytes, and 1048576 are allowed"):
                await pool.run(tasks.zeros, MIB)
            assert await pool.run(tasks.zeros, MIB - 1000) == bytes(MIB - 1000)

    asyncio.run(scenario())


def test_a_task_that_wants_too_much_memory_fails_and_harms_nobody() -> None:
    async def scenario() -> None:
        async with workers(WorkerLimits(memory_bytes_max=256 * MIB)) as pool:
            with pytest.raises(MemoryError):
                await pool.run(tasks.zeros, 1024 * MIB)
            assert await pool.run(tasks.total, 1) == 1

    asyncio.run(scenario())


def test_a_task_that_takes_too_long_is_given_up_and_its_worker_killed() -> None:
    async def scenario() -> None:
        async with workers(WorkerLimits(workers_max=1, task_seconds_max=1.0)) as pool:
            before = await pool.run(tasks.pid)
            with pytest.raises(TaskTimeoutError, match="spin took more than 1 s"):
                await pool.run(tasks.spin, 60.0)
            assert not is_running(before)
            assert await pool.run(tasks.pid) != before

    asyncio.run(scenario())


def test_a_function_that_no_other_process_can_find_is_refused() -> None:
    async def scenario() -> None:
        async with workers() as pool:
            with pytest.raises(ValueError, match="lambda"):
                await pool.run(lambda: 1)

    asyncio.run(scenario())


def test_whoever_is_cancelled_leaves_the_worker_to_others() -> None:
    async def scenario() -> None:
        async with workers(WorkerLimits(workers_max=1)) as pool:
            worker = await pool.run(tasks.pid)
            running, waiting = (asyncio.ensure_future(pool.run(tasks.spin, seconds)) for seconds in (0.2, 60.0))
            await asyncio.sleep(0.05)
            running.cancel()
            waiting.cancel()
            await asyncio.gather(running, waiting, return_exceptions=True)
            assert await pool.run(tasks.pid) == worker, "what was cancelled before it began is never begun"

    asyncio.run(scenario())


def test_closing_breaks_off_what_runs_and_what_waits() -> None:
    async def scenario() -> None:
        async with workers(WorkerLimits(workers_max=1)) as pool:
            running, waiting = (asyncio.ensure_future(pool.run(tasks.spin, 60.0)) for _ in range(2))
            await until(lambda: bool(pool.pids))
            (pid,) = pool.pids
            await pool.close()
            with pytest.raises(WorkersClosedError, match="broken off"):
                await running
            with pytest.raises(WorkersClosedError, match="not begun"):
                await waiting
            with pytest.raises(WorkersClosedError):
                await pool.run(tasks.pid)
            assert not is_running(pid)

    asyncio.run(scenario())


def test_tasks_may_come_from_several_event_loops() -> None:
    pool = SystemProcesses(WorkerLimits(workers_max=2))
    results: list[int] = []

    async def add(number: int) -> None:
        results.extend([await pool.run(tasks.total, number, 1) for _ in range(20)])

    threads = [threading.Thread(target=lambda number=number: asyncio.run(add(number))) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(pool.close())
    assert sorted(results) == sorted([1, 2, 3] * 20)


def test_a_worker_inherits_no_file_and_no_terminal_and_imports_little() -> None:
    async def scenario() -> None:
        async with workers() as pool:
            ours = os.open(__file__, os.O_RDONLY)
            os.set_inheritable(ours, True)
            held = await pool.run(tasks.open_files)
            os.close(ours)
            assert __file__ not in held
            assert sum(name.startswith("socket:") for name in held) == 1
            (pid,) = pool.pids
            assert await pool.run(tasks.session) == pid, "what a terminal sends to its processes stays away"
            imported = await pool.run(tasks.imported)
            assert not {"asyncio", "socket", "threading", "typing"} & set(imported)

    asyncio.run(scenario())


NODE = """
import asyncio, sys
from barnabas.ports.processes import SystemProcesses
from tests.unit.ports import tasks

async def main():
    pool = SystemProcesses()
    print(await pool.run(tasks.pid), flush=True)
    if len(sys.argv) > 1:
        await pool.run(tasks.spin_after_saying, sys.argv[1], 100.0)
    await asyncio.sleep(100)

asyncio.run(main())
"""


@pytest.mark.parametrize("is_busy", [False, True])
def test_workers_end_when_their_node_is_killed(tmp_path: Path, is_busy: bool) -> None:
    begun = tmp_path / "begun"
    arguments = [str(begun)] if is_busy else []
    with subprocess.Popen([sys.executable, "-c", NODE, *arguments], stdout=subprocess.PIPE, text=True) as node:
        try:
            assert node.stdout is not None
            worker = int(node.stdout.readline())
            if is_busy:
                wait_until(lambda: begun.exists() and begun.read_text() != "")
                worker = int(begun.read_text())
            assert is_running(worker)
        finally:
            node.kill()
    wait_until(lambda: not is_running(worker))


def test_a_worker_whose_node_does_not_read_its_answer_ends_without_a_word() -> None:
    for _ in range(10):  # it may also see the end of the stream first
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-S", "-P", worker_process.__file__, str(theirs.fileno()), str(256 * MIB)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        with (
            ours,
            subprocess.Popen(
                [*command, str(2048 * MIB), "0"],
                pass_fds=[theirs.fileno()],
                env=environment,
                stderr=subprocess.PIPE,
            ) as worker,
        ):
            theirs.close()
            task = pickled_task(tasks.zeros, (64 * MIB,), MIB)
            ours.sendall(worker_process.LENGTH.pack(len(task)) + task)
            assert ours.recv(1), "it has begun to answer"
            ours.close()
            assert worker.stderr is not None
            assert worker.stderr.read() == b""
        assert worker.returncode == 0


def test_a_stream_makes_a_step_only_when_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "steps"

    async def scenario() -> None:
        async with workers() as pool, aclosing(pool.stream(tasks.note_steps, str(path))) as steps:
            assert [await anext(steps) for _ in range(3)] == [0, 1, 2]
            assert await pool.run(tasks.total, 1, 2) == 3
            assert path.read_text() == "2"
        assert [number async for number in SystemProcesses().stream(tasks.count_up, 3, 6)] == [3, 4, 5]

    asyncio.run(scenario())


def test_a_stream_has_a_process_of_its_own_that_gives_way_to_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with workers(WorkerLimits(workers_max=1)) as pool:
            short = await pool.run(tasks.pid)
            async with (
                aclosing(pool.stream(tasks.pid_and_niceness)) as one,
                aclosing(pool.stream(tasks.pid_and_niceness)) as other,
            ):
                (first, niceness), (second, _) = await anext(one), await anext(other)
                assert len({short, first, second, os.getpid()}) == 4
                assert niceness == min(os.nice(0) + 10, 19)
                assert await anext(one) == (first, niceness)
            await until(lambda: not is_running(first) and not is_running(second))
            assert is_running(short)

    asyncio.run(scenario())


def test_what_a_stream_raises_is_raised_where_it_is_read() -> None:
    async def scenario() -> None:
        async with workers() as pool:
            steps = pool.stream(tasks.fail_after, 2)
            assert [await anext(steps), await anext(steps)] == [0, 1]
            with pytest.raises(KafkaError, match="no more"):
                await anext(steps)

    asyncio.run(scenario())


def test_a_stream_that_is_killed_left_or_too_slow_ends_with_its_process() -> None:
    async def scenario() -> None:
        async with workers(WorkerLimits(task_seconds_max=1.0)) as pool:
            killed = pool.stream(tasks.pid_and_niceness)
            pid, _ = await anext(killed)
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(WorkerDiedError, match="SIGKILL"):
                await anext(killed)
            slow = pool.stream(tasks.spin_in_second_step, 60.0)
            pid = await anext(slow)
            with pytest.raises(TaskTimeoutError):
                await anext(slow)
            await until(lambda: not is_running(pid))
            left = pool.stream(tasks.spin_in_second_step, 60.0)
            pid = await anext(left)
            asking = asyncio.ensure_future(anext(left))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await until(lambda: not is_running(pid))
            closed = pool.stream(tasks.spin_in_second_step, 60.0)
            pid = await anext(closed)
            asking = asyncio.ensure_future(anext(closed))
            await asyncio.sleep(0)
            await pool.close()
            with pytest.raises(WorkersClosedError):
                await asking
            assert not is_running(pid)
            with pytest.raises(WorkersClosedError):
                await anext(pool.stream(tasks.count_up, 0, 1))

    asyncio.run(scenario())


def test_a_stream_may_be_given_more_memory() -> None:
    async def scenario() -> None:
        async with workers(WorkerLimits(memory_bytes_max=256 * MIB)) as pool:
            with pytest.raises(MemoryError):
                await anext(pool.stream(tasks.take_memory, 300 * MIB))
            assert await anext(pool.stream(tasks.take_memory, 300 * MIB, extra_memory_bytes=300 * MIB)) == 300 * MIB

    asyncio.run(scenario())
