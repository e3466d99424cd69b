"""The records of `__consumer_offsets`, as bytes (`coordination/framing`).

Values have the version that a Kafka 4.3 broker writes, so that either can read what the other wrote.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeGuard

from barnabas.coordination.effects import Record
from barnabas.coordination.framing import decode_key, decode_value, encode_key, encode_value, kind_of
from barnabas.protocol import messages as m
from barnabas.protocol.errors import DecodeError, UnknownFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.protocol.compiler.structs import Message
    from barnabas.protocol.varint import Buffer

NO_EXPIRY_MS = -1
"""In an offset's record: it has no expiry time of its own, and the broker's retention applies."""

OFFSET_KEYS_MAX = 4096
"""How many encoded keys are cached: about half a megabyte."""

GROUP_METADATA_VERSION = 3
OFFSET_COMMIT_VERSION = 4
OFFSET_COMMIT_WITH_EXPIRY_VERSION = 1
"""The only version with an expiry time, which OffsetCommit requests of versions 2 to 4 may set."""


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """The key and the value of a record in the log."""
    key, value = record
    encoded_key = _offset_key(key.group, key.topic, key.partition) if _is_offset_key(key) else encode_key(key)
    return encoded_key, None if value is None else encode_value(value, _value_version(value))


@lru_cache(OFFSET_KEYS_MAX)
def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Cached, as a group commits the same partitions over and over."""
    return encode_key(m.OffsetCommitKey(group=group_id, topic=topic, partition=partition))


def _is_offset_key(key: Message) -> TypeGuard[m.OffsetCommitKey]:
    return type(key) is m.OffsetCommitKey


def decode(key: Buffer | None, value: Buffer | None) -> Record | None:
    """What a record of the log says, or None if it is of a kind that nothing here acts on.

    Such records stay in the log for whoever wrote them. Raises UnknownFormatError for a kind that nobody knows, and
    DecodeError for a record that is damaged, or whose value is in a version that nobody knows: to go on without it
    would take a group back to what it was before. Offsets in the format of Kafka 0.8 come back in today's.
    """
    kind = kind_of(key)
    assert key is not None
    if kind in _kinds_passed_over():
        return None
    classes = _classes().get(kind)
    if classes is None and kind != m.LegacyOffsetCommitKey.api_key:
        raise UnknownFormatError(f"Unknown record type {kind}")
    try:
        if classes is None:
            return _modern(decode_key(m.LegacyOffsetCommitKey, key), decode_value(m.LegacyOffsetCommitValue, value))
        key_class, value_class = classes
        return Record(decode_key(key_class, key), decode_value(value_class, value))
    except UnknownFormatError as error:
        raise DecodeError(str(error)) from error


def offset_commit(group_id: str, topic: str, partition: int, value: m.OffsetCommitValue) -> Record:
    """A group has committed an offset of a partition."""
    return Record(m.OffsetCommitKey(group=group_id, topic=topic, partition=partition), value)


def offset_tombstone(group_id: str, topic: str, partition: int) -> Record:
    """A group's offset of a partition is deleted or has expired."""
    return Record(m.OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def group_tombstone(group_id: str) -> Record:
    """Deletes a group with its members and generation. Its offsets have tombstones of their own."""
    return Record(m.GroupMetadataKey(group=group_id), None)


def consumer_group_id(key: Message) -> str:
    """The group that a record of any consumer group type belongs to."""
    group_id = getattr(key, "group_id", None)
    assert isinstance(group_id, str), key
    return group_id


def new_group(group_id: str, state_timestamp_ms: int) -> Record:
    """A group that has completed no generation yet. Its members are not written."""
    value = m.GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=state_timestamp_ms)
    return Record(m.GroupMetadataKey(group=group_id), value)


@cache
def _classes() -> Mapping[int, tuple[type[Message], type[Message]]]:
    """The types of records that something here acts on. Those of share and streams groups are not among them."""
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


@cache
def _kinds_passed_over() -> frozenset[int | None]:
    """Share groups and streams groups."""
    return frozenset(
        key_class.api_key
        for key_class in (
            m.ShareGroupMemberMetadataKey,
            m.ShareGroupMetadataKey,
            m.ShareGroupTargetAssignmentMetadataKey,
            m.ShareGroupTargetAssignmentMemberKey,
            m.ShareGroupCurrentMemberAssignmentKey,
            m.ShareGroupStatePartitionMetadataKey,
            m.StreamsGroupMetadataKey,
            m.StreamsGroupMemberMetadataKey,
            m.StreamsGroupTargetAssignmentMetadataKey,
            m.StreamsGroupTargetAssignmentMemberKey,
            m.StreamsGroupCurrentMemberAssignmentKey,
            m.StreamsGroupTopologyKey,
        )
    )


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
