"""The records of `__consumer_offsets` and `__transaction_state` as Kafka's formatters show them: as JSON.

    {"key":{"type":1,"data":{"group":"g","topic":"t","partition":0}},"value":{"version":4,"data":{…}}}

One stands behind the other without a break between them, as Kafka's do. Records of other kinds are passed over.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from barnabas.coordination.framing import KEY_VERSION, decode_key, decode_value, kind_of
from barnabas.protocol import messages as m
from barnabas.protocol.errors import DecodeError, UnknownFormatError
from barnabas.protocol.json_form import json_form, json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.protocol.compiler.structs import Message

    Kinds = Mapping[int, tuple[type[Message], type[Message]]]
    """The classes of the keys and values of records, by their kinds."""

_VERSION_SIZE: Final = 2


class UnreadableError(ValueError):
    """No record of a coordinator, in Kafka's words."""


@cache
def offsets() -> Kinds:
    """How far groups have come, in the form of Kafka 0.8 and in today's."""
    return _by_kind((m.LegacyOffsetCommitKey, m.LegacyOffsetCommitValue), (m.OffsetCommitKey, m.OffsetCommitValue))


@cache
def classic_groups() -> Kinds:
    return _by_kind((m.GroupMetadataKey, m.GroupMetadataValue))


@cache
def share_groups() -> Kinds:
    return _by_kind(
        (m.ShareGroupMemberMetadataKey, m.ShareGroupMemberMetadataValue),
        (m.ShareGroupMetadataKey, m.ShareGroupMetadataValue),
        (m.ShareGroupTargetAssignmentMetadataKey, m.ShareGroupTargetAssignmentMetadataValue),
        (m.ShareGroupTargetAssignmentMemberKey, m.ShareGroupTargetAssignmentMemberValue),
        (m.ShareGroupCurrentMemberAssignmentKey, m.ShareGroupCurrentMemberAssignmentValue),
        (m.ShareGroupStatePartitionMetadataKey, m.ShareGroupStatePartitionMetadataValue),
    )


@cache
def transactions() -> Kinds:
    return _by_kind((m.TransactionLogKey, m.TransactionLogValue))


def json_of(key: bytes, value: bytes | None, kinds: Callable[[], Kinds]) -> bytes:
    """A record as JSON; nothing for one of a kind that is not asked for."""
    if len(key) < _VERSION_SIZE:
        raise UnreadableError("Could not read version from key's buffer.")
    kind = kind_of(key)
    classes = kinds().get(kind)
    if classes is None:
        return b""
    shown: dict[str, object] = {"key": {"type": kind, "data": json_form(_key(classes[0], key, kind), KEY_VERSION)}}
    if value is None:
        shown["value"] = None
    else:
        if len(value) < _VERSION_SIZE:
            raise UnreadableError("Could not read version from value's buffer.")
        version = int.from_bytes(value[:_VERSION_SIZE], "big", signed=True)
        shown["value"] = {"version": version, "data": json_form(_value(classes[1], value, kind, version), version)}
    return json_text(shown).encode()


def _key(cls: type[Message], key: bytes, kind: int) -> Message:
    try:
        return decode_key(cls, key)
    except DecodeError as error:
        raise UnreadableError(f"Could not read record with version {kind} from key's buffer due to: {error}.") from None


def _value(cls: type[Message], value: bytes, kind: int, version: int) -> Message:
    try:
        message = decode_value(cls, value)
    except UnknownFormatError:
        raise UnreadableError(f"Found an unknown record version {version} for {kind} type") from None
    except DecodeError as error:
        raise UnreadableError(
            f"Could not read record with version {version} from value's buffer due to: {error}."
        ) from None
    assert message is not None
    return message


def _by_kind(*classes: tuple[type[Message], type[Message]]) -> Kinds:
    return {kind: pair for pair in classes if (kind := pair[0].api_key) is not None}
