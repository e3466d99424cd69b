"""Many runs on all cores, each in a process of its own.

A worker runs one scenario to get warm (modules, codecs), and then forks for each run: so every run begins in the same
state, whichever came before it, and what it leaves behind is gone with its process. Fork before anything in this
process starts a thread.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import traceback
from collections import deque
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Self

from barnabas.testing.simulator.run import Outcome, Scenario, simulate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from multiprocessing.connection import Connection
    from types import FrameType, TracebackType

    from barnabas.testing.simulator.protocols import MakeInvariants, MakeLoad

WARM_UP_S: Final = 12.0
"""Simulated seconds of the run that makes a worker warm."""
WARM_UP_RECORDS: Final = 50
BROKEN: Final = "the simulator itself works"


class Task(NamedTuple):
    scenario: Scenario
    is_traced: bool = False


class Parts(NamedTuple):
    """What runs are made of, where it is not the usual."""

    make_load: MakeLoad | None = None
    make_invariants: MakeInvariants | None = None


USUAL: Final = Parts()


class Workers:
    """`with Workers(jobs) as workers: for outcome in workers.run(tasks): …`, in the order in which they end."""

    def __init__(self, jobs: int, warm_up: Scenario, parts: Parts = USUAL) -> None:
        self._workers: dict[Connection[Any, Any], int] = {}
        """Their processes, by the connections to them."""
        for _ in range(jobs):
            ours, theirs = Pipe()
            pid = os.fork()
            if pid == 0:
                for other in (*self._workers, ours):
                    other.close()
                _serve(theirs, warm_up, parts)
            theirs.close()
            self._workers[ours] = pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection, pid in self._workers.items():
            connection.close()
            if error is not None:
                os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)

    def run(self, tasks: Iterable[Task]) -> Iterator[Outcome]:
        waiting = deque(tasks)
        free = deque(self._workers)
        busy: dict[Connection[Any, Any], Task] = {}
        while waiting or busy:
            while waiting and free:
                connection = free.popleft()
                busy[connection] = waiting.popleft()
                connection.send(busy[connection])
            for ready in wait(list(busy)):
                connection = next(each for each in busy if each is ready)
                del busy[connection]
                free.append(connection)
                yield connection.recv()


def run_apart(task: Task, parts: Parts = USUAL) -> Outcome:
    """Runs a scenario in a process of its own, forked from this one, and waits for it."""
    pid, reading = _fork(task, parts)
    return _collect(task, pid, reading)


def _serve(connection: Connection[Any, Any], warm_up: Scenario, parts: Parts) -> NoReturn:
    """The whole life of a worker."""
    child = 0

    def end(_number: int, _frame: FrameType | None) -> None:
        if child:
            os.kill(child, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The terminal sends it to all; the first process decides.
    signal.signal(signal.SIGTERM, end)
    try:
        simulate(warm_up, make_load=parts.make_load, make_invariants=parts.make_invariants)
        gc.collect()
        gc.freeze()  # What is there now need not be copied for each run.
        while True:
            task = connection.recv()
            child, reading = _fork(task, parts)
            outcome = _collect(task, child, reading)
            child = 0
            connection.send(outcome)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _fork(task: Task, parts: Parts) -> tuple[int, int]:
    """Begins a run. Returns its process, and where it will write its outcome."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(reading)
        _run_one(task, parts, writing)
    os.close(writing)
    return pid, reading


def _collect(task: Task, pid: int, reading: int) -> Outcome:
    with open(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    if not answer:
        return _broken(task, "the process of the run died")
    outcome: Outcome = pickle.loads(answer)  # noqa: S301 (made by our own child)
    return outcome


def _run_one(task: Task, parts: Parts, writing: int) -> NoReturn:
    """The whole life of a run. What is left of it is not tidied up, for that would take time."""
    try:
        outcome = simulate(
            task.scenario,
            make_load=parts.make_load,
            make_invariants=parts.make_invariants,
            is_traced=task.is_traced,
        )
    except BaseException:
        outcome = _broken(task, traceback.format_exc())
    with open(writing, "wb") as pipe:
        pipe.write(pickle.dumps(outcome))
    os._exit(0)


def _broken(task: Task, text: str) -> Outcome:
    return Outcome(task.scenario.seed, (f"{BROKEN}: {text}",), 0, 0, 0, {}, 0, {})


def warm_up_of(scenario: Scenario) -> Scenario:
    return scenario._replace(seconds=WARM_UP_S, records=WARM_UP_RECORDS)
