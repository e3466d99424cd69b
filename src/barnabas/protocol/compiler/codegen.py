"""What the generators of writers and readers share: formats of primitive types, sizes, source text.

A run of fields of fixed size becomes one call of `struct`. Arrays of numbers use precompiled formats up to a length
that covers replica lists; for longer ones the format is built on the spot.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.protocol.compiler.schema import Field, MessageSchema, StructSchema

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The types of fixed size, in the notation of `struct`."""

SIZES = {type_name: struct.calcsize(">" + code) for type_name, code in FORMATS.items()}

STRING_BYTES_MAX = 0x7FFF
"""Kafka rejects longer strings, even if the length is a varint."""

READY_FORMATS = 16
"""Arrays of numbers shorter than this have a precompiled format."""


class Source:
    """The source text of one generated function and the objects that it refers to."""

    def __init__(self, signature: str) -> None:
        self._lines = [signature]
        self._depth = 1
        self.globals: dict[str, Any] = {}

    def add(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    def indent(self) -> None:
        self._depth += 1

    def dedent(self) -> None:
        self._depth -= 1

    def compile(self, description: str) -> Any:
        """The generated function, which is the only one in the text."""
        namespace: dict[str, Any] = {}
        exec(compile("\n".join(self._lines), f"<{description}>", "exec"), self.globals, namespace)  # noqa: S102
        (function,) = namespace.values()
        return function


def identifier(code: str) -> str:
    """A format as part of an identifier."""
    return code.replace("?", "t")


def present_fields(schema: StructSchema, version: int) -> list[Field]:
    """The fields in the body of a struct, in order."""
    return [field for field in schema.fields if field.versions.covers(version) and not field.tagged.covers(version)]


def tagged_fields(schema: StructSchema, version: int) -> list[Field]:
    """The tagged fields that follow the body of a struct, ordered by tag."""
    return sorted((field for field in schema.fields if field.tagged.covers(version)), key=lambda field: field.tag)


def has_varint_length(field: Field, message: MessageSchema, version: int) -> bool:
    return (message.flexible if field.flexible is None else field.flexible).covers(version)


def element_size_min(message: MessageSchema, array: Field, version: int) -> int:
    """The fewest bytes that an element takes, to check an array's count before any of it is read. An element of no
    bytes would make a count of any size plausible; Kafka counts it as one, too."""
    if array.is_struct:
        return max(1, struct_size_min(message, message.structs[array.type], version))
    if array.type in SIZES:
        return SIZES[array.type]
    return 1 if has_varint_length(array, message, version) else 2


def struct_size_min(message: MessageSchema, schema: StructSchema, version: int) -> int:
    """The minimum size of a struct, to check the count of an array before any of it is read."""
    size = sum(_field_size_min(message, field, version) for field in present_fields(schema, version))
    return size + message.flexible.covers(version)


def _field_size_min(message: MessageSchema, field: Field, version: int) -> int:
    if field.is_array or not (field.is_struct or field.type in SIZES):
        if has_varint_length(field, message, version):
            return 1
        return 2 if field.type == "string" and not field.is_array else 4
    if field.is_struct:
        inner = struct_size_min(message, message.structs[field.type], version)
        return 1 if field.nullable.covers(version) else inner
    return SIZES[field.type]
