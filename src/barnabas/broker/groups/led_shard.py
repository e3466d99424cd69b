"""One partition of `__consumer_offsets` that this node leads, in one leader epoch, and the groups that live in it.

Theory of operation. The groups are a pure state machine (`GroupShard`). A step changes it at once and says what is to
be written and answered. What the steps of one turn of the event loop want written is appended at the end of that turn
together. Answers leave when the high watermark has passed what was written before them, in their order; the answer to
a step that wrote nothing, while nothing else is under way, leaves at once.

    loading ──▶ serving ──▶ resigned
       ▲           │
       └───────────┘  an append failed: the state has what the log has not, so it is read back from the log

A node that loses the partition, or leads it in a new epoch, makes another object for it. Whoever waits for an answer
here is told NOT_COORDINATOR.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.groups.batches import batches_of
from barnabas.broker.groups.failures import for_group_clients
from barnabas.broker.groups.loading import replay_log
from barnabas.protocol.errors import DecodeError, EncodeError, Error, KafkaError
from barnabas.replication.hosted import ACKS_ALL
from barnabas.replication.purgatory import Parked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.broker.server import Broker
    from barnabas.coordination.effects import Effects, Record, ReplyTo
    from barnabas.groups.shard import GroupShard
    from barnabas.protocol.uuids import Uuid
    from barnabas.replication.hosted import HostedPartition

    Answers = list[tuple[ReplyTo, object]]
    Step = Callable[[GroupShard, ReplyTo, int], Effects]
    """Takes the shard, whom to answer, and the time in ms."""

logger = logging.getLogger("barnabas.groups")

RETRY_LOADING_SECONDS = 2.0
"""After a log that could not be read, before it is tried again."""


class Surroundings(NamedTuple):
    """What all led partitions of a node have in common."""

    broker: Broker
    make_shard: Callable[[], GroupShard]
    now_ms: Callable[[], int]
    on_step: Callable[[LedShard], None]
    """Called when a step was taken: `finish_turn` is to follow at the end of the turn."""
    loads_at_once: asyncio.Semaphore


class LedShard:
    __slots__ = (
        "_answers",
        "_deleted_topics",
        "_loading",
        "_records",
        "_surroundings",
        "_undelivered",
        "_written_to",
        "deadline_ms",
        "epoch",
        "hosted",
        "refusal",
        "shard",
    )

    def __init__(self, hosted: HostedPartition, surroundings: Surroundings) -> None:
        self.hosted = hosted
        self.epoch = hosted.state.leader_epoch
        self.shard = surroundings.make_shard()
        self.refusal: Error | None = Error.COORDINATOR_LOAD_IN_PROGRESS
        """What requests are answered while the groups cannot be asked; None when they can."""
        self.deadline_ms: int | None = None
        """When time alone changes something, as of the end of the last turn."""
        self._surroundings = surroundings
        self._records: list[list[Record]] = []
        """Of this turn, step by step."""
        self._answers: Answers = []
        """Of this turn."""
        self._undelivered: deque[Delivery] = deque()
        """Of earlier turns."""
        self._written_to = 0
        self._deleted_topics: dict[str, Uuid] = {}
        """Those of which the groups have not been told, because they are being read."""
        self._loading: asyncio.Task[None] | None = None

    # ── loading ──────────────────────────────────────────────────────────────────────────────────────────────

    def load(self) -> None:
        """Reads the groups from the log; an empty one is there at once."""
        self.refusal = Error.COORDINATOR_LOAD_IN_PROGRESS
        if self.hosted.log.log_start_offset == self.hosted.log.log_end_offset:
            self._loaded(self._surroundings.make_shard())
            return
        self._loading = asyncio.ensure_future(self._load())
        self._loading.add_done_callback(self._loading_ended)

    async def _load(self) -> None:
        broker = self._surroundings.broker
        while True:
            shard = self._surroundings.make_shard()
            try:
                async with self._surroundings.loads_at_once:
                    await replay_log(
                        self.hosted.log,
                        shard,
                        buffer_bytes=broker.config.offsets_load_buffer_size,
                        disk=broker.disk,
                        run_in_thread=broker.run_in_thread,
                    )
            except (OSError, KafkaError, DecodeError) as error:
                if self.refusal is not Error.NOT_COORDINATOR:
                    logger.error("the groups of %s cannot be read, and are tried again: %s", self.hosted, error)
                self.refusal = Error.NOT_COORDINATOR
                await asyncio.sleep(RETRY_LOADING_SECONDS)
            else:
                self._loaded(shard)
                return

    def _loading_ended(self, loading: asyncio.Task[None]) -> None:
        if not loading.cancelled() and (error := loading.exception()) is not None:
            logger.critical("the groups of %s cannot be read", self.hosted, exc_info=error)
            self.refusal = Error.NOT_COORDINATOR

    def _loaded(self, shard: GroupShard) -> None:
        self.shard = shard
        self.refusal = None
        self._written_to = self.hosted.log.log_end_offset
        shard.loaded(self._surroundings.now_ms())
        deleted, self._deleted_topics = self._deleted_topics, {}
        self._take(shard.topics_deleted(deleted))

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, step: Step, waiting: ReplyTo) -> None:
        """Takes a step whose answer goes to `waiting`. A step that fails in the node, as none should, leaves a state
        that nobody can trust: it is read back from the log."""
        try:
            effects = step(self.shard, waiting, self._surroundings.now_ms())
        except Exception as error:
            logger.exception("a step in the groups of %s failed in the node", self.hosted)
            failed = KafkaError(Error.UNKNOWN_SERVER_ERROR, f"a step in the groups of {self.hosted} failed")
            self.finish_turn()
            if self.refusal is None:
                self._drop_back(failed, [])
            raise failed from error
        self._take(effects)

    def expire(self) -> None:
        """The deadline has come."""
        self.deadline_ms = None
        with suppress(KafkaError):  # The failure of a step is logged there, and nobody waits for an answer.
            self.step(lambda shard, _, now_ms: shard.expire(now_ms), None)

    def _take(self, effects: Effects) -> None:
        if effects.records:
            self._records.append(effects.records)
        for waiting, answer in effects.answers:
            self.answer(waiting, answer)
        self._surroundings.on_step(self)

    def answer(self, waiting: ReplyTo, answer: object) -> None:
        """Answers when all that the state has now is committed, which is at once while nothing is under way."""
        if self._records or self._answers or not self._is_all_committed():
            self._answers.append((waiting, answer))
            self._surroundings.on_step(self)
        else:
            deliver([(waiting, answer)])

    def topics_deleted(self, topics: Mapping[str, Uuid]) -> None:
        if self.refusal is None:
            self._take(self.shard.topics_deleted(topics))
        else:
            self._deleted_topics.update(topics)

    def _is_all_committed(self) -> bool:
        return not self._undelivered and self.hosted.state.high_watermark.offset >= self._written_to

    def finish_turn(self) -> None:
        """Appends what the steps of this turn want written, and lets their answers go when it is committed."""
        if self.refusal is not None:
            return
        written, self._records = self._records, []
        answers, self._answers = self._answers, []
        if written:
            try:
                self._append(written)
            except KafkaError as error:
                self._drop_back(error, answers)
                return
            except EncodeError as error:
                self._drop_back(KafkaError(Error.UNKNOWN_SERVER_ERROR, str(error)), answers)
                return
        if written or answers:
            self._deliver_when_committed(answers, is_to_be_synced=bool(written) and self.hosted.must_flush())
        self.deadline_ms = self.shard.next_deadline_ms

    def _deliver_when_committed(self, answers: Answers, *, is_to_be_synced: bool) -> None:
        delivery = Delivery(self, self._written_to, answers)
        self._undelivered.append(delivery)
        if is_to_be_synced:
            delivery.wait_for(self._surroundings.broker.flusher.flush(self.hosted.log))
        self.deliver_ready()
        if delivery in self._undelivered:
            timeout_ms = self._surroundings.broker.config.offsets_commit_timeout_ms
            self._surroundings.broker.purgatory.park(delivery, timeout_ms, [self.hosted.watchers])

    def _append(self, written: list[list[Record]]) -> None:
        hosted = self.hosted
        if hosted.state.leader_epoch != self.epoch:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER, f"{hosted} is no longer led in epoch {self.epoch}")
        for batch in batches_of(written, hosted.log.config.max_message_bytes, self._surroundings.broker.clock.now_ms()):
            self._written_to = hosted.append(memoryview(batch), ACKS_ALL).last_offset + 1

    def deliver_ready(self) -> None:
        """Answers leave in the order of their steps."""
        while self._undelivered and self._undelivered[0].is_ready():
            delivery = self._undelivered.popleft()
            self._surroundings.broker.purgatory.cancel(delivery)
            deliver(delivery.answers)

    def give_up(self, delivery: Delivery) -> None:
        """What was written is not committed in time, which says nothing of what becomes of it later."""
        self._undelivered.remove(delivery)
        message = f"{self.hosted} did not reach offset {delivery.end_offset} on its in-sync replicas in time"
        refuse(delivery.answers, for_group_clients(KafkaError(Error.REQUEST_TIMED_OUT, message)))
        self.deliver_ready()

    def sync_failed(self, delivery: Delivery, error: BaseException) -> None:
        if delivery in self._undelivered:
            self._undelivered.remove(delivery)
            self._surroundings.broker.purgatory.cancel(delivery)
            self._drop_back(KafkaError(Error.KAFKA_STORAGE_ERROR, str(error)), delivery.answers)

    # ── ends ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _drop_back(self, error: KafkaError, answers: Answers) -> None:
        """The state has what could not be written: it goes back to what the log has."""
        logger.error("the groups of %s are read again, because they cannot be written: %s", self.hosted, error)
        refuse(answers, for_group_clients(error))
        self._dismiss()
        self.load()

    def resign(self) -> None:
        """Another node leads the partition, or none, or this one in a new epoch."""
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
        not_here = KafkaError(Error.NOT_COORDINATOR, f"{self.hosted} is no longer led here in epoch {self.epoch}")
        refuse(self._answers, not_here)
        for delivery in self._undelivered:
            self._surroundings.broker.purgatory.cancel(delivery)
            refuse(delivery.answers, not_here)
        self._undelivered.clear()
        self._dismiss()

    def _dismiss(self) -> None:
        """Sends off whoever waits in the groups, and serves nobody any more."""
        if self.refusal is None:
            deliver([*self.shard.resign().answers])
        self.refusal = Error.NOT_COORDINATOR
        self.deadline_ms = None
        self._records = []
        self._answers = []


class Delivery(Parked):
    """Answers that wait until every in-sync replica has what was written before them."""

    __slots__ = ("_led", "_unsynced", "answers", "end_offset")

    def __init__(self, led: LedShard, end_offset: int, answers: Answers) -> None:
        super().__init__()
        self.end_offset = end_offset
        self.answers = answers
        self._led = led
        self._unsynced: asyncio.Future[None] | None = None

    def wait_for(self, synced: asyncio.Future[None]) -> None:
        """The topic wants what is written on the device before it is answered (`flush.messages`)."""
        self._unsynced = synced
        synced.add_done_callback(self._synced)

    def _synced(self, synced: asyncio.Future[None]) -> None:
        self._unsynced = None
        error = synced.exception()
        if error is not None:
            self._led.sync_failed(self, error)
        else:
            self._led.deliver_ready()

    def is_ready(self) -> bool:
        return self._unsynced is None and self._led.hosted.state.high_watermark.offset >= self.end_offset

    def complete(self) -> None:
        if self.is_ready():
            self._led.deliver_ready()
        else:
            self._led.give_up(self)

    def fail(self) -> None:
        self._led.give_up(self)


def deliver(answers: Answers) -> None:
    """Whoever asked may be gone meanwhile."""
    for waiting, answer in answers:
        assert isinstance(waiting, asyncio.Future)
        if not waiting.done():
            waiting.set_result(answer)


def refuse(answers: Answers, error: KafkaError) -> None:
    for waiting, _ in answers:
        assert isinstance(waiting, asyncio.Future)
        if not waiting.done():
            waiting.set_exception(KafkaError(error.error, error.message))
