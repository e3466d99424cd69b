"""Replicas move between data folders: nothing is lost, whatever happens on the way, and wherever the node is killed."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING

import pytest

from barnabas.log.append_batches import EndMarker
from barnabas.log.producers.producer_state import NOT_NEEDED
from barnabas.metadata.image import TopicImage
from barnabas.protocol.errors import Error, KafkaError
from barnabas.replication.log_store import OpenDir
from barnabas.testing.clock import ManualClock
from tests.unit.broker.api.partitions import has_copied
from tests.unit.broker.api.stand_ins import NODE_ID, a_partition, topic_id
from tests.unit.log.logs import batch, idempotent, read_bytes, read_records

from .hosting import Hosting, folder_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.log.partition_log import PartitionLog
    from barnabas.replication.hosted import HostedPartition

KEY = topic_id("t"), 0
ANOTHER_NODE = 2
ACKS_LEADER = 1


def topic_in(
    folder: int, *, leader: int = NODE_ID, epoch: int = 3, replicas: tuple[int, ...] = (NODE_ID,)
) -> TopicImage:
    """A topic of one partition, of which the metadata says that it is in this folder."""
    partition = a_partition(leader, replicas)._replace(
        directories=(folder_id(folder),) * len(replicas), leader_epoch=epoch, partition_epoch=10 * epoch + folder
    )
    return TopicImage("t", topic_id("t"), (partition,))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (the condition has no event)
            await asyncio.sleep(0.001)


def append(hosted: HostedPartition, *values: bytes) -> None:
    hosted.append(batch(*values), ACKS_LEADER)


def values_in(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in read_records(log)]


class House(Hosting):
    """A node with two data folders and one partition, which is in the first one to begin with."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, ManualClock(), folders=2)
        self.open()

    @property
    def hosted(self) -> HostedPartition:
        return self.replicas.find_by_name(b"t", 0)

    async def begin(self, folder: int = 1) -> None:
        await self.moves.begin(self.hosted, OpenDir(folder_id(folder), self.data_dirs[folder]))

    async def announced(self, folder: int = 1) -> None:
        """The copy has everything, and the controller is to be told."""
        await until(lambda: self.replicas.misplaced == {KEY: folder_id(folder)})

    async def moved(self, folder: int = 1) -> None:
        await until(lambda: self.store.folder_of(self.hosted.log) is self.data_dirs[folder])

    def future(self) -> PartitionLog:
        future = self.moves.future_of(self.hosted)
        assert future is not None
        return future

    async def stop_moving(self) -> None:
        await self.moves.close()
        await self.flusher.close()

    async def killed(self) -> None:
        await self.stop_moving()
        self.crash()


def test_a_replica_moves_with_records_producers_and_epochs(tmp_path: Path) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        await house.follow(topic_in(0, epoch=3))
        append(house.hosted, b"a", b"b")
        await house.follow(topic_in(0, epoch=4))
        append(house.hosted, b"c")
        house.hosted.append(idempotent(7, 0, 0, count=2), ACKS_LEADER)
        house.hosted.append(idempotent(8, 0, 0, is_transactional=True), ACKS_LEADER, NOT_NEEDED)
        house.hosted.append_marker(EndMarker(8, 0, is_commit=False, coordinator_epoch=0, transaction_version=1))
        house.hosted.append(idempotent(9, 0, 0, is_transactional=True), ACKS_LEADER, NOT_NEEDED)
        old = house.hosted.log
        asked = house.hosted.begin_verification(10, 0, 0, adds_partition=False)
        assert asked is not None
        before = values_in(old)
        await house.begin()
        await house.announced()
        append(house.hosted, b"written meanwhile")
        await house.follow(topic_in(1, epoch=4))
        await house.moved()

        log = house.hosted.log
        assert log is not old
        assert values_in(log) == [*before, b"written meanwhile"]
        assert house.replicas.misplaced == {}
        assert house.hosted.state.high_watermark.offset == log.log_end_offset
        assert log.end_offset_for_epoch(3) == (3, 2)
        assert [txn.producer_id for txn in log.aborted_transactions(0, log.log_end_offset)] == [8]
        assert log.has_open_txn(9, 0)
        assert log.is_verified(10, 0, asked), "what was asked before the move is answered after it"
        assert house.hosted.last_stable_offset == 7
        again = house.hosted.append(idempotent(7, 0, 0, count=2), ACKS_LEADER)
        assert (again.base_offset, again.is_duplicate) == (3, True)
        append(house.hosted, b"after")
        assert house.folders(1) == ["t-0"]
        (gone,) = house.folders(0)
        assert gone.startswith("t-0.")
        assert gone.endswith("-delete")
        await house.stop_moving()
        house.stop()

        after = House(tmp_path)
        await after.follow(topic_in(1, epoch=5))
        assert values_in(after.hosted.log) == [*before, b"written meanwhile", b"after"]
        assert after.store.folder_of(after.hosted.log) is after.data_dirs[1]
        await after.killed()

    asyncio.run(scenario())


def test_a_log_that_starts_within_a_batch_moves_with_that_batch(tmp_path: Path) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        await house.follow(topic_in(0))
        append(house.hosted, b"a", b"b", b"c")
        append(house.hosted, b"d")
        house.hosted.delete_records(1)
        await house.begin()
        await house.announced()
        await house.follow(topic_in(1))
        await house.moved()
        assert house.hosted.log.log_start_offset == 1
        assert values_in(house.hosted.log) == [b"b", b"c", b"d"]
        await house.killed()

    asyncio.run(scenario())


def test_what_retention_removes_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        await house.follow(topic_in(0))
        append(house.hosted, b"a", b"b")
        await house.begin()
        await house.announced()
        append(house.hosted, b"c")
        house.hosted.delete_records(3)
        await house.follow(topic_in(1))
        await house.moved()
        assert (house.hosted.log.log_start_offset, house.hosted.log.log_end_offset) == (3, 3)
        await house.killed()

    asyncio.run(scenario())


def test_a_copy_that_was_not_announced_is_completed_after_a_kill(tmp_path: Path) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        await house.follow(topic_in(0))
        append(house.hosted, b"a")
        house.moves.throttle.limit_bytes = 0
        await house.begin()
        await until(lambda: house.future().log_end_offset == 1)
        append(house.hosted, b"b")
        await house.killed()

        after = House(tmp_path)
        await after.follow(topic_in(0, epoch=4))
        assert [name.split(".")[0] for name in after.folders(1)] == ["t-0"]
        await after.announced()
        await after.follow(topic_in(1, epoch=4))
        await after.moved()
        assert values_in(after.hosted.log) == [b"a", b"b"]
        await after.killed()

    asyncio.run(scenario())


def test_what_was_written_after_the_controller_agreed_is_there_after_a_kill(tmp_path: Path) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        await house.follow(topic_in(0))
        append(house.hosted, b"a")
        await house.begin()
        await house.announced()
        await house.moves.close()
        append(house.hosted, b"b")
        await house.follow(topic_in(1))
        await house.killed()

        after = House(tmp_path)
        await after.follow(topic_in(1, epoch=4))
        assert values_in(after.hosted.log) == [b"a", b"b"]
        await after.moved()
        assert values_in(after.hosted.log) == [b"a", b"b"]
        assert after.replicas.misplaced == {}
        await after.killed()

    asyncio.run(scenario())


def test_a_kill_between_the_two_renames_leaves_one_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        await house.follow(topic_in(0))
        append(house.hosted, b"a")
        await house.begin()
        await house.announced()
        house.disk.fail("rename", "data-0/t-0")
        await house.follow(topic_in(1))
        await house.moved()
        assert (house.folders(0), house.folders(1)) == (["t-0"], ["t-0"])
        append(house.hosted, b"b")
        await house.killed()

        after = House(tmp_path)
        await after.follow(topic_in(1, epoch=4))
        assert values_in(after.hosted.log) == [b"a", b"b"]
        assert after.store.folder_of(after.hosted.log) is after.data_dirs[1]
        assert after.folders(1) == ["t-0"]
        assert [name[-7:] for name in after.folders(0)] == ["-delete"]
        await after.killed()

    asyncio.run(scenario())


@pytest.mark.parametrize("is_old_one_there", [True, False])
def test_a_copy_in_use_whose_new_name_was_lost_with_the_power_is_the_log(
    tmp_path: Path, is_old_one_there: bool
) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        await house.follow(topic_in(0))
        append(house.hosted, b"a")
        await house.begin()
        await house.announced()
        copied_to = house.future().folder
        await house.follow(topic_in(1))
        await house.moved()
        append(house.hosted, b"b")
        await house.killed()
        os.rename(tmp_path / "data-1/t-0", copied_to)
        if is_old_one_there:
            (gone,) = house.folders(0)
            os.rename(tmp_path / "data-0" / gone, tmp_path / "data-0/t-0")

        after = House(tmp_path)
        await after.follow(topic_in(1, epoch=4))
        assert values_in(after.hosted.log) == [b"a", b"b"]
        assert after.store.folder_of(after.hosted.log) is after.data_dirs[1]
        assert after.folders(1) == ["t-0"]
        assert "t-0" not in after.folders(0)
        await after.killed()

    asyncio.run(scenario())


def test_a_copy_of_a_topic_that_is_gone_is_set_aside_at_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        await house.follow(topic_in(0))
        house.moves.throttle.limit_bytes = 0
        append(house.hosted, b"a")
        await house.begin()
        await house.killed()

        after = House(tmp_path)
        await after.follow()
        after.store.set_unclaimed_aside()
        assert [name[-6:] for name in (*after.folders(0), *after.folders(1))] == ["-stray", "-stray"]
        await after.killed()

    asyncio.run(scenario())


def test_what_a_follower_cuts_off_its_log_is_cut_off_the_copy(tmp_path: Path) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        await house.follow(topic_in(0, leader=NODE_ID, epoch=3, replicas=(NODE_ID, ANOTHER_NODE)))
        hosted = house.hosted
        append(hosted, b"a", b"b")
        has_copied(hosted, ANOTHER_NODE, 2)
        append(hosted, b"lost", b"lost too")
        await house.begin()
        await house.announced()
        assert house.future().log_end_offset == 4
        await house.follow(topic_in(0, leader=ANOTHER_NODE, epoch=4, replicas=(NODE_ID, ANOTHER_NODE)))
        hosted.truncate(2)
        taken = batch(b"c", base_offset=2, leader_epoch=4)
        hosted.copy(taken, 3, 0)
        await house.follow(topic_in(1, leader=ANOTHER_NODE, epoch=4, replicas=(NODE_ID, ANOTHER_NODE)))
        await until(lambda: house.future().log_end_offset == 3)
        assert values_in(house.future()) == [b"a", b"b", b"c"]
        assert hosted.has_unsettled_cut
        assert house.store.folder_of(hosted.log) is house.data_dirs[0], "nothing is replaced before it is settled"
        hosted.settled_cuts = hosted.cuts
        await house.moved()
        assert values_in(hosted.log) == [b"a", b"b", b"c"]
        assert hosted.log.end_offset_for_epoch(3) == (3, 2)
        await house.killed()

    asyncio.run(scenario())


def test_a_copy_of_which_the_log_has_lost_the_end_is_cut_at_start(tmp_path: Path) -> None:
    """A power failure has taken what was not synced of the log, while its copy was synced."""

    async def scenario() -> None:
        house = House(tmp_path)
        await house.follow(topic_in(0))
        append(house.hosted, b"a")
        size = house.hosted.log.size_bytes
        append(house.hosted, b"b")
        await house.begin()
        await house.announced()
        await house.killed()
        os.truncate(tmp_path / "data-0/t-0/00000000000000000000.log", size)

        after = House(tmp_path)
        await after.follow(topic_in(0, epoch=4))
        append(after.hosted, b"c")
        await after.announced()
        await after.follow(topic_in(1, epoch=4))
        await after.moved()
        assert values_in(after.hosted.log) == [b"a", b"c"]
        await after.killed()

    asyncio.run(scenario())


def test_a_folder_that_fails_costs_the_move_and_not_the_partition(tmp_path: Path) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        await house.follow(topic_in(0))
        append(house.hosted, b"a")
        await house.begin()
        await house.announced()
        error = OSError(errno.EIO, "the device is gone")
        house.store.fail(house.data_dirs[1], error)
        assert house.replicas.take_offline(house.data_dirs[1], error) == 0
        assert house.replicas.misplaced == {}, "the controller believes it where it is"
        append(house.hosted, b"b")
        assert values_in(house.hosted.log) == [b"a", b"b"]
        with pytest.raises(KafkaError) as refused:
            await house.begin()
        assert refused.value.error is Error.KAFKA_STORAGE_ERROR
        await house.killed()

    asyncio.run(scenario())


def test_if_the_folder_of_the_log_fails_the_controller_hears_that_the_replica_is_still_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        await house.follow(topic_in(0))
        append(house.hosted, b"a")
        await house.begin()
        await house.announced()
        await house.moves.close()
        await house.follow(topic_in(1))
        append(house.hosted, b"only here")
        error = OSError(errno.EIO, "the device is gone")
        house.store.fail(house.data_dirs[0], error)
        assert house.replicas.take_offline(house.data_dirs[0], error) == 1
        assert house.replicas.misplaced == {KEY: folder_id(0)}
        with pytest.raises(KafkaError) as refused:
            house.replicas.find_by_name(b"t", 0)
        assert refused.value.error is Error.KAFKA_STORAGE_ERROR
        await house.replicas.retry_offline(house.config)
        with pytest.raises(KafkaError):
            house.replicas.find_by_name(b"t", 0)
        await house.killed()

    asyncio.run(scenario())


def test_a_full_folder_is_tried_again_and_the_partition_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("barnabas.replication.replica_moves.RETRY_S", 0.001)

    async def scenario() -> None:
        house = House(tmp_path)
        await house.follow(topic_in(0))
        append(house.hosted, b"a")
        house.disk.fail("pwrite", "-future/00000000000000000000.log", errno.ENOSPC)
        await house.begin()
        await until(lambda: caplog.text.count("will retry") == 1)
        append(house.hosted, b"b")
        assert house.replicas.misplaced == {}
        house.disk.heal()
        await house.announced()
        house.disk.fail("rename", "-future", errno.EACCES)
        await house.follow(topic_in(1))
        await until(lambda: caplog.text.count("will retry") == 2)
        append(house.hosted, b"c")
        house.disk.heal()
        await house.moved()
        assert values_in(house.hosted.log) == [b"a", b"b", b"c"]
        await house.killed()

    asyncio.run(scenario())


def test_a_move_that_is_called_off_leaves_the_replica_where_it_was(tmp_path: Path) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        await house.follow(topic_in(0))
        append(house.hosted, b"a")
        await house.begin()
        await house.announced()
        await house.moves.close()
        await house.follow(topic_in(1))
        await house.begin(folder=0)
        assert house.replicas.misplaced == {KEY: folder_id(0)}, "the controller has to be told again"
        assert house.moves.future_of(house.hosted) is None
        assert [name[-7:] for name in house.folders(1)] == ["-delete"]
        await house.follow(topic_in(0))
        assert house.replicas.misplaced == {}
        await house.killed()

    asyncio.run(scenario())


def test_a_topic_that_is_deleted_takes_its_copy_along(tmp_path: Path) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        await house.follow(topic_in(0))
        append(house.hosted, b"a")
        house.moves.throttle.limit_bytes = 0
        await house.begin()
        await house.follow()
        assert [name[-7:] for name in (*house.folders(0), *house.folders(1))] == ["-delete", "-delete"]
        await house.store.remove_discarded(house.clock.now_ms() + 10**9)
        assert house.folders(0) == house.folders(1) == []
        await house.killed()

    asyncio.run(scenario())


def test_what_waits_for_a_sync_of_the_old_log_waits_for_that_of_the_new_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        await house.follow(topic_in(0))
        append(house.hosted, b"a")
        await house.begin()
        await house.announced()
        await house.moves.close()
        append(house.hosted, b"b")
        future, old = house.future(), house.hosted.log
        synced = house.flusher.flush(old)
        future.append_at(memoryview(read_bytes(old, 1)))
        house.store.replace(old, future, 0)
        house.hosted.replace_log(future)
        house.flusher.replaced(old, future)
        await synced
        assert future.recovery_point == 2
        await house.killed()

    asyncio.run(scenario())
