"""The records of several batches, found at once, against what was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.log.cleaning import opened_batches
from barnabas.log.cleaning.opened_batches import UnreadableBatchError, open_batches
from barnabas.protocol.batch import HEADER_SIZE, BatchHeader, assemble_batch, build_batch, iter_headers
from barnabas.protocol.compression import Codec
from barnabas.protocol.record import Record

BYTES = (
    st.none()
    | st.binary(max_size=10)
    | st.sampled_from([b"x" * 63, b"x" * 64, b"x" * 8191, b"x" * 8192, b"y" * 70_000])
)
RECORDS = st.lists(
    st.builds(
        Record,
        value=BYTES,
        key=BYTES,
        timestamp=st.integers(0, 2**40),
        headers=st.lists(st.tuples(st.text(max_size=3), BYTES), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=8,
)
STEPS = st.lists(st.integers(1, 20_000), min_size=8, max_size=8)
BATCHES = st.lists(st.tuples(RECORDS, STEPS, st.sampled_from([Codec.NONE, Codec.LZ4])), max_size=4)


@given(written=BATCHES, opened_bytes_max=st.sampled_from([1, 10_000, 1 << 20]))
def test_keys_offsets_and_bounds_are_found(
    written: list[tuple[list[Record], list[int], Codec]], opened_bytes_max: int
) -> None:
    data, expected, base_offset = b"", [], 0
    for records, steps, codec in written:
        placed = [
            record._replace(offset=base_offset + sum(steps[: number + 1])) for number, record in enumerate(records)
        ]
        data += build_batch(placed, base_offset=base_offset, codec=codec)
        expected += [(record.offset, record.key, record.timestamp, record.value is None) for record in placed]
        base_offset = placed[-1].offset + 1
    batches = list(iter_headers(data))
    found = []
    in_order: list[tuple[int, BatchHeader]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opened_batches, "OPENED_BYTES_MAX", opened_bytes_max)
        for opened in open_batches(memoryview(data), batches):
            in_order += opened.batches
            content = opened.records.data
            ends = [*(opened.firsts[1:] - 1), len(opened.offsets) - 1]
            for (_, header), first, last in zip(opened.batches, opened.firsts, ends, strict=True):
                assert last - first + 1 == header.record_count
                assert opened.starts[first + 1 : last + 1].tolist() == opened.ends[first:last].tolist()
                for number in range(first, last + 1):
                    start, size = opened.key_starts[number], opened.key_sizes[number]
                    found.append(
                        (
                            opened.offsets[number],
                            None if size < 0 else bytes(content[start : start + size]),
                            header.base_timestamp + opened.timestamp_deltas[number],
                            opened.are_tombstones[number],
                        )
                    )
    assert found == expected
    assert in_order == batches


def a_batch(section: bytes, count: int, base_offset: int) -> bytes:
    header = BatchHeader(base_offset, 0, 0, 2, 0, 0, 9, 0, 0, -1, -1, -1, count)
    return assemble_batch(header, section)


@given(section=st.binary(max_size=60), count=st.integers(1, 5))
def test_garbage_is_refused_or_read_within_its_bounds(section: bytes, count: int) -> None:
    sound = build_batch([Record(b"value", b"key", 5)])
    data = sound + a_batch(section, count, 10) + sound
    refused = ""
    try:
        (opened,) = open_batches(memoryview(data), list(iter_headers(data)))
    except UnreadableBatchError as error:
        refused = str(error)
    if refused:
        assert "the batch at offset 10" in refused
        return
    start = len(sound) + HEADER_SIZE
    assert len(opened.starts) == count + 2
    assert opened.starts[1] == start
    assert opened.ends[count] == start + len(section)
    assert (opened.key_starts + opened.key_sizes < opened.ends).all()


@pytest.mark.parametrize("cut", range(1, 20))
def test_records_that_are_cut_short_are_refused(cut: int) -> None:
    section = build_batch([Record(b"value", b"key", 5)] * 2)[HEADER_SIZE:]
    data = a_batch(section[:-cut], 2, 7)
    with pytest.raises(UnreadableBatchError, match="the batch at offset 7 cannot be read"):
        list(open_batches(memoryview(data), list(iter_headers(data))))
