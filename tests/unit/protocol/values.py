"""Hypothesis strategies for messages: any object that a version of a message can express."""

from __future__ import annotations

import itertools
from functools import cache
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from barnabas.protocol import messages
from barnabas.protocol.compiler.schema import Field, MessageSchema, StructSchema, definitions, message_schema

if TYPE_CHECKING:
    from barnabas.protocol.compiler.structs import Message

ALL_VERSIONS: list[tuple[str, int]] = [
    (name, version)
    for name in definitions()
    for version in range(message_schema(name).versions.low, message_schema(name).versions.high + 1)
]

_SHORT_TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(1 << 7), (1 << 7) - 1),
    "int16": st.integers(-(1 << 15), (1 << 15) - 1),
    "uint16": st.integers(0, (1 << 16) - 1),
    "int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "uint32": st.integers(0, (1 << 32) - 1),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "uuid": st.binary(min_size=16, max_size=16),
    # Two lengths of varints: a byte holds up to 127.
    "string": _SHORT_TEXT | st.just("é" * 90),
    "bytes": st.binary(max_size=5) | st.just(bytes(200)),
    "records": st.binary(max_size=5) | st.just(bytes(200)),
}


def message_class(name: str) -> type[Message]:
    cls: type[Message] = getattr(messages, name)
    return cls


@cache
def messages_of(
    name: str, version: int, *, overrides: tuple[tuple[str, st.SearchStrategy[Any]], ...] = ()
) -> st.SearchStrategy[Any]:
    """Objects of a message in a version. `overrides` replaces the values of fields by qualified name."""
    schema = message_schema(name)
    return _structs(schema, schema.root, version, dict(overrides))


def _structs(
    schema: MessageSchema, struct: StructSchema, version: int, overrides: dict[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[Any]:
    root = message_class(schema.name)
    cls = root if struct is schema.root else getattr(root, struct.name)
    present = [field for field in struct.fields if field.versions.covers(version)]
    values = {field.attribute: _values(schema, struct, field, version, overrides) for field in present}
    return st.builds(cls, **values)


def _values(
    schema: MessageSchema,
    struct: StructSchema,
    field: Field,
    version: int,
    overrides: dict[str, st.SearchStrategy[Any]],
) -> st.SearchStrategy[Any]:
    if field.is_struct:
        values = _structs(schema, schema.structs[field.type], version, overrides)
    else:
        values = overrides.get(f"{struct.name}.{field.attribute}", _SCALARS[field.type])
    if field.is_array:
        values = _arrays(values, is_struct=field.is_struct)
    return st.none() | values if field.nullable.covers(version) else values


def _arrays(elements: st.SearchStrategy[Any], *, is_struct: bool) -> st.SearchStrategy[list[Any]]:
    if is_struct:
        return st.lists(elements, max_size=2)
    # Beyond the lengths that have a ready-made format, and beyond one byte of varint.
    long = elements.map(lambda element: list(itertools.repeat(element, 130)))
    return st.lists(elements, max_size=3) | long


def filled_message(name: str, version: int) -> Message:
    """A message in which every field that the version has is set, and no array is empty."""
    schema = message_schema(name)
    filled: Message = _filled(schema, schema.root, version)
    return filled


def _filled(schema: MessageSchema, struct: StructSchema, version: int) -> Any:
    root = message_class(schema.name)
    cls = root if struct is schema.root else getattr(root, struct.name)
    return cls(
        **{
            field.attribute: _filled_value(schema, field, version)
            for field in struct.fields
            if field.versions.covers(version)
        }
    )


def _filled_value(schema: MessageSchema, field: Field, version: int) -> Any:
    value = _filled(schema, schema.structs[field.type], version) if field.is_struct else _FILLED[field.type]
    return [value, value] if field.is_array else value


_FILLED: dict[str, Any] = {
    "bool": True,
    "int8": 0x11,
    "int16": 0x1122,
    "uint16": 0xF122,
    "int32": 0x11223344,
    "uint32": 0xF1223344,
    "int64": 0x1122334455667788,
    "float64": 2.5,
    "uuid": bytes(range(16)),
    "string": "text",
    "bytes": b"bytes",
    "records": b"records",
}
