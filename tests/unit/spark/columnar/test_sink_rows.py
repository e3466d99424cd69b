"""Columns that can be written, and what is said of those that cannot."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from barnabas.spark.columnar.sink_columns import ColumnError, check_columns
from barnabas.spark.columnar.sink_rows import read_rows

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("kind", ["string", "binary", "varchar(10)", "string collate UNICODE_CI"])
def test_keys_and_values_are_text_or_bytes(kind: str) -> None:
    check_columns({"key": kind, "value": kind}, topic="t")


@pytest.mark.parametrize("key", ["string", "binary"])
@pytest.mark.parametrize("value", ["string", "binary"])
def test_headers_are_a_list_of_keys_with_values(key: str, value: str) -> None:
    check_columns({"value": "string", "headers": f"array<struct<key:{key},value:{value}>>"}, topic="t")


def test_what_was_read_from_a_topic_can_be_written_as_it_is() -> None:
    columns = {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
    }
    check_columns(columns, topic=None)


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"key": "string"}, "column value is missing: it holds what is written; the columns are key"),
        ({}, "column value is missing: it holds what is written; the columns are none"),
        ({"value": "int"}, "column value is of type int: the sink takes string or binary; cast it"),
        (
            {"value": "struct<a:int>"},
            "column value is of type struct<a:int>: the sink takes string or binary; convert it to JSON",
        ),
        ({"value": "string", "key": "bigint"}, "column key is of type bigint"),
        ({"value": "string", "partition": "bigint"}, "column partition is of type bigint: the sink takes int"),
        ({"value": "string", "timestamp": "bigint"}, "column timestamp is of type bigint: the sink takes timestamp"),
        ({"value": "string", "topic": "binary"}, "column topic is of type binary: the sink takes string"),
        (
            {"value": "string", "headers": "map<string,binary>"},
            "column headers is of type map<string,binary>: the sink takes array<struct<key: string, value: binary>>",
        ),
        ({"value": "string", "header": "string"}, "column header is not known to the sink; did you mean headers?"),
        ({"value": "string", "amount": "int"}, "column amount is not known to the sink; drop it"),
    ],
)
def test_a_column_that_cannot_be_written_is_named(columns: dict[str, str], complaint: str) -> None:
    with pytest.raises(ColumnError) as failure:
        check_columns(columns, topic="t")
    assert str(failure.value).startswith(complaint)


def test_how_to_make_headers_of_a_map_is_said() -> None:
    with pytest.raises(ColumnError, match=r"; convert a map with map_entries\(headers\)"):
        check_columns({"value": "string", "headers": "map<string,binary>"}, topic="t")


def test_without_a_topic_in_option_or_column_nothing_is_written() -> None:
    with pytest.raises(ColumnError, match="column topic is missing, and so is option topic"):
        check_columns({"value": "string"}, topic=None)


def test_a_null_topic_is_an_error() -> None:
    batch = pa.record_batch({"value": pa.array(["v"]), "topic": pa.array([None], pa.string())})
    with pytest.raises(ColumnError, match="column topic is null in a row"):
        read_rows(batch, topic=None, now_ms=NOW_MS)


def test_the_option_wins_over_the_column() -> None:
    batch = pa.record_batch({"value": pa.array(["v"]), "topic": pa.array(["elsewhere"])})
    assert read_rows(batch, topic="here", now_ms=NOW_MS).topics is None


def test_a_negative_partition_is_an_error() -> None:
    batch = pa.record_batch({"value": pa.array(["v", "w"]), "partition": pa.array([None, -1], pa.int32())})
    with pytest.raises(ColumnError, match="column partition is -1 in a row"):
        read_rows(batch, topic="t", now_ms=NOW_MS)


def test_a_time_before_1970_is_an_error() -> None:
    times = pa.array([datetime.datetime(1969, 12, 31, tzinfo=datetime.UTC)], pa.timestamp("us", tz="UTC"))
    with pytest.raises(ColumnError, match="column timestamp is -86400000 ms in a row"):
        read_rows(pa.record_batch({"value": pa.array(["v"]), "timestamp": times}), topic="t", now_ms=NOW_MS)


def test_a_row_without_a_time_is_from_now() -> None:
    times = pa.array([None, 5_000], pa.timestamp("us", tz="UTC"))
    rows = read_rows(pa.record_batch({"value": pa.array(["v", "w"]), "timestamp": times}), topic="t", now_ms=NOW_MS)
    assert rows.timestamps_ms.tolist() == [NOW_MS, 5]
