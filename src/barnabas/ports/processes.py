"""Worker processes: for work that would keep an interpreter busy, and with it the event loop.

    opened = await workers.run(open_batch, data)

    async with aclosing(workers.stream(clean_log, disk, order)) as steps:
        async for step in steps: …

A thread does not help there: it holds the interpreter that the event loop needs. A task is a function of some module,
named by that module, with arguments and a result that can be pickled; it is called in another process, and what it
raises is raised here. So it must depend on nothing but its arguments.

Work that takes minutes comes as a stream: its function is a generator, and goes on to the next step only when that is
asked for. It has a process to itself, beside those for short tasks, which gives way to tasks that a client waits for.

Theory of operation. Each worker is a process and, in this one, a thread that hands it tasks over a socket pair and
waits for their outcomes, so that `run` may be called on any event loop. Both are started when there is a task and no
idle one to take it, up to `workers_max`, and end after `idle_seconds`: a node at rest has none. A worker is a new
interpreter (`barnabas.worker_process`), not a fork: it inherits no socket, no lock and none of this process's memory.

What can go wrong: a task that raises is just that. A worker that dies (killed, out of memory, crashed in compiled
code) fails its task with `WorkerDiedError`, and the next task gets a new worker. A task that takes longer than
`task_seconds_max`, or a step of a stream that does, has its worker killed. When this process dies, however it does, the
workers see the end of their streams and end too.

Limits. A task's bytes, its result's bytes and a worker's address space are limited, and so is the number of tasks that
wait: beyond it `run` raises `WorkersBusyError` at once. How many streams there are is up to the callers.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, TypeVarTuple

from barnabas import worker_process
from barnabas.worker_process import LENGTH, TaskFailedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

__all__ = [
    "Processes",
    "SystemProcesses",
    "TaskFailedError",
    "TaskTimeoutError",
    "TaskTooLargeError",
    "WorkerDiedError",
    "WorkerError",
    "WorkerLimits",
    "WorkersBusyError",
    "WorkersClosedError",
    "pickled_task",
]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MIB: Final = 1 << 20
STREAM_NICENESS: Final = 10


class WorkerError(Exception):
    """A task was not carried out."""


class WorkersBusyError(WorkerError):
    """As many tasks as may wait are waiting."""


class TaskTooLargeError(WorkerError):
    """A task has more bytes than may be sent to a worker."""


class TaskTimeoutError(WorkerError):
    """A task took too long, and its worker was killed."""


class WorkerDiedError(WorkerError):
    """The process that worked on a task ended before it was done."""


class WorkersClosedError(WorkerError):
    """The workers were told to end."""


class WorkerLimits(NamedTuple):
    workers_max: int = 2
    queue_max: int = 256
    """How many tasks may wait for a worker."""
    task_bytes_max: int = 128 * MIB
    """What one task may bring, pickled: a batch that fills a request of the size that is allowed by default."""
    result_bytes_max: int = 128 * MIB
    task_seconds_max: float = 60.0
    idle_seconds: float = 30.0
    """A worker without a task for so long ends."""
    memory_bytes_max: int = 2048 * MIB
    """The address space of a worker. A task that needs more meets a MemoryError there."""


class Processes(Protocol):
    async def run(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """What the function returns or raises in a worker process. Whoever is cancelled meanwhile leaves the task to
        its end, unless it has not begun."""
        ...

    def stream(
        self, function: Callable[[*Ts], Iterator[T]], *arguments: *Ts, extra_memory_bytes: int = 0
    ) -> AsyncGenerator[T, None]:
        """What a generator yields in a worker process of its own, step by step: it waits after each until the next is
        asked for. To be closed (`aclosing`), which kills the process. `extra_memory_bytes` is what the work needs
        beyond what any may have."""
        ...

    async def close(self) -> None:
        """Kills the workers. Tasks that are not done fail."""
        ...


def pickled_task(function: Callable[..., object], arguments: tuple[object, ...], bytes_max: int) -> bytes:
    """A task as it travels."""
    module, name = function.__module__, function.__qualname__
    if module == "__main__" or "<" in name:
        raise ValueError(f"{name} of {module} is no function that another process could find by its name")
    task = pickle.dumps((module, name, arguments), pickle.HIGHEST_PROTOCOL)
    if len(task) > bytes_max:
        raise TaskTooLargeError(f"a task of {module}.{name} has {len(task)} bytes, and {bytes_max} are allowed")
    return task


class _Task(NamedTuple):
    function: Callable[..., object]
    arguments: tuple[object, ...]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[Any]

    def __str__(self) -> str:
        return f"{self.function.__module__}.{self.function.__qualname__}"

    def succeed(self, result: object) -> None:
        self._settle(self.done.set_result, result)

    def fail(self, error: BaseException) -> None:
        self._settle(self.done.set_exception, error)

    def _settle(self, settle: Callable[[Any], None], value: object) -> None:
        def settle_on_loop() -> None:
            if not self.done.done():
                settle(value)

        with suppress(RuntimeError):  # the loop that asked has been closed, and nobody is left to be told
            self.loop.call_soon_threadsafe(settle_on_loop)


class SystemProcesses:
    def __init__(self, limits: WorkerLimits | None = None) -> None:
        self.limits = limits or WorkerLimits()
        self._changed = threading.Condition()
        """Held for every look at what follows, and told of tasks that have come and of the end."""
        self._waiting: deque[_Task] = deque()
        self._serving = 0
        """How many threads take tasks, or will when they are done with what they do."""
        self._idle = 0
        """How many of them have no task, those that have just been started for one included."""
        self._threads: set[threading.Thread] = set()
        self._workers: set[_Worker] = set()
        self._streams: set[queue.SimpleQueue[_Task | None]] = set()
        """For each stream, the steps that it is asked for; None ends it."""
        self._worker_of_stream: dict[queue.SimpleQueue[_Task | None], _Worker] = {}
        self._is_closed = False

    @property
    def pids(self) -> list[int]:
        """The processes that there are at this moment."""
        with self._changed:
            return sorted(worker.pid for worker in self._workers)

    async def run(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        loop = asyncio.get_running_loop()
        task = _Task(function, arguments, loop, loop.create_future())
        with self._changed:
            if self._is_closed:
                raise WorkersClosedError(f"{task} was not begun: the worker processes have been closed")
            if len(self._waiting) >= self.limits.queue_max:
                raise WorkersBusyError(f"{task} was not begun: {self.limits.queue_max} tasks wait for a worker process")
            self._waiting.append(task)
            if self._idle >= len(self._waiting) or self._serving >= self.limits.workers_max:
                self._changed.notify()
            else:
                self._serving += 1
                self._idle += 1
                thread = threading.Thread(target=self._serve, name="worker process", daemon=True)
                self._threads.add(thread)
                thread.start()
        result: T = await task.done
        return result

    async def stream(
        self, function: Callable[[*Ts], Iterator[T]], *arguments: *Ts, extra_memory_bytes: int = 0
    ) -> AsyncGenerator[T, None]:
        loop = asyncio.get_running_loop()
        limits = self.limits._replace(memory_bytes_max=self.limits.memory_bytes_max + extra_memory_bytes)
        first = _Task(function, arguments, loop, loop.create_future())
        asked: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        with self._changed:
            if self._is_closed:
                raise WorkersClosedError(f"{first} was not begun: the worker processes have been closed")
            thread = threading.Thread(
                target=self._serve_stream, args=(limits, asked), name="worker stream", daemon=True
            )
            self._threads.add(thread)
            self._streams.add(asked)
            thread.start()
        step: _Task = first
        try:
            while True:
                asked.put(step)
                kind, value = await step.done
                if kind == worker_process.DONE:
                    return
                yield value
                step = step._replace(done=loop.create_future())
        finally:
            asked.put(None)
            self._kill_worker_of(asked)

    def _serve_stream(self, limits: WorkerLimits, asked: queue.SimpleQueue[_Task | None]) -> None:
        """The life of the worker of a stream: it makes a step whenever one is asked for."""
        worker: _Worker | None = None
        try:
            while (step := asked.get()) is not None:
                try:
                    if worker is None:
                        worker = self._start_for_stream(limits, asked)
                        data = pickled_task(step.function, step.arguments, limits.task_bytes_max)
                    outcome = worker.ask(step, data)
                    data = b""
                except BaseException as error:
                    closed = WorkersClosedError(f"{step} was broken off: the worker processes have been closed")
                    step.fail(closed if self._is_closed and isinstance(error, WorkerDiedError) else error)
                else:
                    step.succeed(outcome)
        finally:
            self._end(worker)
            with self._changed:
                self._streams.discard(asked)
                self._worker_of_stream.pop(asked, None)
                self._threads.discard(threading.current_thread())

    def _start_for_stream(self, limits: WorkerLimits, asked: queue.SimpleQueue[_Task | None]) -> _Worker:
        worker = _Worker(limits, STREAM_NICENESS)
        with self._changed:
            self._workers.add(worker)
            self._worker_of_stream[asked] = worker
            if self._is_closed:
                worker.kill()
        return worker

    def _kill_worker_of(self, asked: queue.SimpleQueue[_Task | None]) -> None:
        """A stream that is left in the middle of a step would hold up its thread until the end of the step."""
        with self._changed:
            worker = self._worker_of_stream.get(asked)
        if worker is not None:
            worker.kill()

    async def close(self) -> None:
        with self._changed:
            self._is_closed = True
            for asked in self._streams:
                asked.put(None)
            unbegun, threads = list(self._waiting), list(self._threads)
            self._waiting.clear()
            for worker in self._workers:
                worker.kill()
            self._changed.notify_all()
        for task in unbegun:
            task.fail(WorkersClosedError(f"{task} was not begun: the worker processes have been closed"))
        if threads:
            await asyncio.get_running_loop().run_in_executor(None, _join, threads)

    def _serve(self) -> None:
        """The life of one worker, and of those that take its place when it dies."""
        worker: _Worker | None = None
        try:
            while (task := self._next()) is not None:
                worker = self._perform(task, worker)
                del task  # or its arguments would stay in memory until the next one
        finally:
            self._end(worker)
            with self._changed:
                self._threads.discard(threading.current_thread())

    def _next(self) -> _Task | None:
        """The next task; None when it is time to end. A thread that ends has left before another task can count on it,
        as both happen under the same lock."""
        with self._changed:
            while not self._is_closed:
                while self._waiting:
                    task = self._waiting.popleft()
                    if not task.done.cancelled():
                        self._idle -= 1
                        return task
                if not self._changed.wait(self.limits.idle_seconds) and not self._waiting:
                    break
            self._idle -= 1
            self._serving -= 1
            return None

    def _perform(self, task: _Task, worker: _Worker | None) -> _Worker | None:
        """Has a worker do a task; returns the worker for the next one."""
        settle: Callable[[Any], None] = task.succeed
        outcome: object
        try:
            if worker is None or worker.has_ended():
                worker = self._replace(worker)
            outcome = worker.perform(task)
        except BaseException as error:
            settle, outcome = task.fail, error
            if self._is_closed and isinstance(error, WorkerDiedError):
                outcome = WorkersClosedError(f"{task} was broken off: the worker processes have been closed")
        with self._changed:
            self._idle += 1  # before anybody hears of the outcome: who then has another task finds us here
        settle(outcome)
        return worker

    def _replace(self, former: _Worker | None) -> _Worker:
        self._end(former)
        worker = _Worker(self.limits)
        with self._changed:
            self._workers.add(worker)
            if self._is_closed:
                worker.kill()
        return worker

    def _end(self, worker: _Worker | None) -> None:
        if worker is not None:
            with self._changed:
                self._workers.discard(worker)
            worker.end()


class _Worker:
    """A process, and the stream to it. To be used by one thread, except for `kill`."""

    def __init__(self, limits: WorkerLimits, niceness: int = 0) -> None:
        self._limits = limits
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: S603 (our own file, in our own interpreter)
                    [
                        sys.executable,
                        "-S",
                        "-P",
                        worker_process.__file__,
                        str(theirs.fileno()),
                        str(limits.result_bytes_max),
                        str(limits.memory_bytes_max),
                        str(niceness),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env={
                        **os.environ,
                        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
                        # NumPy's would reserve memory for a thread on each core, more than a worker may have.
                        "OPENBLAS_NUM_THREADS": "1",
                    },
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        self._socket = ours
        self._socket.settimeout(limits.task_seconds_max)

    @property
    def pid(self) -> int:
        return self._process.pid

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def perform(self, task: _Task) -> object:
        return self.ask(task, pickled_task(task.function, task.arguments, self._limits.task_bytes_max))[1]

    def ask(self, task: _Task, data: bytes) -> tuple[int, object]:
        """Sends a task, or nothing, which has a stream go on; returns what kind of outcome it has, and the outcome."""
        try:
            self._socket.sendall(LENGTH.pack(len(data)))
            self._socket.sendall(data)
            (size,) = LENGTH.unpack(self._receive(LENGTH.size))
            outcome: tuple[Any, ...] = pickle.loads(self._receive(size))  # noqa: S301 (from a process of our own)
        except TimeoutError:
            self.kill()
            self._process.wait()
            raise TaskTimeoutError(
                f"{task} took more than {self._limits.task_seconds_max:g} s: its worker process {self.pid} was killed"
            ) from None
        except OSError as error:
            raise self._death(task) from error
        if outcome[0] == worker_process.FAILED:
            failure, trace = outcome[1:]
            failure.add_note(f"In worker process {self.pid}:\n{trace}")
            raise failure
        kind, result = outcome
        return kind, result

    def _receive(self, size: int) -> bytearray:
        if size > self._limits.result_bytes_max + MIB:
            raise OSError(f"a worker process announces {size} bytes")
        data = bytearray(size)
        view = memoryview(data)
        while view:
            received = self._socket.recv_into(view)
            if not received:
                raise ConnectionResetError("the stream ended")
            view = view[received:]
        return data

    def _death(self, task: _Task) -> WorkerDiedError:
        self.kill()
        code = self._process.wait()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return WorkerDiedError(f"worker process {self.pid}, at work on {task}, {how}; the next task gets a new one")

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join()
