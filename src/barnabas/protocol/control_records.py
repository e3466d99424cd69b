"""Control records: what a control batch holds instead of a client's records.

The key is a version and a type, both int16. The value of a transaction marker is a version followed by an EndTxnMarker.
The values that Raft and snapshots write are messages whose first field is their version.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING

from barnabas.protocol import messages
from barnabas.protocol.codec import decode, writer
from barnabas.protocol.compiler.structs import Message, message_class
from barnabas.protocol.errors import DecodeError, EncodeError, UnknownFormatError

if TYPE_CHECKING:
    from barnabas.protocol.varint import Buffer

KEY_VERSION = 0
VALUE_VERSION = 0
"""The version of all control records that Kafka writes today."""

_KEY = struct.Struct(">hh")
_VERSION = struct.Struct(">h")


class ControlRecordType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_MESSAGE_NAMES: dict[ControlRecordType, str] = {
    ControlRecordType.LEADER_CHANGE: "LeaderChangeMessage",
    ControlRecordType.SNAPSHOT_HEADER: "SnapshotHeaderRecord",
    ControlRecordType.SNAPSHOT_FOOTER: "SnapshotFooterRecord",
    ControlRecordType.KRAFT_VERSION: "KRaftVersionRecord",
    ControlRecordType.KRAFT_VOTERS: "VotersRecord",
}
_TYPES = {name: record_type for record_type, name in _MESSAGE_NAMES.items()}


def message_class_of(record_type: ControlRecordType) -> type[Message]:
    """The class of what a control record of Raft or a snapshot holds."""
    return message_class(_MESSAGE_NAMES[record_type])


def encode_key(record_type: ControlRecordType) -> bytes:
    return _KEY.pack(KEY_VERSION, record_type)


def decode_key(key: Buffer) -> ControlRecordType:
    """The type of a control record. Later versions of the key may be longer, but start in the same way."""
    try:
        version, number = _KEY.unpack_from(key)
    except struct.error:
        raise DecodeError(f"the key of a control record needs {_KEY.size} bytes, but has {len(key)}") from None
    if version < 0:
        raise DecodeError(f"the key of a control record has the invalid version {version}")
    try:
        return ControlRecordType(number)
    except ValueError:
        raise UnknownFormatError(f"unknown control record type {number}") from None


def encode_control_record(message: Message) -> tuple[bytes, bytes]:
    """The key and value of a control record of Raft or a snapshot."""
    name = type(message).__name__
    if name not in _TYPES:
        raise EncodeError(f"{name} is not the value of a control record")
    out = bytearray()
    writer(type(message), VALUE_VERSION)(message, out)
    return encode_key(_TYPES[name]), bytes(out)


def encode_end_transaction(record_type: ControlRecordType, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """The key and value of the marker that commits or aborts a transaction in a partition."""
    if record_type not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        raise EncodeError(f"{record_type.name} does not end a transaction")
    out = bytearray(_VERSION.pack(VALUE_VERSION))
    marker = messages.EndTxnMarker(coordinator_epoch=coordinator_epoch)
    writer(messages.EndTxnMarker, VALUE_VERSION)(marker, out)
    return encode_key(record_type), bytes(out)


def decode_control_record(key: Buffer, value: Buffer) -> tuple[ControlRecordType, Message]:
    """The type and the content of a control record; for a transaction marker an EndTxnMarker."""
    record_type = decode_key(key)
    if len(value) < _VERSION.size:
        raise DecodeError(f"the value of a {record_type.name} control record has only {len(value)} bytes")
    (version,) = _VERSION.unpack_from(value)
    if record_type in _MESSAGE_NAMES:
        return record_type, decode(message_class(_MESSAGE_NAMES[record_type]), value, version)
    return record_type, decode(messages.EndTxnMarker, value, version, _VERSION.size)
