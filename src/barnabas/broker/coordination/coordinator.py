"""A coordinator: what it looks after lives in the partitions of its topic that this node leads.

Requests come in by group id or transactional id and are taken to its partition; time comes in by one timer, for the
earliest moment at which anything in any partition happens by itself. What the steps of one turn of the event loop want
written goes to the logs at the end of that turn.

Time for coordinators is the wall clock's at the start, carried on by the monotonic clock: setting the clock of the
machine, or waking it from sleep, ends nobody's session.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from barnabas.broker.coordination.kinds import Kind, S
from barnabas.broker.coordination.led_shard import LedShard, Surroundings
from barnabas.broker.coordination.partitioning import partition_of
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from barnabas.broker.coordination.led_shard import Step, Waiting
    from barnabas.broker.server import Broker
    from barnabas.coordination.effects import Effects

LOADS_AT_ONCE = 4
"""Partitions that are read at a time: each takes a buffer."""

T = TypeVar("T")


class ShardedCoordinator(ABC, Generic[S]):
    """Follows the partitions that the node hosts from when it is made until it is closed."""

    def __init__(self, broker: Broker, kind: Kind[S]) -> None:
        self._broker = broker
        self._kind = kind
        self._led: dict[int, LedShard[S]] = {}
        self._stepped: dict[LedShard[S], None] = {}
        """The shards in which something happened in this turn of the event loop."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms: int | None = None
        """What the timer is set for."""
        self._clock_base_ms = broker.clock.now_ms() - int(broker.clock.monotonic() * 1000)
        self._surroundings = Surroundings(
            broker, kind, self.now_ms, self._on_step, self.carry_out, asyncio.Semaphore(LOADS_AT_ONCE)
        )
        broker.replicas.listeners.append(self.follow)

    # ── what handlers ask ────────────────────────────────────────────────────────────────────────────────────

    def partition_of(self, name: str) -> int:
        """The partition that has what is called so, or will have it when the topic is there."""
        topic = self._broker.image.topics.get(self._kind.topic)
        return partition_of(name, self._kind.partition_count() if topic is None else len(topic.partitions))

    def step(self, name: str, step: Step[S]) -> asyncio.Future[Any]:
        """Takes a step in the partition of a name. Its answer comes once it holds; KafkaError if it does not."""
        answer: asyncio.Future[Any] = self._broker.loop.create_future()
        self.begin_step(name, step, answer)
        return answer

    def begin_step(self, name: str, step: Step[S], waiting: Waiting) -> None:
        """Takes a step in the partition of a name. Its answer goes to `waiting`, and so does what goes wrong."""
        try:
            self.serving(self.partition_of(name)).step(step, waiting)
        except KafkaError as failed:
            waiting.set_exception(failed)

    async def read(self, name: str, read: Callable[[S], T]) -> T:
        """Looks at what is called so. What is seen is told when all of it is committed."""
        return await self._read(self.serving(self.partition_of(name)), read)

    async def read_all(self, read: Callable[[S], T]) -> list[T]:
        """Looks at every partition that is led here; KafkaError while one of them is not loaded yet."""
        partitions = [index for index, led in self._led.items() if led.refusal is not Error.NOT_COORDINATOR]
        return await asyncio.gather(*[self._read(led, read) for led in map(self.serving, partitions)])

    def serving(self, partition: int) -> LedShard[S]:
        """A partition that can be asked; KafkaError if it is not here, or not loaded yet."""
        led = self._led.get(partition)
        if led is None:
            raise KafkaError(Error.NOT_COORDINATOR, f"{self._kind.topic}-{partition} is not led by this node")
        if led.refusal is not None:
            raise KafkaError(led.refusal, f"the {self._kind.what} of {led.hosted} cannot be asked now")
        return led

    def _read(self, led: LedShard[S], read: Callable[[S], T]) -> asyncio.Future[T]:
        answer: asyncio.Future[T] = self._broker.loop.create_future()
        led.answer(answer, read(led.shard))
        return answer

    # ── following the metadata ───────────────────────────────────────────────────────────────────────────────

    def follow(self) -> None:
        """The partitions that are hosted here may have changed, or their leaders."""
        hosted = self._broker.replicas.partitions_of(self._kind.topic)
        for index, led in list(self._led.items()):
            now = hosted.get(index)
            if now is not led.hosted or not now.state.is_leader or now.state.leader_epoch != led.epoch:
                self._give_up(index)
        for index, partition in hosted.items():
            if partition.state.is_leader and index not in self._led:
                self._led[index] = led = LedShard(partition, self._surroundings)
                led.load()

    def tell(self, told: Callable[[S], Effects]) -> None:
        """Tells all shards of something that happened outside."""
        for led in self._led.values():
            led.tell(told)

    def close(self) -> None:
        """The node stops: whoever waits is sent off. May be called again."""
        for task in self._tasks:
            task.cancel()
        if self.follow in self._broker.replicas.listeners:
            self._broker.replicas.listeners.remove(self.follow)
        for index in list(self._led):
            self._give_up(index)
        self._set_timer(None)

    @abstractmethod
    def carry_out(self, led: LedShard[S], orders: list[object]) -> None:
        """Orders of a step hold now."""

    def run_aside(self, order: Coroutine[Any, Any, None]) -> None:
        """Carries out what has to wait for something, until the coordinator is closed."""
        task = asyncio.ensure_future(order)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _give_up(self, index: int) -> None:
        led = self._led.pop(index)
        self._stepped.pop(led, None)
        led.resign()

    # ── turns and time ───────────────────────────────────────────────────────────────────────────────────────

    def _on_step(self, led: LedShard[S]) -> None:
        if not self._stepped:
            self._broker.loop.call_soon(self._finish_turn)
        self._stepped[led] = None

    def _finish_turn(self) -> None:
        stepped, self._stepped = self._stepped, {}
        for led in stepped:
            led.finish_turn()
            # A deadline that was put off does not move the timer: it looks around when it goes off, and is set anew.
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
            self._timer = self._broker.loop.call_later(delay_s, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = self._due_ms = None
        now_ms = self.now_ms()
        for led in self._led.values():
            if led.deadline_ms is not None and led.deadline_ms <= now_ms:
                led.expire()
        self._wait_for_deadlines()

    def now_ms(self) -> int:
        return self._clock_base_ms + int(self._broker.clock.monotonic() * 1000)
