"""The cleaner finds dirty logs, the dirtiest first, and goes on with the others whatever happens to one."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.cleaner import LogCleaner, Throttle
from barnabas.broker.flusher import Flusher
from barnabas.log.flush import Flush
from barnabas.log.folder.checkpoints import FIRST_DIRTY_OFFSETS, TopicPartition, read_offsets
from barnabas.log.partition_log import PartitionLog
from barnabas.ports import SystemDisk, SystemProcesses
from barnabas.testing.clock import ManualClock
from barnabas.testing.processes import InlineProcesses
from tests.unit.broker.api.stand_ins import a_config, a_topic
from tests.unit.broker.test_maintenance import of_topic, until
from tests.unit.log.cleaning.cleanings import contents, put, roll
from tests.unit.replication.hosting import Hosting, in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from barnabas.metadata.image import ConfigResource, TopicImage
    from barnabas.ports import Processes
    from barnabas.replication.hosted import HostedPartition

COMPACTED = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.5"}


class Cleaning:
    """A cleaner over real folders."""

    def __init__(self, root: Path, processes: Processes, **settings: str) -> None:
        self.hosting = Hosting(root, ManualClock(1_700_000_000_000))
        self.hosting.open()
        self.config: Any = a_config(root, **{"log_cleaner_backoff_ms": "5", **settings})
        self.hosting.config = self.config
        self.replaced: list[str] = []
        self._topics: list[TopicImage] = []
        self._configs: dict[ConfigResource, dict[str, str]] = {}
        self.flusher = Flusher(self.hosting.disk, in_thread, self.hosting.store.report_failure)
        self.cleaner = LogCleaner(
            self.hosting.store,
            self.hosting.replicas,
            self.flusher,
            self,
            disk=SystemDisk(),
            processes=processes,
            on_replaced=lambda hosted: self.replaced.append(str(hosted)),
        )

    async def topic(self, name: str, **settings: str) -> HostedPartition:
        self._topics.append(a_topic(name))
        self._configs |= of_topic(name, **{**COMPACTED, **settings})
        await self.hosting.follow(*self._topics, configs=self._configs)
        return self.hosting.replicas.find_by_name(name.encode(), 0)

    def checkpoint(self) -> dict[TopicPartition, int]:
        return read_offsets(self.hosting.disk, f"{self.hosting.data_dirs[0].path}/{FIRST_DIRTY_OFFSETS}")


@asynccontextmanager
async def cleaning(root: Path, processes: Processes | None = None, **settings: str) -> AsyncIterator[Cleaning]:
    processes = processes or InlineProcesses()
    made = Cleaning(root, processes, **settings)
    try:
        async with asyncio.timeout(30):
            yield made
    finally:
        await made.cleaner.stop()
        await processes.close()
        await made.flusher.close()
        made.hosting.stop()


def fill(hosted: HostedPartition, segments: int = 3, keys: int = 2, value: bytes = b"v") -> None:
    """Closed segments in which the same keys come again and again."""
    for _ in range(segments):
        put(hosted.log, *((b"%d" % key, value) for key in range(keys)))
        roll(hosted.log)
    hosted.state.log_end = hosted.state.high_watermark = hosted.log.end_position


def damage(path: str) -> None:
    with open(path, "r+b") as file:
        file.seek(70)
        file.write(b"????")


def test_a_dirty_log_is_cleaned_and_the_checkpoint_says_how_far(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cleaning(tmp_path) as household:
            dirty, other = await household.topic("dirty"), await household.topic("other", cleanup_policy="delete")
            fill(dirty)
            fill(other)
            household.cleaner.start()
            await until(lambda: household.checkpoint() == {TopicPartition("dirty", 0): 6})
            await until(lambda: not dirty.log.is_being_cleaned)
            assert contents(dirty.log) == [(4, b"0", b"v"), (5, b"1", b"v")]
            assert len(contents(other.log)) == 6
            assert dirty.log.first_dirty_offset == 6
            assert household.replaced == ["dirty-0"]

    asyncio.run(scenario())


def test_a_cleaning_does_not_wait_for_what_is_still_to_be_flushed(tmp_path: Path) -> None:
    """The old segments may be large, and be on their way to the device when nobody needs them any more."""

    async def scenario() -> None:
        async with cleaning(tmp_path) as household:
            dirty = await household.topic("dirty")
            fill(dirty)
            is_let_go = threading.Event()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Flush, "run", lambda *_: is_let_go.wait(30))
                flushed = household.flusher.flush(dirty.log)
                household.cleaner.start()
                try:
                    await until(lambda: household.checkpoint() == {TopicPartition("dirty", 0): 6})
                    assert not flushed.done()
                finally:
                    is_let_go.set()
                await flushed

    asyncio.run(scenario())


def test_a_folder_whose_names_cannot_be_synced_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "the device is gone")

    async def scenario() -> None:
        async with cleaning(tmp_path) as household:
            dirty = await household.topic("dirty")
            fill(dirty)
            monkeypatch.setattr(type(household.hosting.disk), "sync_dir", fail)
            household.cleaner.start()
            await until(lambda: household.hosting.store.failed)
            await until(lambda: not dirty.log.is_being_cleaned)
            assert isinstance(dirty.log.failure, OSError)
            assert household.checkpoint() == {}

    asyncio.run(scenario())


def test_the_dirtiest_comes_first_and_no_more_than_allowed_at_a_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with cleaning(tmp_path, InlineProcesses(takes_s=lambda: 0.01)) as household:
            for name, clean_part in (("little", 4), ("much", 0), ("some", 2)):
                hosted = await household.topic(name, min_cleanable_dirty_ratio="0.1")
                fill(hosted, segments=6)
                hosted.log.first_dirty_offset = 2 * clean_part
            untouched = await household.topic("untouched", min_cleanable_dirty_ratio="0.9")
            fill(untouched)
            untouched.log.first_dirty_offset = 2
            household.cleaner.start()
            await until(lambda: len(household.checkpoint()) == 4 and len(household.replaced) == 3)
            await household.cleaner.stop()
            assert household.replaced == ["much-0", "some-0", "little-0"]
            assert len(contents(untouched.log)) == 6

    with caplog.at_level(logging.INFO, "barnabas.cleaner"):
        asyncio.run(scenario())
    assert "much-0 compacted up to offset 12: kept 2 of 12 records" in caplog.text


def test_a_log_that_cannot_be_read_is_named_and_the_others_are_cleaned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with cleaning(tmp_path) as household:
            damaged, whole = await household.topic("damaged"), await household.topic("whole")
            fill(damaged)
            fill(whole)
            path = f"{damaged.log.folder}/{2:020}.log"
            damage(path)
            household.cleaner.start()
            await until(lambda: household.checkpoint().keys() == {TopicPartition("whole", 0)})
            assert list(household.cleaner.uncleanable) == [damaged.log]
            assert [segment.base_offset for segment in damaged.log.segments.all] == [0, 2, 4, 6]
            assert path in caplog.text
            assert caplog.text.count("damaged-0 is not compacted until the next start") == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("where", ["dirt", "begin_cleaning", "swap_in"])
def test_a_fault_of_the_cleaner_itself_marks_one_log_and_the_others_are_cleaned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    works, tries = getattr(PartitionLog, where), 0

    def fail(log: PartitionLog, *arguments: Any) -> Any:
        nonlocal tries
        if log.topic != "odd":
            return works(log, *arguments)
        tries += 1
        raise ZeroDivisionError("nobody has thought of this")

    async def scenario() -> None:
        async with cleaning(tmp_path) as household:
            odd, other = await household.topic("odd"), await household.topic("other")
            fill(odd)
            fill(other)
            monkeypatch.setattr(PartitionLog, where, fail)
            household.cleaner.start()
            await until(lambda: household.checkpoint() == {TopicPartition("other", 0): 6})
            await until(lambda: list(household.cleaner.uncleanable) == [odd.log])
            fill(other)
            await until(lambda: household.checkpoint() == {TopicPartition("other", 0): 12})
            assert len(contents(odd.log)) == 6
            assert not odd.log.is_being_cleaned

    asyncio.run(scenario())
    assert tries == 1
    assert caplog.text.count("odd-0 is not compacted until the next start") == 1
    assert "nobody has thought of this" in caplog.text


def test_a_cleaner_that_cannot_look_for_dirty_logs_looks_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    finds, failures = LogCleaner._find_dirtiest, 2

    async def fail_at_first(cleaner: LogCleaner) -> Any:
        nonlocal failures
        if failures:
            failures -= 1
            raise ZeroDivisionError("nobody has thought of this")
        return await finds(cleaner)

    async def scenario() -> None:
        async with cleaning(tmp_path) as household:
            fill(await household.topic("dirty"))
            monkeypatch.setattr(LogCleaner, "_find_dirtiest", fail_at_first)
            household.cleaner.start()
            await until(lambda: household.checkpoint() == {TopicPartition("dirty", 0): 6})
            assert household.cleaner.uncleanable == {}

    asyncio.run(scenario())
    assert caplog.text.count("could not look for logs to compact, will retry") == 2


def test_a_worker_that_is_killed_costs_a_cleaning_that_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        processes = SystemProcesses()
        async with cleaning(tmp_path, processes, log_cleaner_io_max_bytes_per_second="100000") as household:
            dirty = await household.topic("dirty")
            fill(dirty, segments=4, keys=10, value=b"v" * 10_000)
            household.cleaner.start()
            await until(lambda: processes.pids)
            os.kill(processes.pids[0], signal.SIGKILL)
            await until(lambda: "dirty-0 could not be cleaned, will retry" in caplog.text)
            household.config = a_config(tmp_path, log_cleaner_backoff_ms="5")
            await until(lambda: household.checkpoint() == {TopicPartition("dirty", 0): 40})
            assert [offset for offset, _, _ in contents(dirty.log)] == list(range(30, 40))
            assert not [name for name in os.listdir(dirty.log.folder) if name.endswith(".cleaned")]

    asyncio.run(scenario())


def test_a_full_disk_and_too_little_memory_cost_a_cleaning_that_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(InlineProcesses):
        failures: list[Exception] = [OSError(errno.ENOSPC, "full"), MemoryError()]  # noqa: RUF012

        async def stream(self, *arguments: Any, **named: Any) -> Any:  # type: ignore[override]
            if self.failures:
                raise self.failures.pop()
            async for step in super().stream(*arguments, **named):
                yield step

    async def scenario() -> None:
        async with cleaning(tmp_path, Failing()) as household:  # type: ignore[arg-type]
            fill(await household.topic("dirty"))
            household.cleaner.start()
            await until(lambda: household.checkpoint() == {TopicPartition("dirty", 0): 6})
            assert household.hosting.store.failed == {}

    asyncio.run(scenario())
    assert "MemoryError" in caplog.text
    assert "full" in caplog.text


def test_a_log_that_is_cut_while_it_is_cleaned_is_cleaned_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cleaning(tmp_path, InlineProcesses(takes_s=lambda: 0.02)) as household:
            cut, kept = await household.topic("cut"), await household.topic("kept")
            fill(cut)
            household.cleaner.start()
            await until(lambda: cut.log.is_being_cleaned)
            cut.truncate(5)
            fill(kept)
            await until(lambda: household.checkpoint() == {TopicPartition("cut", 0): 4, TopicPartition("kept", 0): 6})
            assert contents(cut.log) == [(2, b"0", b"v"), (3, b"1", b"v")]
            assert household.cleaner.uncleanable == {}

    asyncio.run(scenario())


def test_a_cleaner_that_is_stopped_leaves_its_work_to_the_next_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        processes = SystemProcesses()
        async with cleaning(tmp_path, processes, log_cleaner_io_max_bytes_per_second="1000") as household:
            dirty = await household.topic("dirty")
            fill(dirty, segments=4, keys=10, value=b"v" * 10_000)
            household.cleaner.start()
            await until(lambda: processes.pids)
            await asyncio.wait_for(household.cleaner.stop(), 5)
            await until(lambda: not processes.pids)
            assert len(contents(dirty.log)) == 40

    asyncio.run(scenario())


@pytest.mark.parametrize("settings", [{"log_cleaner_backoff_ms": "5"}, {"log_cleaner_threads": "2"}])
def test_a_cleaner_that_rests_hears_of_new_settings(tmp_path: Path, settings: dict[str, str]) -> None:
    async def scenario() -> None:
        resting = {"log_cleaner_backoff_ms": "60000"}
        async with cleaning(tmp_path, None, **resting) as household:
            dirty = await household.topic("dirty")
            household.cleaner.start()
            await asyncio.sleep(0.05)
            fill(dirty)
            household.cleaner.reconfigure(household.config)
            await asyncio.sleep(0.05)
            assert household.replaced == [], "nothing has changed, and it rests"
            household.config = a_config(tmp_path, **{**resting, **settings})
            household.cleaner.reconfigure(household.config)
            await until(lambda: household.checkpoint() == {TopicPartition("dirty", 0): 6})

    asyncio.run(scenario())


def test_a_cleaner_may_be_switched_off(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cleaning(tmp_path, None, log_cleaner_enable="false") as household:
            dirty = await household.topic("dirty")
            fill(dirty)
            household.cleaner.start()
            await asyncio.sleep(0.1)
            assert len(contents(dirty.log)) == 6

    asyncio.run(scenario())


def test_the_high_watermark_at_the_end_of_a_cleaned_segment_is_found_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cleaning(tmp_path) as household:
            dirty = await household.topic("dirty")
            put(dirty.log, (b"a", b"x" * 1_000), (b"a", b"1"))
            dirty.state.log_end = dirty.state.high_watermark = dirty.log.end_position
            roll(dirty.log)
            household.cleaner.start()
            await until(lambda: household.checkpoint() == {TopicPartition("dirty", 0): 2})
            assert dirty.high_watermark_position() == dirty.log.end_position
            found = dirty.log.read(0, 1 << 20, dirty.high_watermark_position(), whole_first_batch=True)
            assert found is not None
            assert found.length == dirty.log.segments.all[0].size

    asyncio.run(scenario())


def test_all_cleanings_together_keep_to_the_limit() -> None:
    async def scenario() -> None:
        throttle = Throttle()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await asyncio.gather(*(throttle.pause(50_000, 1_000_000.0) for _ in range(4)))
        assert 0.19 < loop.time() - begun < 2.0
        begun = loop.time()
        await throttle.pause(1 << 40, 1.7976931348623157e308)
        assert loop.time() - begun < 0.1

    asyncio.run(scenario())
