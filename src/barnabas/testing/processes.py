"""Worker processes that are none: tasks are called here, one after the other.

They go through the same pickling and the same limits as those that travel to a real process, so that one that could
not travel fails here as well.
"""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from barnabas.ports.processes import WorkerLimits, WorkersBusyError, WorkersClosedError, pickled_task
from barnabas.worker_process import find

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class InlineProcesses:
    """A `Processes`. `takes_s` says how long each task takes; on a simulated loop that is simulated time."""

    def __init__(self, limits: WorkerLimits | None = None, takes_s: Callable[[], float] = lambda: 0.0) -> None:
        self.limits = limits or WorkerLimits()
        self.takes_s = takes_s
        self._free = asyncio.Semaphore(self.limits.workers_max)
        self._waiting = 0
        self._is_closed = False

    async def run(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        if self._is_closed:
            raise WorkersClosedError(f"{function.__qualname__} was not begun: the worker processes have been closed")
        if self._free.locked() and self._waiting >= self.limits.queue_max:
            raise WorkersBusyError(f"{function.__qualname__} was not begun: {self._waiting} tasks wait for a worker")
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            await asyncio.sleep(self.takes_s())
            if self._is_closed:
                raise WorkersClosedError(f"{function.__qualname__} was broken off: the worker processes were closed")
            return self._call(pickled_task(function, arguments, self.limits.task_bytes_max))
        finally:
            self._free.release()

    async def stream(
        self,
        function: Callable[[*Ts], Iterator[T]],
        *arguments: *Ts,
        extra_memory_bytes: int = 0,  # noqa: ARG002
    ) -> AsyncGenerator[T, None]:
        """Steps go through the same pickling, too. Whatever memory they need, they have."""
        if self._is_closed:
            raise WorkersClosedError(f"{function.__qualname__} was not begun: the worker processes have been closed")
        module, name, sent = pickle.loads(pickled_task(function, arguments, self.limits.task_bytes_max))  # noqa: S301
        steps: Iterator[T] = find(module, name)(*sent)  # type: ignore[assignment]
        while True:
            await asyncio.sleep(self.takes_s())
            if self._is_closed:
                raise WorkersClosedError(f"{function.__qualname__} was broken off: the worker processes were closed")
            try:
                step = next(steps)
            except StopIteration:
                return
            yield self._travelled(step)

    async def close(self) -> None:
        self._is_closed = True

    def _call(self, task: bytes) -> T:  # type: ignore[type-var]
        module, name, arguments = pickle.loads(task)  # noqa: S301 (made a moment ago)
        return self._travelled(find(module, name)(*arguments))  # type: ignore[return-value]

    def _travelled(self, outcome: T) -> T:
        result = pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL)
        if len(result) > self.limits.result_bytes_max:
            raise ValueError(f"the result has {len(result)} bytes, and {self.limits.result_bytes_max} are allowed")
        return pickle.loads(result)  # type: ignore[no-any-return]  # noqa: S301 (made a moment ago)
