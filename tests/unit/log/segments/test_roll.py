"""When a segment rolls, rolls that fail, and the preallocated space that a roll gives back."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from barnabas.config.topic_config import TopicConfig
from barnabas.protocol.errors import Error, KafkaError
from barnabas.testing.clock import ManualClock
from barnabas.testing.disk import SimulatedDisk
from tests.unit.log.logs import batch, copy_of, create, files_of, read_records, reopen

if TYPE_CHECKING:
    from pathlib import Path

SIZE = len(batch(b"x" * 100))


def test_a_segment_rolls_when_the_next_batch_does_not_fit(tmp_path: Path, clock: ManualClock) -> None:
    one = batch(b"x" * 100)
    log = create(tmp_path, clock, TopicConfig(segment_bytes=3 * len(one)))
    rolled: list[int] = []
    log.on_roll = lambda rolled_log: rolled.append(rolled_log.log_end_offset)

    for _ in range(7):
        log.append_as_leader(copy_of(one), 0)

    assert [segment.base_offset for segment in log.segments.all] == [0, 3, 6]
    assert rolled == [3, 6]
    assert [record.offset for record in read_records(log)] == list(range(7))


def test_a_segment_rolls_when_records_are_newer_than_its_first_by_segment_ms(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_ms=1000))
    start = clock.now_ms()
    for age_ms in (0, 1000, 1001, 1500, 2002):
        log.append_as_leader(batch(b"x", timestamp=start + age_ms), 0)
    assert [segment.base_offset for segment in log.segments.all] == [0, 2, 4]


def test_without_timestamps_a_segment_rolls_by_its_own_age(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_ms=1000))
    for step_ms in (0, 1000, 1):
        clock.advance_ms(step_ms)
        log.append_as_leader(batch(b"x", timestamp=-1), 0)
    assert [segment.base_offset for segment in log.segments.all] == [0, 2]


def test_jitter_makes_a_segment_roll_earlier(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_ms=1000, segment_jitter_ms=1000))
    log.segments.active.jitter_ms = 400
    start = clock.now_ms()
    for age_ms in (0, 600, 601):
        log.append_as_leader(batch(b"x", timestamp=start + age_ms), 0)
    assert [segment.base_offset for segment in log.segments.all] == [0, 2]


def test_a_segment_rolls_when_its_index_is_full(tmp_path: Path, clock: ManualClock) -> None:
    config = TopicConfig(segment_index_bytes=48, index_interval_bytes=0)
    log = create(tmp_path, clock, config)
    for number in range(10):
        log.append_as_leader(batch(b"x", timestamp=clock.now_ms() + number), 0)
    # Four time entries fit in 48 bytes, the last of them kept for the roll: so many batches, and the first has none.
    assert [segment.base_offset for segment in log.segments.all] == [0, 4, 8]
    assert len(files_of(log)["00000000000000000000.timeindex"]) <= 48


def test_a_segment_rolls_before_a_relative_offset_overflows(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    log.append_at(batch(b"a", base_offset=0, leader_epoch=0))
    log.append_at(batch(b"b", base_offset=2**31 - 1, leader_epoch=0))
    log.append_at(batch(b"c", base_offset=2**31, leader_epoch=0))
    assert [segment.base_offset for segment in log.segments.all] == [0, 2**31]
    assert [record.offset for record in read_records(log)] == [0, 2**31 - 1, 2**31]


def test_preallocation_reserves_the_segment_and_gives_the_rest_back(tmp_path: Path, clock: ManualClock) -> None:
    one = batch(b"x" * 1000)
    log = create(tmp_path, clock, TopicConfig(segment_bytes=4096, preallocate=True))
    for _ in range(4):
        log.append_as_leader(copy_of(one), 0)
    sizes = {name: len(data) for name, data in files_of(log).items() if name.endswith(".log")}
    assert sizes == {"00000000000000000000.log": 3 * len(one), "00000000000000000003.log": 4096}
    log.close()
    assert len(files_of(log)["00000000000000000003.log"]) == len(one)


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=200))
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(batch(b"x" * 200), 0)
    assert refused.value.error is Error.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


def test_a_roll_that_cannot_clear_the_way_leaves_no_segment_behind() -> None:
    clock = ManualClock(1_700_000_000_000)
    disk = SimulatedDisk(clock)
    log = create("", clock, TopicConfig(segment_bytes=2 * SIZE, preallocate=True), disk=disk)
    log.append_as_leader(batch(b"x" * 100), 0)
    disk.fail("unlink", errno.EIO)
    with pytest.raises(KafkaError):
        log.append_as_leader(batch(b"too large for what is left" * 6), 0)
    log.append_as_leader(batch(b"it"), 0)
    disk.heal()
    log.append_as_leader(batch(b"x" * 100), 0)

    after_crash = reopen(log, clock, clean_shutdown=False, disk=disk)
    assert after_crash.log_end_offset == 3
    assert [record.offset for record in read_records(after_crash)] == [0, 1, 2]


def test_the_reserved_space_that_a_roll_gave_back_does_not_come_back_with_a_crash() -> None:
    clock = ManualClock(1_700_000_000_000)
    disk = SimulatedDisk(clock)
    log = create("", clock, TopicConfig(segment_bytes=2 * SIZE + 50, preallocate=True), disk=disk)
    for _ in range(2):
        log.append_as_leader(batch(b"x" * 100), 0)
    log.flush()
    log.append_as_leader(batch(b"x" * 100), 0)
    log.flush()
    disk.crash()
    after = reopen(log, clock, clean_shutdown=False, recovery_point=log.recovery_point, disk=disk)
    assert [record.offset for record in read_records(after)] == [0, 1, 2]
    assert after.segments.all[0].size == 2 * SIZE
