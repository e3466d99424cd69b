"""The first record of a batch from a point in time on is found as a look at all records finds it."""

from __future__ import annotations

import random

import pytest

from barnabas.protocol.batch import build_batch, decode_records
from barnabas.protocol.compression import Codec, NoRoomError, compress, decompressed_beginnings
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.record import Record
from barnabas.protocol.record_search import first_at_or_after

START_MS = 1_700_000_000_000
RANDOM = random.Random(7)
RECORDS = [
    Record(
        value=RANDOM.randbytes(RANDOM.randrange(200)),
        key=None,
        timestamp=START_MS + RANDOM.randrange(1000),
        offset=number * 2,
    )
    for number in range(3000)
]
"""Timestamps in any order, and gaps between offsets."""


@pytest.mark.parametrize("codec", Codec)
def test_the_first_record_from_a_point_in_time_and_an_offset_on_is_found(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    records = decode_records(batch)
    for timestamp in (0, START_MS + 500, START_MS + 990, START_MS + 999, START_MS + 1000):
        for start_offset in (0, 1, 2000, 5990, 5998, 5999):
            expected = next(
                ((r.timestamp, r.offset) for r in records if r.timestamp >= timestamp and r.offset >= start_offset),
                None,
            )
            assert first_at_or_after(batch, timestamp, start_offset) == expected


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_batch_is_opened_no_further_than_to_the_record(codec: Codec) -> None:
    records = [Record(value=bytes(1000), timestamp=START_MS + number, offset=number) for number in range(2000)]
    batch = build_batch(records, codec=codec)
    room = 300_000
    assert first_at_or_after(batch, START_MS + 5, 0, room) == (START_MS + 5, 5)
    with pytest.raises(NoRoomError):
        first_at_or_after(batch, START_MS + 1900, 0, room)


@pytest.mark.parametrize("codec", Codec)
def test_beginnings_grow_until_they_are_all(codec: Codec) -> None:
    data = bytes(RECORDS[0].value or b"") + bytes(range(256)) * 4000
    found = list(decompressed_beginnings(codec, compress(codec, data)))
    assert [is_all for _, is_all in found] == [False] * (len(found) - 1) + [True]
    assert all(data.startswith(bytes(beginning)) for beginning, _ in found)
    assert bytes(found[-1][0]) == data


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_that_is_damaged_is_refused(codec: Codec) -> None:
    batch = bytearray(build_batch(RECORDS, codec=codec))
    batch[61:] = RANDOM.randbytes(len(batch) - 61)
    with pytest.raises(DecodeError):
        first_at_or_after(bytes(batch), START_MS + 5000, 0)
