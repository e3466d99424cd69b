"""The offsets of all groups of one partition of `__consumer_offsets`, and the records that change them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.coordination.effects import NO_PRODUCER_ID, Record
from barnabas.groups import group_records
from barnabas.groups.offsets.group_offsets import GroupOffsets
from barnabas.protocol import messages as m
from barnabas.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

    from barnabas.coordination.effects import Effects, ProducerId
    from barnabas.protocol.uuids import Uuid

_NO_OFFSETS: Final = GroupOffsets()


class ShardOffsets:
    """Invariant: each group here has an offset, even if only one written in an open transaction."""

    __slots__ = ("_groups", "_writers")

    def __init__(self) -> None:
        self._groups: dict[str, GroupOffsets] = {}
        self._writers: dict[ProducerId, set[str]] = {}
        """The groups whose offsets each producer has written in its open transaction."""

    @property
    def group_ids(self) -> Set[str]:
        return self._groups.keys()

    def of(self, group_id: str) -> GroupOffsets:
        """A group's offsets, for reading. An unknown group has none."""
        return self._groups.get(group_id, _NO_OFFSETS)

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether there is an offset to delete, even if only one written in an open transaction."""
        offsets = self.of(group_id)
        return offsets.get(topic, partition) is not None or not offsets.is_stable(topic, partition)

    # Replaying the log.

    def replay(self, key: m.OffsetCommitKey, value: m.OffsetCommitValue | None, producer_id: ProducerId) -> None:
        if value is None:
            self._forget(key.group, key.topic, key.partition)
            return
        if (offsets := self._groups.get(key.group)) is None:
            offsets = self._groups[key.group] = GroupOffsets()
        if producer_id == NO_PRODUCER_ID:
            offsets.commit(key.topic, key.partition, value)
        else:
            offsets.write(producer_id, key.topic, key.partition, value)
            self._writers.setdefault(producer_id, set()).add(key.group)

    def commit_transaction(self, producer_id: ProducerId) -> None:
        for group_id in self._writers.pop(producer_id, ()):
            if (offsets := self._groups.get(group_id)) is not None:
                offsets.commit_transaction(producer_id)
                self._forget_if_empty(group_id)

    def abort_transaction(self, producer_id: ProducerId) -> None:
        for group_id in self._writers.pop(producer_id, ()):
            if (offsets := self._groups.get(group_id)) is not None:
                offsets.abort_transaction(producer_id)
                self._forget_if_empty(group_id)

    # Steps that add to the log.

    def commit(self, group_id: str, topic: str, partition: int, value: m.OffsetCommitValue, effects: Effects) -> None:
        """Writes an offset, in the transaction of the effects if they have a producer."""
        key = m.OffsetCommitKey(group=group_id, topic=topic, partition=partition)
        effects.write(Record(key, value))
        self.replay(key, value, NO_PRODUCER_ID if effects.producer is None else effects.producer.producer_id)

    def delete(self, group_id: str, topic: str, partition: int, effects: Effects) -> None:
        effects.write(group_records.offset_tombstone(group_id, topic, partition))
        self._forget(group_id, topic, partition)

    def delete_group(self, group_id: str, effects: Effects) -> None:
        for topic, partition in self.of(group_id).partitions():
            self.delete(group_id, topic, partition, effects)

    def delete_topics(self, topics: Mapping[str, Uuid], group_ids: Iterable[str], effects: Effects) -> None:
        """Deletes these groups' offsets of deleted topics, but not those of a newer topic of the same name."""
        names = topics.keys()
        for group_id in group_ids:
            offsets = self.of(group_id)
            if offsets.has_none_of(names):
                continue
            for topic, partition in offsets.partitions():
                if topic in topics:
                    value = offsets.get(topic, partition)
                    if value is None or value.topic_id in (ZERO_UUID, topics[topic]):
                        self.delete(group_id, topic, partition, effects)

    def _forget(self, group_id: str, topic: str, partition: int) -> None:
        if (offsets := self._groups.get(group_id)) is not None:
            offsets.remove(topic, partition)
            self._forget_if_empty(group_id)

    def _forget_if_empty(self, group_id: str) -> None:
        if self._groups[group_id].is_empty:
            del self._groups[group_id]
