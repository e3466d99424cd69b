"""Threads: for functions that block (files, mostly), and for event loops that must not share a thread with others.

A pool has a name, a number of threads and a bounded queue. `run` is called on an event loop and is done there, so that
the caller never knows which thread did the work. An event loop in a thread of its own (`LoopThread`) is how the
controller is kept from waiting for the broker: no slow disk and no large answer elsewhere delays what runs in it.

In a simulation (`barnabas.testing.threads`) there are no threads: what a pool runs is an event of the simulated time,
and a `LoopThread` is one more event loop in the same order of events.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator
    from concurrent.futures import Future

A = TypeVar("A")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

QUEUE_MAX: Final = 1 << 16
"""How many functions wait for a thread of a pool before another is refused."""


class ThreadsBusyError(Exception):
    """So many functions wait for a thread of this pool that one more would only make it worse."""


class ThreadPool(Protocol):
    def run(self, function: Callable[[*Ts], T], *arguments: *Ts) -> asyncio.Future[T]:
        """Calls a function in one of the threads. To be called on an event loop, where the future is done."""
        ...

    def shutdown(self) -> None:
        """Returns when everything that was to be run has been. Nothing more may be."""
        ...


class LoopThread(Protocol):
    """An event loop that runs by itself, until it is stopped."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts `work` on this loop, from any thread."""
        ...

    async def stop(self) -> None:
        """Ends the loop; what still runs is cancelled. Not to be called on the loop itself."""
        ...


class Threads(Protocol):
    def pool(self, name: str, threads: int, *, queue_max: int = QUEUE_MAX) -> ThreadPool: ...

    def loop_thread(self, name: str) -> LoopThread: ...

    def each(
        self, name: str, threads: int, function: Callable[[A], T], items: Iterable[A]
    ) -> Iterator[tuple[A, Future[T]]]:
        """Calls a function for each item, so many at once, and gives the outcomes as they come. Blocks: for what runs
        in a thread itself, or before there is a loop."""
        ...


class SystemThreadPool:
    __slots__ = ("_executor", "_lock", "_name", "_queue_max", "_unfinished")

    def __init__(self, name: str, threads: int, queue_max: int) -> None:
        self._name = name
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._queue_max = queue_max + threads
        self._lock = threading.Lock()
        self._unfinished = 0

    def run(self, function: Callable[[*Ts], T], *arguments: *Ts) -> asyncio.Future[T]:
        with self._lock:
            if self._unfinished >= self._queue_max:
                raise ThreadsBusyError(f"{self._unfinished} functions are waiting for the threads of {self._name!r}")
            self._unfinished += 1
        try:
            work = self._executor.submit(function, *arguments)
        except BaseException:
            self._finished()
            raise
        work.add_done_callback(self._finished)
        return asyncio.wrap_future(work)

    def shutdown(self) -> None:
        self._executor.shutdown()

    def _finished(self, _: object = None) -> None:
        with self._lock:
            self._unfinished -= 1


class SystemLoopThread:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            pending = asyncio.all_tasks(self._loop)
            for task in pending:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        finally:
            self._loop.close()


class SystemThreads:
    __slots__ = ()

    def pool(self, name: str, threads: int, *, queue_max: int = QUEUE_MAX) -> SystemThreadPool:
        return SystemThreadPool(name, threads, queue_max)

    def loop_thread(self, name: str) -> SystemLoopThread:
        return SystemLoopThread(name)

    def each(
        self, name: str, threads: int, function: Callable[[A], T], items: Iterable[A]
    ) -> Iterator[tuple[A, Future[T]]]:
        with ThreadPoolExecutor(threads, thread_name_prefix=name) as executor:
            waiting = {executor.submit(function, item): item for item in items}
            for done in as_completed(waiting):
                yield waiting[done], done
