"""One partition of a coordinator's topic that this node leads, in one leader epoch, and what lives in it.

Theory of operation. The groups, or transactions, of a partition are a pure state machine (`Shard`). A step changes it
at once and says what is to be written, answered and ordered. What the steps of one turn of the event loop want written
is appended at the end of that turn together. Answers leave, and orders are carried out, when the high watermark has
passed what was written before them, in their order; the answer to a step that wrote nothing, while nothing else is
under way, leaves at once.

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
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, cast

from barnabas.broker.coordination.batches import batches_of
from barnabas.broker.coordination.failures import for_clients
from barnabas.broker.coordination.kinds import Kind, S
from barnabas.broker.coordination.loading import replay_log
from barnabas.coordination.effects import ProducerId
from barnabas.protocol.errors import DecodeError, EncodeError, Error, KafkaError
from barnabas.replication.purgatory import Parked

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.server import Broker
    from barnabas.coordination.effects import Effects, ReplyTo
    from barnabas.log.markers import EndMarker
    from barnabas.log.partition_log import Appended
    from barnabas.replication.hosted import HostedPartition

    Answers = list[tuple["Waiting", object]]
    Step = Callable[[S, ReplyTo, int], Effects]
    """Takes the shard, whom to answer, and the time in ms."""

logger = logging.getLogger("barnabas.coordination")

RETRY_LOADING_SECONDS = 2.0
"""After a log that could not be read, before it is tried again."""


class Waiting(Protocol):
    """Whoever asked, as the driver knows them: a future, or what is like one. Shards only hand it back."""

    def done(self) -> bool: ...

    def set_result(self, answer: Any, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


class Surroundings(NamedTuple, Generic[S]):
    """What all led partitions of a coordinator have in common."""

    broker: Broker
    kind: Kind[S]
    now_ms: Callable[[], int]
    on_step: Callable[[LedShard[S]], None]
    """Called when a step was taken: `finish_turn` is to follow at the end of the turn."""
    carry_out: Callable[[LedShard[S], list[object]], None]
    """Called with orders that hold now."""
    loads_at_once: asyncio.Semaphore


class LedShard(Generic[S]):
    __slots__ = (
        "_answers",
        "_loading",
        "_orders",
        "_surroundings",
        "_to_tell",
        "_undelivered",
        "_written",
        "_written_to",
        "deadline_ms",
        "epoch",
        "hosted",
        "refusal",
        "shard",
    )

    def __init__(self, hosted: HostedPartition, surroundings: Surroundings[S]) -> None:
        self.hosted = hosted
        self.epoch = hosted.state.leader_epoch
        self._surroundings = surroundings
        self.shard = self._make_shard()
        self.refusal: Error | None = Error.COORDINATOR_LOAD_IN_PROGRESS
        """What requests are answered while the shard cannot be asked; None when it can."""
        self.deadline_ms: int | None = None
        """When time alone changes something, as of the end of the last turn."""
        self._written: list[Effects] = []
        """The steps of this turn that want something written."""
        self._answers: Answers = []
        """Of this turn."""
        self._orders: list[object] = []
        """Of this turn."""
        self._undelivered: deque[Delivery] = deque()
        """Of earlier turns."""
        self._written_to = 0
        self._to_tell: list[Callable[[S], Effects]] = []
        """What happened while the log is read."""
        self._loading: asyncio.Task[None] | None = None

    def _make_shard(self) -> S:
        return self._surroundings.kind.make_shard(self.epoch)

    # ── loading ──────────────────────────────────────────────────────────────────────────────────────────────

    def load(self) -> None:
        """Reads the state from the log; an empty one is there at once."""
        self.refusal = Error.COORDINATOR_LOAD_IN_PROGRESS
        if self.hosted.log.log_start_offset == self.hosted.log.log_end_offset:
            self._loaded(self._make_shard())
            return
        self._loading = asyncio.ensure_future(self._load())
        self._loading.add_done_callback(self._loading_ended)

    async def _load(self) -> None:
        broker, kind = self._surroundings.broker, self._surroundings.kind
        while True:
            shard = self._make_shard()
            try:
                async with self._surroundings.loads_at_once:
                    await replay_log(
                        self.hosted.log,
                        shard,
                        kind.decode,
                        buffer_bytes=kind.load_buffer_bytes(),
                        disk=broker.disk,
                        run_in_thread=broker.run_in_thread,
                    )
            except (OSError, KafkaError, DecodeError) as error:
                if self.refusal is not Error.NOT_COORDINATOR:
                    logger.error("the %s of %s cannot be read, and are tried again: %s", kind.what, self.hosted, error)
                self.refusal = Error.NOT_COORDINATOR
                await asyncio.sleep(RETRY_LOADING_SECONDS)
            else:
                self._loaded(shard)
                return

    def _loading_ended(self, loading: asyncio.Task[None]) -> None:
        if not loading.cancelled() and (error := loading.exception()) is not None:
            logger.critical("the %s of %s cannot be read", self._what, self.hosted, exc_info=error)
            self.refusal = Error.NOT_COORDINATOR

    def _loaded(self, shard: S) -> None:
        self.shard = shard
        self.refusal = None
        self._written_to = self.hosted.log.log_end_offset
        self._take(shard.loaded(self._surroundings.now_ms()))
        to_tell, self._to_tell = self._to_tell, []
        for told in to_tell:
            self._take(told(shard))

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, step: Step[S], waiting: ReplyTo) -> None:
        """Takes a step whose answer goes to `waiting`. A step that fails in the node, as none should, leaves a state
        that nobody can trust: it is read back from the log."""
        try:
            effects = step(self.shard, waiting, self._surroundings.now_ms())
        except Exception as error:
            logger.exception("a step in the %s of %s failed in the node", self._what, self.hosted)
            failed = KafkaError(Error.UNKNOWN_SERVER_ERROR, f"a step in the {self._what} of {self.hosted} failed")
            self.finish_turn()
            if self.refusal is None:
                self._drop_back(failed, [])
            raise failed from error
        self._take(effects)

    def expire(self) -> None:
        """The deadline has come."""
        self.deadline_ms = None
        self.step_unasked(lambda shard, now_ms: shard.expire(now_ms))

    def step_unasked(self, step: Callable[[S, int], Effects]) -> None:
        """A step that no client has asked for: where it fails, which `step` logs, nobody waits for an answer."""
        with suppress(KafkaError):
            self.step(lambda shard, _, now_ms: step(shard, now_ms), None)

    def is_serving(self, shard: S) -> bool:
        """Whether a shard still stands that gave an order. Where it resigned, or is read again, others give it anew."""
        return self.refusal is None and self.shard is shard

    def _take(self, effects: Effects) -> None:
        if effects.records:
            self._written.append(effects)
        if effects.orders:
            self._orders += effects.orders
        if effects.notes:
            for note in effects.notes:
                logger.info("%s", note)
        for waiting, answer in cast("Answers", effects.answers):
            self.answer(waiting, answer)
        self._surroundings.on_step(self)

    def answer(self, waiting: Waiting, answer: object) -> None:
        """Answers when all that the state has now is committed, which is at once while nothing is under way."""
        if self._written or self._answers or not self._is_all_committed():
            self._answers.append((waiting, answer))
            self._surroundings.on_step(self)
        else:
            deliver([(waiting, answer)])

    def tell(self, told: Callable[[S], Effects]) -> None:
        """Tells the shard of something that happened outside, as soon as it is loaded."""
        if self.refusal is None:
            self._take(told(self.shard))
        else:
            self._to_tell.append(told)

    def _is_all_committed(self) -> bool:
        return not self._undelivered and self.hosted.state.high_watermark.offset >= self._written_to

    def finish_turn(self) -> None:
        """Appends what the steps of this turn want written, and lets their answers go when it is committed."""
        if self.refusal is not None:
            return
        written, self._written = self._written, []
        answers, self._answers = self._answers, []
        orders, self._orders = self._orders, []
        if written:
            try:
                self._append(written)
            except KafkaError as error:
                self._drop_back(error, answers)
                return
            except EncodeError as error:
                self._drop_back(KafkaError(Error.UNKNOWN_SERVER_ERROR, str(error)), answers)
                return
        is_to_be_synced = bool(written) and self.hosted.must_flush()
        if self._is_all_committed() and not is_to_be_synced:
            self._deliver(answers, orders)
        elif written or answers or orders:
            delivery = Delivery(self, self._written_to, answers, orders)
            self._deliver_when_committed(delivery, is_to_be_synced=is_to_be_synced)
        self.deadline_ms = self.shard.next_deadline_ms

    def _deliver(self, answers: Answers, orders: list[object]) -> None:
        deliver(answers)
        if orders:
            self._surroundings.carry_out(self, orders)

    def _deliver_when_committed(self, delivery: Delivery, *, is_to_be_synced: bool) -> None:
        self._undelivered.append(delivery)
        if is_to_be_synced:
            delivery.wait_for(self._surroundings.broker.flusher.flush(self.hosted.log))
        self.deliver_ready()
        if delivery in self._undelivered:
            self._park(delivery)

    def _park(self, delivery: Delivery) -> None:
        timeout_ms = self._surroundings.kind.commit_timeout_ms()
        self._surroundings.broker.purgatory.park(delivery, timeout_ms, [self.hosted.watchers])

    def _append(self, written: list[Effects]) -> None:
        hosted = self.hosted
        if hosted.state.leader_epoch != self.epoch:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER, f"{hosted} is no longer led in epoch {self.epoch}")
        kind, now_ms = self._surroundings.kind, self._surroundings.broker.clock.now_ms()
        for batch in batches_of(written, kind.encode, hosted.log.config.max_message_bytes, now_ms, kind.base_sequence):
            self._written_to = hosted.append_as_coordinator(batch) + 1

    def deliver_ready(self) -> None:
        """Answers leave in the order of their steps."""
        while self._undelivered and self._undelivered[0].is_ready():
            delivery = self._undelivered.popleft()
            self._surroundings.broker.purgatory.cancel(delivery)
            self._deliver(delivery.answers, delivery.orders)

    def give_up(self, delivery: Delivery) -> None:
        """What was written is not committed in time, which says nothing of what becomes of it later: nobody waits for
        an answer any more, but orders stand."""
        message = f"{self.hosted} did not reach offset {delivery.end_offset} on its in-sync replicas in time"
        refuse(delivery.answers, for_clients(KafkaError(Error.REQUEST_TIMED_OUT, message)))
        self._undelivered.remove(delivery)
        if delivery.orders:
            again = Delivery(self, delivery.end_offset, [], delivery.orders)
            self._undelivered.append(again)
            self._park(again)
        self.deliver_ready()

    def sync_failed(self, delivery: Delivery, error: BaseException) -> None:
        if delivery in self._undelivered:
            self._undelivered.remove(delivery)
            self._surroundings.broker.purgatory.cancel(delivery)
            self._drop_back(KafkaError(Error.KAFKA_STORAGE_ERROR, str(error)), delivery.answers)

    def end_transaction(self, marker: EndMarker) -> Appended:
        """Appends the end of a producer's transaction, after all that was written before, and lets it take effect."""
        self.finish_turn()
        if self.refusal is not None:
            raise KafkaError(self.refusal, f"the {self._what} of {self.hosted} cannot be asked now")
        appended = self.hosted.append_marker(marker)
        self._written_to = appended.last_offset + 1
        end = self.shard.commit_transaction if marker.is_commit else self.shard.abort_transaction
        end(ProducerId(marker.producer_id))
        return appended

    # ── ends ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _drop_back(self, error: KafkaError, answers: Answers) -> None:
        """The state has what could not be written: it goes back to what the log has."""
        logger.error("the %s of %s are read again, because they cannot be written: %s", self._what, self.hosted, error)
        refuse([*answers, *self._answers], for_clients(error))
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
        """Sends off whoever waits in the shard, and serves nobody any more. What it ordered is void: whoever reads the
        log next finds there what is still to be done, and does it once."""
        if self.refusal is None:
            deliver(cast("Answers", self.shard.resign().answers))
        self.refusal = Error.NOT_COORDINATOR
        self.deadline_ms = None
        self._written = []
        self._answers = []
        self._orders = []
        for delivery in self._undelivered:
            delivery.orders = []

    @property
    def _what(self) -> str:
        return self._surroundings.kind.what


class Delivery(Parked):
    """Answers and orders that wait until every in-sync replica has what was written before them."""

    __slots__ = ("_led", "_unsynced", "answers", "end_offset", "orders")

    def __init__(self, led: LedShard[Any], end_offset: int, answers: Answers, orders: list[object]) -> None:
        super().__init__()
        self.end_offset = end_offset
        self.answers = answers
        self.orders = orders
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
        if not waiting.done():
            waiting.set_result(answer)


def refuse(answers: Answers, error: KafkaError) -> None:
    for waiting, _ in answers:
        if not waiting.done():
            waiting.set_exception(KafkaError(error.error, error.message))
