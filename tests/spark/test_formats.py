"""Values as typed columns and back, in a real session, on frames as the source makes them."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (so it is called everywhere)
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from barnabas.spark import dead_letters, from_topic, to_topic
from tests.spark.source_frames import NOON, SOURCE, USER, records

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


def values_of(rows: DataFrame) -> list[dict[str, Any] | None]:
    return [None if row.value is None else row.value.asDict(recursive=True) for row in rows.select("value").collect()]


def reasons(rows: DataFrame) -> list[str | None]:
    return [row.malformed for row in rows.select("malformed").collect()]


def written(frame: DataFrame) -> list[bytes | None]:
    return [row.value for row in frame.collect()]


def back(frame: DataFrame) -> DataFrame:
    """What was written for the sink, as the source would give it."""
    origin = {"topic": F.lit("sales"), "partition": F.lit(3), "offset": F.lit(100).cast("long")}
    return frame.withColumns(origin)


# JSON


def test_json_values_become_a_struct_and_the_other_columns_stay(spark: SparkSession) -> None:
    frame = records(spark, b'{"user": "ann", "amount": 1.5}', b'{"amount": 2}\n')
    rows = from_topic(frame, "user STRING, amount DOUBLE")
    assert rows.columns == frame.columns
    assert [tuple(row) for row in rows.select("value.*", "key", "offset").collect()] == [
        ("ann", 1.5, "k", 100),
        (None, 2.0, "k", 101),
    ]


def test_a_null_value_is_null_and_not_malformed(spark: SparkSession) -> None:
    frame = records(spark, None, keys=[None])
    rows = [
        from_topic(frame, "a INT", format=value_format, malformed=malformed).select("key", "value")
        for value_format, malformed in product(("json", "csv", "avro"), ("fail", "null"))
    ]
    marked = [from_topic(frame, "a INT", format=f, malformed="mark") for f in ("json", "csv", "avro")]
    assert values_of(reduce(DataFrame.union, rows)) == [None] * 6
    assert reasons(reduce(DataFrame.union, marked)) == [None] * 3


def test_malformed_json_says_what_is_wrong_with_it(spark: SparkSession) -> None:
    cases = {
        b'{"id": 1}': None,
        b"": "the value is empty",
        b" \n": "the value is empty",
        b"hello": "the value is not JSON",
        b'{"id": 1': "the value is not JSON",
        b'{"id": 1, "name": "\xff"}': "the value is not UTF-8",
        b"null": "the value is JSON, but not an object",
        b'[{"id": 1}]': "the value is JSON, but not an object",
        b'{"id": 1} {"id": 2}': "the value continues after the JSON object",
        b'{"id": 1},{"id": 2}': "the value continues after the JSON object",
        b'{"id": 1}}': "the value continues after the JSON object",
        b'{"id": 1} and more': "the value continues after the JSON object",
        b'{"id": "1"}': "field id is not of type bigint",
        b'{"id": 1.5}': "field id is not of type bigint",
        b'{"id": 1, "at": {"x": "y"}}': "field at.x is not of type double",
        b'{"id": 1, "at": [1]}': "field at is not of type struct<x:double>",
        b'{"id": 1, "tags": ["a", {"b": 1}]}': None,  # What is no string is the JSON text of it, as Spark has it.
        b'{"id": 1, "days": ["2024-01-01", "soon"]}': "field days is not of type array<date>",
    }
    schema = "id BIGINT, name STRING, at STRUCT<x: DOUBLE>, tags ARRAY<STRING>, days ARRAY<DATE>"
    rows = from_topic(records(spark, *cases), schema, malformed="mark")
    assert dict(zip(cases, reasons(rows), strict=True)) == cases


@pytest.mark.parametrize("malformed", ["mark", "null"])
def test_no_json_value_ends_or_begins_anew_what_it_is_parsed_inside_of(spark: SparkSession, malformed: str) -> None:
    # How many brackets there are around a value is nothing to rely on: all ways to close up to three are tried.
    closers = [closer for depth in (1, 2, 3) for closer in map("".join, product("]}", repeat=depth))]
    reopeners = ("", " garbage", '{"a":2}', ',{"a":2}', ',"x":1', ',"x":[{"b":2}', ',"x":{"b":2', ',"x":{"y":{"b":2}')
    again = (',"values":[{"a":7}', ',"value":{"a":7}', ',"values":[{"a":7}]}', ',"value":{"a":7}}}')
    texts = [f'{{"a":1}}{one}{more}' for one, more in product(("", *closers), (*reopeners, *again)) if one or more]
    rows = from_topic(records(spark, *(text.encode() for text in texts)), "a INT", malformed=malformed)
    assert {text: value for text, value in zip(texts, values_of(rows), strict=True) if value is not None} == {}
    if malformed == "mark":
        assert set(reasons(rows)) == {"the value continues after the JSON object"}


def test_a_json_value_that_goes_on_fails_the_query(spark: SparkSession) -> None:
    rows = from_topic(records(spark, b'{"a":1}],"values":[{"a":7}'), "a INT")
    with pytest.raises(SparkRuntimeException, match="offset 100: the value continues after the JSON object"):
        rows.collect()


def test_blanks_and_comments_may_be_around_a_json_value(spark: SparkSession) -> None:
    frame = records(spark, b'\r\n\t{"a":1}\r\n ', b'// one\n{"a":1} // two', b'/* { */ {"a":1} /* } */', b'{"a":1} /*')
    rows = from_topic(frame, "a INT", malformed="mark", options={"allowComments": True})
    assert values_of(rows) == [{"a": 1}, {"a": 1}, {"a": 1}, None]


def test_the_same_call_makes_the_same_plan(spark: SparkSession) -> None:
    frame = records(spark, b'{"a":1}')
    assert from_topic(frame, "a INT").sameSemantics(from_topic(frame, "a INT"))


def test_fields_may_have_any_name(spark: SparkSession) -> None:
    struct = StructType([StructField(name, LongType()) for name in ("it's", "a.b `c`", "_corrupt")])
    values = (b'{"it\'s": "x"}', b'{"a.b `c`": "x"}', b'{"it\'s": 1, "a.b `c`": 2, "_corrupt": 3}')
    rows = from_topic(records(spark, *values), struct, malformed="mark")
    assert reasons(rows) == ["the value does not fit the schema", "field a.b `c` is not of type bigint", None]
    lines = to_topic(rows.where("malformed IS NULL").select("value.*"), format="csv")
    assert written(lines) == [b"1,2,3"]
    assert values_of(from_topic(back(lines), struct, format="csv")) == [{"it's": 1, "a.b `c`": 2, "_corrupt": 3}]


def test_reading_one_field_does_not_hide_that_another_is_malformed(spark: SparkSession) -> None:
    rows = from_topic(records(spark, b'{"a": 1, "b": "x"}'), "a INT, b INT", malformed="null")
    assert [row.a for row in rows.select("value.a").collect()] == [None]


@pytest.mark.parametrize("value_format", ["json", "avro"])
def test_a_field_that_is_not_null_in_the_schema_must_be_there(spark: SparkSession, value_format: str) -> None:
    point = StructType([StructField("x", LongType(), nullable=False)])
    struct = StructType(
        [
            StructField("id", LongType(), nullable=False),
            StructField("at", point),
            StructField("way", ArrayType(point)),
            StructField("tags", ArrayType(StringType(), containsNull=False)),
            StructField("by", MapType(StringType(), LongType(), valueContainsNull=False)),
        ]
    )
    cases: dict[str, str | None] = {
        '{"id": 1, "way": [{"x": 1}, null], "tags": [], "by": {"a": 1}}': None,
        '{"id": null}': "field id is missing or null",
        '{"at": {"x": 1}}': "field id is missing or null",
        '{"id": 1, "at": {}}': "field at.x is missing or null",
        '{"id": 1, "way": [{"x": 1}, {}]}': "field way[].x is missing or null",
        '{"id": 1, "tags": ["a", null]}': "field tags[] is missing or null",
        '{"id": 1, "by": {"a": null}}': "field by{} is missing or null",
    }
    frame = records(spark, *(text.encode() for text in cases))
    if value_format == "avro":
        loose = from_topic(
            frame,
            "id BIGINT, at STRUCT<x: BIGINT>, way ARRAY<STRUCT<x: BIGINT>>, tags ARRAY<STRING>, by MAP<STRING, BIGINT>",
        )
        frame = back(to_topic(loose, key="key", value="value", format="avro"))
    rows = from_topic(frame, struct, format=value_format, malformed="mark")
    assert reasons(rows) == list(cases.values())


# CSV


def test_csv_values_are_lines_of_rfc_4180(spark: SparkSession) -> None:
    values = (b"1,ann", b"2,\r\n", b'3,""\n', b'4,"say ""hi"", twice"', b'5,"two\nlines"', b"6,a\\b", b'"7", x ')
    rows = from_topic(records(spark, *values), "id INT, name STRING", format="csv")
    assert [tuple(row) for row in rows.select("value.*").collect()] == [
        (1, "ann"),
        (2, None),
        (3, ""),
        (4, 'say "hi", twice'),
        (5, "two\nlines"),
        (6, "a\\b"),
        (7, " x "),
    ]


def test_malformed_csv_says_what_is_wrong_with_it(spark: SparkSession) -> None:
    cases = {
        b"1,a": None,
        b"": "the value is empty",
        b"1": "the number of fields is not 2",
        b"1,a,b": "the number of fields is not 2",
        b"1,a\n2,b": "the number of fields is not 2",
        b"one,a": "field id is not of type int",
        b'"",a': "field id is not of type int",
        b'1,"a': "a quote is not closed",
        b"1,\xff": "the value is not UTF-8",
    }
    rows = from_topic(records(spark, *cases), "id INT, name STRING", format="csv", malformed="mark")
    assert dict(zip(cases, reasons(rows), strict=True)) == cases


def test_options_of_csv_are_those_of_spark(spark: SparkSession) -> None:
    frame = records(spark, b"1;01.05.2024;'x", b"NA;NA;NA")
    options = {"SEP": ";", "dateFormat": "dd.MM.yyyy", "nullValue": "NA", "ignoreLeadingWhiteSpace": True}
    rows = from_topic(frame, "id INT, day DATE, note STRING", format="csv", options=options)
    assert values_of(rows) == [
        {"id": 1, "day": dt.date(2024, 5, 1), "note": "'x"},
        {"id": None, "day": None, "note": None},
    ]
    again = to_topic(rows, value="value", format="csv", options={"sep": ";", "dateFormat": "dd.MM.yyyy"})
    assert written(again) == [b"1;01.05.2024;'x", b";;"]


def test_a_line_of_one_field_may_be_empty(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a",), (None,), ("",)], "name STRING")
    lines = to_topic(frame, format="csv")
    assert written(lines) == [b"a", b"", b'""']
    assert values_of(from_topic(back(lines), "name STRING", format="csv")) == [{"name": n} for n in ("a", None, "")]


# Avro


def avro(schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), row)
    return target.getvalue()


@pytest.mark.parametrize("as_text", [True, False])
def test_avro_values_become_a_struct_by_an_avro_schema(spark: SparkSession, as_text: bool) -> None:
    frame = records(
        spark,
        avro(USER, {"name": "ann", "level": "HIGH", "since": NOON}),
        avro(USER, {"name": "bob", "level": "LOW", "since": None}),
    )
    rows = from_topic(frame, json.dumps(USER) if as_text else USER, format="avro")
    assert rows.columns == frame.columns
    said = rows.select("value.name", "value.level", F.unix_millis("value.since"), "offset").collect()
    assert [tuple(row) for row in said] == [
        ("ann", "HIGH", int(NOON.timestamp() * 1000), 100),
        ("bob", "LOW", None, 101),
    ]


def test_malformed_avro_says_what_is_wrong_with_it(spark: SparkSession) -> None:
    good = avro(USER, {"name": "ann", "level": "LOW", "since": None})
    rows = from_topic(records(spark, good, good[:-1], good + b"!"), USER, format="avro", malformed="mark")
    assert reasons(rows) == [
        None,
        "the value is truncated, or has another schema",
        "the record ends after 6 of 7 bytes",
    ]


def test_avro_is_written_by_a_schema_whose_fields_are_found_by_name(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [("HIGH", NOON, "ann"), ("LOW", None, "bob")], "level STRING, since TIMESTAMP, name STRING"
    )
    values = written(to_topic(frame, format="avro", schema=USER))
    parsed = fastavro.parse_schema(USER)
    read: list[Any] = [fastavro.schemaless_reader(io.BytesIO(value or b""), parsed, None) for value in values]
    assert [(user["name"], user["level"], user["since"] is None) for user in read] == [
        ("ann", "HIGH", False),
        ("bob", "LOW", True),
    ]


def test_a_row_that_an_avro_schema_has_no_room_for_fails_the_query_and_names_the_field(
    spark: SparkSession,
) -> None:
    frame = spark.createDataFrame([("MIDDLE", NOON, "ann")], "level STRING, since TIMESTAMP, name STRING")
    with pytest.raises(Exception, match="field level: 'MIDDLE' is not one of LOW, HIGH"):
        to_topic(frame, format="avro", schema=USER).collect()


# All formats

ROUND_TRIP = {
    "flag": "BOOLEAN",
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "int": "INT",
    "big": "BIGINT",
    "single": "FLOAT",
    "double": "DOUBLE",
    "price": "DECIMAL(38, 9)",
    "text": "STRING",
    "day": "DATE",
    "at": "TIMESTAMP",
    "wall": "TIMESTAMP_NTZ",
}
NESTED = {
    "data": "BINARY",
    "list": "ARRAY<STRUCT<x: INT, at: TIMESTAMP>>",
    "map": "MAP<STRING, DECIMAL(5, 2)>",
    "in": "STRUCT<deep: STRUCT<er: ARRAY<BINARY>>>",
}


def some_rows(spark: SparkSession, fields: dict[str, str]) -> DataFrame:
    at = NOON.replace(microsecond=123456)
    row = {
        "flag": True,
        "tiny": -128,
        "small": -(2**15),
        "int": -(2**31),
        "big": -(2**63),
        "single": 1.5,
        "double": 0.1,
        "price": Decimal("12345678901234567890.123456789"),
        "text": ' "q", \\ \n ü ',
        "day": dt.date(1969, 7, 20),
        "at": at,
        "wall": at.replace(tzinfo=None),
        "data": b"\x00\xff",
        "list": [(1, at), None, (None, None)],
        "map": {"a": Decimal("1.25"), "b": None},
        "in": ((([b"\x01", None]),),),
    }
    schema = ", ".join(f"`{name}` {kind}" for name, kind in fields.items())
    rows: list[tuple[Any, ...]] = [tuple(row[name] for name in fields), (None,) * len(fields)]
    return spark.createDataFrame(rows, schema)


@pytest.mark.parametrize(
    ("value_format", "fields"), [("csv", ROUND_TRIP), ("json", ROUND_TRIP | NESTED), ("avro", ROUND_TRIP | NESTED)]
)
def test_what_is_written_is_read_as_it_was_in_any_time_zone(
    spark: SparkSession, value_format: str, fields: dict[str, str]
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = some_rows(spark, fields)
        rows = from_topic(back(to_topic(frame, format=value_format)), frame.schema, format=value_format)
        assert rows.select("value.*").schema == frame.schema
        assert rows.select("value.*").collect() == frame.collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


@pytest.mark.parametrize(
    ("wall", "offset"),
    [
        ("0001-01-01 00:00:00", "-04:56:02"),
        ("1883-01-01 00:00:00.123456", "-04:56:02"),
        ("1883-11-18 12:03:58", "-05:00"),
        ("2024-01-01 12:00:00.5", "-05:00"),
        ("2024-07-01 12:00:00.000001", "-04:00"),
    ],
)
def test_timestamps_are_written_with_all_of_their_offset(spark: SparkSession, wall: str, offset: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.sql(f"SELECT TIMESTAMP'{wall}' at")
        micros = frame.select(F.unix_micros("at")).collect()[0][0]
        date, time = wall.split()
        text = f"{date}T{time}{'' if '.' in time else '.'}".ljust(26, "0") + offset
        for value_format, expected in (("json", f'{{"at":"{text}"}}'), ("csv", text)):
            out = to_topic(frame, format=value_format)
            assert written(out) == [expected.encode()]
            rows = from_topic(back(out), frame.schema, format=value_format)
            assert rows.select(F.unix_micros("value.at")).collect()[0][0] == micros
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


@pytest.mark.parametrize("value_format", ["json", "csv"])
def test_timestamps_in_utc_end_in_z(spark: SparkSession, value_format: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        out = to_topic(spark.sql("SELECT TIMESTAMP'1883-01-01 00:00:00' at"), format=value_format)
        text = b"1883-01-01T00:00:00.000000Z"
        assert written(out) == [b'{"at":"%s"}' % text if value_format == "json" else text]
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


@pytest.mark.parametrize("value_format", ["json", "csv", "avro"])
def test_a_malformed_value_fails_the_query_with_where_it_is_and_why(spark: SparkSession, value_format: str) -> None:
    rows = from_topic(records(spark, None, b'x,"'), "a INT, b INT", format=value_format)
    with pytest.raises(SparkRuntimeException, match=r"topic sales, partition 3, offset 101: (the|a) "):
        rows.collect()


def test_in_a_stream_the_helpers_mean_the_same(spark: SparkSession, tmp_path: Any) -> None:
    records(spark, b'{"a": 1}', b"x").write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(SOURCE).parquet(str(tmp_path / "in"))
    rows = from_topic(stream, "a INT", malformed="mark")
    out = to_topic(rows.where("malformed IS NULL").select("value.*"), topic="good", format="avro")
    both = out.unionByName(dead_letters(rows, "bad"), allowMissingColumns=True)
    query = both.writeStream.format("memory").queryName("both").trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(60)
        assert sorted((row.topic, row.value) for row in spark.table("both").collect()) == [
            ("bad", b"x"),
            ("good", b"\x02\x02"),
        ]
    finally:
        query.stop()
        spark.catalog.dropTempView("both")


# Keys


def test_keys_are_read_as_kafkas_serializers_write_them(spark: SparkSession) -> None:
    def keys(key_format: str, *raw: bytes | None) -> list[Any]:
        rows = from_topic(records(spark, *[b"{}"] * len(raw), keys=raw), "a INT", key=key_format)
        return [row.key for row in rows.collect()]

    assert keys("string", "ü".encode(), None) == ["ü", None]
    assert keys("bytes", b"\xff", None) == [b"\xff", None]
    numbers = (0, 7, -1, 2**31 - 1, -(2**31))
    assert keys("int", *(n.to_bytes(4, "big", signed=True) for n in numbers), None) == [*numbers, None]
    numbers = (0, 7, -1, 2**63 - 1, -(2**63))
    assert keys("long", *(n.to_bytes(8, "big", signed=True) for n in numbers), None) == [*numbers, None]


def test_a_malformed_key_is_treated_as_a_malformed_value_is(spark: SparkSession) -> None:
    frame = records(spark, b'{"a": 1}', keys=[b"\xff\xff"])
    marked = from_topic(frame, "a INT", malformed="mark")
    row = marked.collect()[0]
    assert (row.key, row.value.a, row.malformed, bytes(row.raw_key)) == (None, 1, "the key is not UTF-8", b"\xff\xff")
    assert [row.key for row in from_topic(frame, "a INT", malformed="null", key="int").collect()] == [None]
    with pytest.raises(SparkRuntimeException, match="offset 100: the key does not have the 8 bytes of format long"):
        from_topic(frame, "a INT", key="long").collect()
    assert reasons(from_topic(frame, "a INT", malformed="mark", key="bytes")) == [None]


def test_a_frame_without_a_key_is_read_without_one(spark: SparkSession) -> None:
    frame = records(spark, b'{"a": 1}', b"x").drop("key", "headers")
    rows = from_topic(frame, "a INT", malformed="mark")
    assert "raw_key" not in rows.columns
    assert [(row.key, row.value) for row in dead_letters(rows, "dead").collect()] == [(None, b"x")]


def test_keys_are_written_as_kafkas_serializers_write_them(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 'ü' text, X'FF' bytes, -2 number, 258L big, CAST(NULL AS STRING) none, 1 value")

    def key(given: Any, key_format: str = "string") -> Any:
        return to_topic(frame, key=given, value=["value"], key_format=key_format).collect()[0].key

    assert key("text") == "ü".encode()
    assert key("bytes") == key("bytes", "bytes") == b"\xff"
    assert key("number") == b"-2"
    assert key("number", "int") == b"\xff\xff\xff\xfe"
    assert key("number", "long") == b"\xff\xff\xff\xff\xff\xff\xff\xfe"
    assert key("big", "long") == b"\x00\x00\x00\x00\x00\x00\x01\x02"
    assert key("none") is None
    assert key(F.concat("text", F.lit("!"))) == "ü!".encode()


# Dead letters


def header(row: Row) -> dict[str, bytes]:
    return {one.key: bytes(one.value) for one in row.headers}


def test_dead_letters_are_as_they_came_with_the_reason_in_a_header(spark: SparkSession) -> None:
    rows = from_topic(records(spark, b"hello", b'{"a": 1}', b"", keys=[b"\x01", b"k", None]), "a INT", malformed="mark")
    first, second = dead_letters(rows, "sales.dead").collect()
    assert (bytes(first.key), bytes(first.value), first.topic) == (b"\x01", b"hello", "sales.dead")
    assert header(first) == {
        "trace": b"1",
        "barnabas.dead-letter.reason": b"the value is not JSON",
        "barnabas.dead-letter.topic": b"sales",
        "barnabas.dead-letter.partition": b"3",
        "barnabas.dead-letter.offset": b"100",
    }
    assert (second.key, bytes(second.value)) == (None, b"")
    assert header(second)["barnabas.dead-letter.offset"] == b"102"
    assert "trace" not in header(second)


def test_the_topic_of_dead_letters_may_depend_on_the_row(spark: SparkSession) -> None:
    rows = from_topic(records(spark, b"x"), "a INT", malformed="mark")
    assert [row.topic for row in dead_letters(rows, F.concat("topic", F.lit(".dead"))).collect()] == ["sales.dead"]


# What becomes of a frame


def test_all_columns_but_those_named_for_something_else_are_the_value(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 'ann' user, 2 amount, 'x' `a note`, 1 part, TIMESTAMP'2024-05-01' at")
    out = to_topic(frame, key="user", topic="sales", partition="part", timestamp="at", headers=F.array())
    assert out.columns == ["key", "value", "topic", "headers", "partition", "timestamp"]
    row = out.collect()[0]
    assert (row.key, row.value, row.topic, row.partition) == (b"ann", b'{"amount":2,"a note":"x"}', "sales", 1)
    assert to_topic(frame, value=["amount"], topic=F.col("user")).collect()[0] == (b'{"amount":2}', "ann")


def test_a_struct_is_the_whole_value_and_null_where_it_is_null(spark: SparkSession) -> None:
    frame = spark.sql("SELECT id, IF(id = 1, NAMED_STRUCT('a', 1, 'b', 'x'), NULL) body FROM VALUES (1), (2) AS t(id)")
    for value_format in ("json", "csv", "avro"):
        values = written(to_topic(frame, key="id", value="body", format=value_format))
        assert [value is None for value in values] == [False, True]
