"""A data folder: its lock, its partitions, and what a stop leaves for the next start."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.config.topic_config import TopicConfig
from barnabas.log.folder.checkpoints import TopicPartition
from barnabas.log.folder.data_dir import DataDir, log_start_offsets_of, recovery_points_of
from barnabas.log.segments.open_files import FilePool
from barnabas.ports import SystemDisk, SystemRandom, SystemThreads
from tests.unit.log.logs import TOPIC_ID, batch, read_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.log.folder.data_dir import OpenedPartitions
    from barnabas.testing.clock import ManualClock

DISK = SystemDisk()


@pytest.fixture
def data_dir(tmp_path: Path, clock: ManualClock) -> Iterator[DataDir]:
    data_dir = DataDir.lock(str(tmp_path / "data"), disk=DISK, clock=clock, files=FilePool(DISK), random=SystemRandom())
    yield data_dir
    data_dir.unlock()


def open_all(data_dir: DataDir, *, clean_shutdown: bool = True) -> OpenedPartitions:
    return data_dir.open_partitions(
        lambda _: TopicConfig(), clean_shutdown=clean_shutdown, threads=SystemThreads(), threads_max=2
    )


def test_another_process_cannot_take_the_folder_and_is_told_why(data_dir: DataDir) -> None:
    script = textwrap.dedent("""
        import sys
        from barnabas.log.folder.data_dir import DataDir, FolderInUseError
        from barnabas.log.segments.open_files import FilePool
        from barnabas.ports import SystemClock, SystemDisk, SystemRandom
        disk = SystemDisk()
        try:
            DataDir.lock(sys.argv[1], disk=disk, clock=SystemClock(), files=FilePool(disk), random=SystemRandom())
        except FolderInUseError as error:
            sys.exit(str(error))
    """)
    other = subprocess.run(
        [sys.executable, "-c", script, data_dir.path], capture_output=True, text=True, timeout=60, check=False
    )
    assert other.returncode == 1
    assert f"{data_dir.path} is in use by another process" in other.stderr
    data_dir.unlock()
    assert subprocess.run([sys.executable, "-c", script, data_dir.path], timeout=60, check=False).returncode == 0
    data_dir._lock_fd = DISK.lock(f"{data_dir.path}/.lock")


def test_partitions_are_found_opened_and_reported_on(data_dir: DataDir, clock: ManualClock) -> None:
    partitions = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("a-b", 0)]
    for number, partition in enumerate(partitions):
        log = data_dir.create_partition(partition, TOPIC_ID, TopicConfig())
        for _ in range(number + 1):
            log.append_as_leader(batch(b"x"), 0)
        log.close()
    os.mkdir(f"{data_dir.path}/__cluster_metadata-0")
    os.mkdir(f"{data_dir.path}/lost+found")
    progress: list[tuple[int, int]] = []

    opened = data_dir.open_partitions(
        lambda _: TopicConfig(),
        clean_shutdown=True,
        threads=SystemThreads(),
        threads_max=2,
        on_progress=lambda *counts: progress.append(counts),
    )

    assert {partition: log.log_end_offset for partition, log in opened.logs.items()} == dict(
        zip(partitions, (1, 2, 3), strict=True)
    )
    assert progress == [(1, 3), (2, 3), (3, 3)]
    assert (opened.failures, opened.leftovers) == ({}, [])
    assert all(log.topic_id == TOPIC_ID for log in opened.logs.values())


def test_a_partition_that_cannot_be_opened_is_named_and_the_others_serve(data_dir: DataDir) -> None:
    for number in range(2):
        data_dir.create_partition(TopicPartition("t", number), TOPIC_ID, TopicConfig()).close()
    with open(f"{data_dir.path}/t-1/partition.metadata", "w") as file:
        file.write("nonsense")
    opened = open_all(data_dir)
    assert list(opened.logs) == [TopicPartition("t", 0)]
    assert list(opened.failures) == [TopicPartition("t", 1)]
    assert "partition.metadata" in str(opened.failures[TopicPartition("t", 1)])


def test_checkpoints_keep_what_they_say_of_a_partition_that_cannot_be_opened(data_dir: DataDir) -> None:
    partitions = [TopicPartition("t", number) for number in range(2)]
    logs = [data_dir.create_partition(partition, TOPIC_ID, TopicConfig()) for partition in partitions]
    for log in logs:
        for _ in range(5):
            log.append_as_leader(batch(b"x"), 0)
        log.advance_log_start(2)
        log.close()
    data_dir.write_recovery_points(recovery_points_of(logs))
    data_dir.write_log_start_offsets(log_start_offsets_of(logs))
    data_dir.write_high_watermarks(dict.fromkeys(partitions, 4))
    metadata = Path(data_dir.path, "t-1", "partition.metadata")
    whole = metadata.read_text()
    metadata.write_text("nonsense")

    opened = open_all(data_dir)
    assert list(opened.failures) == [partitions[1]]
    for _ in range(2):
        data_dir.write_recovery_points(recovery_points_of(opened.logs.values()))
        data_dir.write_log_start_offsets(log_start_offsets_of(opened.logs.values()))
        data_dir.write_high_watermarks({partitions[0]: 5})

    metadata.write_text(whole)
    again = open_all(data_dir, clean_shutdown=False).logs[partitions[1]]
    assert (again.log_start_offset, again.log_end_offset, again.recovery_point) == (2, 5, 5)
    assert data_dir.read_high_watermarks() == {partitions[0]: 5, partitions[1]: 4}
    data_dir.write_high_watermarks({partitions[0]: 5})
    assert data_dir.read_high_watermarks() == {partitions[0]: 5}, "what was opened speaks for itself again"


def test_checkpoints_written_at_a_stop_are_used_at_the_next_start(data_dir: DataDir, clock: ManualClock) -> None:
    log = data_dir.create_partition(TopicPartition("t", 0), TOPIC_ID, TopicConfig(segment_bytes=100))
    for _ in range(5):
        log.append_as_leader(batch(b"x"), 0)
    log.advance_log_start(2)
    log.close()
    data_dir.write_recovery_points(recovery_points_of([log]))
    data_dir.write_log_start_offsets(log_start_offsets_of([log]))
    data_dir.write_high_watermarks({TopicPartition("t", 0): 5})
    data_dir.mark_clean_shutdown(7)

    assert data_dir.take_clean_shutdown() == 7
    again = open_all(data_dir).logs[TopicPartition("t", 0)]
    assert (again.log_start_offset, again.log_end_offset, again.recovery_point) == (2, 5, 5)
    assert data_dir.read_high_watermarks() == {TopicPartition("t", 0): 5}


def test_only_starts_within_a_segment_are_checkpointed(data_dir: DataDir) -> None:
    log = data_dir.create_partition(TopicPartition("t", 0), TOPIC_ID, TopicConfig(segment_bytes=100))
    for _ in range(3):
        log.append_as_leader(batch(b"x"), 0)
    assert log_start_offsets_of([log]) == {}
    log.advance_log_start(1)
    assert log_start_offsets_of([log]) == {TopicPartition("t", 0): 1}
    log.apply_retention(3)
    assert log_start_offsets_of([log]) == {}


def test_a_broken_checkpoint_costs_time_not_records(data_dir: DataDir) -> None:
    log = data_dir.create_partition(TopicPartition("t", 0), TOPIC_ID, TopicConfig())
    log.append_as_leader(batch(b"x"), 0)
    log.flush()
    data_dir.write_recovery_points(recovery_points_of([log]))
    with open(f"{data_dir.path}/recovery-point-offset-checkpoint", "w") as file:
        file.write("garbage")
    again = open_all(data_dir, clean_shutdown=False).logs[TopicPartition("t", 0)]
    assert [record.value for record in read_records(again)] == [b"x"]


def test_a_deleted_partition_is_out_of_sight_at_once_and_removed_later(data_dir: DataDir) -> None:
    log = data_dir.create_partition(TopicPartition("t", 0), TOPIC_ID, TopicConfig())
    log.append_as_leader(batch(b"x"), 0)
    found = log.read(0, 1000, log.end_position, whole_first_batch=True)
    assert found is not None
    found.file.acquire()

    folder = data_dir.discard(log)

    assert os.path.basename(folder).startswith("t-0.")
    assert folder.endswith("-delete")
    assert not os.path.exists(f"{data_dir.path}/t-0")
    data_dir.create_partition(TopicPartition("t", 0), TOPIC_ID, TopicConfig()).close()
    assert open_all(data_dir).leftovers == [folder], "a start finds what a crash left"
    data_dir.remove(folder)
    data_dir.remove(folder)
    assert not os.path.exists(folder)
    assert len(os.pread(found.file.fd, 1000, 0)) == found.length, "who still sends from it may finish"
    found.file.release()


def test_a_stray_partition_is_kept_but_not_opened(data_dir: DataDir) -> None:
    log = data_dir.create_partition(TopicPartition("t", 0), TOPIC_ID, TopicConfig())
    log.close()
    folder = data_dir.set_aside(log)
    assert folder.endswith("-stray")
    assert os.path.exists(folder)
    opened = open_all(data_dir)
    assert (opened.logs, opened.leftovers) == ({}, [])
