"""Avro schemas and Spark types, both ways."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
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

from barnabas.spark.formats.avro import AvroDecoder, AvroEncoder
from barnabas.spark.formats.avro_schema import AvroSchemaError, check_fits, parse, schema_of, struct_of
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


@pytest.mark.parametrize(
    ("avro", "spark"),
    [
        ("boolean", BooleanType()),
        ("int", IntegerType()),
        ("long", LongType()),
        ("float", FloatType()),
        ("double", DoubleType()),
        ("bytes", BinaryType()),
        ("string", StringType()),
        ({"type": "int"}, IntegerType()),
        (HASH, BinaryType()),
        (COLOUR, StringType()),
        (DATE, DateType()),
        (TIMESTAMP_MILLIS, TimestampType()),
        (TIMESTAMP_MICROS, TimestampType()),
        (LOCAL_MILLIS, TimestampNTZType()),
        (LOCAL_MICROS, TimestampNTZType()),
        (UUID_TEXT, StringType()),
        (UUID_FIXED, StringType()),
        (PRICE, DecimalType(9, 2)),
        (PRICE_FIXED, DecimalType(9, 2)),
        ({"type": "array", "items": "int"}, ArrayType(IntegerType(), containsNull=False)),
        ({"type": "array", "items": ["null", "int"]}, ArrayType(IntegerType(), containsNull=True)),
        ({"type": "map", "values": "long"}, MapType(StringType(), LongType(), valueContainsNull=False)),
        ({"type": "map", "values": ["long", "null"]}, MapType(StringType(), LongType(), valueContainsNull=True)),
        (POINT, StructType([StructField("x", DoubleType(), False), StructField("y", DoubleType(), False)])),
    ],
)
def test_an_avro_type_has_a_spark_type(avro: Any, spark: DataType) -> None:
    assert struct_of(record(avro)) == StructType([StructField("f0", spark, nullable=False)])
    assert struct_of(record(["null", avro])) == StructType([StructField("f0", spark, nullable=True)])
    assert struct_of(record([avro, {"type": "null"}])) == StructType([StructField("f0", spark, nullable=True)])


@pytest.mark.parametrize(
    ("schema", "spark"),
    [
        ({"type": "int", "logicalType": "time-millis"}, IntegerType()),
        ({"type": "long", "logicalType": "timestamp-nanos"}, LongType()),
        ({"type": "string", "logicalType": "of-our-own"}, StringType()),
        ({"type": "string", "logicalType": "date"}, StringType()),
        ({"type": "fixed", "name": "span", "size": 12, "logicalType": "duration"}, BinaryType()),
        ({"type": "fixed", "name": "short", "size": 8, "logicalType": "uuid"}, BinaryType()),
    ],
)
def test_a_logical_type_that_is_not_known_leaves_the_type_below_it(schema: Any, spark: DataType) -> None:
    assert struct_of(record(schema))[0].dataType == spark


def test_a_type_with_a_name_may_be_used_again_by_it() -> None:
    schema = record(start=POINT, end=["null", "point"]) | {"namespace": "maps"}
    struct = struct_of(schema)
    assert struct["start"].dataType == struct["end"].dataType
    data = AvroEncoder(schema).encode({"start": {"x": 1.0, "y": 2.0}, "end": {"x": 3.0, "y": 4.0}})
    assert AvroDecoder(schema).decode(data) == {"start": {"x": 1.0, "y": 2.0}, "end": {"x": 3.0, "y": 4.0}}


def test_an_avro_schema_may_be_text() -> None:
    assert struct_of('{"type": "record", "name": "row", "fields": [{"name": "id", "type": "long"}]}').names == ["id"]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (record(["int", "string"]), 'field f0: .*"int", "string".* is a union of several types'),
        (record(POINT, inner=record(["null", "int", "long"]) | {"name": "inner"}), "field inner.f0: "),
        (record("null"), "field f0: it is always null"),
        (record({"type": "null"}), "field f0: it is always null"),
        (record(["null"]), "field f0: it is always null"),
        (record({"type": "array", "items": "null"}), r"field f0\[\]: it is always null"),
        (record("int", next=["null", "row"]), "field next: row contains itself"),
        (record({"type": "record", "name": "nothing", "fields": []}), "field f0: the record nothing has no fields"),
        (
            record({"type": "fixed", "name": "nothing", "size": 0}),
            "field f0: the size of a fixed must be 1 byte or more",
        ),
        (record({"type": "map", "values": PRICE | {"precision": 39}}), r"field f0\{\}: a decimal in Spark has 1 to 38"),
        (
            record({"type": "bytes", "logicalType": "decimal"}),
            "field f0: a decimal in Spark has 1 to 38 digits, not None",
        ),
        ({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}] * 2}, "field a: it occurs twice"),
        (record("integer"), "names a type that it does not define: integer"),
        ({"type": "record", "fields": []}, "does not parse: .*name"),
        ({"type": "record", "name": "r", "fields": 5}, "does not parse"),
        (record({"type": "array"}), "does not parse: .*items"),
        ("{not json", "is not JSON"),
        ('"string"', "the Avro schema must be a record"),
        ({"type": "array", "items": "int"}, "the Avro schema must be a record"),
    ],
)
def test_a_schema_that_has_no_counterpart_is_refused_by_the_name_of_its_field(schema: Any, said: str) -> None:
    with pytest.raises(AvroSchemaError, match=said):
        struct_of(schema)


def test_a_derived_schema_has_every_spark_type_and_lets_every_field_be_null() -> None:
    struct = StructType(
        [
            StructField("flag", BooleanType(), nullable=False),
            StructField("tiny", ByteType()),
            StructField("small", ShortType()),
            StructField("int", IntegerType()),
            StructField("big", LongType()),
            StructField("single", FloatType()),
            StructField("double", DoubleType()),
            StructField("price", DecimalType(9, 2)),
            StructField("text", StringType()),
            StructField("data", BinaryType()),
            StructField("day", DateType()),
            StructField("at", TimestampType()),
            StructField("wall", TimestampNTZType()),
            StructField("list", ArrayType(StructType([StructField("x", LongType())]), containsNull=False)),
            StructField("map", MapType(StringType(), StructType([StructField("y", LongType())]))),
        ]
    )
    list_record = {"type": "record", "name": "value.list", "fields": [{"name": "x", "type": ["null", "long"]}]}
    map_record = {"type": "record", "name": "value.map", "fields": [{"name": "y", "type": ["null", "long"]}]}
    assert {field["name"]: field["type"][1] for field in schema_of(struct)["fields"]} == {
        "flag": "boolean",
        "tiny": "int",
        "small": "int",
        "int": "int",
        "big": "long",
        "single": "float",
        "double": "double",
        "price": PRICE,
        "text": "string",
        "data": "bytes",
        "day": DATE,
        "at": TIMESTAMP_MICROS,
        "wall": LOCAL_MICROS,
        "list": {"type": "array", "items": ["null", list_record]},
        "map": {"type": "map", "values": ["null", map_record]},
    }
    assert all(field["type"][0] == "null" for field in schema_of(struct)["fields"])
    parse(schema_of(struct))


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (StructField("my field", LongType()), "field my field: an Avro name has letters, digits and _ only"),
        (StructField("span", DayTimeIntervalType()), "field span: Avro has no type for interval day to second"),
        (StructField("by", MapType(LongType(), LongType())), "field by: maps in Avro have string keys, not bigint"),
        (StructField("in", StructType([StructField("a b", LongType())])), "field in.a b: an Avro name"),
        (StructField("in", ArrayType(StructType([]))), r"field in\[\]: there are no columns"),
    ],
)
def test_columns_that_avro_has_no_place_for_are_refused_by_name(field: StructField, said: str) -> None:
    with pytest.raises(AvroSchemaError, match=said):
        schema_of(StructType([field]))


@pytest.mark.parametrize(
    ("have", "want"),
    [
        (IntegerType(), LongType()),
        (ByteType(), IntegerType()),
        (FloatType(), DoubleType()),
        (DecimalType(5, 2), DecimalType(9, 2)),
        (ArrayType(ShortType()), ArrayType(LongType())),
        (MapType(StringType(), IntegerType()), MapType(StringType(), LongType())),
        (StructType([StructField("x", IntegerType())]), StructType([StructField("x", LongType(), nullable=False)])),
    ],
)
def test_a_column_fits_a_field_that_holds_all_of_its_values(have: DataType, want: DataType) -> None:
    check_fits(StructType([StructField("a", have)]), StructType([StructField("a", want)]))
    with pytest.raises(AvroSchemaError, match=r"field a.*: the column is .*, but the schema has .*: cast it"):
        check_fits(StructType([StructField("a", want)]), StructType([StructField("a", have)]))


def test_nested_fields_are_to_be_in_the_order_of_the_schema() -> None:
    have = StructType([StructField("a", StructType([StructField("x", LongType()), StructField("y", LongType())]))])
    want = StructType([StructField("a", StructType([StructField("y", LongType()), StructField("x", LongType())]))])
    with pytest.raises(AvroSchemaError, match=r"field a: .*in the order of the schema"):
        check_fits(have, want)


def test_columns_and_fields_are_matched_by_name_and_none_is_left_over() -> None:
    ab = StructType([StructField("a", LongType()), StructField("b", LongType())])
    ba = StructType([StructField("b", LongType()), StructField("a", LongType())])
    a = StructType([StructField("a", LongType())])
    check_fits(ab, ba)
    with pytest.raises(AvroSchemaError, match="field b: there is no such column; the columns are a"):
        check_fits(a, ab)
    with pytest.raises(AvroSchemaError, match="field b: the schema has no such field"):
        check_fits(ab, a)
