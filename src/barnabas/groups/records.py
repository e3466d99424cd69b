"""The records of `__consumer_offsets` as bytes, the way Apache Kafka writes them.

    key    int16 record type, then a message of that type in version 0
    value  int16 version, then a message in that version; no value at all takes back what the key stood for

The type of a record is the api key of its key's and value's schema. Which version a value has is the writer's choice:
ours is that of a Kafka 4.3 broker, so that either side reads what the other wrote.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeVar, cast

from barnabas.groups.effects import Record
from barnabas.protocol import messages as m
from barnabas.protocol.codec import decode as decode_message
from barnabas.protocol.codec import writer
from barnabas.protocol.errors import DecodeError, EncodeError, UnknownFormatError
from barnabas.protocol.structs import Message

if TYPE_CHECKING:
    from barnabas.protocol.varint import Buffer

KEY_VERSION = 0
NO_EXPIRY_MS = -1
"""In an offset's record: it expires when the broker's retention says so."""

GROUP_METADATA_VERSION = 3
OFFSET_COMMIT_VERSION = 4
OFFSET_COMMIT_WITH_EXPIRY_VERSION = 1
"""The one version that can say when an offset expires; clients of OffsetCommit up to version 4 may ask for that."""

_INT16 = struct.Struct(">h")

T = TypeVar("T", bound=Message)


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """The key and the value of a record in the log."""
    key_class = type(record.key)
    if key_class.api_key is None or not key_class.__name__.endswith("Key"):
        raise EncodeError(f"{key_class.__name__} is not the key of a group's record")
    key = bytearray(_INT16.pack(key_class.api_key))
    writer(key_class, KEY_VERSION)(record.key, key)
    if record.value is None:
        return bytes(key), None
    version = _value_version(record.value)
    value = bytearray(_INT16.pack(version))
    writer(type(record.value), version)(record.value, value)
    return bytes(key), bytes(value)


def decode(key: Buffer | None, value: Buffer | None) -> Record | None:
    """What a record of the log says, or None if it is of a kind or version that nothing here acts on.

    Such records stay in the log for whoever wrote them. Raises DecodeError for one that is damaged. Offsets in the
    format of Kafka 0.8 come back in today's.
    """
    if key is None:
        raise DecodeError("a record of __consumer_offsets has no key")
    kind = _int16(key, "key")
    try:
        if kind == m.OffsetCommitKey.api_key:
            return Record(_key(m.OffsetCommitKey, key), _value(m.OffsetCommitValue, value))
        if kind == m.GroupMetadataKey.api_key:
            return Record(_key(m.GroupMetadataKey, key), _value(m.GroupMetadataValue, value))
        if kind == m.LegacyOffsetCommitKey.api_key:
            return _modern(_key(m.LegacyOffsetCommitKey, key), _value(m.LegacyOffsetCommitValue, value))
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


def new_group(group_id: str, state_timestamp_ms: int) -> Record:
    """A group exists by name. It has completed no generation yet, and what it has of members is not written."""
    value = m.GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=state_timestamp_ms)
    return Record(m.GroupMetadataKey(group=group_id), value)


def _value_version(value: Message) -> int:
    if isinstance(value, m.OffsetCommitValue):
        has_expiry = value.expire_timestamp != NO_EXPIRY_MS
        return OFFSET_COMMIT_WITH_EXPIRY_VERSION if has_expiry else OFFSET_COMMIT_VERSION
    return GROUP_METADATA_VERSION if isinstance(value, m.GroupMetadataValue) else 0


def _key(cls: type[T], key: Buffer) -> T:
    return decode_message(cls, key, KEY_VERSION, _INT16.size)


def _value(cls: type[T], value: Buffer | None) -> T | None:
    return None if value is None else decode_message(cls, value, _int16(value, "value"), _INT16.size)


def _int16(data: Buffer, what: str) -> int:
    if len(data) < _INT16.size:
        raise DecodeError(f"the {what} of a record of __consumer_offsets has {len(data)} bytes")
    return cast("int", _INT16.unpack_from(data)[0])


def _modern(key: m.LegacyOffsetCommitKey, value: m.LegacyOffsetCommitValue | None) -> Record:
    if value is None:
        return offset_tombstone(key.group, key.topic, key.partition)
    committed = m.OffsetCommitValue(
        offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
    )
    return offset_commit(key.group, key.topic, key.partition, committed)
