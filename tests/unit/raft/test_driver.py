"""The driver between the rules and the disk: what is synced is committed, once, in order."""

from __future__ import annotations

import asyncio
import errno
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.metadata.versions import VersionedRecord
from barnabas.ports import SystemClock, SystemThreads
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.uuids import Uuid
from barnabas.raft.consensus.core import RaftCore
from barnabas.raft.consensus.messages import HardState
from barnabas.raft.consensus.replica_log import ReplicaLog
from barnabas.raft.consensus.voter_sets import VoterHistory, VoterNode, VoterSet
from barnabas.raft.driver import RaftDriver
from barnabas.raft.folder.metadata_log import MetadataLog, MetadataLogLimits, read_folder
from barnabas.raft.folder.quorum_state import read_quorum_state
from barnabas.testing.clock import ManualClock
from barnabas.testing.disk import SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from barnabas.raft.folder.metadata_batches import DecodedBatch
    from barnabas.raft.folder.snapshots import Snapshot

FOLDER = "/metadata"
VOTER = VoterNode(1, Uuid(b"d" * 16), ())


class Listener:
    def __init__(self) -> None:
        self.batches: list[DecodedBatch] = []
        self.epochs: list[int] = []
        self.resigned = 0
        self.errors: list[Exception] = []
        self.led = asyncio.Event()

    async def on_commit(self, batches: Sequence[DecodedBatch]) -> None:
        self.batches += batches

    def on_snapshot(self, snapshot: Snapshot) -> None:
        raise AssertionError("nobody is behind a sole voter")

    def on_leader(self, epoch: int) -> None:
        self.epochs.append(epoch)
        self.led.set()

    def on_resign(self) -> None:
        self.resigned += 1
        self.led.clear()

    def on_failure(self, error: Exception) -> None:
        self.errors.append(error)

    @property
    def names(self) -> list[str]:
        return [record.name for batch in self.batches for record in batch.records if isinstance(record, m.TopicRecord)]


@asynccontextmanager
async def driving(disk: SimulatedDisk, linger_ms: int = 0) -> AsyncIterator[tuple[RaftDriver, Listener]]:
    content = read_folder(disk, FOLDER)
    clock = SystemClock()
    log = MetadataLog.open(FOLDER, content, MetadataLogLimits(), disk=disk, clock=clock)
    history = VoterHistory(1, VoterSet([VOTER]), 0)
    replica_log = ReplicaLog(log.history, history, durable_end=log.durable_end, high_watermark=content.end_offset)
    core = RaftCore(VOTER.key, read_quorum_state(disk, FOLDER), replica_log)
    listener = Listener()
    threads = SystemThreads().pool("metadata disk", 1)
    driver = RaftDriver(core, log, listener, disk=disk, clock=clock, threads=threads, linger_ms=linger_ms)
    driver.start()
    await listener.led.wait()
    try:
        yield driver, listener
    finally:
        await driver.close()
        threads.shutdown()


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(ManualClock())
    disk.make_folder(FOLDER)
    return disk


def append(driver: RaftDriver, name: str) -> asyncio.Future[int]:
    return driver.append(driver.prepare([VersionedRecord(m.TopicRecord(name=name), 0)]))


def test_a_leader_commits_what_it_appends_in_order_and_says_where(disk: SimulatedDisk) -> None:
    async def scenario() -> None:
        async with driving(disk) as (driver, listener):
            appended = [append(driver, f"t{number}") for number in range(10)]
            assert [await one for one in appended] == list(range(1, 11))
            assert listener.names == [f"t{number}" for number in range(10)]
            assert listener.epochs == [1]

    asyncio.run(scenario())
    assert read_quorum_state(disk, FOLDER) == HardState(1, leader_id=1)


def test_nothing_counts_as_committed_before_it_is_synced(disk: SimulatedDisk) -> None:
    async def scenario() -> None:
        async with driving(disk) as (driver, listener):
            one = append(driver, "t")
            assert not one.done()
            assert listener.names == []
            await driver.settled()
            assert one.done()

    asyncio.run(scenario())


def test_a_leader_that_lingers_syncs_once_what_is_appended_meanwhile(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[int] = []
    plain = MetadataLog.prepare_flush

    def counted(log: MetadataLog) -> Any:
        syncs.append(log.end.offset)
        return plain(log)

    async def scenario() -> None:
        async with driving(disk, linger_ms=200) as (driver, listener):
            monkeypatch.setattr(MetadataLog, "prepare_flush", counted)
            began = time.monotonic()
            appended = []
            for number in range(5):
                appended.append(append(driver, f"t{number}"))
                await asyncio.sleep(0.01)
            assert [await one for one in appended] == list(range(1, 6))
            assert time.monotonic() - began >= 0.2
            assert len(syncs) == 1
            assert listener.names == [f"t{number}" for number in range(5)]

    asyncio.run(scenario())


def test_closing_commits_what_was_appended(disk: SimulatedDisk) -> None:
    async def scenario() -> None:
        async with driving(disk) as (driver, listener):
            one = append(driver, "t")
        assert one.result() == 1
        assert listener.names == ["t"]

    asyncio.run(scenario())


def test_a_write_that_fails_costs_the_leadership_and_what_was_written_is_committed_by_the_next(
    disk: SimulatedDisk,
) -> None:
    async def scenario() -> None:
        async with driving(disk) as (driver, listener):
            written = append(driver, "written")
            disk.fail("pwrite", errno.ENOSPC)
            with pytest.raises(KafkaError) as refused:
                append(driver, "lost")
            assert refused.value.error is Error.NOT_CONTROLLER
            assert listener.resigned == 1
            with pytest.raises(KafkaError):
                await written
            with pytest.raises(KafkaError):
                append(driver, "too late")
            disk.heal()
            await asyncio.wait_for(listener.led.wait(), 20)
            await append(driver, "again")
            assert listener.names == ["written", "again"]
            offsets = [batch.base_offset for batch in listener.batches]
            assert offsets == [0, *(batch.last_offset + 1 for batch in listener.batches[:-1])]
            assert listener.epochs[1] > listener.epochs[0]

    asyncio.run(scenario())


@pytest.mark.parametrize(("operation", "number"), [("open", errno.EMFILE), ("pwrite", errno.ENOSPC)])
def test_what_keeps_a_sync_from_beginning_costs_the_leadership_only(
    disk: SimulatedDisk, operation: str, number: int
) -> None:
    async def scenario() -> None:
        async with driving(disk) as (driver, listener):
            large = [VersionedRecord(m.ConfigRecord(name="k", value="x" * 10_000), 0)]
            for _ in range(3):
                await driver.append(driver.prepare(large))
            # The next sync has index entries to write and a file to open.
            committed = driver.append(driver.prepare(large))
            disk.fail(operation, number)
            with pytest.raises(KafkaError):
                await committed
            disk.heal()
            await asyncio.wait_for(listener.led.wait(), 20)
            await append(driver, "after")
            assert listener.names == ["after"]
            assert listener.errors == []
            assert sum(len(batch.records) for batch in listener.batches if not batch.is_control) == 5

    asyncio.run(scenario())


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_a_device_that_takes_no_writes_stops_the_driver_and_the_folder_is_named(
    disk: SimulatedDisk, number: int
) -> None:
    async def scenario() -> None:
        async with driving(disk) as (driver, listener):
            disk.fail("pwrite", number)
            with pytest.raises(KafkaError) as refused:
                append(driver, "t")
            assert refused.value.error is Error.NOT_CONTROLLER
            (error,) = listener.errors
            assert isinstance(error, OSError)
            assert (error.errno, error.filename) == (number, FOLDER)
            disk.heal()
            await asyncio.sleep(0.05)
            assert not driver.is_leader, "it does not try again"

    asyncio.run(scenario())


def test_a_sync_that_fails_stops_the_driver(disk: SimulatedDisk) -> None:
    async def scenario() -> None:
        async with driving(disk) as (driver, listener):
            disk.fail("fsync", errno.EIO)
            with pytest.raises(KafkaError):
                await append(driver, "t")
            assert [error.errno for error in listener.errors if isinstance(error, OSError)] == [errno.EIO]
            assert not driver.is_leader
            disk.heal()

    asyncio.run(scenario())


def test_a_batch_that_is_too_large_is_refused_and_leaves_no_trace(disk: SimulatedDisk) -> None:
    async def scenario() -> None:
        async with driving(disk) as (driver, _):
            end = driver.next_offset
            with pytest.raises(KafkaError, match="Split the request") as refused:
                driver.prepare([VersionedRecord(m.ConfigRecord(name="k", value="x" * 30_000), 0)] * 300)
            assert refused.value.error is Error.RECORD_LIST_TOO_LARGE
            assert driver.next_offset == end
            assert await append(driver, "t") == end

    asyncio.run(scenario())


def test_who_resigns_leads_again_after_the_election_timeout(disk: SimulatedDisk) -> None:
    async def scenario() -> None:
        async with driving(disk) as (driver, listener):
            driver.resign()
            assert not driver.is_leader
            await asyncio.wait_for(listener.led.wait(), 20)
            assert listener.epochs == [1, 2]

    asyncio.run(scenario())


def test_an_epoch_is_led_only_after_it_is_durable(disk: SimulatedDisk) -> None:
    disk.sync_dir("/")

    async def scenario() -> int:
        async with driving(disk) as (driver, _):
            return driver.epoch

    for epoch in (1, 2, 3):
        assert asyncio.run(scenario()) == epoch
        disk.crash()
        assert read_quorum_state(disk, FOLDER) == HardState(epoch, leader_id=1)
