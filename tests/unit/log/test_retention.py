"""How long records stay: by time, by size, by request; and how segments leave the disk."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest

from barnabas.config.topic_config import TopicConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.protocol.errors import Error, KafkaError
from barnabas.testing.clock import ManualClock
from barnabas.testing.disk import SimulatedDisk

from .logs import TOPIC_ID, batch, create, files_of, read_records, reopen

if TYPE_CHECKING:
    from pathlib import Path

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MB = 1_000_000


class Partition:
    """A log on a simulated disk that is written to and maintained as time goes by. A megabyte stands for a thousand
    times as much, so that three weeks of traffic fit into memory: sizes in the settings are scaled likewise."""

    def __init__(self, config: TopicConfig, number: int = 0, disk: SimulatedDisk | None = None) -> None:
        self.clock = ManualClock() if disk is None else disk_clock(disk)
        self.disk = disk or SimulatedDisk(self.clock)
        self.log = PartitionLog.create(f"/t-{number}", "t", number, TOPIC_ID, config, disk=self.disk, clock=self.clock)

    def produce(self, size: int) -> None:
        value = b"x" * (size - 72)
        self.log.append_as_leader(batch(value, timestamp=self.clock.now_ms()), 0)

    def maintain(self) -> None:
        self.log.apply_retention(self.log.log_end_offset)
        for deletion in self.log.take_due_deletions():
            deletion.run(self.disk)

    def oldest_ms(self) -> int:
        found = self.log.offset_by_timestamp(0)
        return self.clock.now_ms() - found.timestamp if found else 0


def disk_clock(disk: SimulatedDisk) -> ManualClock:
    clock = disk.clock
    assert isinstance(clock, ManualClock)
    return clock


def weeks_of_traffic(config: TopicConfig, days: int) -> list[float]:
    """The age in days of the oldest record after each day, at 100 MB a day in 24 pieces."""
    partition = Partition(config)
    ages = []
    for _ in range(days):
        for _ in range(24):
            partition.produce(100 * MB // 24 // 1000)
            partition.clock.advance_ms(HOUR_MS)
            partition.maintain()
        ages.append(partition.oldest_ms() / DAY_MS)
    return ages


def test_100_mb_a_day_with_a_week_of_retention_and_weekly_rolling_keeps_two_weeks_at_most() -> None:
    scaled_gib = 1_073_741_824 // 1000
    ages = weeks_of_traffic(TopicConfig(segment_bytes=scaled_gib, segment_ms=7 * DAY_MS, retention_ms=7 * DAY_MS), 28)
    assert 13 < max(ages) < 14.2


def test_without_rolling_by_time_the_same_traffic_stays_for_17_days() -> None:
    scaled_gib = 1_073_741_824 // 1000
    ages = weeks_of_traffic(TopicConfig(segment_bytes=scaled_gib, segment_ms=365 * DAY_MS, retention_ms=7 * DAY_MS), 35)
    assert 16.5 < max(ages) < 18


def test_a_size_limit_holds_for_each_partition_of_a_topic() -> None:
    limit = 100_000
    config = TopicConfig(segment_bytes=10_000, retention_bytes=limit, retention_ms=-1)
    disk = SimulatedDisk(ManualClock())
    partitions = [Partition(config, number, disk) for number in range(8)]
    for partition in partitions:
        for _ in range(300):
            partition.produce(1000)
        partition.maintain()
    sizes = [partition.log.size_bytes for partition in partitions]
    assert all(limit <= size < limit + 10_000 for size in sizes)
    assert 8 * limit <= sum(sizes) < 8 * (limit + 10_000)


def test_either_limit_deletes_time_or_size_whichever_comes_first() -> None:
    config = TopicConfig(segment_bytes=10_000, segment_ms=HOUR_MS, retention_bytes=100_000, retention_ms=DAY_MS)
    busy, calm = Partition(config), Partition(config)
    for _ in range(48):
        for _ in range(10):
            busy.produce(1000)
        calm.produce(1000)
        for partition in (busy, calm):
            partition.clock.advance_ms(HOUR_MS)
            partition.maintain()
    assert busy.log.size_bytes < 110_000
    assert busy.oldest_ms() < 13 * HOUR_MS
    assert calm.log.size_bytes < 30_000
    assert DAY_MS - HOUR_MS <= calm.oldest_ms() <= DAY_MS + 2 * HOUR_MS


@pytest.mark.parametrize(
    ("retention_hours", "retention_bytes", "days", "oldest_days", "largest_bytes"),
    [(168, -1, 30, (6.9, 8.1), None), (17_520, 524_288_000 // 1000, 30, (4, 6), 524_288 + 50_000)],
    ids=["a week, any size", "two years, 500 MiB"],
)
def test_recipes_of_retention(
    retention_hours: int, retention_bytes: int, days: int, oldest_days: tuple[float, float], largest_bytes: int | None
) -> None:
    config = TopicConfig(
        segment_bytes=50_000, segment_ms=DAY_MS, retention_ms=retention_hours * HOUR_MS, retention_bytes=retention_bytes
    )
    partition = Partition(config)
    for _ in range(days * 24):
        partition.produce(100 * MB // 24 // 1000)
        partition.clock.advance_ms(HOUR_MS)
        partition.maintain()
    assert oldest_days[0] < partition.oldest_ms() / DAY_MS < oldest_days[1]
    if largest_bytes is not None:
        assert partition.log.size_bytes <= largest_bytes


def test_an_idle_partition_loses_its_last_records_too() -> None:
    partition = Partition(TopicConfig(retention_ms=DAY_MS))
    partition.produce(1000)
    partition.clock.advance_ms(DAY_MS)
    partition.maintain()
    assert partition.log.log_start_offset == 0
    partition.clock.advance_ms(1)
    partition.maintain()
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (1, 1)
    partition.produce(1000)
    assert [record.offset for record in read_records(partition.log)] == [1]


def test_a_segment_lives_as_long_as_its_newest_record(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=200, retention_ms=HOUR_MS))
    now = clock.now_ms()
    for timestamp in (now - 5 * HOUR_MS, now - 2 * HOUR_MS, now - HOUR_MS // 2, now - 5 * HOUR_MS):
        log.append_as_leader(batch(b"x" * 100, timestamp=timestamp), 0)
    assert log.apply_retention(log.log_end_offset) == 2
    assert log.log_start_offset == 2, "what follows a segment that stays, stays too"


def test_without_timestamps_a_segment_is_as_old_as_its_file(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=200, retention_ms=HOUR_MS))
    for _ in range(3):
        log.append_as_leader(batch(b"x" * 100, timestamp=-1), 0)
    os.utime(log.segments.all[0].log_path, (1_600_000_000, 1_600_000_000))
    for segment in log.segments.all[1:]:
        os.utime(segment.log_path, (clock.now_ms() / 1000, clock.now_ms() / 1000))
    assert log.apply_retention(log.log_end_offset) == 1


def test_nothing_at_or_after_the_high_watermark_goes(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=200, retention_ms=0))
    for _ in range(5):
        log.append_as_leader(batch(b"x" * 100, timestamp=1), 0)
    assert log.apply_retention(high_watermark=3) == 3
    assert log.log_start_offset == 3


def test_a_compacted_topic_is_not_subject_to_retention(tmp_path: Path, clock: ManualClock) -> None:
    config = TopicConfig(segment_bytes=200, retention_ms=0, retention_bytes=0, cleanup_policy=frozenset({"compact"}))
    log = create(tmp_path, clock, config)
    for _ in range(5):
        log.append_as_leader(batch(b"x" * 100, timestamp=1), 0)
    assert log.apply_retention(log.log_end_offset) == 0
    log.advance_log_start(2)
    assert log.apply_retention(log.log_end_offset) == 2


def test_removed_segments_are_renamed_at_once_and_unlinked_after_the_delay(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=200, file_delete_delay_ms=60_000))
    for _ in range(3):
        log.append_as_leader(batch(b"x" * 100, timestamp=clock.now_ms()), 0)
    log.advance_log_start(2)
    assert log.apply_retention(log.log_end_offset) == 2
    deleted = [name for name in files_of(log) if name.endswith(".deleted")]
    assert deleted == [
        "00000000000000000000.index.deleted",
        "00000000000000000000.log.deleted",
        "00000000000000000000.timeindex.deleted",
        "00000000000000000001.index.deleted",
        "00000000000000000001.log.deleted",
        "00000000000000000001.snapshot.deleted",
        "00000000000000000001.timeindex.deleted",
    ]
    clock.advance_ms(59_999)
    assert log.take_due_deletions() == []
    clock.advance_ms(1)
    for deletion in log.take_due_deletions():
        deletion.run(log.segments.disk)
    assert not any(name.endswith(".deleted") for name in files_of(log))
    assert log.segments.deletions == []


def test_the_start_of_the_log_moves_by_request_and_survives_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    for epoch in range(4):
        log.append_as_leader(batch(b"a", b"b"), epoch)
    log.advance_log_start(5)
    log.advance_log_start(3)
    assert log.log_start_offset == 5
    assert log.epochs.entries == [(2, 5), (3, 6)]
    assert [record.offset for record in read_records(log)] == [5, 6, 7]
    with pytest.raises(KafkaError) as refused:
        log.advance_log_start(9)
    assert refused.value.error is Error.OFFSET_OUT_OF_RANGE
    log.close()
    assert reopen(log, clock, clean_shutdown=True, log_start_offset=5).log_start_offset == 5


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
