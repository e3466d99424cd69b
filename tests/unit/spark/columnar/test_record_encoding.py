"""Columns become the record batches that any reader of Kafka's format takes apart again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.batch import crc_is_valid, decode_records, read_header
from barnabas.protocol.compression import Codec
from barnabas.spark.columnar.record_encoding import Author, Batch, Limits, RecordTooLargeError, encode, seal
from barnabas.spark.columnar.sink_columns import ColumnError
from barnabas.spark.columnar.sink_rows import read_rows
from barnabas.spark.columnar.varint_packing import join, pack

if TYPE_CHECKING:
    from barnabas.spark.columnar.sink_rows import Rows

NOW_MS = 1_700_000_000_000
LIMITS = Limits(batch_bytes=16 * 1024, record_bytes_max=1 << 20)
AUTHOR = Author(7, 3)
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])

Headers = list[tuple[str, bytes | None]]


class Given(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    timestamp_ms: int


some_bytes = st.none() | st.binary(max_size=200)
some_headers = st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=20)), max_size=3)
some_rows = st.lists(
    st.builds(Given, some_bytes, some_bytes, some_headers, st.integers(0, 253_402_300_799_999)),
    min_size=1,
    max_size=40,
)


def batch_of(rows: list[Given]) -> pa.RecordBatch:
    lists = [
        None if row.headers is None else [{"key": key, "value": value} for key, value in row.headers] for row in rows
    ]
    return pa.record_batch(
        {
            "key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array([row.value for row in rows], pa.binary()),
            "headers": pa.array(lists, pa.list_(HEADER)),
            "timestamp": pa.array([row.timestamp_ms * 1_000 for row in rows], pa.timestamp("us", tz="UTC")),
        }
    )


def rows_of(batch: pa.RecordBatch) -> Rows:
    return read_rows(batch, topic="t", now_ms=NOW_MS)


def valued(values: list[bytes | None]) -> Rows:
    return rows_of(pa.record_batch({"value": pa.array(values, pa.binary())}))


def in_partition(partition: int, count: int) -> Any:
    return np.full(count, partition, np.int32)


def decoded(batch: Batch) -> list[Given]:
    records = decode_records(seal(batch, AUTHOR, 0))
    return [Given(each.key, each.value, list(each.headers), each.timestamp) for each in records]


def normal(rows: list[Given]) -> list[Given]:
    """A record has a list of headers, empty or not."""
    return [row._replace(headers=row.headers or []) for row in rows]


@given(some_rows, st.sampled_from(Codec), st.integers(1, 4))
@settings(max_examples=150)
def test_rows_come_out_of_their_batches_as_they_went_in(rows: list[Given], codec: Codec, partition_count: int) -> None:
    partitions = np.arange(len(rows), dtype=np.int32) % partition_count
    found: dict[int, list[Given]] = {}
    for batch in encode(rows_of(batch_of(rows)), partitions, LIMITS._replace(codec=codec, batch_bytes=500)):
        found.setdefault(batch.partition, []).extend(decoded(batch))
    assert found == {
        partition: normal(rows[partition::partition_count]) for partition in range(min(partition_count, len(rows)))
    }


@given(some_rows, st.data())
def test_a_slice_of_a_batch_of_rows_is_encoded_as_its_rows_are(rows: list[Given], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows) - 1))
    kept = rows[start:]
    (batch,) = encode(
        rows_of(batch_of(rows).slice(start)), in_partition(0, len(kept)), LIMITS._replace(batch_bytes=1 << 20)
    )
    assert decoded(batch) == normal(kept)


def test_a_reader_of_another_project_sees_the_same_records() -> None:
    rows = [Given(b"k%d" % n, b"v" * n, [("h", None)], NOW_MS + n) for n in range(300)]
    (batch,) = encode(rows_of(batch_of(rows)), in_partition(0, 300), LIMITS._replace(batch_bytes=1 << 20))
    records = MemoryRecords(seal(batch, AUTHOR, 0))
    read = records.next_batch()
    assert read.validate_crc()
    assert [Given(each.key, each.value, each.headers, each.timestamp) for each in read] == rows
    assert not records.has_next()


def test_the_header_of_a_batch_says_who_wrote_it_and_what_is_in_it() -> None:
    rows = [Given(None, b"v", None, NOW_MS + delta) for delta in (5, -3, 9)]
    (batch,) = encode(rows_of(batch_of(rows)), in_partition(0, 3), LIMITS)
    content = seal(batch, Author(70_000_000_000, 12, "orders-0"), sequence=41)
    header = read_header(content)
    assert crc_is_valid(content, 0, header.size)
    assert header.size == len(content)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (70_000_000_000, 12, 41)
    assert (header.record_count, header.last_offset_delta) == (3, 2)
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS + 5, NOW_MS + 9)
    assert header.is_transactional
    assert not read_header(seal(batch, AUTHOR, 0)).is_transactional


def test_a_batch_ends_where_it_is_full() -> None:
    batches = list(encode(valued([b"x" * 1_000] * 40), in_partition(0, 40), LIMITS))
    assert sum(batch.record_count for batch in batches) == 40
    assert [batch.record_count for batch in batches[:-1]] == [15, 15]
    assert all(len(seal(batch, AUTHOR, 0)) <= LIMITS.batch_bytes for batch in batches)


def test_a_row_that_is_larger_than_a_batch_goes_alone() -> None:
    batches = list(encode(valued([b"a", b"x" * 20_000, b"b"]), in_partition(0, 3), LIMITS))
    assert [batch.record_count for batch in batches] == [1, 1, 1]


def test_a_row_that_no_request_can_carry_is_an_error_that_names_the_option() -> None:
    with pytest.raises(RecordTooLargeError, match=r"kafka\.max\.request\.size allows only 1048576"):
        list(encode(valued([b"x" * (1 << 20)]), in_partition(0, 1), LIMITS))


def test_no_rows_make_no_batch() -> None:
    assert list(encode(valued([]), in_partition(0, 0), LIMITS)) == []


def test_a_header_without_a_key_is_an_error_that_names_the_column() -> None:
    lists = pa.array([[{"key": None, "value": b"x"}]], pa.list_(HEADER))
    rows = rows_of(pa.record_batch({"value": pa.array([b"v"]), "headers": lists}))
    with pytest.raises(ColumnError, match="column headers has a header that is null or has a null key"):
        list(encode(rows, in_partition(0, 1), LIMITS))


@given(st.lists(st.integers(-(1 << 54), (1 << 54)), min_size=1, max_size=30))
def test_varints_of_a_column_are_those_of_its_numbers(numbers: list[int]) -> None:
    from barnabas.protocol.varint import write_varlong

    expected = []
    for number in numbers:
        out = bytearray()
        write_varlong(out, number)
        expected.append(bytes(out))
    column = pack(np.array(numbers, np.int64))
    assert [bytes(each) for each in join([column])[0].to_pylist()] == expected
    pieces = [piece.to_pylist() for piece in join([column, column, pack(np.zeros(len(numbers), np.int64))])]
    assert [b"".join(parts) for parts in zip(*pieces, strict=True)] == [each + each + b"\0" for each in expected]
