"""Offsets by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.config.topic import TopicConfig
from barnabas.protocol.batch import build_batch
from barnabas.protocol.compression import Codec
from barnabas.protocol.records import Record
from barnabas.testing.clock import ManualClock
from barnabas.testing.disk import SimulatedDisk

from .logs import batch, create, read_records, reopen

if TYPE_CHECKING:
    from pathlib import Path

START = 1_700_000_000_000


def test_the_first_record_at_or_after_a_time_is_found_within_its_batch(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    for codec in (Codec.NONE, Codec.LZ4):
        start = START + 1000 * codec
        records = [Record(value=b"v", timestamp=start + age) for age in (0, 10, 20)]
        log.append_as_leader(memoryview(build_batch(records, codec=codec)), 4 + codec)
    assert log.offset_by_timestamp(START - 1) == (START, 0, 4)
    assert log.offset_by_timestamp(START + 10) == (START + 10, 1, 4)
    assert log.offset_by_timestamp(START + 11) == (START + 20, 2, 4)
    assert log.offset_by_timestamp(START + 21) == (START + 3000, 3, 7)
    assert log.offset_by_timestamp(START + 3020) == (START + 3020, 5, 7)
    assert log.offset_by_timestamp(START + 3021) is None


def test_an_empty_log_and_one_without_timestamps_have_no_times(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    assert log.offset_by_timestamp(0) is None
    assert log.max_timestamp_offset() is None
    log.append_as_leader(batch(b"x", timestamp=-1), 0)
    assert log.offset_by_timestamp(0) is None
    assert log.max_timestamp_offset() is None


def test_the_largest_timestamp_is_found_wherever_it_is(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=400))
    for number, age in enumerate([5, 9, 3, 30, 7, 30, 1, 2, 3]):
        log.append_as_leader(batch(b"x" * 50, timestamp=START + age), number // 4)
    assert len(log.segments.all) > 2
    assert log.max_timestamp_offset() == (START + 30, 3, 0)
    log.close()
    assert reopen(log, clock, clean_shutdown=True).max_timestamp_offset() == (START + 30, 3, 0)


def test_records_before_the_start_of_the_log_are_not_found(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    log.append_as_leader(batch(b"a", b"b", b"c", timestamp=START), 0)
    log.advance_log_start(2)
    assert log.offset_by_timestamp(0) == (START, 2, 0)


@settings(max_examples=60, deadline=None)
@given(
    ages=st.lists(st.integers(0, 50), min_size=1, max_size=60),
    batch_size=st.integers(1, 4),
    wanted=st.lists(st.integers(-1, 52), min_size=1, max_size=8),
    restart=st.sampled_from(["none", "sleep", "clean", "crash"]),
)
def test_timestamps_in_any_order_are_found_as_a_search_through_all_records_finds_them(
    ages: list[int], batch_size: int, wanted: list[int], restart: str
) -> None:
    clock = ManualClock(START)
    disk = SimulatedDisk(clock)
    log = create("", clock, TopicConfig(segment_bytes=900, index_interval_bytes=150), disk)
    for at in range(0, len(ages), batch_size):
        records = [Record(value=b"v" * 20, timestamp=START + age) for age in ages[at : at + batch_size]]
        log.append_as_leader(memoryview(build_batch(records)), 0)
    if restart == "sleep":
        log.release_files()
    elif restart != "none":
        if restart == "clean":
            log.close()
        log = reopen(log, clock, clean_shutdown=restart == "clean", disk=disk)
    everything = read_records(log)
    for age in wanted:
        expected = next((r for r in everything if r.timestamp >= START + age), None)
        found = log.offset_by_timestamp(START + age)
        assert (found and (found.timestamp, found.offset)) == (expected and (expected.timestamp, expected.offset))
    newest = max(everything, key=lambda record: record.timestamp)
    assert log.max_timestamp_offset() == (newest.timestamp, newest.offset, 0)


@pytest.mark.parametrize("segments", [1, 400])
def test_a_look_up_reads_as_little_in_a_long_log_as_in_a_short_one(clock: ManualClock, segments: int) -> None:
    disk = SimulatedDisk(clock)
    log = create("", clock, TopicConfig(segment_bytes=1000), disk)
    one = len(batch(b"x" * 60))
    for number in range(segments * (1000 // one)):
        log.append_as_leader(batch(b"x" * 60, timestamp=START + number), 0)
    log.offset_by_timestamp(START)
    middle = log.log_end_offset // 2
    disk.calls.clear()
    assert log.offset_by_timestamp(START + middle) == (START + middle, middle, 0)
    assert disk.calls["pread"] <= 5
