"""One partition of a coordinator's topic that this node leads, in one leader epoch, and the shard with its state.

Theory of operation. The groups, or transactions, of a partition are a pure state machine (`CoordinatorShard`). A step
changes it at once and returns its effects: records, answers and actions. The records of all steps of one turn of the
event loop are appended together, at the end of that turn. Answers are sent and actions started, in order, when the high
watermark has passed the records that were written before them; the answer to a step that wrote nothing is sent at once
if nothing else is under way.

    loading ──▶ serving ──▶ resigned
       ▲  │        │
       │  └──▶ failed: a record cannot be decoded, now or later, so the state is unknown
       └───────────┘  an append failed, and a step cannot be undone: the state is loaded again, as the log has it

When this node loses the partition, or leads it in a new epoch, this object resigns, and requests that still wait for
an answer get NOT_COORDINATOR. A new epoch has an object of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, cast

from barnabas.broker.coordinators.coordinator_spec import CoordinatorEnvironment, CoordinatorSpec, S
from barnabas.broker.coordinators.shard_loading import UndecodableRecordError, replay_log
from barnabas.broker.coordinators.shard_writing import batches_of, for_clients
from barnabas.coordination.effects import ProducerId
from barnabas.net.purgatory import Parked
from barnabas.protocol.errors import DecodeError, EncodeError, Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordination.effects import Action, Effects, ReplyTo
    from barnabas.log.append_batches import Appended, EndMarker
    from barnabas.replication.hosted import HostedPartition

    Answers = list[tuple["PendingReply", object]]
    Step = Callable[[S, ReplyTo, int], Effects]
    """Takes the shard, the request to answer, and the time in ms."""

logger = logging.getLogger("barnabas.coordination")

RETRY_LOADING_SECONDS = 2.0
"""How long to wait after a log could not be read, before the next attempt; twice as long after each further one."""
RETRY_LOADING_SECONDS_MAX = 60.0
COMPLAINT_MS = 5_000
"""How often a partition that takes no records is complained about."""


class PendingReply(Protocol):
    """A request that waits for its answer: a future, or something like it. To shards it is an opaque `ReplyTo`."""

    def done(self) -> bool: ...

    def set_result(self, answer: Any, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


class ShardRuntime(NamedTuple, Generic[S]):
    """What all led partitions of a coordinator share."""

    environment: CoordinatorEnvironment
    spec: CoordinatorSpec[S]
    now_ms: Callable[[], int]
    on_step: Callable[[LedShard[S]], None]
    """Called after a step: `finish_turn` must follow at the end of the turn."""
    start_actions: Callable[[LedShard[S], list[Action]], None]
    """Called with actions whose step is committed."""
    loads_at_once: asyncio.Semaphore


class LedShard(Generic[S]):
    __slots__ = (
        "_actions",
        "_answers",
        "_events",
        "_has_failed",
        "_loading",
        "_next_complaint_ms",
        "_runtime",
        "_undelivered",
        "_written",
        "_written_to",
        "deadline_ms",
        "epoch",
        "hosted",
        "refusal",
        "shard",
    )

    def __init__(self, hosted: HostedPartition, runtime: ShardRuntime[S]) -> None:
        self.hosted = hosted
        self.epoch = hosted.state.leader_epoch
        self._runtime = runtime
        self.shard = self._make_shard()
        self.refusal: Error | None = Error.COORDINATOR_LOAD_IN_PROGRESS
        """The error for requests while the shard does not serve; None while it does."""
        self.deadline_ms: int | None = None
        """When the shard next has something due, as of the end of the last turn."""
        self._written: list[Effects] = []
        """The effects of this turn's steps that have records."""
        self._answers: Answers = []
        """Of this turn."""
        self._actions: list[Action] = []
        """Of this turn."""
        self._undelivered: deque[Delivery] = deque()
        """Of earlier turns."""
        self._written_to = 0
        self._events: list[Callable[[S], Effects]] = []
        """Events to pass on when the log is loaded."""
        self._loading: asyncio.Task[None] | None = None
        self._has_failed = False
        self._next_complaint_ms = 0

    def _make_shard(self) -> S:
        return self._runtime.spec.make_shard(self.epoch)

    # ── loading ──────────────────────────────────────────────────────────────────────────────────────────────

    def load(self) -> None:
        """Loads the state from the log. An empty log is loaded at once."""
        self.refusal = Error.COORDINATOR_LOAD_IN_PROGRESS
        if self.hosted.log.log_start_offset == self.hosted.log.log_end_offset:
            self._loaded(self._make_shard())
            return
        self._loading = asyncio.ensure_future(self._load())
        self._loading.add_done_callback(self._loading_ended)

    async def _load(self) -> None:
        environment, spec = self._runtime.environment, self._runtime.spec
        pause_s = RETRY_LOADING_SECONDS
        while True:
            shard = self._make_shard()
            try:
                async with self._runtime.loads_at_once:
                    await replay_log(
                        self.hosted.log,
                        shard,
                        spec.decode,
                        buffer_bytes=spec.load_buffer_bytes(),
                        disk=environment.disk,
                        run_in_thread=environment.run_in_thread,
                    )
            except UndecodableRecordError as error:
                logger.error("the %s of %s are not served: %s", spec.what, self.hosted, error)
                self._fail()
                return
            except (OSError, KafkaError, DecodeError) as error:
                if self.refusal is not Error.NOT_COORDINATOR:
                    logger.error("cannot load the %s of %s, will retry: %s", spec.what, self.hosted, error)
                self.refusal = Error.NOT_COORDINATOR
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_LOADING_SECONDS_MAX)
            else:
                self._loaded(shard)
                return

    def _loading_ended(self, loading: asyncio.Task[None]) -> None:
        if not loading.cancelled() and (error := loading.exception()) is not None:
            logger.critical("cannot load the %s of %s", self._what, self.hosted, exc_info=error)
            self._fail()

    def _fail(self) -> None:
        """Serves nobody as long as this node leads the partition in this epoch."""
        self.refusal = Error.NOT_COORDINATOR
        self._has_failed = True
        self._events.clear()

    def _loaded(self, shard: S) -> None:
        self.shard = shard
        self.refusal = None
        self._written_to = self.hosted.log.log_end_offset
        self._take(shard.loaded(self._runtime.now_ms()))
        events, self._events = self._events, []
        for event in events:
            self._take(event(shard))

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, step: Step[S], waiting: ReplyTo) -> None:
        """Takes a step whose answer goes to `waiting`. A step that raises, which is a bug, leaves a state that cannot
        be trusted: the shard is loaded again from the log."""
        try:
            effects = step(self.shard, waiting, self._runtime.now_ms())
        except Exception as error:
            logger.exception("a request to the %s of %s failed unexpectedly", self._what, self.hosted)
            failed = KafkaError(
                Error.UNKNOWN_SERVER_ERROR, f"a request to the {self._what} of {self.hosted} failed unexpectedly"
            )
            self.finish_turn()
            if self.refusal is None:
                self._reload(failed, [])
            raise failed from error
        self._take(effects)

    def expire(self) -> None:
        """The deadline has passed."""
        self.deadline_ms = None
        self.step_unasked(lambda shard, now_ms: shard.expire(now_ms))

    def step_unasked(self, step: Callable[[S, int], Effects]) -> None:
        """Takes a step that no client has asked for. If it fails, which `step` logs, there is nobody to tell."""
        with suppress(KafkaError):
            self.step(lambda shard, _, now_ms: step(shard, now_ms), None)

    def is_serving(self, shard: S) -> bool:
        """Whether this shard still serves. If not, its actions are void: the next one asks for them again."""
        return self.refusal is None and self.shard is shard

    def _take(self, effects: Effects) -> None:
        if effects.records:
            self._written.append(effects)
        if effects.actions:
            self._actions += effects.actions
        if effects.notes:
            for note in effects.notes:
                logger.info("%s", note)
        for waiting, answer in cast("Answers", effects.answers):
            self.answer(waiting, answer)
        self._runtime.on_step(self)

    def answer(self, waiting: PendingReply, answer: object) -> None:
        """Answers when everything in the current state is committed: at once if nothing is under way."""
        if self._written or self._answers or not self._is_all_committed():
            self._answers.append((waiting, answer))
            self._runtime.on_step(self)
        else:
            deliver([(waiting, answer)])

    def tell(self, event: Callable[[S], Effects]) -> None:
        """Tells the shard of an event outside, as soon as it is loaded."""
        if self.refusal is None:
            self._take(event(self.shard))
        elif not self._has_failed:
            self._events.append(event)

    def _is_all_committed(self) -> bool:
        return not self._undelivered and self.is_committed(self._written_to)

    def is_committed(self, end_offset: int) -> bool:
        """Never true once the epoch of this shard has ended, even before `resign` is called. What all in-sync replicas
        have is committed even if there are few of them by now: then nothing more can be written, but what is there can
        be spoken of."""
        outcome = self.hosted.outcome(end_offset, self.epoch)
        return outcome is Error.NONE or outcome is Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def is_led(self) -> bool:
        """Whether this node leads the partition in the epoch of this shard. If not, `resign` will be called."""
        state = self.hosted.state
        return state.is_leader and state.leader_epoch == self.epoch

    def require_writable(self) -> None:
        """KafkaError if records could not be appended now: the state would have to be loaded again after a step that
        writes."""
        try:
            self.hosted.require_writable()
        except KafkaError as error:
            raise for_clients(error) from error

    def finish_turn(self) -> None:
        """Appends the records of this turn's steps, and sends their answers when these are committed."""
        if self.refusal is not None:
            return
        written, self._written = self._written, []
        answers, self._answers = self._answers, []
        actions, self._actions = self._actions, []
        if written:
            try:
                self._append(written)
            except (KafkaError, EncodeError) as error:
                self._not_written(written, answers, error)
                return
        is_to_be_synced = bool(written) and self.hosted.must_flush()
        if self._is_all_committed() and not is_to_be_synced:
            self._deliver(answers, actions)
        elif written or answers or actions:
            delivery = Delivery(self, self._written_to, answers, actions)
            self._deliver_when_committed(delivery, is_to_be_synced=is_to_be_synced)
        self.deadline_ms = self.shard.next_deadline_ms

    def _not_written(self, written: list[Effects], answers: Answers, error: KafkaError | EncodeError) -> None:
        """An append failed. Steps that can be undone are, and everybody who was to be answered in this turn is told; if
        others were taken in this turn, or some of it was written, only the log says what the state is."""
        failed = error if isinstance(error, KafkaError) else KafkaError(Error.UNKNOWN_SERVER_ERROR, str(error))
        is_intact = self._written_to == self.hosted.log.log_end_offset and self.is_led()
        if not is_intact or not all(effects.can_be_undone for effects in written):
            self._reload(failed, answers)
            return
        self._complain(failed)
        told = for_clients(failed)
        refuse(answers, told)
        now_ms = self._runtime.now_ms()
        for effects in reversed(written):
            for undo in reversed(effects.undos):
                self._take(undo(told.error, now_ms))
        self.deadline_ms = self.shard.next_deadline_ms

    def _complain(self, error: KafkaError) -> None:
        """Now and then: every client that tries again fails in the same way."""
        now_ms = self._runtime.now_ms()
        is_due = now_ms >= self._next_complaint_ms
        if is_due:
            self._next_complaint_ms = now_ms + COMPLAINT_MS
        logger.log(
            logging.WARNING if is_due else logging.DEBUG,
            "cannot write the %s of %s: %s",
            self._what,
            self.hosted,
            error,
        )

    def _deliver(self, answers: Answers, actions: list[Action]) -> None:
        deliver(answers)
        if actions:
            self._runtime.start_actions(self, actions)

    def _deliver_when_committed(self, delivery: Delivery, *, is_to_be_synced: bool) -> None:
        self._undelivered.append(delivery)
        if is_to_be_synced:
            delivery.wait_for(self._runtime.environment.flusher.flush(self.hosted.log))
        self.deliver_ready()
        if delivery in self._undelivered:
            self._park(delivery)

    def _park(self, delivery: Delivery) -> None:
        timeout_ms = self._runtime.spec.commit_timeout_ms()
        self._runtime.environment.purgatory.park(delivery, timeout_ms, [self.hosted.watchers])

    def _append(self, written: list[Effects]) -> None:
        self._require_epoch()
        hosted = self.hosted
        spec, now_ms = self._runtime.spec, self._runtime.environment.clock.now_ms()
        max_bytes = hosted.log.config.max_message_bytes
        batches = batches_of(written, spec.encode, max_bytes, now_ms, spec.base_sequence)
        if (largest := max(map(len, batches))) > max_bytes:
            # Before anything of this turn is written, so that it can be undone.
            raise KafkaError(
                Error.MESSAGE_TOO_LARGE,
                f"a batch of {largest} bytes for {hosted} exceeds max.message.bytes ({max_bytes})",
            )
        for batch in batches:
            self._written_to = hosted.append_as_coordinator(batch) + 1

    def _require_epoch(self) -> None:
        """The partition may be led in a new epoch already, shortly before `resign` is called."""
        if not self.is_led():
            raise KafkaError(
                Error.NOT_LEADER_OR_FOLLOWER, f"{self.hosted} is no longer led by this node in epoch {self.epoch}"
            )

    def deliver_ready(self) -> None:
        """Sends answers in the order of their steps."""
        while self._undelivered and self._undelivered[0].is_ready():
            delivery = self._undelivered.popleft()
            self._runtime.environment.purgatory.cancel(delivery)
            self._deliver(delivery.answers, delivery.actions)

    def time_out(self, delivery: Delivery) -> None:
        """The records were not committed in time. They may still be later: requests are answered with an error, but
        actions stand."""
        message = f"offset {delivery.end_offset} of {self.hosted} was not replicated to all in-sync replicas in time"
        refuse(delivery.answers, for_clients(KafkaError(Error.REQUEST_TIMED_OUT, message)))
        self._undelivered.remove(delivery)
        if delivery.actions:
            again = Delivery(self, delivery.end_offset, [], delivery.actions)
            self._undelivered.append(again)
            self._park(again)
        self.deliver_ready()

    def sync_failed(self, delivery: Delivery, error: BaseException) -> None:
        if delivery in self._undelivered:
            self._undelivered.remove(delivery)
            self._runtime.environment.purgatory.cancel(delivery)
            self._reload(KafkaError(Error.KAFKA_STORAGE_ERROR, str(error)), delivery.answers)

    def end_transaction(self, marker: EndMarker) -> Appended:
        """Appends the end marker of a producer's transaction, after all earlier records, and puts it into effect."""
        self.finish_turn()
        if self.refusal is not None:
            raise KafkaError(self.refusal, f"the {self._what} of {self.hosted} are not available now")
        self._require_epoch()
        appended = self.hosted.append_marker(marker)
        self._written_to = appended.last_offset + 1
        end = self.shard.commit_transaction if marker.is_commit else self.shard.abort_transaction
        end(ProducerId(marker.producer_id))
        return appended

    # ── ends ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _reload(self, error: KafkaError, answers: Answers) -> None:
        """The state is ahead of the log, because of an append that failed: it is loaded again, unless the partition is
        somebody else's by now."""
        refuse([*answers, *self._answers], for_clients(error))
        self._unload()
        if self.is_led():
            logger.error("cannot write to %s, loading its %s again: %s", self.hosted, self._what, error)
            self.load()

    def resign(self) -> None:
        """The partition has another leader, none, or this node in a new epoch."""
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
        not_here = KafkaError(
            Error.NOT_COORDINATOR, f"{self.hosted} is no longer led by this node in epoch {self.epoch}"
        )
        refuse(self._answers, not_here)
        for delivery in self._undelivered:
            self._runtime.environment.purgatory.cancel(delivery)
            refuse(delivery.answers, not_here)
        self._undelivered.clear()
        self._unload()

    def _unload(self) -> None:
        """Answers requests that wait in the shard, and stops serving. The shard's actions are void: the next one to
        load the log finds there what is still to be done."""
        if self.refusal is None:
            deliver(cast("Answers", self.shard.unload().answers))
        self.refusal = Error.NOT_COORDINATOR
        self.deadline_ms = None
        self._written = []
        self._answers = []
        self._actions = []
        for delivery in self._undelivered:
            delivery.actions = []

    @property
    def _what(self) -> str:
        return self._runtime.spec.what


class Delivery(Parked):
    """Answers and actions that wait until every in-sync replica has the records that were written before them."""

    __slots__ = ("_led", "_unsynced", "actions", "answers", "end_offset")
    operation = "Produce"

    def __init__(self, led: LedShard[Any], end_offset: int, answers: Answers, actions: list[Action]) -> None:
        super().__init__()
        self.end_offset = end_offset
        self.answers = answers
        self.actions = actions
        self._led = led
        self._unsynced: asyncio.Future[None] | None = None

    def wait_for(self, synced: asyncio.Future[None]) -> None:
        """The topic asks for records to be synced to disk before they are acknowledged (`flush.messages`)."""
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
        return self._unsynced is None and self._led.is_committed(self.end_offset)

    def complete(self) -> None:
        if self.is_ready():
            self._led.deliver_ready()
        else:
            self._led.time_out(self)

    def fail(self) -> None:
        self._led.time_out(self)


def deliver(answers: Answers) -> None:
    """A client may have gone away meanwhile."""
    for waiting, answer in answers:
        if not waiting.done():
            waiting.set_result(answer)


def refuse(answers: Answers, error: KafkaError) -> None:
    for waiting, _ in answers:
        if not waiting.done():
            waiting.set_exception(KafkaError(error.error, error.message))
