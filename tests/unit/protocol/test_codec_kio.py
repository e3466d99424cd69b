"""The codec beside kio, an independent implementation with a class per message and version.

kio has every request, response, header and control record of the release; it has no metadata records, no records of
the group, transaction and share coordinators, and no producer snapshots. For everything it has, in all versions, both
must write the same bytes for the same values and read them back alike.
"""

from __future__ import annotations

import datetime
import io
import typing
import uuid
from dataclasses import fields
from functools import cache
from typing import Any

import kio.schema.errors
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

from barnabas.protocol import codec
from barnabas.protocol.compiler.schema import Field, MessageSchema, StructSchema, definitions, message_schema
from barnabas.protocol.uuids import ZERO_UUID
from tests.unit.protocol.values import message_class, messages_of

KIO_PATHS: dict[tuple[str, int], str] = {
    (path.partition(":")[2], version): path
    for versions in schema_name_map.values()
    for version, types in versions.items()
    for path in types.values()
}

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_TIMESTAMP_MAX = 253402300799999  # the end of the year 9999, which is that of datetime

_ERROR_CODES = st.sampled_from(sorted(error.value for error in kio.schema.errors.ErrorCode))
_RESTRICTED = {
    # Where kio's types hold fewer values than the wire, the values are kept to theirs.
    "error_code": _ERROR_CODES,
    "timedelta_i64": st.integers(-_TIMESTAMP_MAX // 1000, _TIMESTAMP_MAX // 1000),
    # kio computes a datetime in floating point, which is exact for whole seconds only.
    "datetime_i64": st.integers(0, _TIMESTAMP_MAX // 1000).map(lambda seconds: seconds * 1000),
}
_NAMES = {"id": "id_", "type": "type_", "enable_2pc": "enable2_pc"}


@cache
def kio_class(name: str, version: int) -> Any:
    module_name, _, class_name = KIO_PATHS[name, version].partition(":")
    return getattr(__import__(module_name, fromlist=[class_name]), class_name)


def kio_fields(kio_type: Any, struct: StructSchema, version: int) -> list[tuple[Field, Any]]:
    """Our fields of a version beside kio's."""
    by_name = {field.name: field for field in fields(kio_type)}
    ours = [field for field in struct.fields if field.versions.covers(version)]
    assert len(by_name) == len(ours), struct.name
    return [(field, by_name[kio_name(field, by_name)]) for field in ours]


def kio_name(field: Field, names: dict[str, Any]) -> str:
    attribute = field.attribute
    candidates = (attribute, attribute.removesuffix("_ms"), _NAMES.get(attribute), attribute.replace("kraft", "k_raft"))
    return next(name for name in candidates if name in names)


def kio_type_of(annotation: Any) -> Any:
    """The class of a struct, without the tuple and the None around it."""
    arguments = [argument for argument in typing.get_args(annotation) if argument not in (type(None), Ellipsis)]
    return kio_type_of(arguments[0]) if arguments else annotation


def overrides_for(schema: MessageSchema, version: int) -> tuple[tuple[str, st.SearchStrategy[Any]], ...]:
    found: dict[str, st.SearchStrategy[Any]] = {}

    def visit(struct: StructSchema, kio_type: Any) -> None:
        for field, kio_field in kio_fields(kio_type, struct, version):
            if field.is_struct:
                visit(schema.structs[field.type], kio_type_of(kio_field.type))
            elif kio_field.metadata["kafka_type"] in _RESTRICTED:
                found[f"{struct.name}.{field.attribute}"] = _RESTRICTED[kio_field.metadata["kafka_type"]]

    visit(schema.root, kio_class(schema.name, version))
    return tuple(found.items())


def to_kio(schema: MessageSchema, struct: StructSchema, version: int, kio_type: Any, value: Any) -> Any:
    arguments = {}
    for field, kio_field in kio_fields(kio_type, struct, version):
        ours = getattr(value, field.attribute)
        arguments[kio_field.name] = field_to_kio(schema, field, version, kio_field, ours)
    return kio_type(**arguments)


def field_to_kio(schema: MessageSchema, field: Field, version: int, kio_field: Any, value: Any) -> Any:
    if value is None:
        return None
    if field.is_struct:
        inner, kio_type = schema.structs[field.type], kio_type_of(kio_field.type)
        if field.is_array:
            return tuple(to_kio(schema, inner, version, kio_type, element) for element in value)
        return to_kio(schema, inner, version, kio_type, value)
    kafka_type = kio_field.metadata["kafka_type"]
    if field.is_array:
        return tuple(scalar_to_kio(kafka_type, element) for element in value)
    return scalar_to_kio(kafka_type, value)


def scalar_to_kio(kafka_type: str, value: Any) -> Any:
    if kafka_type == "error_code":
        return kio.schema.errors.ErrorCode(value)
    if kafka_type.startswith("timedelta"):
        return value * _MILLISECOND
    if kafka_type == "datetime_i64":
        return _EPOCH + value * _MILLISECOND
    if kafka_type == "uuid":
        return None if value == ZERO_UUID else uuid.UUID(bytes=value)
    return value


@pytest.mark.parametrize(("name", "version"), sorted(KIO_PATHS))
def test_kio_and_we_write_the_same_bytes_and_read_each_others(name: str, version: int) -> None:
    schema = message_schema(name)
    cls = message_class(name)
    kio_type = kio_class(name, version)
    write, read = entity_writer(kio_type), entity_reader(kio_type)

    @settings(max_examples=5, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(messages_of(name, version, overrides=overrides_for(schema, version)))
    def check(ours: Any) -> None:
        theirs = to_kio(schema, schema.root, version, kio_type, ours)
        buffer = io.BytesIO()
        write(buffer, theirs)
        data = codec.encode(ours, version)
        assert data == buffer.getvalue()
        assert codec.decode(cls, data, version) == ours
        assert read(data, 0) == (theirs, len(data))

    check()


def test_kio_has_every_message_but_those_of_logs() -> None:
    without = {name for name in definitions() if not any(name == known for known, _ in KIO_PATHS)}
    types = {message_schema(name).type for name in without}
    assert types <= {"metadata", "coordinator-key", "coordinator-value", "data", "request", "response"}
    assert {name for name in without if message_schema(name).type == "data"} == {"ProducerSnapshot", "QuorumStateData"}
    removed = {name for name in without if message_schema(name).type in ("request", "response")}
    assert all(not message_schema(name).versions.covers(0) for name in removed)
