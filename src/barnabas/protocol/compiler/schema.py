"""Kafka's message definitions as plain objects, read from `schemas.json`.

A message is a tree of structs. Each field says in which versions it exists, in which it may be null, and in which it
is tagged, that is, written with its number after the struct's other fields, and only if it is not the default. In the
flexible versions of a message, lengths are unsigned varints and every struct ends with its tagged fields.

`tools/extract_schemas.py` makes the data file and explains its format.
"""

from __future__ import annotations

import json
import pkgutil
import re
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from barnabas.protocol.uuids import ZERO_UUID

VERSION_MAX = 0x7FFF

Scalar: TypeAlias = int | float | bool | str | bytes | None

_ZEROS: dict[str, Scalar] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "uint32": 0,
    "int64": 0,
    "float64": 0.0,
    "uuid": ZERO_UUID,
    "string": "",
    "bytes": b"",
    "records": None,
}

_SPELLINGS = {"KRaft": "Kraft", "2Pc": "_2pc"}
"""Words in which capitals and digits do not mark the start of a word."""


class Versions(NamedTuple):
    """A closed range of versions, empty if `low > high`."""

    low: int
    high: int

    def covers(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __str__(self) -> str:
        return "none" if self.low > self.high else f"{self.low}-{self.high}"


NO_VERSIONS = Versions(0, -1)


class Field(NamedTuple):
    name: str
    """Kafka's name, as in `TopicId`."""
    attribute: str
    """Our name, as in `topic_id`."""
    type: str
    """A primitive type, or the name of a struct of the same message. For an array, the type of its elements."""
    is_array: bool
    is_struct: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    flexible: Versions | None
    """The versions in which lengths are varints, if they differ from those of the message."""
    default: Scalar
    """For scalars only. The default of an array is null or empty; that of a struct is null or has default fields."""
    default_is_null: bool
    ignorable: bool
    """Whether a value is silently dropped in a version that lacks the field."""

    @property
    def is_nullable(self) -> bool:
        """Whether the field may be null in some version."""
        return self.nullable != NO_VERSIONS or self.default_is_null


class StructSchema(NamedTuple):
    name: str
    fields: tuple[Field, ...]


class MessageSchema(NamedTuple):
    name: str
    type: str
    """One of request, response, header, metadata, data, coordinator-key, coordinator-value."""
    api_key: int | None
    versions: Versions
    flexible: Versions
    latest_version_unstable: bool
    listeners: frozenset[str]
    root: StructSchema
    structs: dict[str, StructSchema]
    """The structs inside the message by name, inner ones before those that use them."""


@cache
def definitions() -> dict[str, dict[str, Any]]:
    """The definitions of all messages, exactly as in the data file."""
    data = pkgutil.get_data("barnabas.protocol", "schemas.json")
    assert data is not None, "the package lacks its data file schemas.json"
    parsed: dict[str, dict[str, Any]] = json.loads(data)
    return parsed


@cache
def message_schema(name: str) -> MessageSchema:
    """The schema of a message. Raises KeyError if there is no message of this name."""
    definition = definitions()[name]
    structs: dict[str, StructSchema] = {}
    for struct in definition.get("commonStructs", ()):
        _add_struct(struct["name"], struct["fields"], structs)
    root = StructSchema(name, _fields(definition["fields"], structs))
    return MessageSchema(
        name,
        definition["type"],
        definition.get("apiKey"),
        parse_versions(definition["validVersions"]),
        parse_versions(definition["flexibleVersions"]),
        definition.get("latestVersionUnstable", False),
        frozenset(definition.get("listeners", ())),
        root,
        _inner_first(structs),
    )


def _add_struct(name: str, fields: list[dict[str, Any]], structs: dict[str, StructSchema]) -> None:
    structs[name] = StructSchema(name, _fields(fields, structs))


def _fields(fields: list[dict[str, Any]], structs: dict[str, StructSchema]) -> tuple[Field, ...]:
    for field in fields:
        if "fields" in field:
            _add_struct(field["type"].removeprefix("[]"), field["fields"], structs)
    return tuple(_field(field) for field in fields)


def _field(definition: dict[str, Any]) -> Field:
    type_name = definition["type"].removeprefix("[]")
    is_array = definition["type"] != type_name
    is_struct = type_name not in _ZEROS
    is_scalar = not is_array and not is_struct
    return Field(
        name=definition["name"],
        attribute=snake_case(definition["name"]),
        type=type_name,
        is_array=is_array,
        is_struct=is_struct,
        versions=parse_versions(definition["versions"]),
        nullable=parse_versions(definition.get("nullableVersions", "none")),
        tagged=parse_versions(definition.get("taggedVersions", "none")),
        tag=definition.get("tag", -1),
        flexible=parse_versions(definition["flexibleVersions"]) if "flexibleVersions" in definition else None,
        default=definition.get("default", _ZEROS[type_name]) if is_scalar else None,
        default_is_null=type_name == "records" or definition.get("default", "") is None,
        ignorable=definition.get("ignorable", False),
    )


def _inner_first(structs: dict[str, StructSchema]) -> dict[str, StructSchema]:
    ordered: dict[str, StructSchema] = {}

    def add(struct: StructSchema) -> None:
        for field in struct.fields:
            if field.is_struct:
                add(structs[field.type])
        ordered.setdefault(struct.name, struct)

    for struct in structs.values():
        add(struct)
    return ordered


def parse_versions(text: str) -> Versions:
    """Kafka's notation: "none", "3", "0-4" or "1+"."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), VERSION_MAX)
    low, _, high = text.partition("-")
    return Versions(int(low), int(high or low))


def snake_case(name: str) -> str:
    """The Python spelling of one of Kafka's names: `TopicId` becomes `topic_id`, `KRaftVersion` `kraft_version`."""
    for word, spelling in _SPELLINGS.items():
        name = name.replace(word, spelling)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
