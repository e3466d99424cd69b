"""The node's logs between two runs: found and claimed, made and discarded, and marked as clean only when they are."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING, ClassVar

import pytest

from barnabas.config.topic_config import TopicConfig
from barnabas.log.folder.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    TopicPartition,
)
from barnabas.metadata.image import UNASSIGNED_DIRECTORY
from barnabas.protocol.uuids import ZERO_UUID, Uuid
from barnabas.replication.log_store import OfflineLogError
from barnabas.testing.clock import ManualClock
from tests.unit.broker.api.stand_ins import FOLDER, topic_id
from tests.unit.log.logs import batch, read_records

from .hosting import FaultyDisk, Hosting, folder_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from barnabas.log.partition_log import PartitionLog

ANOTHER_TOPIC = Uuid(b"another topic id")


def make(hosting: Hosting, name: str, folder: Uuid = FOLDER, config: TopicConfig | None = None) -> PartitionLog:
    """A new log in the store's care, with a record in it."""
    topic, _, partition = name.rpartition("-")
    (data_dir,) = hosting.store.choose([folder])
    log = hosting.store.create(data_dir, topic, topic_id(topic), int(partition), config or TopicConfig())
    hosting.store.adopt(log, data_dir)
    log.append_as_leader(batch(b"x"), 0)
    return log


def is_marked_clean(hosting: Hosting, number: int = 0) -> bool:
    return os.path.exists(f"{hosting.data_dirs[number].path}/{CLEAN_SHUTDOWN}")


def stop(hosting: Hosting, *logs: PartitionLog) -> None:
    """A clean end in broker epoch 7, at which everything in these logs was committed."""
    hosting.store.close({log: log.log_end_offset for log in logs}, 7)
    hosting.crash()


def test_a_new_folder_knows_of_no_earlier_broker_epoch(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        assert hosting.open() == -1
        assert hosting.store.claim("t", topic_id("t"), 0) is None
        stop(hosting)

    asyncio.run(scenario())


def test_a_clean_end_tells_the_next_start_its_epoch_and_each_log_is_handed_out_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        before = Hosting(tmp_path, ManualClock())
        before.open()
        make(before, "t-0")
        stop(before)
        assert is_marked_clean(before)

        after = Hosting(tmp_path, ManualClock())
        assert after.open() == 7
        assert not is_marked_clean(after), "should this run end badly, its successor must not be told otherwise"
        log = after.store.claim("t", topic_id("t"), 0)
        assert log is not None
        assert [record.value for record in read_records(log)] == [b"x"]
        assert after.store.claim("t", topic_id("t"), 0) is None
        stop(after, log)

    asyncio.run(scenario())


def test_after_a_crash_there_is_no_epoch_and_every_record_is_still_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        before = Hosting(tmp_path, ManualClock())
        before.open()
        make(before, "t-0")
        before.crash()

        after = Hosting(tmp_path, ManualClock())
        assert after.open() == -1
        log = after.store.claim("t", topic_id("t"), 0)
        assert log is not None
        assert [record.value for record in read_records(log)] == [b"x"]
        stop(after, log)

    asyncio.run(scenario())


def test_one_folder_that_was_not_closed_cleanly_makes_the_whole_end_unclean(tmp_path: Path) -> None:
    async def scenario() -> None:
        before = Hosting(tmp_path, ManualClock(), folders=2)
        before.open()
        stop(before)
        os.unlink(f"{before.data_dirs[1].path}/{CLEAN_SHUTDOWN}")
        after = Hosting(tmp_path, ManualClock(), folders=2)
        assert after.open() == -1
        stop(after)

    asyncio.run(scenario())


def test_the_log_of_an_older_topic_of_the_same_name_makes_room_and_is_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        before = Hosting(tmp_path, ManualClock())
        before.open()
        make(before, "t-0")
        stop(before)

        after = Hosting(tmp_path, ManualClock())
        after.open()
        assert after.store.claim("t", ANOTHER_TOPIC, 0) is None
        (kept,) = after.folders()
        assert (kept.startswith("t-0."), kept.endswith("-stray")) == (True, True)
        make(after, "t-0")
        assert after.folders() == ["t-0", kept]
        stop(after)

    asyncio.run(scenario())


def test_logs_of_no_topic_of_the_cluster_are_kept_where_no_start_looks(tmp_path: Path) -> None:
    async def scenario() -> None:
        before = Hosting(tmp_path, ManualClock())
        before.open()
        make(before, "known-0")
        make(before, "stray-0")
        stop(before)

        after = Hosting(tmp_path, ManualClock())
        after.open()
        known = after.store.claim("known", topic_id("known"), 0)
        assert known is not None
        after.store.set_unclaimed_aside()
        assert [name.split(".")[0] for name in after.folders()] == ["known-0", "stray-0"]
        assert after.folders()[1].endswith("-stray")
        await after.store.checkpoint_recovery_points()
        assert list(after.offsets_in(RECOVERY_POINTS)) == [TopicPartition("known", 0)]
        stop(after, known)

        last = Hosting(tmp_path, ManualClock())
        last.open()
        assert last.store.claim("stray", topic_id("stray"), 0) is None
        stop(last)

    asyncio.run(scenario())


def test_a_stray_that_cannot_be_renamed_keeps_no_node_from_starting_and_is_renamed_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        before = Hosting(tmp_path, clock)
        before.open()
        make(before, "a-0")
        make(before, "b-0")
        stop(before)

        after = Hosting(tmp_path, clock)
        after.open()
        after.disk.fail("rename", "/a-0")
        after.store.set_unclaimed_aside()
        assert [name.endswith("-stray") for name in after.folders()] == [False, True]
        after.disk.heal()
        await after.store.remove_discarded(clock.now_ms())
        assert [name.endswith("-stray") for name in after.folders()] == [True, True]
        stop(after)

    asyncio.run(scenario())


def test_a_new_log_goes_where_the_metadata_says_or_where_the_fewest_are(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock(), folders=3)
        hosting.open()
        assert hosting.store.choose([folder_id(2)]) == [hosting.data_dirs[2]]
        for number, name in enumerate(("a-0", "a-1", "b-0", "b-1")):
            make(hosting, name, folder=(folder_id(0), folder_id(2))[number % 2])
        assert hosting.store.choose([ZERO_UUID]) == [hosting.data_dirs[1]]
        for name in ("c-0", "c-1", "c-2"):
            make(hosting, name, folder=ZERO_UUID)
        assert [len(hosting.folders(number)) for number in range(3)] == [3, 2, 2]
        stop(hosting)

    asyncio.run(scenario())


def test_checkpoints_are_written_to_the_folder_of_each_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock(), folders=2)
        hosting.open()
        first, second = make(hosting, "a-0"), make(hosting, "b-1", folder=folder_id(1))
        first.append_as_leader(batch(b"y", b"z"), 0)
        first.flush()
        first.advance_log_start(1)
        await hosting.store.checkpoint_recovery_points()
        await hosting.store.checkpoint_log_starts()
        await hosting.store.checkpoint_high_watermarks({first: 2, second: 1})
        a, b = TopicPartition("a", 0), TopicPartition("b", 1)
        assert [hosting.offsets_in(RECOVERY_POINTS, n) for n in (0, 1)] == [{a: 3}, {b: 0}]
        assert [hosting.offsets_in(LOG_START_OFFSETS, n) for n in (0, 1)] == [{a: 1}, {}]
        assert [hosting.offsets_in(HIGH_WATERMARKS, n) for n in (0, 1)] == [{a: 2}, {b: 1}]
        stop(hosting, first, second)

    asyncio.run(scenario())


@pytest.mark.parametrize(("checkpointed", "taken"), [(0, 2), (2, 2), (4, 4), (99, 5)])
def test_a_checkpointed_high_watermark_is_taken_within_the_log(tmp_path: Path, checkpointed: int, taken: int) -> None:
    async def scenario() -> None:
        before = Hosting(tmp_path, ManualClock())
        before.open()
        log = make(before, "t-0")
        for _ in range(4):
            log.append_as_leader(batch(b"x"), 0)
        log.advance_log_start(2)
        before.store.close({log: checkpointed}, 7)
        before.crash()

        after = Hosting(tmp_path, ManualClock())
        after.open()
        again = after.store.claim("t", topic_id("t"), 0)
        assert again is not None
        assert after.store.high_watermark_of(again) == taken
        stop(after, again)

    asyncio.run(scenario())


def test_a_log_without_a_checkpointed_high_watermark_has_that_of_its_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        hosting.open()
        log = make(hosting, "t-0")
        assert hosting.store.high_watermark_of(log) == 0
        stop(hosting, log)

    asyncio.run(scenario())


def test_a_log_that_cannot_be_opened_stays_as_it_is_and_its_folder_is_not_called_clean(tmp_path: Path) -> None:
    async def scenario() -> None:
        before = Hosting(tmp_path, ManualClock())
        before.open()
        make(before, "bad-0")
        make(before, "good-0")
        stop(before)
        metadata = tmp_path / "data-0" / "bad-0" / "partition.metadata"
        whole = metadata.read_text()
        metadata.write_text("nonsense")

        damaged = Hosting(tmp_path, ManualClock())
        assert damaged.open() == 7
        good = damaged.store.claim("good", topic_id("good"), 0)
        assert good is not None
        assert damaged.store.claim("bad", topic_id("bad"), 0) is None
        with pytest.raises(OfflineLogError, match=r"the log of bad-0 could not be opened: .*partition\.metadata"):
            damaged.store.require_online("bad", topic_id("bad"), 0, FOLDER)
        damaged.store.set_unclaimed_aside()
        assert damaged.folders() == ["bad-0", "good-0"]
        stop(damaged, good)
        assert not is_marked_clean(damaged)

        metadata.write_text(whole)
        repaired = Hosting(tmp_path, ManualClock())
        assert repaired.open() == -1
        bad = repaired.store.claim("bad", topic_id("bad"), 0)
        assert bad is not None
        assert [record.value for record in read_records(bad)] == [b"x"]
        stop(repaired, bad)

    asyncio.run(scenario())


def test_a_log_that_cannot_be_opened_costs_the_mark_of_its_own_folder_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        before = Hosting(tmp_path, ManualClock(), folders=2)
        before.open()
        logs = make(before, "bad-0"), make(before, "good-0", folder=folder_id(1))
        stop(before, *logs)
        (tmp_path / "data-0" / "bad-0" / "partition.metadata").write_text("nonsense")
        damaged = Hosting(tmp_path, ManualClock(), folders=2)
        damaged.open()
        stop(damaged)
        assert [is_marked_clean(damaged, number) for number in (0, 1)] == [False, True]

    asyncio.run(scenario())


def test_a_log_that_cannot_be_opened_keeps_its_lines_in_the_checkpoints(tmp_path: Path) -> None:
    async def scenario() -> None:
        before = Hosting(tmp_path, ManualClock())
        before.open()
        log = make(before, "bad-0")
        for _ in range(4):
            log.append_as_leader(batch(b"x"), 0)
        log.advance_log_start(3)
        stop(before, log)
        metadata = tmp_path / "data-0" / "bad-0" / "partition.metadata"
        whole = metadata.read_text()
        metadata.write_text("nonsense")

        damaged = Hosting(tmp_path, ManualClock())
        damaged.open()
        await damaged.store.checkpoint_log_starts()
        await damaged.store.checkpoint_recovery_points()
        await damaged.store.checkpoint_high_watermarks({})
        stop(damaged)
        lines = [damaged.offsets_in(name) for name in (LOG_START_OFFSETS, RECOVERY_POINTS, HIGH_WATERMARKS)]
        assert lines == [{TopicPartition("bad", 0): offset} for offset in (3, 5, 5)]

        metadata.write_text(whole)
        repaired = Hosting(tmp_path, ManualClock())
        repaired.open()
        again = repaired.store.claim("bad", topic_id("bad"), 0)
        assert again is not None
        assert again.log_start_offset == 3, "deleted records stay deleted"
        stop(repaired, again)

    asyncio.run(scenario())


def test_a_log_that_cannot_be_closed_leaves_the_mark_out_and_the_others_are_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock(), folders=2)
        hosting.open()
        logs = make(hosting, "bad-0"), make(hosting, "good-0"), make(hosting, "far-0", folder=folder_id(1))
        hosting.disk.fail("open", "/bad-0/", errno.ENOSPC)
        stop(hosting, *logs)
        assert [is_marked_clean(hosting, number) for number in (0, 1)] == [False, True]
        assert hosting.offsets_in(RECOVERY_POINTS) == {TopicPartition("bad", 0): 0, TopicPartition("good", 0): 1}
        assert [record.getMessage() for record in caplog.records] == ["cannot close bad-0"]

    asyncio.run(scenario())


@pytest.mark.parametrize("operation", ["open", "fsync"])
def test_a_folder_that_fails_when_its_logs_are_closed_is_left_as_it_is(
    tmp_path: Path, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock(), folders=2)
        hosting.open()
        logs = make(hosting, "bad-0"), make(hosting, "good-0"), make(hosting, "far-0", folder=folder_id(1))
        await hosting.store.checkpoint_recovery_points()
        hosting.disk.fail(operation, "/bad-0/")
        stop(hosting, *logs)
        assert [is_marked_clean(hosting, number) for number in (0, 1)] == [False, True]
        assert hosting.offsets_in(RECOVERY_POINTS) == {TopicPartition("bad", 0): 0, TopicPartition("good", 0): 0}
        assert hosting.offsets_in(RECOVERY_POINTS, 1) == {TopicPartition("far", 0): 1}
        assert f"{hosting.data_dirs[0].path} has failed" in caplog.text

    asyncio.run(scenario())


def test_a_topic_that_was_made_again_while_the_folder_of_its_predecessor_was_offline_keeps_its_log(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        before = Hosting(tmp_path, ManualClock(), folders=2)
        before.open()
        make(before, "t-0")
        before.store.fail(before.data_dirs[0], OSError(errno.EIO, "broken"))
        before.store.take_offline(before.data_dirs[0])
        before.store.require_online("t", ANOTHER_TOPIC, 0, UNASSIGNED_DIRECTORY)
        (data_dir,) = before.store.choose([UNASSIGNED_DIRECTORY])
        assert data_dir is before.data_dirs[1]
        successor = before.store.create(data_dir, "t", ANOTHER_TOPIC, 0, TopicConfig())
        before.store.adopt(successor, data_dir)
        successor.append_as_leader(batch(b"new"), 0)
        stop(before, successor)

        repaired = Hosting(tmp_path, ManualClock(), folders=2)
        repaired.open()
        claimed = repaired.store.claim("t", ANOTHER_TOPIC, 0)
        assert claimed is not None
        assert [record.value for record in read_records(claimed)] == [b"new"]
        (stray,) = repaired.folders(0)
        assert stray.endswith("-stray")
        stop(repaired, claimed)

    asyncio.run(scenario())


def test_checkpoints_that_cannot_be_written_leave_the_mark_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock(), folders=2)
        hosting.open()
        hosting.disk.fail("rename", f"data-0/{RECOVERY_POINTS}")
        stop(hosting)
        assert [is_marked_clean(hosting, number) for number in (0, 1)] == [False, True]

    asyncio.run(scenario())


def test_an_end_before_the_logs_were_opened_touches_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        before = Hosting(tmp_path, ManualClock())
        before.open()
        make(before, "t-0")
        stop(before)
        files = {name: (tmp_path / "data-0" / name).read_bytes() for name in (CLEAN_SHUTDOWN, RECOVERY_POINTS)}
        stop(Hosting(tmp_path, ManualClock()))
        assert {name: (tmp_path / "data-0" / name).read_bytes() for name in files} == files

    asyncio.run(scenario())


def test_what_a_crash_left_of_a_deleted_topic_is_removed_by_the_next_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        before = Hosting(tmp_path, clock)
        before.open()
        before.store.discard(make(before, "t-0"), clock.now_ms())
        before.crash()
        after = Hosting(tmp_path, clock)
        after.open()
        assert len(after.folders()) == 1
        await after.store.remove_discarded(clock.now_ms())
        assert after.folders() == []
        stop(after)

    asyncio.run(scenario())


def test_a_discarded_folder_that_cannot_be_removed_is_tried_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        hosting = Hosting(tmp_path, clock)
        hosting.open()
        hosting.store.discard(make(hosting, "t-0", config=TopicConfig(file_delete_delay_ms=0)), clock.now_ms())
        hosting.disk.fail("unlink", "/t-0.")
        await hosting.store.remove_discarded(clock.now_ms())
        assert len(hosting.folders()) == 1
        hosting.disk.heal()
        await hosting.store.remove_discarded(clock.now_ms())
        assert hosting.folders() == []
        stop(hosting)

    asyncio.run(scenario())


def test_a_discarded_folder_that_cannot_be_removed_keeps_no_other_and_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        hosting = Hosting(tmp_path, clock)
        hosting.open()
        at_once = TopicConfig(file_delete_delay_ms=0)
        for name in ("bad-0", "good-0"):
            hosting.store.discard(make(hosting, name, config=at_once), clock.now_ms())
        hosting.disk.fail("unlink", "/bad-0.")
        for _ in range(3):
            await hosting.store.remove_discarded(clock.now_ms())
        (left,) = hosting.folders()
        assert left.startswith("bad-0.")
        (line,) = caplog.messages
        assert line.startswith(f"removal failed for {tmp_path}/data-0/{left}, will retry: ")
        stop(hosting)

    asyncio.run(scenario())


@pytest.mark.parametrize("checkpoint", [RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS])
def test_a_folder_that_takes_no_checkpoints_keeps_no_other_from_its_own_and_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, checkpoint: str
) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock(), folders=2)
        hosting.open()
        logs = make(hosting, "bad-0"), make(hosting, "good-0", folder=folder_id(1))
        for log in logs:
            log.append_as_leader(batch(b"a"), 0)
            log.flush()
            log.advance_log_start(1)
        writes: dict[str, Callable[[], Awaitable[None]]] = {
            RECOVERY_POINTS: hosting.store.checkpoint_recovery_points,
            LOG_START_OFFSETS: hosting.store.checkpoint_log_starts,
            HIGH_WATERMARKS: lambda: hosting.store.checkpoint_high_watermarks(dict.fromkeys(logs, 2)),
        }
        hosting.disk.fail("rename", "data-0/")
        for _ in range(3):
            await writes[checkpoint]()
        assert list(hosting.offsets_in(checkpoint, 1)) == [TopicPartition("good", 0)]
        (line,) = caplog.messages
        assert f"failed for {tmp_path}/data-0, will retry" in line
        hosting.disk.heal()
        await writes[checkpoint]()
        assert list(hosting.offsets_in(checkpoint, 0)) == [TopicPartition("bad", 0)]
        stop(hosting, *logs)

    asyncio.run(scenario())


def test_a_segment_that_is_closed_is_reported_for_syncing_whether_its_log_is_new_or_was_found(tmp_path: Path) -> None:
    async def scenario() -> None:
        before = Hosting(tmp_path, ManualClock())
        before.open()
        log = make(before, "t-0")
        log.roll(log.log_end_offset)
        assert before.rolled == ["t-0"]
        log.append_as_leader(batch(b"y"), 0)
        stop(before, log)

        after = Hosting(tmp_path, ManualClock())
        after.open()
        again = after.store.claim("t", topic_id("t"), 0)
        assert again is not None
        again.roll(again.log_end_offset)
        assert after.rolled == ["t-0"]
        stop(after, again)

    asyncio.run(scenario())


def test_at_a_clean_end_new_logs_share_one_sync_of_their_data_folder(tmp_path: Path) -> None:
    class Counting(FaultyDisk):
        synced: ClassVar[list[str]] = []

        def sync_dir(self, path: str) -> None:
            self.synced.append(path)
            super().sync_dir(path)

    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock(), disk=Counting())
        hosting.open()
        logs = [make(hosting, f"t-{number}") for number in range(20)]
        Counting.synced.clear()
        stop(hosting, *logs)
        assert is_marked_clean(hosting)
        # The others are those of the checkpoints and of the mark, which are written one after the other.
        assert Counting.synced.count(hosting.data_dirs[0].path) == 5
        assert {f"{hosting.data_dirs[0].path}/{log.name}" for log in logs} <= set(Counting.synced)
        assert [log.recovery_point for log in logs] == [1] * 20

    asyncio.run(scenario())
