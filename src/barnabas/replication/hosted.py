"""A partition that this node hosts: what the leader knows of it, its log, and who waits for it to grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.protocol.errors import Error, KafkaError
from barnabas.replication.partition import BrokerId

if TYPE_CHECKING:
    from barnabas.log.append_batches import Appended, EndMarker
    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.producers.producer_state import Verification
    from barnabas.log.segments.segment_list import LogPosition
    from barnabas.net.purgatory import Purgatory, Watchers
    from barnabas.protocol.uuids import Uuid
    from barnabas.replication.partition import PartitionState

ACKS_ALL = -1


class Subscriber(Protocol):
    """Somebody who wants to know which partitions have changed, and looks at them later."""

    def mark(self) -> None:
        """The partition has changed: it has more to read, or another leader, or it starts elsewhere, or it is gone."""
        ...


class HostedPartition:
    """`watchers` are requests that wait for this partition now; `subscribers` follow it from one request to the next.
    Both are told of every change by `notify`."""

    __slots__ = (
        "index",
        "is_removed",
        "log",
        "offline_reason",
        "purgatory",
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
        self.is_removed = False
        self.offline_reason: str | None = None
        """Why nobody is served any more: the data folder has failed."""
        log.high_watermark_moved(state.high_watermark.offset)

    def append(self, batch: memoryview, acks: int, verification: Verification | None = None) -> Appended:
        """Writes a client's batch. Raises `KafkaError` with nothing written. The first batch of a transaction needs
        the `verification` that was begun before the coordinator was asked."""
        state = self.state
        if state.leader_id != state.local_id:
            raise self._not_leader()
        if acks == ACKS_ALL:
            state.require_in_sync(self.log.config.min_insync_replicas)
        appended = self.log.append_as_leader(batch, state.leader_epoch, verification)
        if state.local_log_grew(self.log.end_position) and (self.watchers or self.subscribers):
            self.notify()
        return appended

    def append_as_coordinator(self, batch: bytes) -> int:
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
        return Error.NONE if state.high_watermark.offset >= end_offset else None

    @property
    def last_stable_offset(self) -> int:
        """How far a reader of committed data may see."""
        return self.log.last_stable_offset(self.state.high_watermark.offset)

    def notify(self) -> None:
        """Tells whoever waits for this partition, or follows it, that something is new here."""
        if self.watchers:
            self.purgatory.wake(self.watchers)
        for subscriber in self.subscribers:
            subscriber.mark()

    def apply_retention(self) -> int:
        """Drops the segments that retention no longer keeps, and returns how many there were."""
        count = self.log.apply_retention(self.state.high_watermark.offset)
        if count:
            self.notify()
        return count

    def must_flush(self) -> bool:
        """Whether `flush.messages` asks for a sync before what was just written is acknowledged."""
        return self.log.unflushed_messages >= self.log.config.flush_messages

    def go_offline(self, reason: str) -> None:
        """From now on, whoever uses this partition is refused; whoever waits for it is told."""
        self.offline_reason = reason
        self.state.leader_id = BrokerId(-1)
        if self.watchers:
            self.purgatory.wake(self.watchers)

    def require_leader(self) -> None:
        if not self.state.is_leader:
            raise self._not_leader()

    def _require_in_sync_leader(self) -> None:
        self.require_leader()
        self.state.require_in_sync(self.log.config.min_insync_replicas)

    def _grew(self) -> None:
        """Something was written at the end of the log."""
        if self.state.local_log_grew(self.log.end_position):
            self.log.high_watermark_moved(self.state.high_watermark.offset)
            self.notify()

    def _not_leader(self) -> KafkaError:
        if self.offline_reason is not None:
            return KafkaError(Error.KAFKA_STORAGE_ERROR, f"{self} is offline: {self.offline_reason}")
        return KafkaError(
            Error.NOT_LEADER_OR_FOLLOWER,
            f"{self} is led by broker {self.state.leader_id}, not by {self.state.local_id}",
        )

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"
