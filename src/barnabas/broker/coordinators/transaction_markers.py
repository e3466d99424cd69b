"""Writing transaction markers: the end of a transaction, appended to the partitions that were written in it.

A write appends one marker to each of some partitions that this node leads. It is done when each partition either has
its marker on all in-sync replicas, or has an error. On a single node that is at once. While a write waits for
replicas, or for a sync to disk (`flush.messages`), it is parked in the purgatory.

Markers for `__consumer_offsets` go through the group coordinator: with the marker, the offsets of the transaction take
effect or are dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC
from barnabas.net.purgatory import Parked
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from barnabas.broker.coordinators.coordinator_spec import CoordinatorEnvironment
    from barnabas.broker.coordinators.group_coordinator import GroupCoordinator
    from barnabas.log.append_batches import Appended, EndMarker
    from barnabas.replication.hosted import HostedPartition
    from barnabas.transactions.transaction import TopicPartition

    OnDone = Callable[[dict[TopicPartition, Error]], None]

NOT_READY = frozenset({Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR})
"""Errors of a group coordinator that cannot take a marker now. For a marker it counts as a partition without a
leader."""


class AppendedMarker(NamedTuple):
    """A marker that waits to be committed, in the leader epoch in which it was appended."""

    hosted: HostedPartition
    end_offset: int
    leader_epoch: int

    def outcome(self) -> Error | None:
        return self.hosted.outcome(self.end_offset, self.leader_epoch)


class MarkerWriter:
    """Writes markers to partitions that this node leads."""

    def __init__(self, environment: CoordinatorEnvironment, groups: GroupCoordinator) -> None:
        self.replicas = environment.replicas
        self.purgatory = environment.purgatory
        self.flusher = environment.flusher
        self._groups = groups

    def write(
        self, marker: EndMarker, partitions: Iterable[TopicPartition], timeout_ms: int, on_done: OnDone
    ) -> MarkerWrite:
        """`on_done` is called with NONE or an error for each partition: once, unless it raises."""
        write = MarkerWrite(self, marker, on_done)
        write.start(partitions, timeout_ms)
        return write

    def append(self, partition: TopicPartition, marker: EndMarker) -> tuple[HostedPartition, Appended]:
        """Raises KafkaError if the marker cannot be appended. UNKNOWN_TOPIC_OR_PARTITION means that the cluster has no
        such partition, not only that this node does not host it."""
        topic, index = partition
        hosted = self.replicas.find_by_name(topic.encode(), index)
        if topic == OFFSETS_TOPIC:
            return hosted, self._groups.serving(index).end_transaction(marker)
        return hosted, hosted.append_marker(marker)


class MarkerWrite(Parked):
    """One marker on its way to some partitions."""

    __slots__ = ("_errors", "_marker", "_on_done", "_uncommitted", "_unsynced", "_writer")
    operation = "Produce"

    def __init__(self, writer: MarkerWriter, marker: EndMarker, on_done: OnDone) -> None:
        super().__init__()
        self._writer = writer
        self._marker = marker
        self._on_done = on_done
        self._errors: dict[TopicPartition, Error] = {}
        self._uncommitted: dict[TopicPartition, AppendedMarker] = {}
        self._unsynced: set[TopicPartition] = set()

    def start(self, partitions: Iterable[TopicPartition], timeout_ms: int) -> None:
        for partition in partitions:
            try:
                hosted, appended = self._writer.append(partition, self._marker)
            except KafkaError as error:
                self._errors[partition] = Error.NOT_LEADER_OR_FOLLOWER if error.error in NOT_READY else error.error
                continue
            self._errors[partition] = Error.NONE
            self._uncommitted[partition] = AppendedMarker(hosted, appended.last_offset + 1, hosted.state.leader_epoch)
            if hosted.must_flush():
                self._sync(partition, hosted)
        if self.is_ready():
            self._on_done(self._errors)
        else:
            watched = [appended.hosted.watchers for appended in self._uncommitted.values()]
            self._writer.purgatory.park(self, timeout_ms, watched)

    def _sync(self, partition: TopicPartition, hosted: HostedPartition) -> None:
        self._unsynced.add(partition)

        def synced(done: asyncio.Future[None]) -> None:
            self._unsynced.discard(partition)
            if done.exception() is not None:
                self._errors[partition] = Error.KAFKA_STORAGE_ERROR
                self._uncommitted.pop(partition, None)
            self._writer.purgatory.wake({self: None})

        self._writer.flusher.flush(hosted.log).add_done_callback(synced)

    def is_ready(self) -> bool:
        self._settle()
        return not self._unsynced and not self._uncommitted

    def complete(self) -> None:
        """Every partition has an outcome, or the time is up."""
        self._settle()
        for partition in (*self._uncommitted, *self._unsynced):
            self._errors[partition] = Error.REQUEST_TIMED_OUT
        self._on_done(self._errors)

    def _settle(self) -> None:
        for partition, appended in list(self._uncommitted.items()):
            outcome = appended.outcome()
            if outcome is not None:
                self._errors[partition] = outcome
                del self._uncommitted[partition]

    def fail(self) -> None:
        self._on_done(dict.fromkeys(self._errors, Error.UNKNOWN_SERVER_ERROR))
