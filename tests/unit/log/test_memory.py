"""What many partitions and segments cost while nobody uses them."""

from __future__ import annotations

import gc
import os
import tracemalloc
from typing import TYPE_CHECKING

from barnabas.config.topic_config import TopicConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments.open_files import FilePool
from barnabas.ports import SystemClock, SystemDisk
from barnabas.testing.disk import SimulatedDisk

from .logs import TOPIC_ID, idempotent, put_to_sleep

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.testing.clock import ManualClock

PARTITIONS = 1_000
IDLE_BYTES_MAX = 8 * 1024


def test_an_idle_partition_costs_less_than_8_kb_and_no_open_file(tmp_path: Path, clock: ManualClock) -> None:
    disk = SystemDisk()
    files = FilePool(disk)
    config = TopicConfig()
    open_files = len(os.listdir("/proc/self/fd"))
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        logs = []
        for number in range(PARTITIONS):
            log = PartitionLog.create(
                f"{tmp_path}/t-{number}", "t", number, TOPIC_ID, config, disk=disk, clock=clock, files=files
            )
            for sequence in range(8):
                log.append_as_leader(idempotent(number, 0, sequence), 0)
            put_to_sleep(log)
            logs.append(log)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / PARTITIONS < IDLE_BYTES_MAX
    assert len(files) == 0
    assert len(os.listdir("/proc/self/fd")) == open_files
    assert sum(os.path.getsize(entry) for entry in os.scandir(logs[0].folder)) < 2_000


def test_ten_thousand_cold_segments_open_without_a_look_at_their_records() -> None:
    clock = SystemClock()
    disk = SimulatedDisk(clock)
    disk.make_folder("/t-0")
    for base in range(10_000):
        for suffix in ("log", "index", "timeindex"):
            disk.close(disk.open(f"/t-0/{base:020d}.{suffix}", os.O_CREAT))
    disk.calls.clear()
    log = PartitionLog.open(
        "/t-0",
        "t",
        0,
        TopicConfig(),
        disk=disk,
        clock=clock,
        recovery_point=9_999,
        log_start_offset=0,
        clean_shutdown=True,
    )
    assert len(log.segments.all) == 10_000
    assert log.log_end_offset == 9_999
    assert disk.calls["open"] < 10
