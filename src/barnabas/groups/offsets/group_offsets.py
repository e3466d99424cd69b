"""The offsets of one group: those that are committed, and those that open transactions have written. OffsetFetch.

An offset that was written in a transaction counts only when the transaction commits, and not even then if a later
commit of the same partition has taken effect meanwhile: the last one in the log wins. Until the transaction ends, a
client that asks for stable offsets is told to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterator, KeysView

    from barnabas.coordination.effects import ProducerId
    from barnabas.protocol.uuids import Uuid

TopicPartition: TypeAlias = tuple[str, int]

NO_OFFSET = -1
NO_EPOCH = -1
LATEST_MS = (1 << 63) - 1
"""The latest time that a record can hold."""
BROKER_RETENTION = -1
"""The retention time of a commit to which `offsets.retention.minutes` applies."""


class GroupOffsets:
    """Invariant: no topic without an offset in `_committed`, no partition without a write in `_pending`."""

    __slots__ = ("_committed", "_pending")

    def __init__(self) -> None:
        self._committed: dict[str, dict[int, m.OffsetCommitValue]] = {}
        self._pending: dict[TopicPartition, dict[ProducerId, m.OffsetCommitValue | None]] = {}
        """By partition, the writes of open transactions in log order; None for one that a later commit has
        superseded."""

    @property
    def is_empty(self) -> bool:
        return not self._committed and not self._pending

    @property
    def has_open_transactions(self) -> bool:
        return bool(self._pending)

    def get(self, topic: str, partition: int) -> m.OffsetCommitValue | None:
        return self._committed.get(topic, {}).get(partition)

    def is_stable(self, topic: str, partition: int) -> bool:
        """Whether no open transaction is about to change this offset."""
        return (topic, partition) not in self._pending

    def by_topic(self) -> Iterator[tuple[str, dict[int, m.OffsetCommitValue]]]:
        """The committed offsets by topic and partition, for reading."""
        yield from self._committed.items()

    def has_none_of(self, topics: KeysView[str]) -> bool:
        """Whether there is no offset of these topics. Takes time per topic, not per partition."""
        if self._pending and any(topic in topics for topic, _ in self._pending):
            return False
        return topics.isdisjoint(self._committed)

    def partitions(self) -> list[TopicPartition]:
        """The partitions that have an offset, committed or about to be."""
        committed = [(topic, partition) for topic, offsets in self._committed.items() for partition in offsets]
        return committed + [each for each in self._pending if self.get(*each) is None]

    def commit(self, topic: str, partition: int, value: m.OffsetCommitValue) -> None:
        self._committed.setdefault(topic, {})[partition] = value
        if self._pending and (writes := self._pending.get((topic, partition))) is not None:
            for producer_id in writes:
                writes[producer_id] = None

    def remove(self, topic: str, partition: int) -> None:
        self._pending.pop((topic, partition), None)
        offsets = self._committed.get(topic)
        if offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self._committed[topic]

    def write(self, producer_id: ProducerId, topic: str, partition: int, value: m.OffsetCommitValue) -> None:
        """A producer writes an offset in its open transaction."""
        writes = self._pending.setdefault((topic, partition), {})
        writes.pop(producer_id, None)
        writes[producer_id] = value

    def commit_transaction(self, producer_id: ProducerId) -> None:
        for topic, partition in self._written_by(producer_id):
            writes = self._pending[topic, partition]
            value = writes[producer_id]
            if value is not None:
                self._committed.setdefault(topic, {})[partition] = value
                for earlier in writes:
                    if earlier == producer_id:
                        break
                    writes[earlier] = None
        self.abort_transaction(producer_id)

    def abort_transaction(self, producer_id: ProducerId) -> None:
        for key in self._written_by(producer_id):
            del self._pending[key][producer_id]
            if not self._pending[key]:
                del self._pending[key]

    def _written_by(self, producer_id: ProducerId) -> list[TopicPartition]:
        return [key for key, writes in self._pending.items() if producer_id in writes]


def committed_value(
    partition: m.OffsetCommitRequest.OffsetCommitRequestPartition
    | m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition,
    topic_id: Uuid,
    retention_ms: int,
    now_ms: int,
) -> m.OffsetCommitValue:
    """The record of a partition's commit.

    Versions 2 to 4 of the request may set a retention time. The record version that can hold it has neither leader
    epoch nor topic id, so they are left out here too, for state and log to be the same.
    """
    value = m.OffsetCommitValue(
        offset=partition.committed_offset, metadata=partition.committed_metadata or "", commit_timestamp=now_ms
    )
    if retention_ms == BROKER_RETENTION:
        value.leader_epoch = partition.committed_leader_epoch
        value.topic_id = topic_id
    else:
        value.expire_timestamp = min(now_ms + retention_ms, LATEST_MS)
    return value


def metadata_fits(metadata: str | None, max_chars: int) -> bool:
    """Whether a commit's metadata is within `offset.metadata.max.bytes`, which Kafka counts in UTF-16 units."""
    if metadata is None or len(metadata) * 2 <= max_chars:
        return True
    return len(metadata.encode("utf-16-le")) // 2 <= max_chars


def fetch(
    offsets: GroupOffsets, request: m.OffsetFetchRequest.OffsetFetchRequestGroup, *, require_stable: bool
) -> m.OffsetFetchResponse.OffsetFetchResponseGroup:
    """The offsets of the partitions that the request names, or all offsets if it names none."""
    if request.topics is None:
        topics = [
            m.OffsetFetchResponse.OffsetFetchResponseTopics(
                name=name,
                partitions=[_fetched(offsets, name, ZERO_UUID, each, require_stable) for each in partitions],
            )
            for name, partitions in offsets.by_topic()
        ]
    else:
        topics = [
            m.OffsetFetchResponse.OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    _fetched(offsets, topic.name, topic.topic_id, each, require_stable)
                    for each in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    return m.OffsetFetchResponse.OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)


def _fetched(
    offsets: GroupOffsets, topic: str, topic_id: Uuid, partition: int, require_stable: bool
) -> m.OffsetFetchResponse.OffsetFetchResponsePartitions:
    if require_stable and not offsets.is_stable(topic, partition):
        return _without_offset(partition, Error.UNSTABLE_OFFSET_COMMIT)
    value = offsets.get(topic, partition)
    if value is None or not _same_topic(value.topic_id, topic_id):
        return _without_offset(partition, Error.NONE)
    return m.OffsetFetchResponse.OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def _without_offset(partition: int, error: Error) -> m.OffsetFetchResponse.OffsetFetchResponsePartitions:
    return m.OffsetFetchResponse.OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=NO_EPOCH,
        metadata="",
        error_code=error,
    )


def _same_topic(one: Uuid, other: Uuid) -> bool:
    """Whether an offset may belong to a topic: a topic that was deleted and created again has another id."""
    return one == other or ZERO_UUID in (one, other)
