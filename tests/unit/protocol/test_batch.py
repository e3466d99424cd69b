from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from barnabas.protocol import batch as batches
from barnabas.protocol.batch import (
    HEADER_SIZE,
    TimestampType,
    build_batch,
    build_plain_batch,
    crc_is_valid,
    decode_records,
    iter_headers,
    read_header,
)
from barnabas.protocol.compression import Codec
from barnabas.protocol.errors import DecodeError, EncodeError
from barnabas.protocol.record import Record

RECORDS = [
    Record(b"first", b"key", 1_700_000_000_000, (("a", b"1"), ("a", None), ("é", b"")), 100),
    Record(None, b"", 1_699_999_999_000, (), 101),
    Record(b"", None, 1_700_000_000_500, (), 102),
    Record(bytes(70_000), None, 1_700_000_000_500, (), 103),
]

HEADERS = st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), st.none() | st.binary(max_size=5))

PEERS = {"aiokafka": (AiokafkaBuilder, AiokafkaRecords), "kafka-python": (KafkaPythonBuilder, KafkaPythonRecords)}


def built(**arguments: Any) -> bytes:
    return build_batch(RECORDS, base_offset=100, **arguments)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("peer", list(PEERS))
def test_other_clients_read_our_batches(peer: str, codec: Codec) -> None:
    data = built(codec=codec, producer_id=7, producer_epoch=8, base_sequence=9, is_transactional=True)
    theirs = PEERS[peer][1](data)
    batch = theirs.next_batch()
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 8, 9)
    assert batch.is_transactional
    assert [as_record(record) for record in batch] == RECORDS
    assert theirs.next_batch() is None


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("peer", list(PEERS))
def test_we_read_other_clients_batches(peer: str, codec: Codec) -> None:
    builder = PEERS[peer][0](2, codec.value, 1, 7, 8, 9, 1_000_000)
    for index, record in enumerate(RECORDS):
        builder.append(
            index, timestamp=record.timestamp, key=record.key, value=record.value, headers=list(record.headers)
        )
    data = bytes(builder.build())
    header = read_header(data)
    assert crc_is_valid(data, 0, len(data))
    assert header.size == len(data)
    assert header.codec is codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 8, 9)
    assert decode_records(data) == [record._replace(offset=record.offset - 100) for record in RECORDS]


def as_record(record: Any) -> Record:
    return Record(record.value, record.key, record.timestamp, tuple(record.headers), record.offset)


@settings(max_examples=50)
@given(
    st.lists(
        st.builds(
            Record,
            value=st.none() | st.binary(max_size=200),
            key=st.none() | st.binary(max_size=5),
            timestamp=st.integers(0, 1 << 50),
            headers=st.lists(HEADERS, max_size=3).map(tuple),
            offset=st.just(-1),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(Codec),
    st.integers(0, 1 << 60),
)
def test_records_are_read_as_they_were_written(records: list[Record], codec: Codec, base_offset: int) -> None:
    expected = [record._replace(offset=base_offset + index) for index, record in enumerate(records)]
    assert decode_records(build_batch(records, codec=codec, base_offset=base_offset)) == expected


@given(
    pairs=st.lists(st.tuples(st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=200)), min_size=1),
    timestamp=st.integers(0, 1 << 62),
    is_transactional=st.booleans(),
)
def test_a_plain_batch_is_the_one_that_the_general_builder_makes(
    pairs: list[tuple[bytes | None, bytes | None]], timestamp: int, is_transactional: bool
) -> None:
    producer: dict[str, Any] = {
        "producer_id": 7,
        "producer_epoch": 3,
        "base_sequence": 0,
        "is_transactional": is_transactional,
    }
    records = [Record(key=key, value=value, timestamp=timestamp) for key, value in pairs]
    assert build_plain_batch(pairs, timestamp, **producer) == build_batch(records, **producer)
    assert build_plain_batch(pairs, timestamp) == build_batch(records)


def test_the_header_says_what_the_batch_was_built_with() -> None:
    data = built(leader_epoch=4, codec=Codec.ZSTD, is_control=True, log_append_time=True)
    header = read_header(memoryview(b"x" + data), 1)
    assert header.base_offset == 100
    assert header.partition_leader_epoch == 4
    assert header.magic == 2
    assert header.codec is Codec.ZSTD
    assert header.is_control
    assert not header.is_transactional
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_000_000_500)
    assert (header.last_offset, header.next_offset, header.record_count) == (103, 104, 4)
    assert not header.has_producer_id
    assert header.last_sequence == -1
    assert header.delete_horizon_ms is None


def test_the_constants_say_where_the_fields_are() -> None:
    data = built()
    header = read_header(data)
    for position, code, value in (
        (batches.LENGTH_AT, ">i", header.length),
        (batches.MAGIC_AT, ">b", 2),
        (batches.CRC_AT, ">I", header.crc),
        (batches.ATTRIBUTES_AT, ">h", 0),
        (batches.MAX_TIMESTAMP_AT, ">q", header.max_timestamp),
    ):
        assert struct.unpack_from(code, data, position) == (value,)


def test_sequences_wrap_around() -> None:
    assert read_header(built(producer_id=1, producer_epoch=0, base_sequence=0x7FFFFFFE)).last_sequence == 1


def test_a_batch_of_log_append_time_gives_that_time_to_its_records() -> None:
    timestamps = {record.timestamp for record in decode_records(built(log_append_time=True))}
    assert timestamps == {1_700_000_000_500}


def test_a_compacted_batch_keeps_its_range_of_offsets() -> None:
    kept = [RECORDS[1], RECORDS[2]]
    data = build_batch(kept, base_offset=100, last_offset_delta=3)
    assert read_header(data).last_offset == 103
    assert read_header(data).record_count == 2
    assert decode_records(data) == kept
    empty = build_batch([], base_offset=100, last_offset_delta=3)
    assert decode_records(empty) == []
    assert read_header(empty).next_offset == 104


def test_a_last_offset_that_does_not_cover_the_records_is_refused() -> None:
    with pytest.raises(EncodeError, match="does not cover"):
        build_batch(RECORDS, base_offset=100, last_offset_delta=2)
    with pytest.raises(EncodeError, match="does not cover"):
        build_batch([])


@pytest.mark.parametrize("offsets", [[99], [100, 100], [101, 100], [100 + (1 << 31)]])
def test_offsets_that_do_not_ascend_from_the_base_offset_are_refused(offsets: list[int]) -> None:
    with pytest.raises(EncodeError):
        build_batch([Record(b"", offset=offset, timestamp=0) for offset in offsets], base_offset=100)


def test_offset_and_leader_epoch_can_change_under_the_crc_but_nothing_behind_it() -> None:
    data = bytearray(built())
    struct.pack_into(">q", data, 0, 12345)
    struct.pack_into(">i", data, 12, 9)
    changed = read_header(data)
    assert (changed.base_offset, changed.partition_leader_epoch) == (12345, 9)
    assert crc_is_valid(data, 0, len(data))
    for position in (batches.CRC_AT, batches.ATTRIBUTES_AT, HEADER_SIZE - 1, len(data) - 1):
        damaged = bytearray(data)
        damaged[position] ^= 1
        assert not crc_is_valid(damaged, 0, len(damaged))


def test_headers_of_batches_in_a_row_are_found_and_a_cut_batch_at_the_end_is_left_out() -> None:
    data = built() * 3
    size = len(data) // 3
    assert [position for position, _ in iter_headers(data)] == [0, size, 2 * size]
    assert [position for position, _ in iter_headers(data, size)] == [size, 2 * size]
    for end in (2 * size, 2 * size + 10, 2 * size + HEADER_SIZE, 3 * size - 1):
        assert [position for position, _ in iter_headers(data[:end])] == [0, size]


def test_a_row_of_batches_with_an_impossible_length_or_magic_is_refused() -> None:
    short = bytearray(built())
    struct.pack_into(">i", short, batches.LENGTH_AT, 48)
    with pytest.raises(DecodeError, match="claims a length of 48 bytes"):
        list(iter_headers(short))
    old = bytearray(built())
    old[batches.MAGIC_AT] = 1
    with pytest.raises(DecodeError, match="has magic 1"):
        list(iter_headers(old))
    with pytest.raises(DecodeError, match="has magic 1"):
        decode_records(old)


def test_a_header_that_is_not_there_is_refused() -> None:
    with pytest.raises(DecodeError, match="needs 61 bytes, but 60 are left"):
        read_header(built()[:60])


def test_a_codec_that_does_not_exist_is_refused() -> None:
    data = bytearray(built())
    data[batches.ATTRIBUTES_AT + 1] = 5
    with pytest.raises(DecodeError, match="unknown compression codec 5"):
        decode_records(data)


@pytest.mark.parametrize("count", [-1, 0, 3, 5, 0x7FFFFFFF])
def test_a_wrong_count_of_records_is_refused(count: int) -> None:
    data = bytearray(built())
    struct.pack_into(">i", data, HEADER_SIZE - 4, count)
    with pytest.raises(DecodeError):
        decode_records(data)


def test_a_batch_cut_at_any_byte_is_refused() -> None:
    data = build_batch(RECORDS[:3], base_offset=100)
    for end in range(len(data)):
        with pytest.raises(DecodeError):
            decode_records(data[:end])


def test_damaged_records_are_read_or_refused_but_never_raise_anything_else() -> None:
    generator = random.Random(2)
    data = build_batch(RECORDS[:3], base_offset=100)
    for _ in range(20_000):
        damaged = bytearray(data)
        for _ in range(generator.randint(1, 3)):
            damaged[generator.randrange(len(damaged))] = generator.choice((0, 1, 2, 0x7F, 0x80, 0xFF, 0x42))
        try:
            decode_records(damaged)
        except DecodeError:
            continue


def test_a_header_name_that_is_not_utf8_survives() -> None:
    data = build_batch([Record(b"v", headers=(("ab", b"1"),), timestamp=0)])
    data = data.replace(b"ab", b"\xff\xfe")
    (record,) = decode_records(data)
    assert build_batch([record])[HEADER_SIZE:] == data[HEADER_SIZE:]
