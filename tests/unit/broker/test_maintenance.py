"""Chores come back at their intervals, do what they are for, and go on with the others when one partition fails."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.broker import maintenance
from barnabas.broker.flusher import Flusher
from barnabas.broker.maintenance import VISITED_PER_TURN, Maintenance
from barnabas.log.folder.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS, TopicPartition
from barnabas.metadata.image import ConfigResource, ResourceType
from barnabas.protocol.errors import Error, KafkaError
from barnabas.testing.clock import ManualClock
from tests.unit.broker.api.stand_ins import a_config, a_topic
from tests.unit.log.logs import batch, idempotent
from tests.unit.replication.hosting import CLUSTER_DEFAULT, FaultyDisk, Hosting, in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from barnabas.replication.hosted import HostedPartition

SOON_MS = 5
SEGMENT_BYTES = "1048576"
"""The smallest that a topic may ask for."""
FILLS_A_SEGMENT = b"x" * 1_000_000
RETENTION_CHANGED = {CLUSTER_DEFAULT: {"log.retention.bytes": SEGMENT_BYTES}}


class Household:
    """What the chores see of their broker."""

    def __init__(self, hosting: Hosting, **settings: str) -> None:
        hosting.config = a_config(hosting.data_dirs[0].path, **settings)
        self.hosting = hosting
        self.flusher = Flusher(hosting.disk, in_thread, hosting.store.report_failure)

    @property
    def config(self) -> Any:
        return self.hosting.config

    def chores(self) -> Maintenance:
        return Maintenance(
            self.hosting.store,
            self.hosting.replicas,
            self.flusher,
            self,
            clock=self.hosting.clock,
            disk=self.hosting.disk,
            run_in_thread=in_thread,
        )


@asynccontextmanager
async def kept(hosting: Hosting, **settings: str) -> AsyncIterator[Maintenance]:
    """Chores that run for as long as the block lasts."""
    household = Household(hosting, **settings)
    chores = household.chores()
    chores.start()
    try:
        yield chores
    finally:
        await asyncio.wait_for(chores.stop(), 10)
        await household.flusher.close()
        hosting.stop()


@pytest.fixture
def frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chores without a setting of their own come often."""
    for interval in ("IDLE_FILES", "DELETION", "OFFLINE", "FLUSH_LOOK"):
        monkeypatch.setattr(maintenance, f"{interval}_INTERVAL_MS", SOON_MS)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (the condition has no event)
            await asyncio.sleep(0.002)


def of_topic(name: str, **settings: str) -> dict[ConfigResource, dict[str, str]]:
    values = {setting.replace("_", "."): value for setting, value in settings.items()}
    return {ConfigResource(ResourceType.TOPIC, name): values}


def fill_segments(hosted: HostedPartition, count: int) -> None:
    for _ in range(count):
        hosted.append(batch(FILLS_A_SEGMENT), acks=1)


def test_checkpoints_are_written_at_their_intervals(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        hosting.open()
        name = TopicPartition("t", 0)
        async with kept(
            hosting,
            log_flush_offset_checkpoint_interval_ms="5",
            log_flush_start_offset_checkpoint_interval_ms="5",
            replica_high_watermark_checkpoint_interval_ms="5",
        ):
            await hosting.follow(a_topic("t"))
            hosted = hosting.replicas.find_by_name(b"t", 0)
            hosted.append(batch(b"a", b"b", b"c"), acks=1)
            await until(lambda: hosting.offsets_in(HIGH_WATERMARKS) == {name: 3})
            assert hosting.offsets_in(RECOVERY_POINTS).get(name, 0) == 0, "nothing was synced yet"
            hosted.log.flush()
            hosted.log.advance_log_start(2)
            await until(lambda: hosting.offsets_in(RECOVERY_POINTS) == {name: 3})
            await until(lambda: hosting.offsets_in(LOG_START_OFFSETS) == {name: 2})

    asyncio.run(scenario())


def test_retention_lets_old_segments_go_and_their_files_follow_after_the_delay(tmp_path: Path, frequent: None) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        hosting = Hosting(tmp_path, clock)
        async with kept(hosting, log_retention_check_interval_ms="5"):
            settings = of_topic(
                "t", segment_bytes=SEGMENT_BYTES, retention_bytes=SEGMENT_BYTES, file_delete_delay_ms="60000"
            )
            await hosting.follow(a_topic("t"), configs=settings)
            hosted = hosting.replicas.find_by_name(b"t", 0)
            fill_segments(hosted, 4)
            await until(lambda: hosted.log.log_start_offset > 0)
            folder = tmp_path / "data-0" / "t-0"
            assert list(folder.glob("*.log.deleted"))
            clock.advance_ms(60_000)
            await until(lambda: not list(folder.glob("*.deleted")))
            assert len(list(folder.glob("*.log"))) == len(hosted.log.segments.all)

    asyncio.run(scenario())


def test_retention_of_one_partition_that_fails_harms_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        small = of_topic("bad", segment_bytes=SEGMENT_BYTES) | of_topic("good", segment_bytes=SEGMENT_BYTES)
        await hosting.follow(a_topic("bad"), configs=small)
        await hosting.follow(a_topic("bad"), a_topic("good"), configs=small)
        bad, good = hosting.replicas
        assert (bad.topic, good.topic) == ("bad", "good"), "the one that fails is visited first"
        for hosted in (bad, good):
            fill_segments(hosted, 4)
        hosting.disk.fail("rename", "/bad-0/")
        async with kept(hosting, log_retention_check_interval_ms="5"):
            await hosting.follow(a_topic("bad"), a_topic("good"), configs=small | RETENTION_CHANGED)
            await until(lambda: good.log.log_start_offset > 0)
            await asyncio.sleep(4 * SOON_MS / 1000)
            (line,) = caplog.messages
            assert line.startswith("retention failed for bad-0, will retry: "), "once, however often it fails"
            hosting.disk.heal()
            await until(lambda: len(bad.log.segments.all) == len(good.log.segments.all))

    asyncio.run(scenario())


def test_retention_that_cannot_tell_how_old_a_file_is_harms_no_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        small = of_topic("bad", segment_bytes=SEGMENT_BYTES) | of_topic("good", segment_bytes=SEGMENT_BYTES)
        await hosting.follow(a_topic("bad"), configs=small)
        await hosting.follow(a_topic("bad"), a_topic("good"), configs=small)
        bad, good = hosting.replicas
        assert (bad.topic, good.topic) == ("bad", "good"), "the one that fails is visited first"
        bad.append(batch(b"without a timestamp", timestamp=-1), acks=1)
        fill_segments(good, 4)
        hosting.disk.fail("modified_ms", "/bad-0/")
        async with kept(hosting, log_retention_check_interval_ms="5"):
            await hosting.follow(a_topic("bad"), a_topic("good"), configs=small | RETENTION_CHANGED)
            await until(lambda: good.log.log_start_offset > 0)

    asyncio.run(scenario())


def test_files_that_cannot_be_removed_are_tried_again_keep_no_others_and_are_reported_once(
    tmp_path: Path, frequent: None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        settings: dict[ConfigResource, dict[str, str]] = {}
        for name in ("bad", "good"):
            settings |= of_topic(
                name, segment_bytes=SEGMENT_BYTES, file_delete_delay_ms="0", retention_bytes=SEGMENT_BYTES
            )
        await hosting.follow(a_topic("bad"), configs=settings)
        await hosting.follow(a_topic("bad"), a_topic("good"), configs=settings)
        for hosted in hosting.replicas:
            fill_segments(hosted, 4)
            hosted.log.apply_retention(hosted.log.log_end_offset)
        hosting.disk.fail("unlink", "/bad-0/00000000000000000000.log.deleted")
        folder = tmp_path / "data-0"
        async with kept(hosting):
            await until(lambda: not list((folder / "good-0").glob("*.deleted")))
            await until(lambda: len(list((folder / "bad-0").glob("*.deleted"))) == 1)
            await asyncio.sleep(4 * SOON_MS / 1000)
            (line,) = caplog.messages
            assert line.startswith("cannot remove old segments of bad-0, will retry: ")
            hosting.disk.heal()
            await until(lambda: not list((folder / "bad-0").glob("*.deleted")))

    asyncio.run(scenario())


def test_all_partitions_are_visited_though_they_are_many(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        hosting.open()
        count = 2 * VISITED_PER_TURN + 1
        async with kept(hosting, producer_id_expiration_check_interval_ms="5", producer_id_expiration_ms="1000"):
            await hosting.follow(a_topic("t", partitions=count))
            for hosted in hosting.replicas:
                hosted.append(idempotent(7, 0, 0), acks=1)
            hosting.clock.advance_ms(1001)
            await until(lambda: not any(hosted.log.producers.producers for hosted in hosting.replicas))

    asyncio.run(scenario())


def test_a_producer_is_forgotten_when_its_time_is_up_and_not_before(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        async with kept(hosting, producer_id_expiration_check_interval_ms="5", producer_id_expiration_ms="1000"):
            await hosting.follow(a_topic("t"))
            log = hosting.replicas.find_by_name(b"t", 0).log
            log.append_as_leader(idempotent(7, 0, 0), 3)
            hosting.clock.advance_ms(600)
            log.append_as_leader(idempotent(8, 0, 0, timestamp=hosting.clock.now_ms()), 3)
            hosting.clock.advance_ms(600)
            await until(lambda: 7 not in log.producers.producers)
            assert list(log.producers.producers) == [8]

    asyncio.run(scenario())


def test_a_topic_with_flush_ms_is_synced_when_that_has_passed_and_another_is_not(
    tmp_path: Path, frequent: None
) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        async with kept(hosting):
            await hosting.follow(a_topic("synced"), a_topic("plain"), configs=of_topic("synced", flush_ms="500"))
            synced, plain = (hosting.replicas.find_by_name(name, 0) for name in (b"synced", b"plain"))
            for hosted in (synced, plain):
                hosted.append(batch(b"a"), acks=1)
            hosting.clock.advance_ms(499)
            await asyncio.sleep(4 * SOON_MS / 1000)
            assert synced.log.recovery_point == 0
            hosting.clock.advance_ms(1)
            await until(lambda: synced.log.recovery_point == 1)
            assert plain.log.recovery_point == 0

    asyncio.run(scenario())


def test_a_log_that_nobody_uses_gives_its_files_back_and_takes_them_again(tmp_path: Path, frequent: None) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        async with kept(hosting):
            await hosting.follow(a_topic("t"))
            hosted = hosting.replicas.find_by_name(b"t", 0)
            hosted.append(batch(b"a"), acks=1)
            assert len(hosting.files) == 1
            await until(lambda: len(hosting.files) == 0)
            hosted.append(batch(b"b"), acks=1)
            assert (hosted.log.log_end_offset, len(hosting.files)) == (2, 1)

    asyncio.run(scenario())


def test_an_offline_partition_is_tried_until_it_is_back(tmp_path: Path, frequent: None) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        hosting.disk.fail("make_folder", "/t-0")
        async with kept(hosting):
            await hosting.follow(a_topic("t"))
            with pytest.raises(KafkaError) as offline:
                hosting.replicas.find_by_name(b"t", 0)
            assert offline.value.error is Error.KAFKA_STORAGE_ERROR
            hosting.disk.heal()
            await until(lambda: len(hosting.replicas) == 1)
            assert hosting.replicas.find_by_name(b"t", 0).append(batch(b"a"), acks=1).base_offset == 0

    asyncio.run(scenario())


def test_the_folder_of_a_deleted_topic_goes_when_its_delay_is_over(tmp_path: Path, frequent: None) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        async with kept(hosting):
            await hosting.follow(a_topic("t", partitions=2), configs=of_topic("t", file_delete_delay_ms="60000"))
            await hosting.follow()
            hosting.clock.advance_ms(59_999)
            await asyncio.sleep(4 * SOON_MS / 1000)
            assert len(hosting.folders()) == 2
            hosting.clock.advance_ms(1)
            await until(lambda: hosting.folders() == [])

    asyncio.run(scenario())


def test_a_chore_that_fails_says_so_and_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        async with kept(hosting, replica_high_watermark_checkpoint_interval_ms="5"):
            await hosting.follow(a_topic("t"))
            hosted = hosting.replicas.find_by_name(b"t", 0)
            state, hosted.state = hosted.state, cast("Any", None)
            await until(lambda: "high watermarks failed, will retry in 5 ms" in caplog.messages)
            hosted.state = state
            await until(lambda: TopicPartition("t", 0) in hosting.offsets_in(HIGH_WATERMARKS))

    asyncio.run(scenario())


class HeldDisk(FaultyDisk):
    """Holds whoever replaces a checkpoint until it is let go."""

    __slots__ = ("go", "is_held")

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.is_held = threading.Event()

    def rename(self, old: str, new: str) -> None:
        if new.endswith(RECOVERY_POINTS):
            self.is_held.set()
            assert self.go.wait(10)
        super().rename(old, new)


def test_a_stop_waits_for_the_chore_that_is_under_way_and_for_no_interval(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = HeldDisk()
        hosting = Hosting(tmp_path, ManualClock(), disk=disk)
        hosting.open()
        await hosting.follow(a_topic("t"))
        chores = Household(hosting, log_flush_offset_checkpoint_interval_ms="5").chores()
        chores.start()
        await until(disk.is_held.is_set)
        stopping = asyncio.ensure_future(chores.stop())
        done, _ = await asyncio.wait([stopping], timeout=0.05)
        assert not done
        disk.go.set()
        await asyncio.wait_for(stopping, 5)
        assert hosting.offsets_in(RECOVERY_POINTS) == {TopicPartition("t", 0): 0}
        hosting.stop()

    asyncio.run(scenario())
