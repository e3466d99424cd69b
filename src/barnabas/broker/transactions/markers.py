"""Writing the ends of transactions to their partitions.

An attempt appends one marker to each of some partitions that this node leads, and is done when all in-sync replicas
have them, or when it is known of each partition why not. On a single node that is before `start` returns. Where it
waits for replicas, or for the device (`flush.messages`), the attempt is parked, and costs one small object.

Markers for `__consumer_offsets` go through the coordinator of groups: with the marker in the log, the offsets of the
transaction take effect, or are forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordination.partitioning import OFFSETS_TOPIC
from barnabas.protocol.errors import Error, KafkaError
from barnabas.replication.purgatory import Parked

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from barnabas.broker.server import Broker
    from barnabas.log.markers import EndMarker
    from barnabas.log.partition_log import Appended
    from barnabas.replication.hosted import HostedPartition
    from barnabas.transactions.state import TopicPartition

NOT_READY = frozenset({Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR})
"""What the coordinator of groups answers when it cannot take a marker now. To whoever writes markers, it is a partition
without a leader."""


class Attempt(Parked):
    """`on_done` is called with NONE or an error for each partition: once, unless it fails itself."""

    __slots__ = ("_broker", "_errors", "_marker", "_on_done", "_uncommitted", "_unsynced")

    def __init__(
        self, broker: Broker, marker: EndMarker, on_done: Callable[[dict[TopicPartition, Error]], None]
    ) -> None:
        super().__init__()
        self._broker = broker
        self._marker = marker
        self._on_done = on_done
        self._errors: dict[TopicPartition, Error] = {}
        self._uncommitted: dict[TopicPartition, tuple[HostedPartition, int]] = {}
        """Where the marker is written, and up to which offset the partition must be committed."""
        self._unsynced: set[TopicPartition] = set()

    def start(self, partitions: Iterable[TopicPartition], timeout_ms: int) -> None:
        for partition in partitions:
            try:
                hosted, appended = append(self._broker, partition, self._marker)
            except KafkaError as error:
                self._errors[partition] = Error.NOT_LEADER_OR_FOLLOWER if error.error in NOT_READY else error.error
                continue
            self._errors[partition] = Error.NONE
            self._uncommitted[partition] = hosted, appended.last_offset + 1
            if hosted.must_flush():
                self._sync(partition, hosted)
        if self.is_ready():
            self._on_done(self._errors)
        else:
            watched = [hosted.watchers for hosted, _ in self._uncommitted.values()]
            self._broker.purgatory.park(self, timeout_ms, watched)

    def _sync(self, partition: TopicPartition, hosted: HostedPartition) -> None:
        self._unsynced.add(partition)

        def synced(done: asyncio.Future[None]) -> None:
            self._unsynced.discard(partition)
            if done.exception() is not None:
                self._errors[partition] = Error.KAFKA_STORAGE_ERROR
            self._broker.purgatory.wake({self: None})

        self._broker.flusher.flush(hosted.log).add_done_callback(synced)

    def is_ready(self) -> bool:
        return not self._unsynced and all(
            is_committed(hosted, end_offset) for hosted, end_offset in self._uncommitted.values()
        )

    def complete(self) -> None:
        """All have it, or the time is up."""
        for partition, (hosted, end_offset) in self._uncommitted.items():
            if partition in self._unsynced or not is_committed(hosted, end_offset):
                self._errors[partition] = Error.REQUEST_TIMED_OUT
        self._on_done(self._errors)

    def fail(self) -> None:
        self._on_done(dict.fromkeys(self._errors, Error.UNKNOWN_SERVER_ERROR))


def append(broker: Broker, partition: TopicPartition, marker: EndMarker) -> tuple[HostedPartition, Appended]:
    """Writes a marker to a partition that is led here; KafkaError if it cannot be.

    UNKNOWN_TOPIC_OR_PARTITION says that the cluster has no such partition, and not only this node."""
    topic, index = partition
    hosted = broker.replicas.find_by_name(topic.encode(), index)
    if topic == OFFSETS_TOPIC:
        return hosted, broker.groups.serving(index).end_transaction(marker)
    return hosted, hosted.append_marker(marker)


def is_committed(hosted: HostedPartition, end_offset: int) -> bool:
    return hosted.state.high_watermark.offset >= end_offset
