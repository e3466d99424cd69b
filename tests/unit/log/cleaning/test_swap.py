"""The process is killed, or the power fails, before every single change that a cleaning makes on the disk, and again
during the start that follows: nothing is lost, and nothing is left over."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from barnabas.log.cleaning.log_cleaning import CleanedSegment, clean_log
from barnabas.protocol.errors import Error, KafkaError
from barnabas.testing.disk import SimulatedDisk
from tests.unit.log.cleaning.cleanings import COMPACTED, LIMITS, clean, committed, end_transaction, put, roll
from tests.unit.log.logs import create, reopen

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer

    from barnabas.log.partition_log import PartitionLog
    from barnabas.ports import Clock
    from barnabas.testing.clock import ManualClock


class Killed(BaseException):
    """Nothing handles it: the process is gone."""


class DeadlyDisk(SimulatedDisk):
    """Kills whoever makes one change too many."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.changes_left: int | None = None

    def _change(self) -> None:
        if self.changes_left is not None:
            if not self.changes_left:
                raise Killed
            self.changes_left -= 1

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        if not self.exists(path):
            self._change()
        return super().open(path, flags, mode)

    def pwrite(self, fd: int, data: ReadableBuffer, offset: int, /) -> int:
        self._change()
        return super().pwrite(fd, data, offset)

    def rename(self, old: str, new: str) -> None:
        self._change()
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self._change()
        super().unlink(path)

    def sync_dir(self, path: str) -> None:
        self._change()
        super().sync_dir(path)


def filled(disk: SimulatedDisk, clock: ManualClock) -> PartitionLog:
    """Several groups of several segments, with aborted transactions whose indexes change or go."""
    disk.make_folders("/data")
    log = create("/data", clock, COMPACTED._replace(segment_bytes=700, index_interval_bytes=100), disk)
    for number in range(12):
        put(log, (b"%d" % (number % 4), b"x" * 30), (b"only-%d" % number, b"%d" % number))
        if number % 3 == 0:
            put(log, (b"0", b"aborted"), producer_id=7, epoch=0, is_transactional=True)
            end_transaction(log, 7, is_commit=False)
        if number % 3 == 1:
            put(log, (b"1", b"committed"), producer_id=7, epoch=0, is_transactional=True)
            end_transaction(log, 7, is_commit=True)
        if number % 2:
            roll(log)
    put(log, (b"end", b"1"))
    log.flush()
    return log


def last_values(log: PartitionLog) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {key: (offset, value) for offset, key, value in committed(log)}


def names(log: PartitionLog) -> list[str]:
    return sorted(log.segments.disk.list_folder(log.folder))


def kill(disk: SimulatedDisk) -> None:
    disk.release()


def fail_power(disk: SimulatedDisk) -> None:
    disk.crash()


def start(log: PartitionLog, clock: ManualClock, disk: SimulatedDisk) -> PartitionLog:
    return reopen(log, clock, clean_shutdown=False, recovery_point=log.recovery_point, disk=disk)


@pytest.mark.parametrize("end", [kill, fail_power], ids=["kill", "power failure"])
@pytest.mark.parametrize("cleanings_before", [0, 2])
def test_a_cleaning_that_ends_anywhere_loses_nothing(
    clock: ManualClock, end: Callable[[SimulatedDisk], None], cleanings_before: int
) -> None:
    changes = 0
    while True:
        disk = DeadlyDisk(clock)
        log = filled(disk, clock)
        for _ in range(cleanings_before):
            clean(log)
            clock.advance_ms(2_000)
            log.flush()
        expected = last_values(log)
        disk.changes_left = changes
        try:
            clean(log)
            is_done = True
        except Killed:
            is_done = False
        disk.changes_left = None
        end(disk)
        found = start(log, clock, disk)
        assert last_values(found) == expected, f"after {changes} changes"
        assert found.log_end_offset == log.log_end_offset
        assert not [name for name in names(found) if name.endswith((".cleaned", ".swap", ".deleted"))]
        clean(found)
        assert last_values(found) == expected, f"after {changes} changes and another cleaning"
        if is_done:
            break
        changes += 1
    assert changes > 40


def test_a_start_that_completes_a_swap_may_be_killed_at_any_step_too(clock: ManualClock) -> None:
    """The second kill comes at every step of the start that follows the first."""
    for changes in range(0, 400, 3):
        changes_of_start = 0
        while True:
            disk = DeadlyDisk(clock)
            log = filled(disk, clock)
            expected = last_values(log)
            cleaning = log.begin_cleaning(log.dirt(log.log_end_offset), LIMITS)
            steps = clean_log(disk, cleaning.order)
            cleaned = next(step for step in steps if isinstance(step, CleanedSegment))
            disk.changes_left = changes
            try:
                log.swap_in(cleaning, cleaned)
            except Killed:
                pass
            else:
                return
            kill(disk)
            disk.changes_left = changes_of_start
            try:
                start(log, clock, disk)
                is_done = True
            except Killed:
                is_done = False
            disk.changes_left = None
            kill(disk)
            found = start(log, clock, disk)
            assert last_values(found) == expected, f"after {changes} changes, and {changes_of_start} of the start"
            if is_done:
                break
            changes_of_start += 2


def test_an_old_index_of_aborted_transactions_does_not_become_that_of_the_new_segment(clock: ManualClock) -> None:
    """Otherwise, what a producer commits later would count as aborted, as the marker that ended the aborted
    transaction is gone."""
    disk = SimulatedDisk(clock)
    disk.make_folders("/data")
    log = create("/data", clock, COMPACTED, disk)
    put(log, (b"a", b"aborted"), producer_id=7, epoch=0, is_transactional=True)
    end_transaction(log, 7, is_commit=False)
    put(log, (b"b", b"1"), producer_id=7, epoch=0, is_transactional=True)
    end_transaction(log, 7, is_commit=True)
    roll(log)
    log.flush()
    log.high_watermark_moved(log.log_end_offset)
    cleaning = log.begin_cleaning(log.dirt(log.log_end_offset), LIMITS)
    steps = clean_log(disk, cleaning.order)
    next(step for step in steps if isinstance(step, CleanedSegment))
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        path = f"{log.folder}/{0:020}{suffix}"
        if disk.exists(path + ".cleaned"):
            disk.rename(path + ".cleaned", path + ".swap")
    disk.rename(f"{log.folder}/{0:020}.log", f"{log.folder}/{0:020}.log.deleted")
    disk.unlink(f"{log.folder}/{0:020}.txnindex.swap")  # as if the new segment had none
    kill(disk)
    found = start(log, clock, disk)
    assert found.aborted_transactions(0, 4) == []
    assert committed(found) == [(2, b"b", b"1")]


def test_a_swap_that_cannot_begin_changes_nothing(clock: ManualClock) -> None:
    disk = SimulatedDisk(clock)
    log = filled(disk, clock)
    before, expected = names(log), committed(log)
    cleaning = log.begin_cleaning(log.dirt(log.log_end_offset), LIMITS)
    for step in clean_log(disk, cleaning.order):
        if isinstance(step, CleanedSegment):
            disk.fail("rename", errno.ENOSPC)
            with pytest.raises(KafkaError) as refused:
                log.swap_in(cleaning, step)
            disk.heal()
            break
    assert refused.value.error is Error.KAFKA_STORAGE_ERROR
    assert names(log) == before
    assert committed(log) == expected
    assert not log.is_void(cleaning)
    clean(log)


def test_a_swap_that_fails_half_way_puts_the_folder_in_doubt_and_the_next_start_completes_it(
    clock: ManualClock,
) -> None:
    disk = DeadlyDisk(clock)
    log = filled(disk, clock)
    failures: list[OSError] = []
    log.on_failed_disk = failures.append
    expected = last_values(log)
    cleaning = log.begin_cleaning(log.dirt(log.log_end_offset), LIMITS)
    renames = 0
    rename = disk.rename

    def fail_sixth(old: str, new: str) -> None:
        nonlocal renames
        renames += 1
        if renames == 6:
            raise PermissionError(errno.EPERM, "not permitted")
        rename(old, new)

    disk.rename = fail_sixth  # type: ignore[method-assign]
    for step in clean_log(disk, cleaning.order):
        if isinstance(step, CleanedSegment):
            with pytest.raises(KafkaError):
                log.swap_in(cleaning, step)
            break
    assert [error.errno for error in failures] == [errno.EPERM]
    disk.rename = rename  # type: ignore[method-assign]
    kill(disk)
    assert last_values(start(log, clock, disk)) == expected
