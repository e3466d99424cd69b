"""The records of the metadata log as JSON."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.files.dump_log.decoders import UnreadableRecordError
from barnabas.cli.kafka.java.java_values import double_text
from barnabas.protocol import messages as m
from barnabas.protocol.codec import decode_prefix
from barnabas.protocol.compiler.structs import message_class
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.json_form import json_form, json_text
from barnabas.protocol.metadata_records import FRAME_VERSION, RECORD_NAMES
from barnabas.protocol.varint import read_uvarint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.kafka.files.dump_log.careful_records import RawRecord
    from barnabas.protocol.compiler.structs import Message

_QUOTA: Final = re.compile(r'"value":[^,]+')
_INT16_MAX: Final = (1 << 15) - 1
_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


def metadata_decoder(record: RawRecord) -> tuple[None, str]:
    try:
        message, version = framed_message(record.value, RECORD_NAMES)
    except UnreadableRecordError as error:
        return None, f"Error at {record.offset}, skipping. {error}"
    kind = _WORD.sub("_", type(message).__name__).upper()
    text = json_text({"type": kind, "version": version, "data": json_form(message, version)})
    if isinstance(message, m.ClientQuotaRecord):
        # The only number with a point in the whole log.
        text = _QUOTA.sub(f'"value":{double_text(message.value)}', text)
    return None, text


def framed_message(value: bytes | None, names: Mapping[int, str]) -> tuple[Message, int]:
    """The message that the value of a record is, and its version; `names` has those of the classes by type."""
    value = value or b""
    frame_version, position = _unsigned(value, 0, "frame version")
    if frame_version == 0:
        raise UnreadableRecordError(
            "Could not deserialize metadata record with frame version 0. Note that upgrades from the preview release "
            "of KRaft in 2.8 to newer versions are not supported."
        )
    if frame_version != FRAME_VERSION:
        raise UnreadableRecordError(
            f"Could not deserialize metadata record due to unknown frame version {frame_version}"
            f"(only frame version {FRAME_VERSION} is supported)"
        )
    kind, position = _unsigned(value, position, "type")
    version, position = _unsigned(value, position, "version")
    if kind not in names:
        raise UnreadableRecordError(
            f"org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {kind}"
        )
    try:
        message, position = decode_prefix(message_class(names[kind]), value, version, position)
    except DecodeError:
        raise UnreadableRecordError(f"Failed to deserialize record with type {kind}") from None
    if position < len(value):
        raise UnreadableRecordError(f"Found {len(value) - position} byte(s) of garbage after {kind}")
    return message, version


def _unsigned(data: bytes, position: int, what: str) -> tuple[int, int]:
    try:
        value, position = read_uvarint(data, position)
    except DecodeError:
        raise UnreadableRecordError(f"Error while reading {what}") from None
    if value > _INT16_MAX:
        raise UnreadableRecordError(f"Value for {what} was too large.")
    return value, position
