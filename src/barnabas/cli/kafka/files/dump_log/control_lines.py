"""What control records say: markers of transactions, and what the metadata log and its snapshots begin and end with."""

from __future__ import annotations

import struct
from typing import Final

from barnabas.cli.kafka.tool import ToolError
from barnabas.protocol import control_records
from barnabas.protocol.codec import decode_prefix
from barnabas.protocol.control_records import ControlRecordType
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.json_form import json_form, json_text

_KEY: Final = struct.Struct(">hh")
_MARKER: Final = struct.Struct(">hi")
_NAMES: Final = {
    ControlRecordType.LEADER_CHANGE: "LeaderChange:",
    ControlRecordType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlRecordType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlRecordType.KRAFT_VERSION: "KRaftVersion",
    ControlRecordType.KRAFT_VOTERS: "KRaftVoters",
}


def control_text(key: bytes | None, value: bytes | None) -> str:
    if key is None:
        raise ToolError('Cannot invoke "java.nio.ByteBuffer.duplicate()" because "key" is null')
    if len(key) < _KEY.size:
        raise ToolError(
            f"Invalid value size found for control record key. Must have at least {_KEY.size} bytes, "
            f"but found only {len(key)}"
        )
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise ToolError(f"Invalid version found for control record: {version}. May indicate data corruption")
    try:
        kind = ControlRecordType(number)
    except ValueError:
        return f" controlType: UNKNOWN({number})"
    if value is None:
        raise ToolError(f"a control record of type {kind.name} has no value")
    if kind in _NAMES:
        cls = control_records.message_class_of(kind)
        try:
            message, _ = decode_prefix(cls, value, control_records.VALUE_VERSION)
        except DecodeError as error:
            raise ToolError(str(error)) from None
        return f" {_NAMES[kind]} {json_text(json_form(message, control_records.VALUE_VERSION))}"
    if len(value) < _MARKER.size:
        raise ToolError("java.nio.BufferUnderflowException")
    version, coordinator_epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise ToolError(f"Invalid version found for end transaction marker: {version}. May indicate data corruption")
    return f" endTxnMarker: {kind.name} coordinatorEpoch: {coordinator_epoch}"
