"""What is fetched comes out as the same rows that the plain decoder of batches gives."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol import messages as m
from barnabas.protocol.batch import CRC_AT, HEADER_SIZE, build_batch, decode_records, iter_headers
from barnabas.protocol.compression import Codec
from barnabas.protocol.control_records import ControlRecordType, encode_end_transaction
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.record import NO_OFFSET, Record
from barnabas.spark.columnar.fetched_batches import Wanted, survey
from barnabas.spark.columnar.record_decoding import (
    BATCH_ROWS,
    COLUMNS,
    COLUMNS_WITH_HEADERS,
    Scratch,
    decode,
    schema_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NOW_MS = 1_700_000_000_000
FIRST_OFFSET = 1_000
EVERYTHING = Wanted("clicks", 3, 0, 1 << 60, COLUMNS_WITH_HEADERS, BATCH_ROWS)

NULLABLE = st.none() | st.binary(max_size=100)
HEADERS = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), NULLABLE), max_size=3)
RECORDS = st.builds(
    Record,
    st.none() | st.binary(max_size=200),
    NULLABLE,
    st.integers(NOW_MS - 100, NOW_MS + 20_000) | st.integers(-(1 << 50), 1 << 50),
    st.just(()) | HEADERS,
    st.just(NO_OFFSET),
)
CONTENTS = st.lists(RECORDS, max_size=8)


def batch_of(contents: Sequence[Record], base_offset: int = FIRST_OFFSET, **arguments: Any) -> bytes:
    """A batch of these records, at consecutive offsets; without any, what compaction leaves of one."""
    arguments.setdefault("last_offset_delta", max(0, len(contents) - 1))
    return build_batch(contents, base_offset=base_offset, **arguments)


def answer_of(*batches: tuple[Sequence[Record], dict[str, Any]]) -> bytes:
    """Batches one behind the other."""
    answer, offset = b"", FIRST_OFFSET
    for contents, arguments in batches:
        answer += batch_of(contents, offset, **arguments)
        offset += max(1, len(contents))
    return answer


def marker(outcome: ControlRecordType) -> tuple[list[Record], dict[str, Any]]:
    key, value = encode_end_transaction(outcome, coordinator_epoch=0)
    return [Record(value, key, NOW_MS)], {"producer_id": 7, "is_transactional": True, "is_control": True}


def transactional(value: bytes, producer_id: int = 7) -> tuple[list[Record], dict[str, Any]]:
    return [Record(value, timestamp=NOW_MS)], {"producer_id": producer_id, "is_transactional": True}


def decoded(
    data: bytes, wanted: Wanted = EVERYTHING, aborted: Iterable[m.FetchResponse.AbortedTransaction] = ()
) -> pa.Table:
    batches = list(decode(survey(memoryview(data), wanted), wanted, Scratch(), aborted))
    for batch in batches:
        batch.validate(full=True)
        assert 0 < batch.num_rows <= wanted.batch_rows
    return pa.Table.from_batches(batches, schema_of(wanted.columns))


def rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows with times in milliseconds, which Python's own times cannot always hold."""
    times = table["timestamp"].cast(pa.int64()).to_pylist()
    assert not any(time % 1_000 for time in times)
    others = table.drop_columns("timestamp").to_pylist()
    return [row | {"timestamp": time // 1_000} for row, time in zip(others, times, strict=True)]


def expected_rows(data: bytes, start: int = 0, end: int = 1 << 60) -> list[dict[str, Any]]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "clicks",
            "partition": 3,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestampType": int(header.timestamp_type),
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for position, header in iter_headers(data)
        for record in decode_records(data, position)
        if start <= record.offset < end
    ]


def values(table: pa.Table) -> list[bytes]:
    listed: list[bytes] = table["value"].to_pylist()
    return listed


def corrupt(data: bytes, position: int = 0) -> KafkaError:
    with pytest.raises(KafkaError) as failure:
        decoded(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
    assert failure.value.error is Error.CORRUPT_MESSAGE
    return failure.value


def with_records(records: bytes, count: int) -> bytes:
    """A batch, in order as far as its checksum goes, that claims to have this many records in these bytes."""
    batch = bytearray(batch_of([Record(b"", timestamp=NOW_MS)])[:HEADER_SIZE] + records)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, max(0, count - 1))
    struct.pack_into(">i", batch, HEADER_SIZE - 4, count)
    struct.pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[CRC_AT + 4 :])))
    return bytes(batch)


@settings(deadline=None)
@given(
    st.lists(st.tuples(CONTENTS, st.sampled_from([1, 30]), st.sampled_from(Codec), st.booleans()), max_size=4),
    st.sampled_from([1, 12]),
    st.integers(0, 20_000),
    st.sampled_from([1, 7, 64 * 1024]),
)
def test_any_batches_come_out_as_their_records(
    batches: list[tuple[list[Record], int, Codec, bool]], times: int, large_bytes: int, batch_rows: int
) -> None:
    """Long ones, and many, which are decoded side by side; with a large record behind; in portions of any size."""
    answer = answer_of(
        *[
            (contents * count, {"codec": codec, "log_append_time": appended})
            for contents, count, codec, appended in batches
        ]
        * times,
        ([Record(bytes(large_bytes), timestamp=NOW_MS)], {}),
    )
    assert rows(decoded(answer, EVERYTHING._replace(batch_rows=batch_rows))) == expected_rows(answer)


@settings(deadline=None)
@given(st.lists(st.tuples(CONTENTS, st.sampled_from(Codec)), min_size=1, max_size=5), st.data())
def test_records_before_and_behind_the_range_are_cut_off(
    batches: list[tuple[list[Record], Codec]], data: st.DataObject
) -> None:
    answer = answer_of(*[(contents, {"codec": codec}) for contents, codec in batches])
    end_of_all = survey(memoryview(answer), EVERYTHING).next_offset
    assert end_of_all is not None
    start = data.draw(st.integers(FIRST_OFFSET - 1, end_of_all + 1))
    end = data.draw(st.integers(start, end_of_all + 1))
    assert rows(decoded(answer, EVERYTHING._replace(start=start, end=end))) == expected_rows(answer, start, end)


def assert_decoded_as_the_plain_decoder_does(batch: bytes, count: int) -> None:
    """Or refused, where that refuses it, or where Spark could not use it."""
    try:
        expected = expected_rows(batch)
    except ValueError:
        expected = []
    offsets_are_right = [row["offset"] for row in expected] == [FIRST_OFFSET + delta for delta in range(count)]
    if not offsets_are_right or any(abs(row["timestamp"]) > 1 << 53 for row in expected):
        with pytest.raises(KafkaError, match="clicks-3: the batch at offset 1000 cannot be read"):
            decoded(batch)
        return
    found = rows(decoded(batch))
    for row in (*expected, *found):
        row["headers"] = [
            header["value"] for header in row["headers"] or ()
        ]  # names that are no UTF-8 are read differently
    assert found == expected


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(1, 5))
def test_bytes_that_are_no_records_are_an_error_and_nothing_worse(records: bytes, count: int) -> None:
    assert_decoded_as_the_plain_decoder_does(with_records(records, count), count)


@settings(max_examples=300, deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=4), st.data())
def test_damaged_records_below_a_checksum_that_fits_are_an_error_or_what_they_have_become(
    contents: list[Record], data: st.DataObject
) -> None:
    records = bytearray(batch_of(contents)[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(1, 3))):
        records[data.draw(st.integers(0, min(200, len(records) - 1)))] = data.draw(st.integers(0, 255))
    assert_decoded_as_the_plain_decoder_does(with_records(bytes(records), len(contents)), len(contents))


def test_records_of_every_length_are_found_in_large_and_in_many_batches() -> None:
    chance = random.Random(1)
    lengths = [chance.choice([0, 1, 50, 57, 58, 63, 64, 65, 8_180, 8_192, 20_000]) for _ in range(3_000)]
    contents = [Record(bytes(length), timestamp=NOW_MS + number) for number, length in enumerate(lengths)]
    one = batch_of(contents)
    many = answer_of(*[(contents[first : first + 50], {}) for first in range(0, 3_000, 50)])
    for answer in (one, many):
        assert [len(value) for value in values(decoded(answer))] == lengths


def test_equally_long_records_are_found_until_one_differs() -> None:
    for odd_one_out in (0, 1, 20, 500, 2_998, 2_999):
        contents = [Record(b"x" * 100, timestamp=NOW_MS)] * 3_000
        contents[odd_one_out] = Record(b"y" * 99, timestamp=NOW_MS)
        assert values(decoded(batch_of(contents))) == [record.value for record in contents]


def test_a_record_may_have_many_headers() -> None:
    contents = [
        Record(b"a", None, NOW_MS, [("name", None)] * 3),
        Record(b"b", None, NOW_MS, [(f"name-{number}", bytes(number % 70)) for number in range(500)]),
        Record(b"c", None, NOW_MS),
    ]
    answer = batch_of(contents)
    assert rows(decoded(answer)) == expected_rows(answer)


def test_a_header_name_that_is_no_utf_8_is_read_as_java_reads_it() -> None:
    answer = batch_of([Record(b"", None, NOW_MS, [("\udcff!", b"1"), ("ok", b"2")])])
    assert rows(decoded(answer))[0]["headers"] == [{"key": "\ufffd!", "value": b"1"}, {"key": "ok", "value": b"2"}]


def test_columns_come_as_they_are_asked_for_and_in_the_types_that_spark_demands() -> None:
    answer = batch_of([Record(b"value", b"key", NOW_MS, [("name", b"")])])
    table = decoded(answer, EVERYTHING._replace(columns=("offset", "value")))
    assert table.to_pylist() == [{"offset": FIRST_OFFSET, "value": b"value"}]
    assert decoded(answer, EVERYTHING._replace(columns=COLUMNS)).schema == pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestampType", pa.int32()),
        ]
    )


def test_a_batch_that_is_cut_off_is_left_for_the_next_answer() -> None:
    first, second = batch_of([Record(b"one")]), batch_of([Record(b"two")], FIRST_OFFSET + 1)
    for length in range(len(second)):
        answer = first + second[:length]
        assert survey(memoryview(answer), EVERYTHING).next_offset == FIRST_OFFSET + 1
        assert values(decoded(answer)) == [b"one"]
    assert survey(memoryview(first[:-1]), EVERYTHING).next_offset is None


def test_offsets_that_compaction_removed_are_gaps() -> None:
    contents = [Record(b"a", offset=FIRST_OFFSET + 3), Record(b"b", offset=FIRST_OFFSET + 7)]
    answer = batch_of(contents, last_offset_delta=9) + batch_of([], FIRST_OFFSET + 10, last_offset_delta=4)
    assert decoded(answer)["offset"].to_pylist() == [FIRST_OFFSET + 3, FIRST_OFFSET + 7]
    assert survey(memoryview(answer), EVERYTHING).next_offset == FIRST_OFFSET + 15


def test_control_batches_and_aborted_records_do_not_appear() -> None:
    """Producer 7 aborts, commits and aborts again, while producer 8 commits."""
    answer = answer_of(
        transactional(b"aborted 1"),
        transactional(b"of another", producer_id=8),
        transactional(b"aborted 2"),
        marker(ControlRecordType.ABORT),
        transactional(b"committed"),
        marker(ControlRecordType.COMMIT),
        ([Record(b"plain", timestamp=NOW_MS)], {}),
        transactional(b"aborted 3"),
        marker(ControlRecordType.ABORT),
    )
    aborted = [
        m.FetchResponse.AbortedTransaction(producer_id=7, first_offset=FIRST_OFFSET + 7),
        m.FetchResponse.AbortedTransaction(producer_id=7, first_offset=FIRST_OFFSET),
    ]
    assert values(decoded(answer, aborted=aborted)) == [b"of another", b"committed", b"plain"]


def test_a_reader_of_all_records_sees_aborted_ones_and_no_markers() -> None:
    answer = answer_of(transactional(b"aborted"), marker(ControlRecordType.ABORT))
    assert values(decoded(answer)) == [b"aborted"]


def test_an_answer_may_begin_in_the_middle_of_an_aborted_transaction() -> None:
    answer = answer_of(transactional(b"aborted"), marker(ControlRecordType.ABORT), transactional(b"open or committed"))
    aborted = [m.FetchResponse.AbortedTransaction(producer_id=7, first_offset=FIRST_OFFSET - 500)]
    assert values(decoded(answer, aborted=aborted)) == [b"open or committed"]


def test_what_expands_is_decoded_in_bounded_portions() -> None:
    """64 MiB of zeros in batches of a few KiB are never in memory at once."""
    answer = answer_of(*[([Record(bytes(1 << 20), timestamp=NOW_MS)], {"codec": Codec.ZSTD})] * 64)
    wanted = EVERYTHING._replace(columns=("value",))
    scratch = Scratch()
    sizes = [batch.nbytes for batch in decode(survey(memoryview(answer), wanted), wanted, scratch)]
    assert sum(sizes) > 64 << 20
    assert max(sizes) < 12 << 20
    assert len(scratch.room) < 20 << 20


@pytest.mark.parametrize("codec", list(Codec))
def test_a_flipped_bit_is_an_error_that_names_partition_and_offset(codec: Codec) -> None:
    good = batch_of([Record(b"good")])
    bad = batch_of([Record(b"bad" * 50)], FIRST_OFFSET + 1, codec=codec)
    failure = corrupt(good + bad, len(good) + HEADER_SIZE + 5)
    assert "clicks-3: the batch at offset 1001 cannot be read: its checksum does not match" in str(failure)


def test_damage_below_a_checksum_that_fits_is_found_in_its_batch() -> None:
    good = answer_of(*[([Record(b"good", timestamp=NOW_MS)], {})] * 50)
    bad = bytearray(with_records(b"\x10\x00\x00\x00\x7e", 1))
    struct.pack_into(">q", bad, 0, FIRST_OFFSET + 50)
    with pytest.raises(KafkaError, match="the batch at offset 1050 cannot be read: a batch claims more records than"):
        decoded(good + bytes(bad))


def test_data_that_is_not_compressed_as_it_says_is_an_error() -> None:
    batch = bytearray(with_records(b"no compressed data", 1))
    batch[22] |= Codec.LZ4
    struct.pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[CRC_AT + 4 :])))
    with pytest.raises(KafkaError, match="the batch at offset 1000 cannot be read: corrupt lz4 data"):
        decoded(bytes(batch))


def test_message_sets_of_old_formats_are_refused() -> None:
    old = bytearray(batch_of([Record(b"old")]))
    old[16] = 1
    with pytest.raises(
        KafkaError, match=r"the batch at offset 1001 cannot be read: it has magic 1 .only 2 is supported"
    ):
        decoded(batch_of([Record(b"new")]) + bytes(old))


def test_a_time_beyond_what_spark_has_is_an_error() -> None:
    with pytest.raises(KafkaError, match="the timestamp of a record is out of Spark's range"):
        decoded(batch_of([Record(b"", timestamp=1 << 62)]))
