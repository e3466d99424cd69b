"""Retention on a full disk."""

from __future__ import annotations

import contextlib

from barnabas.config.topic import TopicConfig
from barnabas.protocol.errors import KafkaError
from barnabas.testing.clock import ManualClock
from barnabas.testing.disk import SimulatedDisk
from tests.unit.log.logs import batch, create


def test_a_full_disk_does_not_keep_closed_segments_that_expired() -> None:
    """There is no room for a new segment in place of the active one, but the others need none to go."""
    clock = ManualClock(1_700_000_000_000)
    disk = SimulatedDisk(clock)
    log = create("", clock, TopicConfig(segment_bytes=1000, retention_ms=1000, file_delete_delay_ms=0), disk=disk)
    for _ in range(6):
        log.append_as_leader(
            batch(b"x" * 400, producer_id=1, producer_epoch=0, base_sequence=_, timestamp=clock.now_ms()), 0
        )
    assert len(log.segments.all) == 3 or len(log.segments.all) > 2
    clock.advance_ms(5000)
    disk.capacity_bytes = 0
    with contextlib.suppress(KafkaError):
        log.apply_retention(log.log_end_offset)
    assert len(log.segments.all) == 1, "only the active one is left"
    assert log.log_start_offset == log.segments.active.base_offset
    for deletion in log.take_due_deletions():
        deletion.run(disk)
    disk.heal()
    assert log.apply_retention(log.log_end_offset) == 1
    assert log.log_start_offset == log.log_end_offset == 6
