"""Syncs are shared, run in threads, and a log that is gone needs none."""

from __future__ import annotations

import asyncio
import errno
import threading
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.flusher import Flusher
from barnabas.config.topic_config import TopicConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments.file_names import DELETE_FOLDER
from barnabas.ports import SystemClock, SystemDisk
from barnabas.protocol.batch import build_batch
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.record import Record
from barnabas.protocol.uuids import Uuid

if TYPE_CHECKING:
    from pathlib import Path


class SlowDisk(SystemDisk):
    """Counts syncs of files and holds each until it is let go."""

    __slots__ = ("error_number", "go", "syncs")

    def __init__(self) -> None:
        self.syncs = 0
        self.go = threading.Event()
        self.error_number = 0

    def fsync(self, fd: int, /) -> None:  # type: ignore[override]
        self.go.wait(10)
        self.syncs += 1
        if self.error_number:
            raise OSError(self.error_number, "the device is gone")


def make_log(folder: Path, name: str = "t-0") -> PartitionLog:
    return PartitionLog.create(
        f"{folder}/{name}", "t", 0, Uuid(bytes(16)), TopicConfig(), disk=SystemDisk(), clock=SystemClock()
    )


def append(log: PartitionLog) -> None:
    log.append_as_leader(memoryview(bytearray(build_batch([Record(b"v", timestamp=SystemClock().now_ms())]))), 0)


def in_thread(function: Any, *arguments: Any) -> asyncio.Future[None]:
    return asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def not_expected(log: PartitionLog, error: OSError) -> None:
    raise AssertionError(f"{log.name} failed: {error}")


def test_all_who_come_while_a_sync_runs_share_the_next_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        flusher = Flusher(disk, in_thread, not_expected)
        log = make_log(tmp_path)
        append(log)
        first = flusher.flush(log)
        await asyncio.sleep(0)
        append(log)
        others = [flusher.flush(log) for _ in range(50)]
        assert len(set(map(id, others))) == 1
        disk.go.set()
        await asyncio.wait_for(asyncio.gather(first, *others), 10)
        assert log.recovery_point == log.log_end_offset == 2
        await flusher.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_failed_sync_is_told_and_never_tried_again(tmp_path: Path, number: int) -> None:
    """The pages that could not be written are dropped, and the file counts as clean: a second sync would succeed."""

    async def scenario() -> None:
        disk = SlowDisk()
        disk.go.set()
        disk.error_number = number
        failures: list[tuple[PartitionLog, int | None]] = []
        flusher = Flusher(disk, in_thread, lambda log, error: failures.append((log, error.errno)))
        log = make_log(tmp_path)
        append(log)
        with pytest.raises(OSError, match="the device is gone"):
            await asyncio.wait_for(flusher.flush(log), 10)
        assert failures == [(log, number)]
        disk.error_number, syncs = 0, disk.syncs
        append(log)
        with pytest.raises(KafkaError, match=r"KAFKA_STORAGE_ERROR: t-0 is offline: .*the device is gone"):
            await asyncio.wait_for(flusher.flush(log), 10)
        assert (log.recovery_point, disk.syncs, len(failures)) == (0, syncs, 1)
        await flusher.close()

    asyncio.run(scenario())


def test_a_sync_for_which_no_file_can_be_opened_is_tried_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        disk.go.set()
        disk.error_number = errno.EMFILE
        flusher = Flusher(disk, in_thread, not_expected)
        log = make_log(tmp_path)
        append(log)
        with pytest.raises(OSError, match="the device is gone"):
            await asyncio.wait_for(flusher.flush(log), 10)
        assert log.recovery_point == 0
        disk.error_number = 0
        await asyncio.wait_for(flusher.flush(log), 10)
        assert log.recovery_point == 1
        await flusher.close()

    asyncio.run(scenario())


def test_a_deleted_topics_log_is_left_alone_even_if_its_name_is_in_use_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        disk.go.set()
        flusher = Flusher(disk, in_thread, not_expected)
        old = make_log(tmp_path)
        for _ in range(100):
            append(old)
        flushed = flusher.flush(old)
        old.rename_away("0" * 32, DELETE_FOLDER)
        new = make_log(tmp_path)
        await asyncio.wait_for(flushed, 10)
        assert disk.syncs == 0
        assert (tmp_path / "t-0" / "00000000000000000000.index").stat().st_size == 0
        new.close()
        await flusher.close()

    asyncio.run(scenario())
