"""What is found of the records in a batch, and what is no record at all."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.protocol.errors import DecodeError
from barnabas.protocol.record import Record, decode_section, encode_records
from barnabas.protocol.record_survey import CUT_SHORT, LEFT_OVER, NO_RECORD, Survey, iter_fields, survey_records
from barnabas.protocol.varint import varint

BASE_MS = 1_700_000_000_000


def a_body(
    *,
    timestamp: bytes = b"\0",
    offset: int = 0,
    key: bytes = varint(1) + b"k",
    value: bytes = varint(5) + b"value",
    headers: bytes = b"\0",
) -> bytes:
    return b"\0" + timestamp + varint(offset) + key + value + headers


def a_record(length: int | None = None, **fields: bytes) -> bytes:
    body = a_body(**fields)  # type: ignore[arg-type]
    return varint(len(body) if length is None else length) + body


SIZE = len(a_body())

REFUSED: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 1, CUT_SHORT),
    "one record less than announced": (a_record(), 2, CUT_SHORT),
    "one record more than announced": (a_record() + a_record(), 1, LEFT_OVER),
    "a byte behind the last record": (a_record() + b"\0", 1, LEFT_OVER),
    "half of a length": (b"\xff\xff", 1, CUT_SHORT),
    "a length of six bytes": (b"\xff\xff\xff\xff\xff\x01 and more", 1, NO_RECORD),
    "a negative length": (a_record(-3), 1, NO_RECORD),
    "a length of nothing": (b"\0" + a_record(), 2, NO_RECORD),
    "a length beyond the end": (
        a_record(50),
        1,
        f"Invalid record size: expected 50 bytes in record payload, but instead the buffer has only {SIZE} remaining bytes.",  # noqa: E501
    ),
    "a length that cuts a record short": (a_record(SIZE - 2) + b"\0", 1, NO_RECORD),
    "a length with room behind the fields": (
        a_record(SIZE + 3) + b"\0\0\0",
        1,
        "Invalid record size: its fields end 3 bytes before it does",
    ),
    "a key that is longer than its record": (a_record(key=varint(100) + b"k"), 1, NO_RECORD),
    "a key that reaches into the next record": (a_record(key=varint(12) + b"k") + a_record(), 2, NO_RECORD),
    "a value that is longer than its record": (a_record(value=varint(100) + b"v"), 1, NO_RECORD),
    "a key size of six bytes": (a_record(key=b"\xff\xff\xff\xff\xff\x01"), 1, NO_RECORD),
    "a timestamp of eleven bytes": (a_record(timestamp=b"\xff" * 10 + b"\x01"), 1, NO_RECORD),
    "a negative number of headers": (a_record(headers=varint(-1)), 1, "Found invalid number of record headers -1"),
    "more headers than bytes": (
        a_record(headers=varint(1000)),
        1,
        "Found invalid number of record headers. 1000 is larger than the remaining size of the buffer",
    ),
    "a header without a key": (
        a_record(headers=varint(1) + varint(-1) + varint(1) + b"x"),
        1,
        "Invalid negative header key size -1",
    ),
    "a header that is longer than its record": (a_record(headers=varint(1) + varint(9) + b"h" * 3), 1, NO_RECORD),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_record_is_refused_in_kafkas_words(case: str) -> None:
    section, count, message = REFUSED[case]
    # As the records of an earlier batch may lie behind those of this one.
    for behind in (b"", a_record() * 20, b"\xff" * 40):
        with pytest.raises(DecodeError) as raised:
            survey_records(section + behind, len(section), count)
        assert str(raised.value) == message


@pytest.mark.parametrize(
    "record",
    [
        a_record(key=varint(-1)),
        a_record(key=varint(-5)),
        a_record(value=varint(-5)),
        a_record(headers=varint(1) + varint(0) + varint(-1)),
        a_record(headers=varint(2) + (varint(1) + b"\xff" + varint(2) + b"ab") * 2),
        a_record(timestamp=b"\x80\x00"),
        a_record(value=varint(70_000) + b"v" * 70_000),
    ],
)
def test_what_kafka_takes_for_a_record_is_one(record: bytes) -> None:
    survey_records(record, len(record), 1)


def expected(records: list[Record], offsets: list[int]) -> Survey:
    deltas = [record.timestamp - BASE_MS for record in records]
    return Survey(
        deltas[0],
        min(deltas),
        max(deltas),
        any(record.key is None for record in records),
        offsets == list(range(len(offsets))),
    )


TIMESTAMPS = st.one_of(
    st.integers(BASE_MS - 70, BASE_MS + 9_000), st.integers(-(2**62), 2**62), st.just(BASE_MS), st.just(-1)
)
RECORDS = st.builds(
    Record,
    value=st.one_of(st.none(), st.binary(max_size=200)),
    key=st.one_of(st.none(), st.binary(max_size=70)),
    timestamp=TIMESTAMPS,
    headers=st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=2),
)


@given(st.lists(RECORDS, min_size=1, max_size=30), st.binary(max_size=20))
def test_the_survey_says_what_the_records_say(records: list[Record], behind: bytes) -> None:
    section = encode_records(records, range(len(records)), BASE_MS)
    offsets = list(range(len(records)))
    assert survey_records(section + behind, len(section), len(records)) == expected(records, offsets)
    fields = list(iter_fields(section, len(records)))
    assert [each.timestamp_delta for each in fields] == [record.timestamp - BASE_MS for record in records]
    assert [each.offset_delta for each in fields] == offsets
    assert [each.key_size for each in fields] == [-1 if r.key is None else len(r.key) for r in records]
    assert [each.value_size for each in fields] == [-1 if r.value is None else len(r.value) for r in records]


@given(
    runs=st.lists(
        st.tuples(st.integers(1, 150), st.integers(0, 70), st.one_of(st.none(), st.integers(0, 3))),
        min_size=1,
        max_size=5,
    ),
    timestamps=st.lists(st.integers(-80, 20_000), min_size=1, max_size=20),
    wrong_offset=st.one_of(st.none(), st.integers(0, 600)),
)
@example(runs=[(9_000, 3, None)], timestamps=[0, 1, 70, 8_200], wrong_offset=None)
@example(runs=[(9_000, 3, 2)], timestamps=[5], wrong_offset=8_500)
def test_records_of_one_size_are_surveyed_together(
    runs: list[tuple[int, int, int | None]], timestamps: list[int], wrong_offset: int | None
) -> None:
    records: list[Record] = []
    for length, value_size, key_size in runs:
        for _ in range(length):
            timestamp = BASE_MS + timestamps[len(records) * 7 // 20 % len(timestamps)]
            key = None if key_size is None else b"k" * key_size
            records.append(Record(b"v" * value_size, key, timestamp))
    offsets = list(range(len(records)))
    if wrong_offset is not None and wrong_offset < len(offsets):
        offsets[wrong_offset] += 1
    section = encode_records(records, offsets, BASE_MS)
    assert survey_records(section, len(section), len(records)) == expected(records, offsets)


@given(
    records=st.lists(RECORDS, min_size=1, max_size=3),
    repeated=st.integers(1, 40),
    damage=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 3),
)
def test_what_is_surveyed_can_be_decoded_and_is_the_same(
    records: list[Record], repeated: int, damage: list[tuple[int, int]], cut: int
) -> None:
    count = len(records) * repeated
    section = bytearray(encode_records(records * repeated, range(count), BASE_MS))
    for position, byte in damage:
        section[position % len(section)] = byte
    damaged = bytes(section[: len(section) - cut])
    try:
        survey = survey_records(damaged, len(damaged), count)
    except DecodeError:
        return
    decoded = decode_section(damaged, count, 0, BASE_MS)
    assert survey == expected(decoded, [record.offset for record in decoded])
