"""A partition that this node hosts: what the leader knows of it, its log, and the requests that wait for it to grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.log.append_batches import new_tuple
from barnabas.log.batch_opening import opening_rules
from barnabas.log.segments.segment_list import UNRESOLVED, LogPosition
from barnabas.metadata.topic_names import INTERNAL_TOPICS
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from barnabas.config.topic_config import TopicConfig
    from barnabas.log.append_batches import Appended, EndMarker
    from barnabas.log.batch_opening import OpeningRules
    from barnabas.log.cleaning.log_cleaning import CleanedSegment
    from barnabas.log.cleaning.swap import Cleaning
    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.producers.producer_state import Verification
    from barnabas.net.purgatory import Purgatory, Watchers
    from barnabas.protocol.uuids import Uuid
    from barnabas.replication.isr_changes import IsrChanges
    from barnabas.replication.partition import BrokerId, PartitionState, Pulse

ACKS_ALL = -1
TO_HIGH_WATERMARK = -1
"""The offset of a deletion of all that is committed."""
NEVER_FLUSH = (1 << 63) - 1


class Subscriber(Protocol):
    """Somebody who wants to know which partitions have changed, and looks at them later."""

    def mark(self) -> None:
        """The partition has changed: it has more to read, or another leader, or it starts elsewhere, or it is gone."""
        ...


class CopyingSubscriber(Subscriber, Protocol):
    """A follower: it copies the log up to its end, and wants to know the high watermark, though that can wait."""

    def mark_high_watermark(self) -> None: ...


class Opening(Protocol):
    """A request whose batches are opened before they are appended, in the order in which such requests came."""

    def has_come_first(self) -> None:
        """Nobody before it has anything to append to the partition any more."""
        ...


class HostedPartition:
    """`watchers` are requests that wait for this partition now; `subscribers` follow it from one request to the next.
    Both are told of every change by `notify`. Those of followers (`copying`) are told of every append, too."""

    __slots__ = (
        "bytes_out",
        "copying",
        "copying_watchers",
        "cuts",
        "deletion_watchers",
        "index",
        "is_plain",
        "is_removed",
        "isr_changes",
        "log",
        "offline_reason",
        "opening_rules",
        "openings",
        "purgatory",
        "settled_cuts",
        "state",
        "subscribers",
        "topic",
        "topic_id",
        "watchers",
    )

    def __init__(
        self,
        topic: str,
        topic_id: Uuid,
        index: int,
        state: PartitionState[LogPosition],
        log: PartitionLog,
        purgatory: Purgatory,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.state = state
        self.log = log
        self.purgatory = purgatory
        self.watchers: Watchers = {}
        self.subscribers: dict[Subscriber, None] = {}
        self.copying_watchers: Watchers = {}
        self.deletion_watchers: Watchers = {}
        """Requests that wait until other replicas have removed records, too."""
        self.copying: dict[CopyingSubscriber, None] = {}
        self.isr_changes: IsrChanges | None = None
        """Where it says who is to be in sync, if the node is one of several."""
        self.bytes_out = 0
        """What consumers have been sent from here."""
        self.is_removed = False
        self.offline_reason: str | None = None
        """Why nobody is served: the data folder has failed, or what was cut off the log could not be settled."""
        self.cuts = 0
        """How often something was cut off the log."""
        self.settled_cuts = 0
        """How many of these are on the device, and in the checkpoint of recovery points."""
        self.openings: dict[Opening, None] = {}
        """Who has batches for this partition in a worker process, or will append some that were; first come, first
        served."""
        self.opening_rules: OpeningRules | None = opening_rules(log.config)
        """How a client's batches are opened before they are appended; None: not at all."""
        self.is_plain = False
        """Whether a client's batches go straight to the log, and are acknowledged without a sync."""
        self._look_whether_plain()
        state.min_insync_replicas = log.config.min_insync_replicas
        log.high_watermark_moved(state.high_watermark.offset)

    def append(
        self, batch: memoryview, acks: int, verification: Verification | None = None, now_ms: int = -1
    ) -> Appended:
        """Writes a client's batch, and its offset and leader epoch into the batch. Raises `KafkaError` with nothing
        written. The first batch of a transaction needs the `verification` that was begun before the coordinator was
        asked."""
        state = self.state
        if state.commits_alone:
            # As `_grew` does, in fewer steps: this is the way of nearly every batch on a single node.
            log = self.log
            appended = log.append_as_leader(batch, state.leader_epoch, verification, now_ms)
            segment = log.segments.active
            end = new_tuple(LogPosition, (log.log_end_offset, segment.base_offset, segment.size))
            state.log_end = state.high_watermark = end
            if self.watchers or self.subscribers:
                self.notify()
            return appended
        if state.leader_id != state.local_id:
            raise self._not_leader()
        if acks == ACKS_ALL:
            state.require_in_sync()
        appended = self.log.append_as_leader(batch, state.leader_epoch, verification, now_ms)
        self._grew()
        return appended

    def append_opened(
        self, batch: memoryview, max_timestamp: int, acks: int, verification: Verification | None
    ) -> Appended:
        """As `append`, for a batch that was opened and found good."""
        state = self.state
        if state.leader_id != state.local_id:
            raise self._not_leader()
        if acks == ACKS_ALL:
            state.require_in_sync()
        appended = self.log.append_opened(batch, max_timestamp, state.leader_epoch, verification)
        self._grew()
        return appended

    def begin_opening(self, opening: Opening) -> None:
        """From now on, nobody's batch is appended before those of this request, except those of openings that have
        begun before it."""
        self.openings[opening] = None
        self.is_plain = False

    def is_first(self, opening: Opening) -> bool:
        return next(iter(self.openings)) is opening

    def end_opening(self, opening: Opening) -> None:
        was_first = self.is_first(opening)
        del self.openings[opening]
        if not self.openings:
            self._look_whether_plain()
        elif was_first:
            next(iter(self.openings)).has_come_first()

    def _look_whether_plain(self) -> None:
        self.is_plain = (
            self.opening_rules is None
            and not self.openings
            and self.log.config.flush_messages == NEVER_FLUSH
            and self.topic not in INTERNAL_TOPICS
        )

    def append_as_coordinator(self, batch: bytearray) -> int:
        """Writes a batch that a coordinator of this node made, and returns its last offset. Raises `KafkaError` with
        nothing written."""
        self._require_in_sync_leader()
        last_offset = self.log.append_as_coordinator(batch, self.state.leader_epoch)
        self._grew()
        return last_offset

    def append_marker(self, marker: EndMarker) -> Appended:
        """Ends a producer's transaction here. Raises `KafkaError` with nothing written."""
        self._require_in_sync_leader()
        appended = self.log.append_marker(marker, self.state.leader_epoch)
        self._grew()
        return appended

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, adds_partition: bool
    ) -> Verification | None:
        """To be called before the transaction's coordinator is asked whether this partition belongs to it. None if the
        transaction is open here already, so that nobody need be asked; raises `KafkaError` for a producer that was
        replaced."""
        self.require_leader()
        return self.log.begin_verification(producer_id, epoch, sequence, adds_partition=adds_partition)

    def outcome(self, end_offset: int, leader_epoch: int) -> Error | None:
        """The outcome of what was appended up to an offset in a leader epoch: NONE if all in-sync replicas have it,
        None while that is undecided. Once the epoch has ended, it stays undecided for ever: another leader may have had
        other records at these offsets, even if this node leads again and its high watermark has passed them."""
        if self.is_removed:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        if self.offline_reason is not None:
            return Error.KAFKA_STORAGE_ERROR
        state = self.state
        if not state.is_leader or state.leader_epoch != leader_epoch:
            return Error.NOT_LEADER_OR_FOLLOWER
        return state.outcome(end_offset)

    @property
    def last_stable_offset(self) -> int:
        """How far a reader of committed data may see."""
        return self.log.last_stable_offset(self.state.high_watermark.offset)

    def high_watermark_position(self) -> LogPosition:
        """The high watermark with its place in the log. A follower's fetch may have moved it to an offset of which that
        was not known."""
        position = self.state.high_watermark
        if position.segment == UNRESOLVED:
            position = self.state.high_watermark = self.log.position_of(position.offset)
        return position

    def notify(self) -> None:
        """Tells whoever waits for this partition, or follows it, that something is new here."""
        if self.watchers:
            self.purgatory.wake(self.watchers)
        for subscriber in self.subscribers:
            subscriber.mark()
        if self.copying_watchers:
            self.purgatory.wake(self.copying_watchers)
        for copying in self.copying:
            copying.mark()
        if self.deletion_watchers:
            self.purgatory.wake(self.deletion_watchers)

    # ── as a leader with followers ───────────────────────────────────────────────────────────────────────────

    def follower_fetched(
        self, follower: BrokerId, offset: int, *, log_start_offset: int, broker_epoch: int, pulse: Pulse
    ) -> None:
        """A follower asks for what comes from `offset` on, which lies within the log: so it has all before."""
        state = self.state
        position = state.log_end if offset == state.log_end.offset else LogPosition.unresolved(offset)
        if state.follower_fetched(
            follower, position, log_start_offset=log_start_offset, broker_epoch=broker_epoch, pulse=pulse
        ):
            self._high_watermark_moved()
        if self.deletion_watchers:
            self.purgatory.wake(self.deletion_watchers)
        if follower not in state.isr and self.isr_changes is not None:
            self.isr_changes.consider(self)

    def resolve(self, position: LogPosition) -> None:
        """A read has found where an offset lies. If it is that of the high watermark, nobody has to look again."""
        state = self.state
        if state.high_watermark.offset == position.offset and state.high_watermark.segment == UNRESOLVED:
            state.high_watermark = position

    def isr_changed(self, *, has_moved: bool) -> None:
        """The controller has answered a proposal, and did what was proposed, or will not do it."""
        if has_moved:
            self._high_watermark_moved()
        elif self.watchers:
            # Whether there are enough in sync may be different now.
            self.purgatory.wake(self.watchers)

    def move_high_watermark(self) -> None:
        """Somebody for whom it waited may be waited for no longer."""
        if self.state.move_high_watermark(self.monotonic_ms()):
            self._high_watermark_moved()

    def _high_watermark_moved(self) -> None:
        self.log.high_watermark_moved(self.state.high_watermark.offset)
        if self.watchers:
            self.purgatory.wake(self.watchers)
        for subscriber in self.subscribers:
            subscriber.mark()
        for copying in self.copying:
            copying.mark_high_watermark()

    # ── removing records ─────────────────────────────────────────────────────────────────────────────────────

    def delete_records(self, offset: int) -> int:
        """Removes the records before an offset, or all that are committed (`TO_HIGH_WATERMARK`), here; followers learn
        of it with their next fetch. Returns the offset. Raises KafkaError with nothing done."""
        self.require_leader()
        policy = self.log.config.cleanup_policy
        if "compact" in policy and "delete" not in policy:
            raise KafkaError(
                Error.POLICY_VIOLATION,
                f"records of {self} can not be deleted due to the configured policy: cleanup.policy is compact",
            )
        high_watermark = self.state.high_watermark.offset
        if offset == TO_HIGH_WATERMARK:
            offset = high_watermark
        if not 0 <= offset <= high_watermark:
            raise KafkaError(
                Error.OFFSET_OUT_OF_RANGE,
                f"records of {self} can be deleted up to its high watermark {high_watermark}, not up to {offset}",
            )
        if offset > self.log.log_start_offset:
            self.log.advance_log_start(offset)
            self.notify()
        return offset

    @property
    def low_watermark(self) -> int:
        """Before it, no live replica has anything any more."""
        return self.state.low_watermark(self.log.log_start_offset)

    def deletion_outcome(self, offset: int) -> Error | None:
        """What became of a deletion before an offset: NONE if all live replicas have done it, None while that is
        open."""
        if self.is_removed:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        if self.offline_reason is not None:
            return Error.KAFKA_STORAGE_ERROR
        if not self.state.is_leader:
            return Error.NOT_LEADER_OR_FOLLOWER
        return Error.NONE if self.low_watermark >= offset else None

    # ── as a follower ────────────────────────────────────────────────────────────────────────────────────────

    def copy(self, batches: memoryview, leader_high_watermark: int, leader_log_start: int) -> None:
        """Takes over what the leader has sent: batches, if there are any, and how far they are committed. Raises
        KafkaError with nothing written."""
        log, state = self.log, self.state
        if len(batches):
            log.append_at(batches)
            state.log_end = log.end_position
        end = state.log_end
        offset = min(leader_high_watermark, end.offset)
        if leader_log_start > log.log_start_offset:
            log.advance_log_start(min(leader_log_start, end.offset))
            offset = max(offset, log.log_start_offset)
        if offset > state.high_watermark.offset:
            state.high_watermark = end if offset == end.offset else LogPosition.unresolved(offset)
            log.high_watermark_moved(offset)
            if self.watchers or self.subscribers:
                self.notify()

    @property
    def has_unsettled_cut(self) -> bool:
        """Whether what was cut off the log may come back when power fails. Nothing must be written in its place before
        that is settled: a start trusts what lies before the recovery point on file."""
        return self.cuts != self.settled_cuts

    def truncate(self, offset: int) -> None:
        """Drops what the leader does not have."""
        if offset < self.log.log_end_offset:
            # Before it is done: a cut that fails may be done in part.
            self.cuts += 1
        self.log.truncate_to(offset)
        self.state.local_log_truncated(self.log.end_position)

    def start_anew(self, offset: int) -> None:
        """Drops everything: the leader has nothing before `offset` any more."""
        self.cuts += 1
        self.log.truncate_fully(offset)
        self.state.log_end = self.state.high_watermark = self.log.end_position
        self.notify()

    # ── in another data folder ───────────────────────────────────────────────────────────────────────────────

    def replace_log(self, log: PartitionLog) -> None:
        """Goes on with a copy of the log, in which the same offsets lie elsewhere."""
        assert log.log_end_offset == self.log.log_end_offset, "nothing is lost on the way"
        state = self.state
        self.log = log
        state.log_end = log.end_position
        state.high_watermark = LogPosition.unresolved(state.high_watermark.offset)
        for follower in state.followers.values():
            if follower.end is not None:
                follower.end = LogPosition.unresolved(follower.end.offset)

    # ── chores ───────────────────────────────────────────────────────────────────────────────────────────────

    def reconfigure(self, config: TopicConfig) -> None:
        self.log.config = config
        self.opening_rules = opening_rules(config)
        self._look_whether_plain()
        state = self.state
        if state.min_insync_replicas != config.min_insync_replicas:
            state.min_insync_replicas = config.min_insync_replicas
            self.move_high_watermark()

    def monotonic_ms(self) -> int:
        return int(self.log.clock.monotonic() * 1000)

    def apply_retention(self) -> int:
        """Drops the segments that retention no longer keeps, and returns how many there were."""
        count = self.log.apply_retention(self.state.high_watermark.offset)
        if count:
            self.notify()
        return count

    def swap_in(self, cleaning: Cleaning, cleaned: CleanedSegment) -> Cleaning:
        """Puts a cleaned segment in place of those whose records it holds. The cleaning goes on with the one that is
        returned. Raises KafkaError."""
        goes_on = self.log.swap_in(cleaning, cleaned)
        if self.state.high_watermark.segment in cleaned.replaces:
            # It was at the end of a segment that is another one now.
            self.state.high_watermark = LogPosition.unresolved(self.state.high_watermark.offset)
        return goes_on

    def must_flush(self) -> bool:
        """Whether `flush.messages` asks for a sync before what was just written is acknowledged."""
        return self.log.unflushed_messages >= self.log.config.flush_messages

    def go_offline(self, reason: str) -> None:
        """From now on, whoever uses this partition is refused; whoever waits for it is told. Until it `is_back`."""
        self.offline_reason = reason
        self.state.resign()
        if self.watchers:
            self.purgatory.wake(self.watchers)
        if self.deletion_watchers:
            self.purgatory.wake(self.deletion_watchers)

    def is_back(self) -> None:
        """What put the partition offline is mended: what it does next, the metadata says."""
        self.offline_reason = None

    def require_leader(self) -> None:
        if not self.state.is_leader:
            raise self._not_leader()

    def require_writable(self) -> None:
        """Raises `KafkaError` if what a coordinator has to write would be refused."""
        self._require_in_sync_leader()

    def _require_in_sync_leader(self) -> None:
        self.require_leader()
        self.state.require_in_sync()

    def _grew(self) -> None:
        """Something was written at the end of the log."""
        state = self.state
        if state.commits_alone:
            state.log_end = state.high_watermark = self.log.end_position
            if self.watchers or self.subscribers:
                self.notify()
            return
        has_moved = state.local_log_grew(self.log.end_position, self.monotonic_ms())
        if self.copying_watchers:
            self.purgatory.wake(self.copying_watchers)
        for copying in self.copying:
            copying.mark()
        if has_moved:
            self._high_watermark_moved()
        if self.isr_changes is not None and state.followers:
            self.isr_changes.watch(self)

    def _not_leader(self) -> KafkaError:
        if self.offline_reason is not None:
            return KafkaError(Error.KAFKA_STORAGE_ERROR, f"{self} is offline: {self.offline_reason}")
        return KafkaError(
            Error.NOT_LEADER_OR_FOLLOWER,
            f"{self} is led by broker {self.state.leader_id}, not by {self.state.local_id}",
        )

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"
