"""A partition that this node hosts: what the leader knows of it, its log, and who waits for it to grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from barnabas.log.partition_log import Appended, LogPosition, PartitionLog
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

    def append(self, batch: memoryview, acks: int) -> Appended:
        """Writes a client's batch. Raises `KafkaError` with nothing written."""
        state = self.state
        if state.leader_id != state.local_id:
            raise self._not_leader()
        if acks == ACKS_ALL:
            state.require_in_sync(self.log.config.min_insync_replicas)
        appended = self.log.append_as_leader(batch, state.leader_epoch)
        if state.local_log_grew(self.log.end_position) and self.watchers:
            self.purgatory.wake(self.watchers)
        return appended

    def append_from_coordinator(self, batch: memoryview) -> Appended:
        """Writes what the coordinator that lives in this partition has decided."""
        return self.append(batch, ACKS_ALL)

    def must_flush(self) -> bool:
        """Whether `flush.messages` asks for a sync before what was just written is acknowledged."""
        return self.log.unflushed_messages >= self.log.config.flush_messages

    def require_leader(self) -> None:
        if not self.state.is_leader:
            raise self._not_leader()

    def _not_leader(self) -> KafkaError:
        return KafkaError(
            Error.NOT_LEADER_OR_FOLLOWER,
            f"{self} is led by broker {self.state.leader_id}, not by {self.state.local_id}",
        )

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"
