"""The groups that this node coordinates: those in the partitions of `__consumer_offsets` that it leads.

Requests come in by group id and are taken to the group's partition; time comes in by one timer, for the earliest
moment at which anything in any partition happens by itself. What the steps of one turn of the event loop want written
goes to the logs at the end of that turn.

Time for groups is the wall clock's at the start, carried on by the monotonic clock: setting the clock of the machine,
or waking it from sleep, ends nobody's session.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.broker.groups.led_shard import LedShard, Surroundings
from barnabas.broker.groups.partitioning import OFFSETS_TOPIC, partition_of
from barnabas.groups.classic import GroupSettings
from barnabas.groups.shard import GroupShard, ShardSettings
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.broker.groups.led_shard import Step
    from barnabas.broker.server import Broker
    from barnabas.config.broker import BrokerConfig
    from barnabas.metadata.image import TopicImage

MS_PER_MINUTE = 60_000
LOADS_AT_ONCE = 4
"""Partitions that are read at a time: each takes a buffer of `offsets.load.buffer.size`."""

T = TypeVar("T")


class GroupCoordinator:
    """Follows the partitions that the node hosts from when it is made until it is closed."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._led: dict[int, LedShard] = {}
        self._stepped: dict[LedShard, None] = {}
        """The shards in which something happened in this turn of the event loop."""
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms: int | None = None
        """What the timer is set for."""
        self._clock_base_ms = broker.clock.now_ms() - int(broker.clock.monotonic() * 1000)
        self._surroundings = Surroundings(
            broker, self._make_shard, self._now_ms, self._on_step, asyncio.Semaphore(LOADS_AT_ONCE)
        )
        broker.replicas.on_change = self.follow

    # ── what handlers ask ────────────────────────────────────────────────────────────────────────────────────

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that has the group, or will have it when the topic is there."""
        topic = self._broker.image.topics.get(OFFSETS_TOPIC)
        count = self._broker.config.offsets_topic_num_partitions if topic is None else len(topic.partitions)
        return partition_of(group_id, count)

    async def step(self, group_id: str, step: Step) -> Any:
        """Takes a step in the group's partition. Returns its answer once that holds; KafkaError if it does not."""
        led = self._serving(self.partition_of(group_id))
        answer: asyncio.Future[Any] = self._broker.loop.create_future()
        led.step(step, answer)
        return await answer

    async def read(self, group_id: str, read: Callable[[GroupShard], T]) -> T:
        """Looks at a group. What is seen is told when all of it is committed."""
        return await self._read(self._serving(self.partition_of(group_id)), read)

    async def read_all(self, read: Callable[[GroupShard], T]) -> list[T]:
        """Looks at every partition that is led here; KafkaError while one of them is not loaded yet."""
        partitions = [index for index, led in self._led.items() if led.refusal is not Error.NOT_COORDINATOR]
        return await asyncio.gather(*[self._read(led, read) for led in map(self._serving, partitions)])

    def _serving(self, partition: int) -> LedShard:
        led = self._led.get(partition)
        if led is None:
            raise KafkaError(Error.NOT_COORDINATOR, f"{OFFSETS_TOPIC}-{partition} is not led by this node")
        if led.refusal is not None:
            raise KafkaError(led.refusal, f"the groups of {led.hosted} cannot be asked now")
        return led

    def _read(self, led: LedShard, read: Callable[[GroupShard], T]) -> asyncio.Future[T]:
        answer: asyncio.Future[T] = self._broker.loop.create_future()
        led.answer(answer, read(led.shard))
        return answer

    # ── following the metadata ───────────────────────────────────────────────────────────────────────────────

    def follow(self) -> None:
        """The partitions that are hosted here may have changed, or their leaders."""
        hosted = self._broker.replicas.partitions_of(OFFSETS_TOPIC)
        for index, led in list(self._led.items()):
            now = hosted.get(index)
            if now is not led.hosted or not now.state.is_leader or now.state.leader_epoch != led.epoch:
                self._give_up(index)
        for index, partition in hosted.items():
            if partition.state.is_leader and index not in self._led:
                self._led[index] = led = LedShard(partition, self._surroundings)
                led.load()

    def topics_deleted(self, topics: Iterable[TopicImage]) -> None:
        """Offsets of topics that are gone say nothing about later ones of the same name."""
        deleted = {topic.name: topic.topic_id for topic in topics}
        for led in self._led.values():
            led.topics_deleted(deleted)

    def close(self) -> None:
        """The node stops: whoever waits is sent off."""
        self._broker.replicas.on_change = None
        for index in list(self._led):
            self._give_up(index)
        self._set_timer(None)

    def _make_shard(self) -> GroupShard:
        return GroupShard(shard_settings(self._broker.config))

    def _give_up(self, index: int) -> None:
        led = self._led.pop(index)
        self._stepped.pop(led, None)
        led.resign()

    # ── turns and time ───────────────────────────────────────────────────────────────────────────────────────

    def _on_step(self, led: LedShard) -> None:
        if not self._stepped:
            self._broker.loop.call_soon(self._finish_turn)
        self._stepped[led] = None

    def _finish_turn(self) -> None:
        stepped, self._stepped = self._stepped, {}
        for led in stepped:
            led.finish_turn()
        self._wait_for_deadlines()

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
            delay_s = max(0, due_ms - self._now_ms()) / 1000
            self._timer = self._broker.loop.call_later(delay_s, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = self._due_ms = None
        now_ms = self._now_ms()
        for led in self._led.values():
            if led.deadline_ms is not None and led.deadline_ms <= now_ms:
                led.expire()
        self._wait_for_deadlines()

    def _now_ms(self) -> int:
        return self._clock_base_ms + int(self._broker.clock.monotonic() * 1000)


def shard_settings(config: BrokerConfig) -> ShardSettings:
    return ShardSettings(
        group=GroupSettings(
            group_min_session_timeout_ms=config.group_min_session_timeout_ms,
            group_max_session_timeout_ms=config.group_max_session_timeout_ms,
            group_max_size=config.group_max_size,
            group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        ),
        offsets_retention_ms=config.offsets_retention_minutes * MS_PER_MINUTE,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
    )
