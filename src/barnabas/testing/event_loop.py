"""Event loops in simulated time: many of them, one thread, one order of events.

    scheduler = Scheduler()
    loop = scheduler.new_loop("node 1")
    answer = loop.run(ask(), limit_s=60)

Theory of operation. A `Scheduler` has the time, and the only queue of callbacks there is. While something can be done
now, it is done, first come, first served; when nothing can, the time jumps to the next timer. So waiting costs nothing,
and a run depends on nothing but what it is made of: the same code and the same seeds give the same events in the same
order.

A `SimulatedLoop` is an asyncio event loop over a scheduler. Each thread of a real node that has an event loop has one
of these, each node of a cluster its own, and they all share one scheduler; `call_soon_threadsafe` between them is
`call_soon`. The loop knows no file descriptors of the system, but those of simulated sockets, by the numbers that the
scheduler gave them (`barnabas.testing.network`).

`kill` is the end of a process as `SIGKILL` brings it: no callback of the loop runs any more. Coroutines that were
suspended are kept as they are; to forget them would run their `finally` blocks, which a killed process does not do.
`pause` is `SIGSTOP`.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import logging
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

logger = logging.getLogger("asyncio")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STANDSTILL_EVENTS: Final = 1_000_000
"""So many events without any time passing are taken for an endless loop."""

_FIRST_DESCRIPTOR: Final = 1_000_000
"""Far beyond what a system gives out: a number that reaches the real system by mistake is an error there."""


class SimulationError(Exception):
    """What was simulated cannot go on, or did not end in time."""


class Descriptor(Protocol):
    """What a number that stands for a simulated socket leads to."""

    def watch_readable(self, callback: Callable[[], None] | None, loop: SimulatedLoop) -> bool:
        """Has `callback` called on `loop` again and again while there is something to read, None ends that. Whether
        somebody was watching before."""
        ...

    def watch_writable(self, callback: Callable[[], None] | None, loop: SimulatedLoop) -> bool: ...


class _Timer(asyncio.TimerHandle):
    """A callback in the scheduler's queue. What it uses of asyncio is private, except to those who write loops."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimulatedLoop,
        context: Context | None,
    ) -> None:
        # The same as asyncio does, in one place: there are tens of thousands in a simulated minute.
        self._when = when
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._scheduled = False
        self._repr = None
        self._source_traceback = None

    def run(self, running: SimulatedLoop | None) -> SimulatedLoop | None:
        """Has the callback run on its loop. Takes the loop that asyncio takes for the running one, and returns that."""
        loop: SimulatedLoop = self._loop
        if self._cancelled or loop.is_dead:
            return running
        if loop.held is not None:
            loop.held.append(self)
            return running
        if loop is not running:
            asyncio._set_running_loop(loop)  # noqa: SLF001
        self._run()
        return loop


class Scheduler:
    """The time, and what happens when. `now` is in seconds, and begins with 0."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        """How many callbacks have run."""
        self.after_event: Callable[[], None] | None = None
        """Looks at what has changed, and changes nothing."""
        self._ready: deque[_Timer] = deque()
        self._timers: list[tuple[float, int, _Timer]] = []
        self._sequence = 0
        self._descriptors: dict[int, Descriptor] = {}
        self._next_descriptor = _FIRST_DESCRIPTOR
        self._standstill = 0
        self._outside = self.new_loop("outside")
        """The loop of what belongs to no process: the network, and faults that are due at some time."""

    def new_loop(self, name: str) -> SimulatedLoop:
        return SimulatedLoop(self, name)  # type: ignore[abstract]  # for what is left out, see there

    def call_at(self, when: float, callback: Callable[[*Ts], object], *arguments: *Ts) -> asyncio.TimerHandle:
        return self._outside.call_at(when, callback, *arguments)

    def call_later(self, seconds: float, callback: Callable[[*Ts], object], *arguments: *Ts) -> asyncio.TimerHandle:
        return self._outside.call_at(self.now + seconds, callback, *arguments)

    def add(self, event: _Timer, when: float) -> None:
        """Has an event happen now, behind all others of this moment, or at its time."""
        if when <= self.now:
            self._ready.append(event)
        else:
            self._sequence += 1
            heapq.heappush(self._timers, (when, self._sequence, event))

    def run_until(self, is_reached: Callable[[], bool], *, limit_s: float) -> None:
        """Lets time pass until a condition holds. SimulationError if that takes longer than so many simulated seconds,
        or if nothing is left that could bring it about."""
        end = self.now + limit_s
        running = None
        try:
            while not is_reached():
                if not self._ready and not self._advance(end):
                    left = "nothing is left to happen" if not self._timers else f"it did not in {limit_s:g} s"
                    raise SimulationError(f"at {self.now:.6f} s: what was waited for will not come about: {left}")
                running = self._step(running)
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001

    def run_for(self, seconds: float) -> None:
        """Lets so much time pass."""
        end = self.now + seconds
        running = None
        ready, step = self._ready, self._step
        try:
            while ready or self._advance(end):
                running = step(running)
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001
        self.now = end

    def descriptor(self, number: int) -> Descriptor:
        found = self._descriptors.get(number)
        if found is None:
            raise SimulationError(f"{number} is no descriptor of a simulated socket")
        return found

    def is_descriptor(self, number: int) -> bool:
        return number in self._descriptors

    def new_descriptor(self, descriptor: Descriptor) -> int:
        self._next_descriptor += 1
        self._descriptors[self._next_descriptor] = descriptor
        return self._next_descriptor

    def close_descriptor(self, number: int) -> None:
        del self._descriptors[number]

    def _step(self, running: SimulatedLoop | None) -> SimulatedLoop | None:
        self.events += 1
        self._standstill += 1
        if self._standstill > STANDSTILL_EVENTS:
            raise SimulationError(f"at {self.now:.6f} s: {STANDSTILL_EVENTS} events and no time has passed")
        running = self._ready.popleft().run(running)
        if self.after_event is not None:
            self.after_event()
        return running

    def _advance(self, end: float) -> bool:
        """Goes to the next moment at which something happens, if there is one up to `end`."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers or timers[0][0] > end:
            return False
        self.now = timers[0][0]
        self._standstill = 0
        while timers and timers[0][0] <= self.now:
            self._ready.append(heapq.heappop(timers)[2])
        return True


class SimulatedLoop(asyncio.AbstractEventLoop):
    """An event loop of a simulated process. What it lacks (subprocesses, signals, real sockets), a simulated process
    has no use for, and meets as a NotImplementedError."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.errors: list[dict[str, Any]] = []
        """What nobody handled, as asyncio reports it."""
        self._scheduler = scheduler
        self.held: list[_Timer] | None = None
        """What is due while the loop is paused."""
        self._is_closed = False
        self._kept: list[asyncio.Task[Any]] = []

    def __repr__(self) -> str:
        return f"<SimulatedLoop {self.name!r} at {self._scheduler.now:.6f} s>"

    def run(self, work: Coroutine[Any, Any, T], *, limit_s: float) -> T:
        """Lets time pass, for everybody, until `work` is done here."""
        task: asyncio.Task[T] = self.create_task(work)
        try:
            self._scheduler.run_until(task.done, limit_s=limit_s)
        except SimulationError:
            self._kept.append(task)
            raise
        return task.result()

    def pause(self) -> None:
        """As SIGSTOP: nothing of the loop happens until `resume`, and then all that was due."""
        if self.held is None:
            self.held = []

    def resume(self) -> None:
        held, self.held = self.held or [], None
        for event in held:
            self._scheduler.add(event, self._scheduler.now)

    def kill(self) -> None:
        self.is_dead = True
        for task in asyncio.all_tasks(self):
            coroutine = task.get_coro()
            if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()  # it has no first step to be asked about
            self._kept.append(task)

    def forget(self) -> None:
        """Lets go of everything that a killed loop has kept. What Python runs of it then (`finally`, `except`) has no
        effect: nobody is there any more."""
        kept, self._kept = self._kept, []
        asyncio._set_running_loop(self)  # noqa: SLF001
        try:
            for task in kept:
                coroutine = task.get_coro()
                while inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) != inspect.CORO_CLOSED:
                    with suppress(BaseException):
                        coroutine.close()
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001

    # ── callbacks and time ───────────────────────────────────────────────────────────────────────────────────

    def time(self) -> float:
        return self._scheduler.now

    def turn_clock(self) -> float:
        """Simulated work takes no time, so no turn is ever too long (`ports.clock.turn_clock`)."""
        return self._scheduler.now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._scheduler.now, callback, *args, context=context)

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._scheduler.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self._is_closed:
            raise RuntimeError("Event loop is closed")
        event = _Timer(when, callback, args, self, context)
        if not self.is_dead:
            self._scheduler.add(event, when)
        return event

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """asyncio says so of every timer that is cancelled. It is left in the queue, and skipped there."""

    # ── futures and tasks ────────────────────────────────────────────────────────────────────────────────────

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, **options)

    def run_in_executor(
        self,
        executor: object,  # noqa: ARG002 (there are no threads: a function is an event like others)
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self.create_future()
        self.call_soon(run_into, done, func, args)
        return done

    # ── readiness of simulated sockets ───────────────────────────────────────────────────────────────────────

    def add_reader(self, fd: Any, callback: Callable[[*Ts], Any], *args: *Ts) -> None:
        self._scheduler.descriptor(fd).watch_readable(lambda: callback(*args), self)

    def remove_reader(self, fd: Any) -> bool:
        return self._scheduler.is_descriptor(fd) and self._scheduler.descriptor(fd).watch_readable(None, self)

    def add_writer(self, fd: Any, callback: Callable[[*Ts], Any], *args: *Ts) -> None:
        self._scheduler.descriptor(fd).watch_writable(lambda: callback(*args), self)

    def remove_writer(self, fd: Any) -> bool:
        return self._scheduler.is_descriptor(fd) and self._scheduler.descriptor(fd).watch_writable(None, self)

    # ── what else asyncio asks of a loop ─────────────────────────────────────────────────────────────────────

    def is_running(self) -> bool:
        return not self._is_closed and not self.is_dead

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True

    def get_debug(self) -> bool:
        return False

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        logger.error("%r: %s", self, context.get("message"), exc_info=context.get("exception"))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_dead:
            self.errors.append(context)
            self.default_exception_handler(context)


def run_into(done: asyncio.Future[T], function: Callable[[*Ts], T], arguments: tuple[*Ts]) -> None:
    """Calls a function and settles a future with what comes of it."""
    if done.cancelled():
        return
    try:
        result = function(*arguments)
    except BaseException as error:
        done.set_exception(error)
    else:
        done.set_result(result)
