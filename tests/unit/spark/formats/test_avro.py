"""Avro values: rows and bytes both ways, and bytes that are no row."""

from __future__ import annotations

import datetime as dt
import io
import pickle
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from barnabas.spark.formats.avro import AvroDecoder, AvroEncoder, MalformedValueError, arrow_type
from barnabas.spark.formats.avro_schema import MisfitError, schema_of, struct_of
from tests.unit.spark.formats.avro_types import (
    COLOUR,
    DATE,
    HASH,
    LOCAL_MICROS,
    LOCAL_MILLIS,
    POINT,
    PRICE,
    PRICE_FIXED,
    TIMESTAMP_MICROS,
    TIMESTAMP_MILLIS,
    UUID_FIXED,
    UUID_TEXT,
    record,
)


def encode(schema: dict[str, Any], **row: Any) -> bytes:
    return AvroEncoder(schema).encode(row)


def reason_for(schema: dict[str, Any], value: bytes) -> str | None:
    reason: str | None = AvroDecoder(schema).decode_all([value]).field("malformed")[0].as_py()
    return reason


INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LEAVES: list[tuple[DataType, st.SearchStrategy[Any]]] = [
    (BooleanType(), st.booleans()),
    (ByteType(), st.integers(-128, 127)),
    (ShortType(), st.integers(-(2**15), 2**15 - 1)),
    (IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    (LongType(), INT64),
    (FloatType(), st.floats(width=32, allow_nan=False)),
    (DoubleType(), st.floats(allow_nan=False)),
    (BinaryType(), st.binary(max_size=8)),
    (StringType(), TEXT),
    (DateType(), st.integers(-(2**31), 2**31 - 1)),
    (TimestampType(), INT64),
    (TimestampNTZType(), INT64),
    (DecimalType(38, 10), st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}E-10"))),
    (DecimalType(5, 0), st.integers(-99999, 99999).map(Decimal)),
]


def typed_values(draw: st.DrawFn, depth: int) -> tuple[DataType, st.SearchStrategy[Any]]:
    """A random Spark type, with what its values may be as Arrow takes them; null among them."""
    kind = draw(st.sampled_from(["leaf", "leaf", "leaf", "struct", "array", "map"])) if depth else "leaf"
    if kind == "struct":
        return struct_values(draw, depth - 1)
    if kind == "leaf":
        data_type, values = draw(st.sampled_from(LEAVES))
        return data_type, values
    inner, values = typed_values(draw, depth - 1)
    if kind == "array":
        return ArrayType(inner), st.lists(st.none() | values, max_size=3)
    return MapType(StringType(), inner), st.dictionaries(TEXT, st.none() | values, max_size=3).map(
        lambda pairs: list(pairs.items())
    )


def struct_values(draw: st.DrawFn, depth: int) -> tuple[StructType, st.SearchStrategy[dict[str, Any]]]:
    fields = {f"f{at}": typed_values(draw, depth) for at in range(draw(st.integers(1, 4)))}
    struct = StructType([StructField(name, data_type) for name, (data_type, _) in fields.items()])
    return struct, st.fixed_dictionaries({name: st.none() | values for name, (_, values) in fields.items()})


@st.composite
def spark_rows(draw: st.DrawFn) -> tuple[StructType, pa.Array]:
    struct, rows = struct_values(draw, 3)
    return struct, pa.array(draw(st.lists(st.none() | rows, max_size=4)), arrow_type(struct))


@settings(max_examples=150, deadline=None)
@given(spark_rows())
def test_rows_of_any_columns_are_read_as_they_were_written(drawn: tuple[StructType, pa.Array]) -> None:
    struct, rows = drawn
    schema = schema_of(struct)
    decoded = AvroDecoder(schema, struct).decode_all(AvroEncoder(schema).encode_all(rows).to_pylist())
    assert decoded.field("malformed").null_count == len(rows)
    assert decoded.field("value").equals(rows)


MILLIS = st.integers(-(2**53), 2**53).map(lambda millis: millis * 1000)
AVRO_LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", INT64),
    ("double", st.floats(allow_nan=False)),
    ("string", TEXT),
    (TIMESTAMP_MILLIS, MILLIS),
    (LOCAL_MILLIS, MILLIS),
    (UUID_TEXT, st.uuids().map(str)),
    (UUID_FIXED, st.uuids().map(str)),
    (PRICE_FIXED, st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(f"{n}E-2"))),
    (COLOUR, st.sampled_from(["RED", "GREEN"])),
    (HASH, st.binary(min_size=4, max_size=4)),
]


@st.composite
def avro_rows(draw: st.DrawFn) -> tuple[dict[str, Any], pa.Array]:
    """A random schema with and without null, and rows of it. A type with a name is there once."""
    leaves = draw(st.lists(st.sampled_from(AVRO_LEAVES), min_size=1, max_size=6, unique_by=lambda leaf: str(leaf[0])))
    types, values = {}, {}
    for at, (avro, inner) in enumerate(leaves):
        nullable = inner
        branches = draw(st.sampled_from([avro, ["null", avro], [avro, "null"], [avro]]))
        if "null" in branches:
            nullable = st.none() | inner
        shape = draw(st.sampled_from(["plain", "array", "map"]))
        if shape == "plain":
            types[f"f{at}"], values[f"f{at}"] = branches, nullable
        elif shape == "array":
            types[f"f{at}"], values[f"f{at}"] = {"type": "array", "items": branches}, st.lists(nullable, max_size=3)
        else:
            types[f"f{at}"] = {"type": "map", "values": branches}
            values[f"f{at}"] = st.dictionaries(TEXT, nullable, max_size=3).map(lambda pairs: list(pairs.items()))
    schema = record(**types)
    return schema, pa.array(draw(st.lists(st.fixed_dictionaries(values), max_size=3)), arrow_type(struct_of(schema)))


@settings(max_examples=150, deadline=None)
@given(avro_rows())
def test_rows_of_any_schema_are_read_as_they_were_written(drawn: tuple[dict[str, Any], pa.Array]) -> None:
    schema, rows = drawn
    decoded = AvroDecoder(schema).decode_all(AvroEncoder(schema).encode_all(rows).to_pylist())
    assert decoded.field("malformed").null_count == len(rows)
    assert decoded.field("value").equals(rows)


def test_the_bytes_are_those_of_any_other_writer_of_avro() -> None:
    at = dt.datetime(2024, 2, 29, 12, 30, 15, 123000, tzinfo=dt.UTC)
    schema = record(
        day=DATE,
        millis=TIMESTAMP_MILLIS,
        micros=["null", TIMESTAMP_MICROS],
        wall=LOCAL_MICROS,
        local=LOCAL_MILLIS,
        id=UUID_TEXT,
        price=PRICE,
        fixed_price=PRICE_FIXED,
        colour=COLOUR,
        tags={"type": "map", "values": ["null", "string"]},
    )
    row = {
        "day": at.date(),
        "millis": at,
        "micros": at,
        "wall": at.replace(tzinfo=None),
        "local": at.replace(tzinfo=None),
        "id": uuid.UUID(int=7),
        "price": Decimal("-12.50"),
        "fixed_price": Decimal("0.01"),
        "colour": "GREEN",
        "tags": {"a": "b", "c": None},
    }
    theirs = io.BytesIO()
    fastavro.schemaless_writer(theirs, fastavro.parse_schema(schema), row)

    columns = row | {"id": str(row["id"]), "tags": [("a", "b"), ("c", None)]}
    rows = pa.array([columns], arrow_type(struct_of(schema)))
    assert AvroEncoder(schema).encode_all(rows).to_pylist() == [theirs.getvalue()]
    assert AvroDecoder(schema).decode_all([theirs.getvalue()]).field("value").equals(rows)


def test_timestamps_of_any_time_zone_are_the_same_moment() -> None:
    struct = pa.struct([("f0", pa.timestamp("us", tz="Asia/Tokyo"))])
    rows = pa.array([{"f0": 1_700_000_000_000_000}], struct)
    (value,) = AvroEncoder(record(TIMESTAMP_MICROS)).encode_all(rows).to_pylist()
    assert AvroDecoder(record("long")).decode(value) == {"f0": 1_700_000_000_000_000}


def test_microseconds_are_rounded_down_where_the_schema_has_milliseconds() -> None:
    schema = record(TIMESTAMP_MILLIS)
    assert AvroDecoder(schema).decode(encode(schema, f0=1_999)) == {"f0": 1_000}
    assert AvroDecoder(schema).decode(encode(schema, f0=-1)) == {"f0": -1_000}


def test_not_a_number_survives() -> None:
    value = AvroDecoder(record("double")).decode(encode(record("double"), f0=float("nan")))["f0"]
    assert value != value


def test_coders_travel_to_tasks() -> None:
    schema = record(PRICE, COLOUR)
    encoder, decoder = pickle.loads(pickle.dumps((AvroEncoder(schema), AvroDecoder(schema))))
    row = {"f0": Decimal("1.25"), "f1": "RED"}
    assert decoder.decode(encoder.encode(dict(row))) == row
    tiny = StructType([StructField("f0", ByteType())])
    assert pickle.loads(pickle.dumps(AvroDecoder(schema_of(tiny), tiny))).struct == tiny


@pytest.mark.parametrize(
    ("schema", "row", "said"),
    [
        (record("boolean"), {"f0": None}, "field f0 is null, but the schema does not allow null"),
        (record(POINT), {"f0": {"x": 1.0, "y": None}}, "field f0.y is null"),
        (record({"type": "array", "items": POINT}), {"f0": [{"x": None, "y": 1.0}]}, r"field f0\[\].x is null"),
        (record({"type": "array", "items": "boolean"}), {"f0": [True, None]}, "field f0: an element is null"),
        (record({"type": "map", "values": "boolean"}), {"f0": [("k", None)]}, "field f0: an element is null"),
        (record(["null", COLOUR]), {"f0": "BLUE"}, "field f0: 'BLUE' is not one of RED, GREEN"),
        (record(HASH), {"f0": b"abc"}, "field f0: it has 3 bytes instead of 4"),
        (record(UUID_FIXED), {"f0": "seven"}, "field f0: badly formed"),
        (record(PRICE_FIXED), {"f0": Decimal(10**9)}, "field f0: int too big"),
    ],
)
def test_a_row_that_the_schema_has_no_room_for_is_refused_by_name(
    schema: dict[str, Any], row: dict[str, Any], said: str
) -> None:
    with pytest.raises(MisfitError, match=said):
        AvroEncoder(schema).encode(row)


# Bytes that are no row


def test_null_is_null_and_not_malformed() -> None:
    assert AvroDecoder(record("int")).decode_all([None]).to_pylist() == [{"value": None, "malformed": None}]


def test_one_malformed_value_does_not_spoil_the_others() -> None:
    schema = record("int", "string")
    good = encode(schema, f0=1, f1="a")
    decoded = AvroDecoder(schema).decode_all([good, good[:-1], None, good]).to_pylist()
    row = {"f0": 1, "f1": "a"}
    assert [one["value"] for one in decoded] == [row, None, None, row]
    assert [one["malformed"] is None for one in decoded] == [True, False, True, True]


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        (record("int"), b"", "the value is truncated, or has another schema"),
        (record("string"), b"\x06ab", "the value is truncated, or has another schema"),
        (record(COLOUR), b"\x04", "the value is truncated, or has another schema"),
        (record(["null", "int"]), b"\x04\x02", "the value is truncated, or has another schema"),
        (record("string"), b"\x04\xff\xfe", "a string is not UTF-8"),
        (record("int"), b"\x02\x02\x02", "the record ends after 1 of 3 bytes"),
        (
            record("int"),
            b"\xfe\xff\xff\xff\xff\x01",
            "field f0: Value 34359738367 too large to fit in",
        ),
        (record("int", TIMESTAMP_MILLIS), b"\x00" + b"\xfe" + b"\xff" * 8 + b"\x01", "field f1: "),
        (record(PRICE), b"\x0a\x7f\xff\xff\xff\xff", "field f0: "),
    ],
)
def test_a_malformed_value_says_why(schema: dict[str, Any], value: bytes, reason: str) -> None:
    said = reason_for(schema, value)
    assert said is not None
    assert said.startswith(reason)


def test_a_number_that_is_too_large_for_the_column_is_malformed_and_named() -> None:
    struct = StructType([StructField("ok", LongType()), StructField("tiny", ByteType())])
    schema = schema_of(struct)
    values = [AvroEncoder(schema).encode({"ok": 1, "tiny": tiny}) for tiny in (127, 128, None)]
    decoded = AvroDecoder(schema, struct).decode_all(values).to_pylist()
    assert [one["value"] for one in decoded] == [{"ok": 1, "tiny": 127}, None, {"ok": 1, "tiny": None}]
    assert decoded[1]["malformed"].startswith("field tiny: ")


def test_a_value_of_a_schema_registry_is_recognized_as_one() -> None:
    schema = record("string")
    said = reason_for(schema, b"\x00\x00\x00\x00\x2a" + encode(schema, f0="hello"))
    assert said is not None
    assert said.endswith("it begins like a value written with a schema registry, with the schema id 42")


ANYTHING = [
    *(leaf for leaf, _ in AVRO_LEAVES),
    {"type": "array", "items": ["null", "long"]},
    {"type": "map", "values": POINT},
    "bytes",
    PRICE,
    ["null", DATE],
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(ANYTHING), min_size=1, max_size=4, unique_by=str), st.binary(max_size=40))
def test_any_bytes_are_a_row_or_malformed(types: list[Any], value: bytes) -> None:
    decoder = AvroDecoder(record(*types))
    decoded = decoder.decode_all([value])
    assert decoded.field("value").is_null()[0].as_py() == decoded.field("malformed").is_valid()[0].as_py()


def test_decoding_one_value_raises_why_it_is_malformed() -> None:
    with pytest.raises(MalformedValueError, match="the record ends after 1 of 2 bytes"):
        AvroDecoder(record("int")).decode(b"\x02\x02")
