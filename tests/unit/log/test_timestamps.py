"""Offsets by time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.config.topic_config import TopicConfig
from barnabas.log.segments.segment_index import TIME_ENTRY, cut_file
from barnabas.protocol.batch import build_batch
from barnabas.protocol.compression import Codec
from barnabas.protocol.record import Record
from barnabas.testing.clock import ManualClock
from barnabas.testing.disk import SimulatedDisk

from .logs import batch, create, put_to_sleep, read_bytes, read_records, reopen

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.log.partition_log import PartitionLog

START = 1_700_000_000_000


def test_the_first_record_at_or_after_a_time_is_found_within_its_batch(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    for codec in (Codec.NONE, Codec.LZ4):
        start = START + 1000 * codec
        records = [Record(value=b"v", timestamp=start + age) for age in (0, 10, 20)]
        log.append_as_leader(memoryview(bytearray(build_batch(records, codec=codec))), 4 + codec)
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
        log.append_as_leader(memoryview(bytearray(build_batch(records))), 0)
    if restart == "sleep":
        put_to_sleep(log)
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


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(0, 50)),
            st.tuples(st.sampled_from(["look up", "look up ahead", "start", "truncate", "retain"]), st.integers(0, 52)),
        ),
        max_size=80,
    )
)
def test_times_are_found_in_a_log_that_grows_rolls_is_cut_and_retained_in_between(steps: list[tuple[str, int]]) -> None:
    """The numbers are ages of records and wanted ages, or fifty-seconds of the log."""
    clock = ManualClock(START)
    disk = SimulatedDisk(clock)
    log = create("", clock, TopicConfig(segment_bytes=250, retention_ms=-1), disk)
    for number in range(12):
        log.append_as_leader(batch(b"v" * 20, timestamp=START + number * 7 % 50), 0)
    log.close()
    log = reopen(log, clock, clean_shutdown=True, disk=disk)
    for step, number in steps:
        part = log.log_start_offset + (log.log_end_offset - log.log_start_offset) * number // 52
        if step == "append":
            log.append_as_leader(batch(b"v" * 20, timestamp=START + number), 0)
        elif step == "start":
            log.advance_log_start(part)
        elif step == "truncate":
            log.truncate_to(part)
        elif step == "retain":
            log.apply_retention(log.log_end_offset)
        else:
            if step == "look up ahead" and (unread := log.unread_timestamps(START + number)) is not None:
                log.learn_timestamps(unread.run(disk))
            expected = next((r for r in read_records(log) if r.timestamp >= START + number), None)
            found = log.offset_by_timestamp(START + number)
            assert (found and (found.timestamp, found.offset)) == (expected and (expected.timestamp, expected.offset))


def many_segments(clock: ManualClock, disk: SimulatedDisk, count: int) -> PartitionLog:
    """A log with one record in each segment, a millisecond apart, as a new process finds it."""
    log = create("", clock, TopicConfig(segment_bytes=200), disk)
    for number in range(count):
        log.append_as_leader(batch(b"x" * 100, timestamp=START + number), 0)
    assert len(log.segments.all) == count
    log.close()
    return reopen(log, clock, clean_shutdown=True, disk=disk)


def test_a_look_up_in_a_log_from_disk_opens_the_time_indexes_up_to_the_answer_once(clock: ManualClock) -> None:
    disk = SimulatedDisk(clock)
    log = many_segments(clock, disk, 400)

    def opens(age: int) -> int:
        disk.calls.clear()
        found = log.offset_by_timestamp(START + age)
        assert (found and found.offset) == (age if age < 400 else None)
        return disk.calls.get("open", 0)

    to_search_a_segment = 3
    assert opens(100) <= 101 + to_search_a_segment
    assert opens(100) <= to_search_a_segment
    assert opens(60) <= to_search_a_segment
    assert opens(0) <= to_search_a_segment
    assert opens(399) <= 299 + to_search_a_segment
    assert opens(250) <= to_search_a_segment
    assert opens(400) == 0
    disk.calls.clear()
    assert log.max_timestamp_offset() == (START + 399, 399, 0)
    assert disk.calls["open"] <= to_search_a_segment


def test_each_largest_timestamp_from_disk_costs_one_read_of_an_entry_and_no_record(clock: ManualClock) -> None:
    disk = SimulatedDisk(clock)
    log = many_segments(clock, disk, 400)
    disk.calls.clear()
    unread = log.unread_timestamps(START + 300)
    assert unread is not None
    found = unread.run(disk)
    assert len(found) == disk.calls["open"] == disk.calls["pread"] == 301


def test_what_was_read_ahead_is_not_read_again(clock: ManualClock) -> None:
    disk = SimulatedDisk(clock)
    log = many_segments(clock, disk, 400)
    unread = log.unread_timestamps(START + 300)
    assert unread is not None
    log.learn_timestamps(unread.run(disk))
    assert log.unread_timestamps(START + 300) is None
    disk.calls.clear()
    assert log.offset_by_timestamp(START + 300) == (START + 300, 300, 0)
    assert disk.calls["open"] <= 3
    assert log.unread_timestamps(START + 299) is None
    beyond = log.unread_timestamps(START + 310)
    assert beyond is not None
    assert len(beyond.run(disk)) == 10


def test_segments_filled_in_this_process_need_no_reading(clock: ManualClock) -> None:
    disk = SimulatedDisk(clock)
    log = create("", clock, TopicConfig(segment_bytes=200), disk)
    for number in range(100):
        log.append_as_leader(batch(b"x" * 100, timestamp=START + number), 0)
    assert log.unread_timestamps(START + 1000) is None


def test_a_time_index_that_cannot_be_read_ahead_is_made_again_by_the_look_up(clock: ManualClock) -> None:
    disk = SimulatedDisk(clock)
    log = many_segments(clock, disk, 20)
    disk.unlink(f"{log.folder}/{7:020d}.timeindex")
    cut_file(disk, f"{log.folder}/{9:020d}.timeindex", 5)
    unread = log.unread_timestamps(START + 15)
    assert unread is not None
    log.learn_timestamps(unread.run(disk))
    assert log.offset_by_timestamp(START + 15) == (START + 15, 15, 0)
    assert log.offset_by_timestamp(START + 7) == (START + 7, 7, 0)
    assert log.offset_by_timestamp(START + 9) == (START + 9, 9, 0)


def test_what_was_known_of_truncated_segments_does_not_hide_what_takes_their_place(clock: ManualClock) -> None:
    log = many_segments(clock, SimulatedDisk(clock), 40)
    assert log.offset_by_timestamp(START + 30) == (START + 30, 30, 0)
    log.truncate_to(10)
    for number in range(10, 40):
        log.append_as_leader(batch(b"x" * 100, timestamp=START + 2 * number), 0)
    for number in range(10, 40):
        assert log.offset_by_timestamp(START + 2 * number) == (START + 2 * number, number, 0)


def test_an_index_that_was_made_again_corrects_what_was_known_from_it(clock: ManualClock) -> None:
    disk = SimulatedDisk(clock)
    log = many_segments(clock, disk, 20)
    fd = disk.open(f"{log.folder}/{7:020d}.timeindex", os.O_WRONLY)
    disk.pwrite(fd, TIME_ENTRY.pack(START - 5, 0), 0)
    disk.close(fd)
    assert log.offset_by_timestamp(START + 15) == (START + 15, 15, 0)
    cut_file(disk, f"{log.folder}/{7:020d}.index", 5)
    assert read_bytes(log, 7)
    assert log.offset_by_timestamp(START + 7) == (START + 7, 7, 0)


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
