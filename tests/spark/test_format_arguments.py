"""Arguments of the helpers for values that cannot be: errors that name them, before any data moves."""

from __future__ import annotations

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
        ({"format": "protobuf"}, "format: 'protobuf' is not known; there are avro, csv, json"),
        ({"malformed": "dead"}, "malformed: 'dead' is not known; there are fail, mark, null"),
        ({"key": "str"}, "key: 'str' is not known; did you mean string?"),
        ({"schema": "a INTT"}, "schema: 'a INTT' does not parse: "),
        ({"schema": "a INT b"}, "schema: 'a INT b' does not parse: "),
        ({"schema": ""}, "schema: '' has no fields"),
        ({"schema": "bigint"}, "schema: 'bigint' has no fields"),
        ({"schema": "a INT, a INT"}, "schema: field a is there twice"),
        ({"schema": USER}, "schema: for json it is DDL or a StructType"),
        ({"schema": "a VARCHAR(3)"}, r"schema: field a: varchar\(3\) is for tables"),
        ({"schema": "a ARRAY<MAP<INT, INT>>"}, r"schema: field a\[\]: JSON has strings as keys, not int"),
        ({"schema": "a ARRAY<INT>", "format": "csv"}, "schema: field a: CSV has no place for array<int>"),
        ({"schema": "a BINARY", "format": "csv"}, "schema: field a: CSV has no place for binary"),
        ({"schema": "a MAP<INT, INT>", "format": "avro"}, "schema: field a: Avro's maps have strings as keys"),
        ({"schema": '{"type": "int"}', "format": "avro"}, "schema: the Avro schema of a value is a record"),
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
        (frame.withColumn("value", F.lit("text")), "frame: value is string; in a frame of the source it is binary"),
        (frame.withColumn("key", F.lit(1)), "frame: key is int"),
        (frame.withColumn("__parsed", F.lit(1)), "frame: there is a column __parsed already"),
    ):
        with pytest.raises(ArgumentError, match=said):
            from_topic(made, "a INT")
    with pytest.raises(ArgumentError, match="there is a column raw_value already"):
        from_topic(frame.withColumn("raw_value", F.lit(1)), "a INT", malformed="mark")
    assert from_topic(frame.select("value"), "a INT", malformed="null").columns == ["value"]
    with pytest.raises(ArgumentError, match="no column malformed, which rows of from_topic with malformed='mark' have"):
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
        ({"value": []}, "value: there is no column left for it"),
        ({"value": "user"}, r"value: one column must be a whole record, a struct, and not string; .*value=\['user'\]"),
        ({"timestamp": "time"}, "timestamp: there is no column time"),
        ({"schema": USER}, "schema: json is written as the columns are"),
        ({"format": "csv"}, "value: field list: CSV has no place for array<int>"),
        ({"options": {"quoteAll": True}}, "options: quoteAll is not an option of writing JSON"),
        ({"format": "avro", "options": {"sep": 1}}, "options: sep is not an option of Avro"),
        ({"format": "avro", "schema": USER}, "schema: field name: there is no such column"),
        ({"format": "avro", "schema": {"type": "int"}}, "schema: the Avro schema of a value is a record"),
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
    with pytest.raises(ArgumentError, match=r"value: one column must be a whole record, a struct, and not string$"):
        to_topic(frame, value=F.col("user"))
