"""A folder that Apache Kafka 4.3.1 wrote (`kafka_files`): ours are the same files, byte for byte, but for the earlier
batches of producers that our snapshots hold in addition.

It holds lz4 batches of an idempotent producer with timestamps out of order, two rolls by time, a committed and two
aborted transactions; `index.interval.bytes` was 700 and `segment.ms` 1000, and the broker was stopped cleanly.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.config.topic_config import TopicConfig
from barnabas.log.folder.checkpoints import read_topic_id
from barnabas.log.partition_log import PartitionLog
from barnabas.log.producers.producer_snapshot import decode_snapshot, encode_snapshot
from barnabas.ports import SystemDisk
from barnabas.protocol.batch import iter_headers

from .logs import read_records

if TYPE_CHECKING:
    from barnabas.testing.clock import ManualClock

KAFKAS = Path(__file__).with_name("kafka_files") / "t-0"
CONFIG = TopicConfig(index_interval_bytes=700, segment_ms=1000)
START_MS = 1_700_000_000_000


def contents(folder: Path) -> dict[str, bytes]:
    return {
        file.name: as_kafka_writes_it(file.read_bytes()) if file.suffix == ".snapshot" else file.read_bytes()
        for file in folder.iterdir()
    }


def as_kafka_writes_it(snapshot: bytes) -> bytes:
    producers = dict(decode_snapshot(snapshot))
    for entry in producers.values():
        del entry.batches[:-1]
    return encode_snapshot(producers)


def open_log(folder: Path, clock: ManualClock, *, clean_shutdown: bool) -> PartitionLog:
    return PartitionLog.open(
        str(folder),
        "t",
        0,
        CONFIG,
        disk=SystemDisk(),
        clock=clock,
        recovery_point=0,
        log_start_offset=0,
        clean_shutdown=clean_shutdown,
    )


def test_opening_and_closing_changes_nothing(tmp_path: Path, clock: ManualClock) -> None:
    shutil.copytree(KAFKAS, tmp_path / "t-0")
    log = open_log(tmp_path / "t-0", clock, clean_shutdown=True)
    log.close()
    assert contents(tmp_path / "t-0") == contents(KAFKAS)


@pytest.mark.parametrize("kept", [(".log", ".metadata"), (".log", ".metadata", ".snapshot", ".index")])
def test_recovery_makes_kafkas_indexes_snapshots_and_epochs(
    tmp_path: Path, clock: ManualClock, kept: tuple[str, ...]
) -> None:
    (tmp_path / "t-0").mkdir()
    for file in KAFKAS.iterdir():
        if file.name.endswith(kept):
            shutil.copy(file, tmp_path / "t-0")
    open_log(tmp_path / "t-0", clock, clean_shutdown=False).close()
    assert contents(tmp_path / "t-0") == contents(KAFKAS)


def test_appending_kafkas_batches_makes_kafkas_files(tmp_path: Path, clock: ManualClock) -> None:
    disk = SystemDisk()
    topic_id = read_topic_id(disk, str(KAFKAS / "partition.metadata"))
    assert topic_id is not None
    log = PartitionLog.create(str(tmp_path / "t-0"), "t", 0, topic_id, CONFIG, disk=disk, clock=clock)
    for file in sorted(KAFKAS.glob("*.log")):
        data = memoryview(file.read_bytes())
        for position, header in iter_headers(data):
            log.append_at(data[position : position + header.size])
    log.close()
    assert contents(tmp_path / "t-0") == contents(KAFKAS)


def test_everything_in_it_is_found(tmp_path: Path, clock: ManualClock) -> None:
    shutil.copytree(KAFKAS, tmp_path / "t-0")
    log = open_log(tmp_path / "t-0", clock, clean_shutdown=True)
    records = read_records(log)
    assert [record.offset for record in records] == list(range(126))
    for age in (0, 1, 39, 40, 5000, 5001, 5039):
        expected = next(record for record in records if record.timestamp >= START_MS + age)
        found = log.offset_by_timestamp(START_MS + age)
        assert found is not None
        assert (found.timestamp, found.offset) == (expected.timestamp, expected.offset)
    assert log.aborted_transactions(0, 126) == [(1, 120, 121, 122), (1, 124, 125, 126)]
    assert log.last_stable_position(log.end_position) == log.end_position
    assert {producer_id: entry.last_sequence for producer_id, entry in log.producers.producers.items()} == {
        0: 119,
        1: 2,
    }
