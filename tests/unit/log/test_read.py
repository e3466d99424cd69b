"""What a read gives: a range of one file that begins with the right batch and ends by the limit."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

import pytest

from barnabas.config.topic_config import TopicConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments.open_files import FilePool
from barnabas.log.segments.segment_list import LogPosition
from barnabas.ports import SystemDisk
from barnabas.protocol.batch import read_header
from barnabas.protocol.errors import Error, KafkaError
from tests.peers import wait_until

from .logs import TOPIC_ID, batch, copy_of, create, put_to_sleep, read_bytes, read_records

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.testing.clock import ManualClock

ONE = batch(b"x" * 100, b"y" * 100)
SEGMENTS_OF_TEN = TopicConfig(segment_bytes=10 * len(ONE), index_interval_bytes=3 * len(ONE))


def filled(folder: Path, clock: ManualClock, config: TopicConfig = SEGMENTS_OF_TEN, batches: int = 35) -> PartitionLog:
    log = create(folder, clock, config)
    for _ in range(batches):
        log.append_as_leader(copy_of(ONE), 0)
    return log


@pytest.mark.parametrize("files_are_closed_before", [False, True])
def test_every_offset_is_found_in_the_batch_that_holds_it(
    tmp_path: Path, clock: ManualClock, files_are_closed_before: bool
) -> None:
    log = filled(tmp_path, clock)
    for offset in range(70):
        if files_are_closed_before:
            put_to_sleep(log)
        assert read_header(read_bytes(log, offset, 1)).base_offset == offset // 2 * 2


def test_a_range_ends_at_the_limit_of_its_reader(tmp_path: Path, clock: ManualClock) -> None:
    log = filled(tmp_path, clock)
    within = log.position_of(12)
    assert within == LogPosition(12, 0, 6 * len(ONE))
    found = log.read(0, 1 << 20, within, whole_first_batch=True)
    assert found is not None
    assert (found.position, found.length) == (0, 6 * len(ONE))
    assert log.read(12, 1 << 20, within, whole_first_batch=True) is None
    assert log.read(20, 1 << 20, within, whole_first_batch=True) is None


def test_a_range_stays_within_its_segment(tmp_path: Path, clock: ManualClock) -> None:
    log = filled(tmp_path, clock)
    found = log.read(16, 1 << 20, log.end_position, whole_first_batch=True)
    assert found is not None
    assert (found.position, found.length) == (8 * len(ONE), 2 * len(ONE))


def test_the_first_batch_comes_whole_or_not_at_all(tmp_path: Path, clock: ManualClock) -> None:
    log = filled(tmp_path, clock)
    for offset in (0, 68):
        whole = log.read(offset, 10, log.end_position, whole_first_batch=True)
        assert whole is not None
        assert whole.length == len(ONE)
        assert log.read(offset, 10, log.end_position, whole_first_batch=False) is None
        fits = log.read(offset, len(ONE), log.end_position, whole_first_batch=False)
        assert fits is not None
        assert fits.length == len(ONE)


def test_a_range_near_the_end_holds_whole_batches(tmp_path: Path, clock: ManualClock) -> None:
    log = filled(tmp_path, clock)
    found = log.read(60, 3 * len(ONE) + 5, log.end_position, whole_first_batch=True)
    assert found is not None
    assert found.length == 3 * len(ONE)


def test_an_offset_outside_of_the_log_is_out_of_range_and_its_end_is_empty(tmp_path: Path, clock: ManualClock) -> None:
    log = filled(tmp_path, clock)
    log.advance_log_start(20)
    for offset in (-1, 19, 71):
        with pytest.raises(KafkaError) as refused:
            log.read(offset, 100, log.end_position, whole_first_batch=True)
        assert refused.value.error is Error.OFFSET_OUT_OF_RANGE
        assert "20–70" in refused.value.message
    assert log.read(70, 100, log.end_position, whole_first_batch=True) is None


def test_a_held_file_outlives_its_segment(tmp_path: Path, clock: ManualClock) -> None:
    log = filled(tmp_path, clock)
    found = log.read(0, 1 << 20, log.end_position, whole_first_batch=True)
    assert found is not None
    expected = os.pread(found.file.fd, found.length, 0)
    found.file.acquire()

    log.advance_log_start(30)
    assert log.apply_retention(log.log_end_offset) == 1
    for deletion in log.segments.deletions:
        deletion.run(SystemDisk())

    assert os.pread(found.file.fd, found.length, found.position) == expected
    file, fd = found.file, found.file.fd
    del found
    assert os.pread(fd, len(expected), 0) == expected, "who acquired it holds it still"
    file.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_no_more_files_are_open_than_the_pool_allows(tmp_path: Path, clock: ManualClock) -> None:
    files = FilePool(SystemDisk(), limit=4)
    logs = [
        PartitionLog.create(
            f"{tmp_path}/t-{number}",
            "t",
            number,
            TOPIC_ID,
            SEGMENTS_OF_TEN,
            disk=SystemDisk(),
            clock=clock,
            files=files,
        )
        for number in range(3)
    ]
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(40):
        for log in logs:
            log.append_as_leader(copy_of(ONE), 0)
    for log in logs:
        assert [record.offset for record in read_records(log)] == list(range(80))
    assert len(os.listdir("/proc/self/fd")) - before <= 4
    assert len(files) <= 4


def test_the_pool_leaves_half_of_the_files_that_the_process_may_open_to_others() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, hard))
    try:
        assert FilePool(SystemDisk()).limit == 250
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_log_that_nobody_uses_closes_its_files_and_goes_on_when_somebody_does(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = filled(tmp_path, clock)
    assert not log.release_if_idle(), "it was used since it was made"
    assert log.release_if_idle()
    assert not log.release_if_idle(), "there is nothing left to close"
    assert not log.segments.is_awake()
    assert log.append_as_leader(copy_of(ONE), 0).base_offset == 70
    assert [record.offset for record in read_records(log)] == list(range(72))


def test_a_log_that_sleeps_between_appends_is_indexed_like_one_that_does_not(
    tmp_path: Path, clock: ManualClock
) -> None:
    config = TopicConfig(index_interval_bytes=3 * len(ONE))
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    awake, sleepy = create(tmp_path / "a", clock, config), create(tmp_path / "b", clock, config)
    for number in range(30):
        data = batch(b"x" * 100, b"y" * 100, timestamp=clock.now_ms() + number)
        awake.append_as_leader(copy_of(data), 0)
        sleepy.append_as_leader(data, 0)
        put_to_sleep(sleepy)
    awake.close()
    sleepy.close()
    for suffix in ("index", "timeindex"):
        name = f"t-0/00000000000000000000.{suffix}"
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_newest_bytes_are_not_cold(tmp_path: Path, clock: ManualClock) -> None:
    log = filled(tmp_path, clock)
    found = log.read(68, 1 << 20, log.end_position, whole_first_batch=True)
    assert found is not None
    assert not log.is_cold(found)


def test_what_was_evicted_from_the_page_cache_is_cold(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=200_000))
    for _ in range(4):
        log.append_as_leader(batch(b"x" * 64_000), 0)
    found = log.read(0, 1 << 20, log.end_position, whole_first_batch=True)
    assert found is not None
    os.fsync(found.file.fd)

    def is_cold_after_advice() -> bool:
        """Pages that the kernel is busy with stay, whatever it is advised."""
        os.posix_fadvise(found.file.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return log.is_cold(found)

    wait_until(is_cold_after_advice, "the pages are evicted")


def test_a_range_keeps_its_file_open_when_the_pool_wants_it_back(tmp_path: Path, clock: ManualClock) -> None:
    disk = SystemDisk()
    log = PartitionLog.create(
        f"{tmp_path}/t-0",
        "t",
        0,
        TOPIC_ID,
        SEGMENTS_OF_TEN,
        disk=disk,
        clock=clock,
        files=FilePool(disk, limit=1),
    )
    for _ in range(35):
        log.append_as_leader(copy_of(ONE), 0)
    before = len(os.listdir("/proc/self/fd"))
    ranges = [log.read(offset, 1 << 20, log.end_position, whole_first_batch=True) for offset in (0, 20, 40, 60)]
    assert len(os.listdir("/proc/self/fd")) == before + 3
    for number, found in enumerate(ranges):
        assert found is not None
        assert read_header(os.pread(found.file.fd, 61, found.position)).base_offset == number * 20
    ranges.clear()
    del found
    assert len(os.listdir("/proc/self/fd")) == before
