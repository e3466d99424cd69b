"""Disks that are full or broken: nothing half-written is ever seen, reading goes on, and writing comes back."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from barnabas.config.topic_config import TopicConfig
from barnabas.log.folder.data_dir import log_start_offsets_of
from barnabas.protocol.errors import Error, KafkaError
from barnabas.testing.disk import SimulatedDisk
from tests.unit.replication.hosting import FaultyDisk

from .logs import batch, copy_of, create, idempotent, put_to_sleep, read_records, reopen

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.log.partition_log import PartitionLog
    from barnabas.protocol.varint import Buffer
    from barnabas.testing.clock import ManualClock


@pytest.fixture
def disk(clock: ManualClock) -> SimulatedDisk:
    return SimulatedDisk(clock)


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in read_records(log)]


def fails_to_append(log: PartitionLog, data: memoryview) -> bool:
    with pytest.raises(KafkaError) as failed:
        log.append_as_leader(data, 0)
    assert "t-0" in failed.value.message
    return failed.value.error is Error.KAFKA_STORAGE_ERROR


def used(disk: SimulatedDisk) -> int:
    return sum(disk.size(f"/t-0/{name}") for name in disk.list_folder("/t-0"))


def test_a_full_disk_fails_appends_keeps_reads_going_and_heals(disk: SimulatedDisk, clock: ManualClock) -> None:
    log = create("", clock, disk=disk)
    one = batch(b"x" * 100)
    for _ in range(3):
        log.append_as_leader(copy_of(one), 0)
    for spare_bytes in range(len(one)):
        disk.capacity_bytes = used(disk) + spare_bytes
        assert fails_to_append(log, copy_of(one))
        assert disk.size("/t-0/00000000000000000000.log") == 3 * len(one), "what fitted was cut away again"
        assert offsets(log) == [0, 1, 2]
    disk.heal()
    assert log.append_as_leader(copy_of(one), 0).base_offset == 3
    assert offsets(log) == [0, 1, 2, 3]


def test_a_batch_that_failed_is_new_when_it_is_sent_again(disk: SimulatedDisk, clock: ManualClock) -> None:
    log = create("", clock, disk=disk)
    log.append_as_leader(idempotent(7, 0, 0), 0)
    disk.fail("pwrite", errno.EIO)
    assert fails_to_append(log, idempotent(7, 0, 1))
    disk.heal()
    again = log.append_as_leader(idempotent(7, 0, 1), 0)
    assert (again.base_offset, again.is_duplicate) == (1, False)


def test_what_cannot_even_be_cut_away_is_written_over(disk: SimulatedDisk, clock: ManualClock) -> None:
    log = create("", clock, disk=disk)
    log.append_as_leader(batch(b"a"), 0)
    disk.capacity_bytes = used(disk) + 30
    disk.fail("truncate", errno.EIO)
    assert fails_to_append(log, batch(b"b" * 500))
    disk.heal()
    log.append_as_leader(batch(b"c"), 0)
    assert [record.value for record in read_records(log)] == [b"a", b"c"]
    log.close()
    again = reopen(log, clock, clean_shutdown=True, disk=disk)
    assert [record.value for record in read_records(again)] == [b"a", b"c"]


def test_a_segment_that_cannot_be_begun_leaves_no_files_that_hide_offsets(
    disk: SimulatedDisk, clock: ManualClock
) -> None:
    log = create("", clock, TopicConfig(segment_bytes=1000), disk)
    for _ in range(5):
        log.append_as_leader(batch(b"x" * 100), 0)
    disk.capacity_bytes = used(disk)
    assert fails_to_append(log, batch(b"x" * 600))
    assert {name[:20] for name in disk.list_folder("/t-0") if name.endswith(".log")} == {f"{0:020d}"}
    disk.heal()
    for _ in range(20):
        log.append_as_leader(batch(b"x" * 30), 0)
    assert offsets(log) == list(range(25))
    log.close()
    assert offsets(reopen(log, clock, clean_shutdown=True, disk=disk)) == list(range(25))


def test_an_index_that_cannot_be_written_does_not_fail_the_append(disk: SimulatedDisk, clock: ManualClock) -> None:
    config = TopicConfig(index_interval_bytes=0)
    log = create("", clock, config, disk)
    log.append_as_leader(batch(b"x"), 0)
    original = disk.pwrite

    def fail_for_index_files(fd: int, data: Buffer, offset: int, /) -> int:
        if len(data) != len(batch(b"x")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(fd, data, offset)

    disk.pwrite = fail_for_index_files  # type: ignore[method-assign, assignment]
    for _ in range(1199):
        log.append_as_leader(batch(b"x"), 0)
    assert log.log_end_offset == 1200
    with pytest.raises(KafkaError) as failed:
        log.prepare_flush()
    assert failed.value.error is Error.KAFKA_STORAGE_ERROR
    disk.pwrite = original  # type: ignore[method-assign]
    log.close()
    assert disk.size("/t-0/00000000000000000000.index") == 1199 * 8
    assert offsets(reopen(log, clock, clean_shutdown=True, disk=disk)) == list(range(1200))


@pytest.mark.parametrize("operation", ["open", "pread"])
def test_a_read_error_is_a_storage_error(disk: SimulatedDisk, clock: ManualClock, operation: str) -> None:
    log = create("", clock, disk=disk)
    log.append_as_leader(batch(b"a"), 0)
    put_to_sleep(log)
    disk.fail(operation, errno.EIO)
    with pytest.raises(KafkaError) as failed:
        log.read(0, 1000, log.end_position, whole_first_batch=True)
    assert failed.value.error is Error.KAFKA_STORAGE_ERROR
    disk.heal()
    assert offsets(log) == [0]


def test_a_flush_that_fails_leaves_the_recovery_point_and_the_next_one_syncs_all_of_it(
    disk: SimulatedDisk, clock: ManualClock
) -> None:
    log = create("", clock, disk=disk)
    log.append_as_leader(batch(b"a"), 3)
    disk.fail("fsync", errno.EIO)
    with pytest.raises(KafkaError) as failed:
        log.flush()
    assert failed.value.error is Error.KAFKA_STORAGE_ERROR
    assert (log.recovery_point, log.unflushed_messages) == (0, 1)
    disk.heal()
    clock.advance_ms(5)
    log.flush()
    assert (log.recovery_point, log.unflushed_messages, log.last_flush_ms) == (1, 0, clock.now_ms())
    disk.crash()
    again = reopen(log, clock, clean_shutdown=False, recovery_point=1, disk=disk)
    assert offsets(again) == [0]
    assert again.epochs.entries == [(3, 0)]
    assert again.topic_id == log.topic_id


def test_a_leader_epoch_that_could_not_be_noted_is_noted_by_the_next_flush(
    disk: SimulatedDisk, clock: ManualClock
) -> None:
    log = create("", clock, disk=disk)
    disk.fail("rename", errno.EIO)
    assert fails_to_append(log, batch(b"a"))
    disk.heal()
    log.append_as_leader(batch(b"a"), 0)
    log.flush()
    disk.crash()
    again = reopen(log, clock, clean_shutdown=False, recovery_point=1, disk=disk)
    assert again.epochs.entries == [(0, 0)]


def test_batches_that_come_while_a_flush_runs_belong_to_the_next(disk: SimulatedDisk, clock: ManualClock) -> None:
    log = create("", clock, disk=disk)
    log.append_as_leader(batch(b"a"), 0)
    flush = log.prepare_flush()
    log.append_as_leader(batch(b"b"), 0)
    flush.run(disk)
    log.flushed(flush)
    assert (log.recovery_point, log.unflushed_messages) == (1, 1)


def test_a_flush_that_ran_while_the_log_was_truncated_proves_nothing(disk: SimulatedDisk, clock: ManualClock) -> None:
    log = create("", clock, disk=disk)
    for _ in range(3):
        log.append_as_leader(batch(b"a"), 0)
    flush = log.prepare_flush()
    flush.run(disk)
    log.truncate_to(1)
    log.append_as_leader(batch(b"other"), 1)
    log.flushed(flush)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 2


def test_a_flushed_log_survives_power_loss_with_its_folder(disk: SimulatedDisk, clock: ManualClock) -> None:
    log = create("", clock, disk=disk)
    log.append_as_leader(batch(b"a"), 0)
    log.flush()
    disk.crash()
    assert offsets(reopen(log, clock, clean_shutdown=False, recovery_point=1, disk=disk)) == [0]


def test_a_flush_of_segments_that_were_dropped_meanwhile_succeeds(disk: SimulatedDisk, clock: ManualClock) -> None:
    log = create("", clock, TopicConfig(segment_bytes=100), disk)
    for _ in range(3):
        log.append_as_leader(batch(b"a"), 0)
    flush = log.prepare_flush()
    log.advance_log_start(2)
    log.apply_retention(3)
    for deletion in log.segments.deletions:
        deletion.run(disk)
    flush.run(disk)
    log.flushed(flush)
    assert log.recovery_point == 3


def test_an_append_never_waits_for_the_device(disk: SimulatedDisk, clock: ManualClock) -> None:
    log = create("", clock, TopicConfig(segment_bytes=100), disk)
    disk.calls.clear()
    for epoch in range(20):
        log.append_as_leader(batch(b"a"), epoch)
    assert len(log.segments.all) == 20
    assert "fsync" not in disk.calls
    assert "sync_dir" not in disk.calls


def test_closing_a_log_that_nobody_touched_since_its_clean_end_costs_nothing(
    disk: SimulatedDisk, clock: ManualClock
) -> None:
    log = create("", clock, disk=disk)
    log.append_as_leader(batch(b"a"), 0)
    log.close()
    again = reopen(log, clock, clean_shutdown=True, disk=disk)
    assert offsets(again) == [0]
    disk.calls.clear()
    again.close()
    assert disk.calls == {}
    again.append_as_leader(batch(b"b"), 0)
    again.close()
    assert disk.calls["fsync"] > 0


def test_a_log_that_was_killed_before_its_first_flush_is_durable_after_its_next(
    disk: SimulatedDisk, clock: ManualClock
) -> None:
    log = create("", clock, disk=disk)
    log.append_as_leader(batch(b"a"), 4)
    killed = reopen(log, clock, clean_shutdown=False, disk=disk)
    killed.flush()
    disk.crash()
    again = reopen(log, clock, clean_shutdown=False, recovery_point=1, disk=disk)
    assert offsets(again) == [0]
    assert (again.topic_id, again.epochs.entries) == (log.topic_id, [(4, 0)])


def a_log_of_segments(disk: SimulatedDisk, clock: ManualClock, count: int) -> PartitionLog:
    """With one record in each, of which retention keeps one."""
    log = create("", clock, TopicConfig(segment_bytes=100, retention_bytes=60), disk)
    for epoch in range(count):
        log.append_as_leader(batch(b"x"), epoch)
    assert len(log.segments.all) == count
    return log


def fail_to_rename(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    rename = disk.rename

    def rename_others(old: str, new: str) -> None:
        if old.endswith(names):
            raise OSError(errno.EIO, os.strerror(errno.EIO), old)
        rename(old, new)

    monkeypatch.setattr(disk, "rename", rename_others)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_retention_that_fails_half_way_leaves_a_log_that_says_where_it_starts_and_goes_on_later(
    disk: SimulatedDisk, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    log = a_log_of_segments(disk, clock, 5)
    with monkeypatch.context() as broken:
        fail_to_rename(disk, broken, f"{failing:020d}.log")
        with pytest.raises(KafkaError, match=r"cannot remove segments of t-0"):
            log.apply_retention(log.log_end_offset)
    start = log.log_start_offset
    assert [segment.base_offset for segment in log.segments.all] == list(range(failing, 5)), "its files are there"
    assert offsets(log) == list(range(start, 5))
    with pytest.raises(KafkaError) as refused:
        read_records(log, start - 1)
    assert refused.value.error is Error.OFFSET_OUT_OF_RANGE
    log.apply_retention(log.log_end_offset)
    assert log.segments.all[0].base_offset == log.log_start_offset == start
    assert offsets(log) == list(range(start, 5))
    log.close()
    assert offsets(reopen(log, clock, clean_shutdown=True, disk=disk)) == list(range(start, 5))


def test_a_file_that_cannot_go_with_its_segment_does_not_keep_it(
    disk: SimulatedDisk, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log_of_segments(disk, clock, 3)
    fail_to_rename(disk, monkeypatch, ".timeindex")
    log.apply_retention(log.log_end_offset)
    start = log.log_start_offset
    assert log.segments.all[0].base_offset == start > 0
    log.close()
    again = reopen(log, clock, clean_shutdown=True, disk=disk)
    assert offsets(again) == list(range(start, 3))
    assert f"{0:020d}.timeindex" not in disk.list_folder("/t-0"), "a start removes what has no segment"


def test_a_full_disk_does_not_keep_retention_from_making_room(disk: SimulatedDisk, clock: ManualClock) -> None:
    log = a_log_of_segments(disk, clock, 5)
    disk.capacity_bytes = used(disk)
    with pytest.raises(KafkaError, match=r"cannot note the leader epochs of t-0"):
        log.apply_retention(log.log_end_offset)
    clock.advance_ms(log.config.file_delete_delay_ms)
    for deletion in log.take_due_deletions():
        deletion.run(disk)
    assert offsets(log) == [4]
    assert log.append_as_leader(batch(b"x"), 4).base_offset == 5


def test_a_truncation_that_fails_half_way_leaves_a_log_that_ends_where_it_says_and_goes_on_later(
    disk: SimulatedDisk, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log_of_segments(disk, clock, 6)
    log.flush()
    with monkeypatch.context() as broken:
        fail_to_rename(disk, broken, f"{3:020d}.log")
        with pytest.raises(KafkaError, match=r"cannot remove segments of t-0"):
            log.truncate_to(1)
    assert (log.log_end_offset, log.recovery_point) == (4, 4)
    assert offsets(log) == [0, 1, 2, 3]
    assert log.truncate_to(1)
    assert log.append_as_leader(batch(b"other"), 7).base_offset == 1
    assert [record.value for record in read_records(log)] == [b"x", b"other"]
    log.close()
    assert offsets(reopen(log, clock, clean_shutdown=True, disk=disk)) == [0, 1]


@pytest.mark.parametrize("offset", [0, 50])
def test_a_log_whose_full_truncation_failed_answers_with_errors_until_it_succeeds(
    tmp_path: Path, clock: ManualClock, offset: int
) -> None:
    disk = FaultyDisk()
    log = create(tmp_path, clock, disk=disk)
    log.append_as_leader(batch(b"a"), 0)
    disk.fail("open", f"{offset:020d}.log")
    with pytest.raises(KafkaError):
        log.truncate_fully(offset)
    with pytest.raises(KafkaError):
        log.append_as_leader(batch(b"b"), 0)
    assert log.offset_by_timestamp(5) is None
    assert log.max_timestamp_offset() is None
    assert log.apply_retention(1) == 0
    log_start_offsets_of([log])
    disk.heal()
    log.truncate_fully(offset)
    log.append_as_leader(batch(b"c"), 0)
    assert [(record.offset, record.value) for record in read_records(log)] == [(offset, b"c")]
    log.close()


def test_a_deletion_removes_what_it_can_and_is_due_again_for_the_rest(
    disk: SimulatedDisk, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log_of_segments(disk, clock, 2)
    log.apply_retention(log.log_end_offset)
    clock.advance_ms(log.config.file_delete_delay_ms)
    (deletion,) = log.take_due_deletions()
    unlink = disk.unlink

    def unlink_others(path: str) -> None:
        if path.endswith(".log.deleted"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        unlink(path)

    with monkeypatch.context() as broken:
        broken.setattr(disk, "unlink", unlink_others)
        with pytest.raises(OSError, match=r"\.log\.deleted"):
            deletion.run(disk)
    assert [name for name in disk.list_folder("/t-0") if name.endswith(".deleted")] == [f"{0:020d}.log.deleted"]
    log.put_off(deletion)
    assert log.take_due_deletions() == []
    clock.advance_ms(log.config.file_delete_delay_ms)
    (again,) = log.take_due_deletions()
    again.run(disk)
    assert not any(name.endswith(".deleted") for name in disk.list_folder("/t-0"))
