"""A coordinator: the led partitions of its topic, the way to them, and their time.

A request goes to the partition of its group id or transactional id. One timer serves all partitions: it is set for the
earliest deadline in any of them. The records of one turn of the event loop are appended at the end of that turn.

Time for coordinators is the wall clock at the start, advanced by the monotonic clock: setting the machine's clock, or
waking the machine from sleep, ends no session.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from barnabas.broker.coordinators.coordinator_spec import CoordinatorEnvironment, CoordinatorSpec, S, partition_of
from barnabas.broker.coordinators.led_shard import LedShard, ShardRuntime
from barnabas.net.large_requests import Breather
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Sequence

    from barnabas.broker.coordinators.led_shard import PendingReply, Step
    from barnabas.coordination.effects import Action, Effects

NAMES_AT_ONCE = 500
"""Groups that are read in one go: about a millisecond's work."""
LOADS_AT_ONCE = 4
"""How many partitions are loaded at a time: each takes a buffer."""

T = TypeVar("T")


class ShardedCoordinator(ABC, Generic[S]):
    """Follows the partitions that this node hosts, until it is closed."""

    def __init__(self, environment: CoordinatorEnvironment, spec: CoordinatorSpec[S]) -> None:
        self._environment = environment
        self._spec = spec
        self._led: dict[int, LedShard[S]] = {}
        self._stepped: dict[LedShard[S], None] = {}
        """The partitions in which a step was taken in this turn of the event loop."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms: int | None = None
        """When the timer goes off."""
        clock = environment.clock
        self._clock_base_ms = clock.now_ms() - int(clock.monotonic() * 1000)
        self._runtime = ShardRuntime(
            environment, spec, self.now_ms, self._on_step, self.start_actions, asyncio.Semaphore(LOADS_AT_ONCE)
        )
        environment.replicas.listeners.append(self.follow)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────

    def partition_of(self, name: str) -> int:
        """The partition of a group id or transactional id, even if the topic does not exist yet."""
        topic = self._environment.image().topics.get(self._spec.topic)
        return partition_of(name, self._spec.partition_count() if topic is None else len(topic.partitions))

    def step(self, name: str, step: Step[S]) -> asyncio.Future[Any]:
        """Takes a step that writes in the partition of a name. Gives its answer when it is committed; KafkaError if it
        cannot be."""
        answer: asyncio.Future[Any] = self._environment.loop.create_future()
        self.begin_write(name, step, answer)
        return answer

    def begin_step(self, name: str, step: Step[S], waiting: PendingReply) -> None:
        """Takes a step in the partition of a name. Its answer, or its failure, goes to `waiting`."""
        try:
            self.serving(self.partition_of(name)).step(step, waiting)
        except KafkaError as failed:
            waiting.set_exception(failed)

    def begin_write(self, name: str, step: Step[S], waiting: PendingReply) -> None:
        """As `begin_step`, for a step that writes unless it refuses. Where too few replicas are in sync for that, it is
        not taken, so that the shard goes on serving those who only read, or say that they are alive."""
        try:
            led = self.serving(self.partition_of(name))
            led.require_writable()
            led.step(step, waiting)
        except KafkaError as failed:
            waiting.set_exception(failed)

    async def read(self, name: str, read: Callable[[S], T]) -> T:
        """Reads from the partition of a name. Returns when everything that was read is committed."""
        return await self._read(self.serving(self.partition_of(name)), read)

    async def read_all(self, read: Callable[[S], T]) -> list[T]:
        """Reads from every partition that this node leads; KafkaError while one of them is not loaded yet."""
        partitions = [index for index, led in self._led.items() if led.refusal is not Error.NOT_COORDINATOR]
        breather = Breather()
        reading = []
        for partition in partitions:
            reading.append(self._read(self.serving(partition), read))
            await breather.pause_if_due()
        return await asyncio.gather(*reading)

    async def read_all_in_slices(
        self, names_in: Callable[[S], Sequence[str]], read: Callable[[S, Sequence[str]], list[T]]
    ) -> list[T]:
        """As `read_all`, for shards with so many groups that reading all of one would keep others waiting."""
        breather = Breather()
        reading: list[asyncio.Future[list[T]]] = []
        for partition in [index for index, led in self._led.items() if led.refusal is not Error.NOT_COORDINATOR]:
            names = names_in(self.serving(partition).shard)
            for start in range(0, len(names), NAMES_AT_ONCE):
                some = names[start : start + NAMES_AT_ONCE]
                reading.append(self._read(self.serving(partition), lambda shard, some=some: read(shard, some)))  # type: ignore[misc]
                await breather.pause_if_due()
        return [each for some in await asyncio.gather(*reading) for each in some]

    def served_shards(self) -> list[S]:
        """The shards that serve requests now, for figures about them."""
        return [led.shard for led in list(self._led.values()) if led.refusal is None]

    def serving(self, partition: int) -> LedShard[S]:
        """A partition that serves requests; KafkaError if this node does not lead it, or has not loaded it yet."""
        led = self._led.get(partition)
        if led is None:
            raise KafkaError(Error.NOT_COORDINATOR, f"{self._spec.topic}-{partition} is not led by this node")
        if led.refusal is not None:
            raise KafkaError(led.refusal, f"the {self._spec.what} of {led.hosted} are not available now")
        return led

    def _read(self, led: LedShard[S], read: Callable[[S], T]) -> asyncio.Future[T]:
        answer: asyncio.Future[T] = self._environment.loop.create_future()
        led.answer(answer, read(led.shard))
        return answer

    # ── following the metadata ───────────────────────────────────────────────────────────────────────────────

    def follow(self) -> None:
        """The partitions that this node hosts, or their leaders, may have changed."""
        hosted = self._environment.replicas.partitions_of(self._spec.topic)
        lost = [index for index, led in self._led.items() if hosted.get(index) is not led.hosted or not led.is_led()]
        self._resign(lost)
        for index, partition in hosted.items():
            if partition.state.is_leader and index not in self._led:
                self._led[index] = led = LedShard(partition, self._runtime)
                led.load()

    def tell(self, event: Callable[[S], Effects]) -> None:
        """Tells all shards of an event outside."""
        for led in self._led.values():
            led.tell(event)

    def close(self) -> None:
        """The node stops: waiting requests are answered NOT_COORDINATOR. May be called again."""
        for task in self._tasks:
            task.cancel()
        if self.follow in self._environment.replicas.listeners:
            self._environment.replicas.listeners.remove(self.follow)
        self._resign(list(self._led))
        self._set_timer(None)

    @abstractmethod
    def start_actions(self, led: LedShard[S], actions: list[Action]) -> None:
        """Carries out actions of steps that are committed."""

    def run_in_background(self, action: Coroutine[Any, Any, None]) -> None:
        """Carries out an action that has to wait for something. It is cancelled when the coordinator is closed."""
        task = asyncio.ensure_future(action)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def shards_resigned(self, partitions: Collection[int]) -> None:
        """The shards of these partitions do not serve any more: what is under way for them is void."""

    def _resign(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            led = self._led.pop(partition)
            self._stepped.pop(led, None)
            led.resign()
        if partitions:
            self.shards_resigned(partitions)

    # ── turns and time ───────────────────────────────────────────────────────────────────────────────────────

    def _on_step(self, led: LedShard[S]) -> None:
        if not self._stepped:
            self._environment.loop.call_soon(self._finish_turn)
        self._stepped[led] = None

    def _finish_turn(self) -> None:
        stepped, self._stepped = self._stepped, {}
        for led in stepped:
            led.finish_turn()
            # A deadline that moved to later leaves the timer alone: it looks for the next deadline when it goes off.
            if led.deadline_ms is not None and (self._due_ms is None or led.deadline_ms < self._due_ms):
                self._set_timer(led.deadline_ms)

    def _wait_for_deadlines(self) -> None:
        due_ms = min((led.deadline_ms for led in self._led.values() if led.deadline_ms is not None), default=None)
        self._set_timer(due_ms)

    def _set_timer(self, due_ms: int | None) -> None:
        if due_ms == self._due_ms:
            return
        self._due_ms = due_ms
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ms is not None:
            delay_s = max(0, due_ms - self.now_ms()) / 1000
            self._timer = self._environment.loop.call_later(delay_s, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = self._due_ms = None
        now_ms = self.now_ms()
        for led in self._led.values():
            if led.deadline_ms is not None and led.deadline_ms <= now_ms:
                led.expire()
        self._wait_for_deadlines()

    def now_ms(self) -> int:
        return self._clock_base_ms + int(self._environment.clock.monotonic() * 1000)
