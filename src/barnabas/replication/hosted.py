"""A partition that this node hosts: what the leader knows of it, its log, and who waits for it to grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.log.own_batches import append_own
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from barnabas.log.markers import EndMarker
    from barnabas.log.partition_log import Appended, LogPosition, PartitionLog
    from barnabas.log.producer_state import Verification
    from barnabas.protocol.uuids import Uuid
    from barnabas.replication.partition import PartitionState
    from barnabas.replication.purgatory import Purgatory, Watchers

ACKS_ALL = -1


class HostedPartition:
    __slots__ = ("index", "is_removed", "log", "purgatory", "state", "topic", "topic_id", "watchers")

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
        self.is_removed = False
        log.producers.high_watermark_moved(state.high_watermark.offset)

    def append(self, batch: memoryview, acks: int, verification: Verification | None = None) -> Appended:
        """Writes a client's batch. Raises `KafkaError` with nothing written. The first batch of a transaction needs
        the `verification` that was begun before the coordinator was asked."""
        state = self.state
        if state.leader_id != state.local_id:
            raise self._not_leader()
        if acks == ACKS_ALL:
            state.require_in_sync(self.log.config.min_insync_replicas)
        appended = self.log.append_as_leader(batch, state.leader_epoch, verification)
        if state.local_log_grew(self.log.end_position) and self.watchers:
            self.purgatory.wake(self.watchers)
        return appended

    def append_as_coordinator(self, batch: bytes) -> int:
        """Writes a batch that a coordinator of this node made; its last offset. Raises `KafkaError` with nothing
        written."""
        self._require_in_sync_leader()
        last_offset = append_own(self.log, batch, self.state.leader_epoch)
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
        """To be called before the transaction's coordinator is asked whether this partition belongs to it. None when
        the transaction is open here, and nobody need be asked; raises `KafkaError` for a producer that was replaced."""
        self.require_leader()
        log = self.log
        return log.producers.begin_verification(
            producer_id, epoch, sequence, log.clock.now_ms(), adds_partition=adds_partition
        )

    @property
    def last_stable_offset(self) -> int:
        """How far a reader of committed data may see."""
        return self.log.last_stable_offset(self.state.high_watermark.offset)

    def must_flush(self) -> bool:
        """Whether `flush.messages` asks for a sync before what was just written is acknowledged."""
        return self.log.unflushed_messages >= self.log.config.flush_messages

    def require_leader(self) -> None:
        if not self.state.is_leader:
            raise self._not_leader()

    def _require_in_sync_leader(self) -> None:
        self.require_leader()
        self.state.require_in_sync(self.log.config.min_insync_replicas)

    def _grew(self) -> None:
        """Something was written at the end of the log."""
        if self.state.local_log_grew(self.log.end_position):
            self.log.producers.high_watermark_moved(self.state.high_watermark.offset)
            if self.watchers:
                self.purgatory.wake(self.watchers)

    def _not_leader(self) -> KafkaError:
        return KafkaError(
            Error.NOT_LEADER_OR_FOLLOWER,
            f"{self} is led by broker {self.state.leader_id}, not by {self.state.local_id}",
        )

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"
