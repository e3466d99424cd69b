"""Messages as Kafka's tools show them to people: as JSON, or in one line as its log has them.

    {"name":"metadata.version","featureLevel":30}
    FeatureLevelRecord(name='metadata.version', featureLevel=30)

Both have the fields of one version of the message, in the order of the schema; the JSON lacks tagged fields that have
their defaults. Bytes are base64 in JSON.
"""

from __future__ import annotations

import json
import re
from binascii import b2a_base64
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.protocol import uuids
from barnabas.protocol.compiler.structs import Struct, spec_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.compiler.schema import Field

Json = dict[str, Any]

_CONTROL_MARK: Final = r"\u00"
_ESCAPE: Final = re.compile(r"\\(?:u00..|.)")
"""Control characters, in whose numbers Kafka writes capital letters."""


class _Member(NamedTuple):
    """A field as it is shown in one version."""

    name: str
    attribute: str
    field: Field
    is_omitted_by_default: bool
    convert: Callable[[Any], Any] | None
    """None for values that are shown as they are."""


_members: dict[tuple[type[Struct], int], tuple[_Member, ...]] = {}


def json_form(message: Struct, version: int) -> Json:
    """A message, or a struct inside one, as what `json` writes."""
    shown: Json = {}
    for member in _members_of(type(message), version):
        value = getattr(message, member.attribute)
        if member.is_omitted_by_default and _is_default(value, member.field):
            continue
        if value is None or member.convert is None:
            shown[member.name] = value
        elif member.field.is_array:
            shown[member.name] = [member.convert(each) for each in value]
        else:
            shown[member.name] = member.convert(value)
    return shown


def json_text(value: Any) -> str:
    """JSON without a blank, as Kafka writes it."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return _ESCAPE.sub(_in_capitals, text) if _CONTROL_MARK in text else text


def _in_capitals(escape: re.Match[str]) -> str:
    shown = escape[0]
    return f"{_CONTROL_MARK[:2]}{shown[2:].upper()}" if shown.startswith(_CONTROL_MARK) else shown


def line_form(message: Struct) -> str:
    """A message as Kafka's log has it: all fields, whatever the version."""
    schema = spec_of(type(message)).struct
    fields = ", ".join(
        f"{_json_name(each)}={_field_shown(getattr(message, each.attribute), each)}" for each in schema.fields
    )
    return f"{schema.name}({fields})"


def _members_of(cls: type[Struct], version: int) -> tuple[_Member, ...]:
    members = _members.get((cls, version))
    if members is None:
        members = _members[cls, version] = _members_in(cls, version)
    return members


def _members_in(cls: type[Struct], version: int) -> tuple[_Member, ...]:
    return tuple(
        _Member(_json_name(field), field.attribute, field, field.tagged.covers(version), _conversion(field, version))
        for field in spec_of(cls).struct.fields
        if field.versions.covers(version)
    )


def _conversion(field: Field, version: int) -> Callable[[Any], Any] | None:
    if field.is_struct:
        return lambda struct: json_form(struct, version)
    return _CONVERSIONS.get(field.type)


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()


_CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "uuid": uuids.to_text,
    "bytes": _base64,
    "records": _base64,
}


def _is_default(value: Any, field: Field) -> bool:
    if field.default_is_null:
        return value is None
    if field.is_array:
        return value is not None and not value
    if field.is_struct:
        return value is not None and bool(value == type(value)())
    return bool(value == field.default)


def _json_name(field: Field) -> str:
    return field.name[0].lower() + field.name[1:]


def _field_shown(value: Any, field: Field) -> str:
    if field.type == "uuid" and value is not None:
        return f"[{', '.join(map(uuids.to_text, value))}]" if field.is_array else uuids.to_text(value)
    return _shown(value)


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"[{', '.join(str(each - 256 if each > 127 else each) for each in bytes(value))}]"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    return line_form(value) if isinstance(value, Struct) else str(value)
