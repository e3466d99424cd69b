"""Arguments of the helpers for values that cannot be: errors that name them, before any data moves."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 (so it is called everywhere)

from barnabas.spark import dead_letters, from_topic, to_topic
from barnabas.spark.formats import ArgumentError
from tests.spark.source_frames import USER, records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"format": "jsno"}, "format: 'jsno' is not known; did you mean json?"),
        ({"format": "protobuf"}, "format: 'protobuf' is not known; there are only avro, csv, json"),
        ({"malformed": "dead"}, "malformed: 'dead' is not known; there are only fail, mark, null"),
        ({"key": "str"}, "key: 'str' is not known; did you mean string?"),
        ({"schema": "a INTT"}, "schema: 'a INTT' does not parse: "),
        ({"schema": "a INT b"}, "schema: 'a INT b' does not parse: "),
        ({"schema": ""}, "schema: '' has no fields"),
        ({"schema": "bigint"}, "schema: 'bigint' has no fields"),
        ({"schema": "a INT, a INT"}, "schema: field a occurs twice"),
        ({"schema": USER}, "schema: a mapping is an Avro schema; for json, give DDL or a StructType"),
        ({"schema": "a VARCHAR(3)"}, r"schema: field a: varchar\(3\) is only for tables"),
        ({"schema": "a ARRAY<MAP<INT, INT>>"}, r"schema: field a\[\]: map keys in JSON are strings, not int"),
        ({"schema": "a ARRAY<INT>", "format": "csv"}, "schema: field a: CSV cannot hold array<int>"),
        ({"schema": "a BINARY", "format": "csv"}, "schema: field a: CSV cannot hold binary"),
        ({"schema": "a MAP<INT, INT>", "format": "avro"}, "schema: field a: maps in Avro have string keys"),
        ({"schema": '{"type": "int"}', "format": "avro"}, "schema: the Avro schema must be a record"),
        ({"schema": "{", "format": "avro"}, "schema: the Avro schema is not JSON"),
        ({"options": {"seperator": ","}, "format": "csv"}, "options: seperator is not an option of reading CSV"),
        ({"options": {"timestampFormatt": "x"}}, "options: timestampFormatt .* did you mean timestampFormat?"),
        ({"options": {"mode": "FAILFAST"}}, "options: mode is not an option of reading JSON"),
        ({"options": {"sep": ","}, "format": "avro"}, "options: sep is not an option of Avro; there are none"),
    ],
)
def test_an_argument_that_cannot_be_is_refused_before_any_data_moves(
    spark: SparkSession, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ArgumentError, match=said):
        from_topic(records(spark), arguments.pop("schema", "a INT"), **arguments)


def test_a_frame_that_is_not_of_the_source_is_refused(spark: SparkSession) -> None:
    frame = records(spark)
    for made, said in (
        (frame.withColumnRenamed("value", "values"), "frame: there is no column value, .*; did you mean values?"),
        (frame.drop("offset"), "frame: there is no column offset, which malformed='fail' needs"),
        (
            frame.withColumn("value", F.lit("text")),
            "frame: column value is string, but in a frame of the source it is binary",
        ),
        (frame.withColumn("key", F.lit(1)), "frame: column key is int"),
        (frame.withColumn("__parsed", F.lit(1)), "frame: it already has a column __parsed"),
    ):
        with pytest.raises(ArgumentError, match=said):
            from_topic(made, "a INT")
    with pytest.raises(ArgumentError, match="it already has a column raw_value"):
        from_topic(frame.withColumn("raw_value", F.lit(1)), "a INT", malformed="mark")
    assert from_topic(frame.select("value"), "a INT", malformed="null").columns == ["value"]
    with pytest.raises(ArgumentError, match="no column malformed, which from_topic adds with malformed='mark'"):
        dead_letters(from_topic(frame, "a INT"), "dead")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"format": "avr"}, "format: 'avr' is not known; did you mean avro?"),
        ({"key_format": "lonk"}, "key_format: 'lonk' is not known; did you mean long?"),
        ({"key": "usr"}, "key: there is no column usr; did you mean user?"),
        ({"key": "list"}, "key: array<int> cannot be written with key_format='string': cast it"),
        ({"key": "user", "key_format": "int"}, "key: string cannot be written with key_format='int'"),
        ({"key": "user", "key_format": "bytes"}, "key: string cannot be written with key_format='bytes'"),
        ({"value": ["user", "amont"]}, "value: there is no column amont; did you mean amount?"),
        ({"value": []}, "value: no column is left for it"),
        ({"value": "user"}, r"value: a single column must be a struct, not string; .*value=\['user'\]"),
        ({"timestamp": "time"}, "timestamp: there is no column time"),
        ({"schema": USER}, "schema: json has no schema but that of the columns"),
        ({"format": "csv"}, "value: field list: CSV cannot hold array<int>"),
        ({"options": {"quoteAll": True}}, "options: quoteAll is not an option of writing JSON"),
        ({"format": "avro", "options": {"sep": 1}}, "options: sep is not an option of Avro"),
        ({"format": "avro", "schema": USER}, "schema: field name: there is no such column"),
        ({"format": "avro", "schema": {"type": "int"}}, "schema: the Avro schema must be a record"),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_data_moves(
    spark: SparkSession, arguments: dict[str, Any], said: str
) -> None:
    frame = spark.sql("SELECT 'ann' user, 2 amount, ARRAY(1) list")
    with pytest.raises(ArgumentError, match=said):
        to_topic(frame, **arguments)


def test_an_expression_that_cannot_be_is_refused_by_the_name_of_its_argument(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 'ann' user, 2 amount")
    with pytest.raises(ArgumentError, match=r"key: .*usr"):
        to_topic(frame, key=F.col("usr"))
    with pytest.raises(ArgumentError, match=r"topic: .*dest"):
        to_topic(frame, topic=F.col("dest"))
    with pytest.raises(ArgumentError, match=r"value: a single column must be a struct, not string$"):
        to_topic(frame, value=F.col("user"))


def test_avro_without_its_library_says_what_to_install(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = records(spark)
    monkeypatch.setitem(sys.modules, "fastavro", None)
    said = r"'fastavro', .*: pip install 'barnabas\[spark\]'"
    with pytest.raises(ModuleNotFoundError, match=said):
        from_topic(frame, "a INT", format="avro")
    with pytest.raises(ModuleNotFoundError, match=said):
        to_topic(frame.select("key", "offset"), key="key", format="avro")
