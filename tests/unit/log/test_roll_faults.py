"""Rolls that fail, and the space that a roll gives back."""

from __future__ import annotations

import errno

import pytest

from barnabas.config.topic import TopicConfig
from barnabas.protocol.errors import KafkaError
from barnabas.testing.clock import ManualClock
from barnabas.testing.disk import SimulatedDisk
from tests.unit.log.logs import batch, create, read_records, reopen

SIZE = len(batch(b"x" * 100))


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
