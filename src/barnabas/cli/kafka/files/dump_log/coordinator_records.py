"""The records of coordinators as JSON: groups and their offsets, transactions, and the state of share groups."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.kafka.files.dump_log.decoders import UnreadableRecordError
from barnabas.cli.kafka.tool import ToolError
from barnabas.coordination.framing import KEY_VERSION
from barnabas.protocol.codec import decode_prefix
from barnabas.protocol.compiler.structs import message_class, spec_of
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.json_form import json_form, json_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.kafka.files.dump_log.careful_records import RawRecord
    from barnabas.protocol.compiler.structs import Message

_GROUP_RECORDS: Final = {
    0: "LegacyOffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
_TRANSACTION_RECORDS: Final = {0: "TransactionLog"}
_SHARE_STATE_RECORDS: Final = {0: "ShareSnapshot", 1: "ShareUpdate"}
"""Without the `Key` and `Value` in which the names of their classes end."""

_INT16: Final = struct.Struct(">h")
_CONSUMER_PROTOCOL: Final = "consumer"
_MEMBER_PARTS: Final = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}

_Shown = tuple[str | None, str | None]


def offsets_decoder(record: RawRecord) -> _Shown:
    return _shown(record, _GROUP_RECORDS)


def transaction_log_decoder(record: RawRecord) -> _Shown:
    return _shown(record, _TRANSACTION_RECORDS)


def share_state_decoder(record: RawRecord) -> _Shown:
    return _shown(record, _SHARE_STATE_RECORDS)


def _shown(record: RawRecord, names: Mapping[int, str]) -> _Shown:
    if record.key is None:
        raise ToolError(
            f"Failed to decode message at offset {record.offset} using the specified decoder "
            f"(message had a missing key)"
        )
    try:
        kind = _int16(record.key, "key")
        name = names.get(kind)
        if name is None:
            return f"Unknown record type {kind} at offset {record.offset}, skipping.", None
        key = _message(f"{name}Key", record.key, KEY_VERSION, kind, "key")
        if record.value is None:
            value_text = "<DELETE>"
        else:
            version = _int16(record.value, "value")
            if not spec_of(message_class(f"{name}Value")).message.versions.covers(version):
                raise UnreadableRecordError(f"Found an unknown record version {version} for {kind} type")
            value = _message(f"{name}Value", record.value, version, version, "value")
            value_text = json_text({"version": str(version), "data": _value_form(value, version)})
    except UnreadableRecordError as error:
        return f"Error at offset {record.offset}, skipping. {error}", None
    return json_text({"type": str(kind), "data": json_form(key, KEY_VERSION)}), value_text


def _int16(data: bytes, part: str) -> int:
    try:
        return int(_INT16.unpack_from(data)[0])
    except struct.error:
        raise UnreadableRecordError(f"Could not read version from {part}'s buffer.") from None


def _message(name: str, data: bytes, version: int, shown_version: int, part: str) -> Message:
    try:
        return decode_prefix(message_class(name), data, version, _INT16.size)[0]
    except DecodeError:
        # Java's buffers say nothing more of what ends too early.
        raise UnreadableRecordError(
            f"Could not read record with version {shown_version} from {part}'s buffer due to: null."
        ) from None


def _value_form(value: Message, version: int) -> dict[str, Any]:
    form = json_form(value, version)
    if form.get("protocolType") == _CONSUMER_PROTOCOL and "members" in form:
        # What the members of consumers' groups tell each other is a message too.
        for member, shown in zip(value.members, form["members"], strict=True):  # type: ignore[attr-defined]
            for part, name in _MEMBER_PARTS.items():
                shown[part] = _opened(getattr(member, part), name, shown[part])
    return form


def _opened(data: bytes | None, name: str, otherwise: Any) -> Any:
    """A message with its version in front, of which a later one only has more at its end; what is none stays as it
    is."""
    cls = message_class(name)
    known = spec_of(cls).message.versions
    try:
        version = min(max(_INT16.unpack_from(data or b"")[0], known.low), known.high)
        return json_form(decode_prefix(cls, data or b"", version, _INT16.size)[0], version)
    except (struct.error, DecodeError):
        return otherwise
