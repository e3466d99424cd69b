"""The records of `__consumer_offsets`, in the framing of all coordinators (`coordination/framing`).

The version of a value is the one that a Kafka 4.3 broker writes, so that either side reads what the other wrote.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeGuard

from barnabas.coordination.effects import Record
from barnabas.coordination.framing import decode_key, decode_value, encode_key, encode_value, kind_of
from barnabas.protocol import messages as m
from barnabas.protocol.errors import UnknownFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.protocol.structs import Message
    from barnabas.protocol.varint import Buffer

NO_EXPIRY_MS = -1
"""In an offset's record: it expires when the broker's retention says so."""

OFFSET_KEYS_MAX = 4096
"""How many encoded keys are kept: half a megabyte of them."""

GROUP_METADATA_VERSION = 3
OFFSET_COMMIT_VERSION = 4
OFFSET_COMMIT_WITH_EXPIRY_VERSION = 1
"""The one version that can say when an offset expires; clients of OffsetCommit up to version 4 may ask for that."""


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """The key and the value of a record in the log."""
    key, value = record
    encoded_key = _offset_key(key.group, key.topic, key.partition) if _is_offset_key(key) else encode_key(key)
    return encoded_key, None if value is None else encode_value(value, _value_version(value))


@lru_cache(OFFSET_KEYS_MAX)
def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """A group commits the same partitions over and over."""
    return encode_key(m.OffsetCommitKey(group=group_id, topic=topic, partition=partition))


def _is_offset_key(key: Message) -> TypeGuard[m.OffsetCommitKey]:
    return type(key) is m.OffsetCommitKey


def decode(key: Buffer | None, value: Buffer | None) -> Record | None:
    """What a record of the log says, or None if it is of a kind or version that nothing here acts on.

    Such records stay in the log for whoever wrote them. Raises DecodeError for one that is damaged. Offsets in the
    format of Kafka 0.8 come back in today's.
    """
    kind = kind_of(key)
    assert key is not None
    try:
        if kind == m.LegacyOffsetCommitKey.api_key:
            return _modern(decode_key(m.LegacyOffsetCommitKey, key), decode_value(m.LegacyOffsetCommitValue, value))
        if (classes := _classes().get(kind)) is not None:
            key_class, value_class = classes
            return Record(decode_key(key_class, key), decode_value(value_class, value))
    except UnknownFormatError:
        return None
    return None


def offset_commit(group_id: str, topic: str, partition: int, value: m.OffsetCommitValue) -> Record:
    """A group has committed an offset of a partition."""
    return Record(m.OffsetCommitKey(group=group_id, topic=topic, partition=partition), value)


def offset_tombstone(group_id: str, topic: str, partition: int) -> Record:
    """A group's offset of a partition is deleted or has expired."""
    return Record(m.OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def group_tombstone(group_id: str) -> Record:
    """A group is gone, with its members and generation. Its offsets have tombstones of their own."""
    return Record(m.GroupMetadataKey(group=group_id), None)


def consumer_group_id(key: Message) -> str:
    """Whose record it is, of all kinds that make up a consumer group."""
    group_id = getattr(key, "group_id", None)
    assert isinstance(group_id, str), key
    return group_id


def new_group(group_id: str, state_timestamp_ms: int) -> Record:
    """A group exists by name. It has completed no generation yet, and what it has of members is not written."""
    value = m.GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=state_timestamp_ms)
    return Record(m.GroupMetadataKey(group=group_id), value)


@cache
def _classes() -> Mapping[int, tuple[type[Message], type[Message]]]:
    """The kinds of records that something here acts on. Those of share and streams groups are not among them."""
    return {
        kind: classes
        for classes in (
            (m.OffsetCommitKey, m.OffsetCommitValue),
            (m.GroupMetadataKey, m.GroupMetadataValue),
            (m.ConsumerGroupMetadataKey, m.ConsumerGroupMetadataValue),
            (m.ConsumerGroupPartitionMetadataKey, m.ConsumerGroupPartitionMetadataValue),
            (m.ConsumerGroupMemberMetadataKey, m.ConsumerGroupMemberMetadataValue),
            (m.ConsumerGroupTargetAssignmentMetadataKey, m.ConsumerGroupTargetAssignmentMetadataValue),
            (m.ConsumerGroupTargetAssignmentMemberKey, m.ConsumerGroupTargetAssignmentMemberValue),
            (m.ConsumerGroupCurrentMemberAssignmentKey, m.ConsumerGroupCurrentMemberAssignmentValue),
            (m.ConsumerGroupRegularExpressionKey, m.ConsumerGroupRegularExpressionValue),
        )
        if (kind := classes[0].api_key) is not None
    }


def _value_version(value: Message) -> int:
    if isinstance(value, m.OffsetCommitValue):
        has_expiry = value.expire_timestamp != NO_EXPIRY_MS
        return OFFSET_COMMIT_WITH_EXPIRY_VERSION if has_expiry else OFFSET_COMMIT_VERSION
    return GROUP_METADATA_VERSION if isinstance(value, m.GroupMetadataValue) else 0


def _modern(key: m.LegacyOffsetCommitKey, value: m.LegacyOffsetCommitValue | None) -> Record:
    if value is None:
        return offset_tombstone(key.group, key.topic, key.partition)
    committed = m.OffsetCommitValue(
        offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
    )
    return offset_commit(key.group, key.topic, key.partition, committed)
