"""Threads that are none: what would run in them is an event of the simulated time.

A pool has as many places as it would have threads. A function that has a place runs, all at once, when the time that
it is said to take is up; those behind it wait for a place. So a slow disk is a pool whose functions take long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, TypeVarTuple

from barnabas.ports.threads import QUEUE_MAX, ThreadsBusyError
from barnabas.testing.event_loop import SimulationError, run_into

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    from barnabas.testing.event_loop import Scheduler, SimulatedLoop

A = TypeVar("A")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SimulatedThreads:
    """The `Threads` of one simulated process. `takes_s` says how long each function takes that a pool is given, by the
    pool's name; it may ask chance for that, and may be replaced at any time."""

    def __init__(self, scheduler: Scheduler, name: str = "process") -> None:
        self.scheduler = scheduler
        self.takes_s: Callable[[str], float] = lambda _pool: 0.0
        self.loops: list[SimulatedLoop] = []
        """Those of its loop threads, which end with the process."""
        self._name = name

    def pool(self, name: str, threads: int, *, queue_max: int = QUEUE_MAX) -> SimulatedThreadPool:
        return SimulatedThreadPool(self, name, threads, queue_max)

    def loop_thread(self, name: str) -> SimulatedLoopThread:
        loop = self.scheduler.new_loop(f"{self._name} {name}")
        self.loops.append(loop)
        return SimulatedLoopThread(loop)

    def each(
        self,
        name: str,  # noqa: ARG002 (one after the other, and in no time: whoever waits for it blocks)
        threads: int,  # noqa: ARG002
        function: Callable[[A], T],
        items: Iterable[A],
    ) -> Iterator[tuple[A, Future[T]]]:
        for item in items:
            done: Future[T] = Future()
            try:
                done.set_result(function(item))
            except Exception as error:
                done.set_exception(error)
            yield item, done


class _Work(NamedTuple):
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[Any]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class SimulatedThreadPool:
    def __init__(self, threads: SimulatedThreads, name: str, size: int, queue_max: int) -> None:
        self._threads = threads
        self._name = name
        self._free = size
        self._queue_max = queue_max
        self._waiting: deque[_Work] = deque()
        self._is_shut_down = False

    def run(self, function: Callable[[*Ts], T], *arguments: *Ts) -> asyncio.Future[T]:
        if self._is_shut_down:
            raise RuntimeError(f"the threads of {self._name!r} have ended")
        if len(self._waiting) >= self._queue_max:
            raise ThreadsBusyError(f"{len(self._waiting)} functions are waiting for the threads of {self._name!r}")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._waiting.append(_Work(loop, done, function, arguments))
        self._begin()
        return done

    def shutdown(self) -> None:
        """A real pool waits here for what it has yet to run, which in simulated time cannot be."""
        if self._waiting:
            raise SimulationError(f"{len(self._waiting)} functions still wait for the threads of {self._name!r}")
        self._is_shut_down = True

    def _begin(self) -> None:
        if self._free and self._waiting:
            self._free -= 1
            work = self._waiting.popleft()
            work.loop.call_later(self._threads.takes_s(self._name), self._finish, work)

    def _finish(self, work: _Work) -> None:
        self._free += 1
        run_into(work.done, work.function, work.arguments)
        self._begin()


class SimulatedLoopThread:
    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    @property
    def loop(self) -> SimulatedLoop:
        return self._loop

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def stop(self) -> None:
        pending = asyncio.all_tasks(self._loop)
        for task in pending:
            task.cancel()

        async def ended() -> None:
            await asyncio.gather(*pending, return_exceptions=True)

        await asyncio.wrap_future(self.submit(ended()))
        self._loop.close()
