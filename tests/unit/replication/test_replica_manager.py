"""Hosted partitions follow the cluster's metadata: made, led, grown, configured, deleted; and a bad disk costs one."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.log.append_batches import EndMarker
from barnabas.log.folder.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    UNREPLICATED_TXNS,
    TopicPartition,
)
from barnabas.log.producers.producer_state import NOT_NEEDED
from barnabas.metadata.image import UNASSIGNED_DIRECTORY, ConfigResource, ResourceType, TopicImage
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.uuids import Uuid
from barnabas.replication.replica_manager import CREATED_PER_STEP
from barnabas.testing.clock import ManualClock
from tests.unit.broker.api.partitions import has_copied
from tests.unit.broker.api.stand_ins import NODE_ID, a_partition, a_topic, topic_id
from tests.unit.log.logs import batch, idempotent, read_records, stored_header

from .hosting import CLUSTER_DEFAULT, Hosting, folder_id

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.metadata.image import PartitionImage
    from barnabas.replication.hosted import HostedPartition
    from barnabas.replication.replica_manager import ReplicaManager

ANOTHER_NODE = 2
ACKS_LEADER = 1


def led_by(leader: int, epoch: int, replicas: tuple[int, ...] = (NODE_ID, ANOTHER_NODE)) -> PartitionImage:
    return a_partition(leader, replicas)._replace(leader_epoch=epoch, partition_epoch=epoch)


def topic_of(name: str, *partitions: PartitionImage) -> TopicImage:
    return TopicImage(name, topic_id(name), partitions)


COPIED_ELSEWHERE = topic_of("t", led_by(NODE_ID, 0))


def append(hosted: HostedPartition, *values: bytes) -> None:
    hosted.append(batch(*values), ACKS_LEADER)


def values_in(hosted: HostedPartition) -> list[bytes | None]:
    return [record.value for record in read_records(hosted.log)]


def refusal(find: Any, *arguments: Any) -> Error:
    with pytest.raises(KafkaError) as refused:
        find(*arguments)
    return refused.value.error


def test_a_new_topic_is_found_by_name_and_id_and_led_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        await hosting.follow(a_topic("t", partitions=2))
        replicas = hosting.replicas
        hosted = replicas.find_by_name(b"t", 1)
        assert hosted is replicas.find_by_id(topic_id("t"), 1)
        assert hosted is not replicas.find_by_name(b"t", 0)
        assert hosted.log.topic_id == topic_id("t")
        assert (hosted.state.is_leader, hosted.state.leader_epoch) == (True, 3)
        append(hosted, b"a", b"b")
        assert hosted.state.high_watermark.offset == 2
        assert stored_header(hosted.log, 0).partition_leader_epoch == 3
        assert hosting.folders() == ["t-0", "t-1"]
        assert len(replicas) == len(list(replicas)) == 2
        hosting.stop()

    asyncio.run(scenario())


def test_a_new_leader_epoch_begins_where_the_log_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        await hosting.follow(topic_of("t", led_by(NODE_ID, 3, (NODE_ID,))))
        hosted = hosting.replicas.find_by_name(b"t", 0)
        append(hosted, b"a", b"b")
        await hosting.follow(topic_of("t", led_by(NODE_ID, 6, (NODE_ID,))))
        append(hosted, b"c")
        assert hosted.log.end_offset_for_epoch(3) == (3, 2)
        assert hosted.log.end_offset_for_epoch(6) == (6, 3)
        assert stored_header(hosted.log, 2).partition_leader_epoch == 6
        hosting.stop()

    asyncio.run(scenario())


def test_who_waits_for_a_partition_hears_of_its_new_leader_and_writes_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        await hosting.follow(topic_of("t", led_by(NODE_ID, 0)), a_topic("other"))
        hosted, other = (hosting.replicas.find_by_name(name, 0) for name in (b"t", b"other"))
        waiting, undisturbed = hosting.watch(hosted), hosting.watch(other)
        await hosting.follow(topic_of("t", led_by(ANOTHER_NODE, 1)), a_topic("other"))
        await asyncio.wait_for(waiting.answered.wait(), 5)
        assert not undisturbed.answered.is_set()
        assert refusal(hosted.append, batch(b"late"), ACKS_LEADER) is Error.NOT_LEADER_OR_FOLLOWER
        assert hosted.log.log_end_offset == 0
        hosting.stop()

    asyncio.run(scenario())


def test_replicas_that_left_with_a_change_of_the_isr_are_followed_no_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        await hosting.follow(topic_of("t", led_by(NODE_ID, 3, (NODE_ID, ANOTHER_NODE, 3))))
        state = hosting.replicas.find_by_name(b"t", 0).state
        state.partition_epoch = 4  # as the controller's answer to the change has said
        changed = led_by(NODE_ID, 3, (NODE_ID, ANOTHER_NODE))._replace(partition_epoch=4)
        await hosting.follow(topic_of("t", changed))
        assert list(state.followers) == [ANOTHER_NODE]
        hosting.stop()

    asyncio.run(scenario())


def test_a_replica_that_is_taken_away_goes_with_its_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        await hosting.follow(topic_of("t", led_by(NODE_ID, 0), led_by(NODE_ID, 0)))
        gone = hosting.replicas.find_by_name(b"t", 0)
        waiting = hosting.watch(gone)
        await hosting.follow(topic_of("t", led_by(ANOTHER_NODE, 1, (ANOTHER_NODE,)), led_by(NODE_ID, 0)))
        await asyncio.wait_for(waiting.answered.wait(), 5)
        assert gone.is_removed
        assert refusal(hosting.replicas.find_by_name, b"t", 0) is Error.NOT_LEADER_OR_FOLLOWER
        assert hosting.replicas.leader_of(b"t", 0, is_by_id=False) == (ANOTHER_NODE, 1)
        assert [name.endswith("-delete") for name in hosting.folders()] == [True, False]
        hosting.stop()

    asyncio.run(scenario())


def test_a_follower_that_comes_to_lead_goes_on_with_the_same_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        await hosting.follow(topic_of("t", led_by(ANOTHER_NODE, 0)))
        hosted = hosting.replicas.find_by_name(b"t", 0)
        hosted.log.append_at(batch(b"copied", leader_epoch=0))
        await hosting.follow(topic_of("t", led_by(NODE_ID, 1)))
        assert hosting.replicas.find_by_name(b"t", 0) is hosted
        append(hosted, b"own")
        assert values_in(hosted) == [b"copied", b"own"]
        assert hosted.log.end_offset_for_epoch(0) == (0, 1)
        hosting.stop()

    asyncio.run(scenario())


def test_an_image_of_other_things_leaves_a_partition_as_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        await hosting.follow(a_topic("t"))
        hosted = hosting.replicas.find_by_name(b"t", 0)
        waiting = hosting.watch(hosted)
        await hosting.follow(a_topic("t"), a_topic("new"))
        await asyncio.sleep(0)
        assert hosting.replicas.find_by_name(b"t", 0) is hosted
        assert not waiting.answered.is_set()
        hosting.stop()

    asyncio.run(scenario())


def test_a_topic_that_grows_keeps_its_partitions_and_gets_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        await hosting.follow(a_topic("t", partitions=2))
        first = hosting.replicas.find_by_name(b"t", 0)
        append(first, b"kept")
        await hosting.follow(a_topic("t", partitions=CREATED_PER_STEP + 2))
        assert hosting.replicas.find_by_name(b"t", 0) is first
        assert values_in(first) == [b"kept"]
        assert len(hosting.replicas) == len(hosting.folders()) == CREATED_PER_STEP + 2
        assert all(hosted.state.is_leader for hosted in hosting.replicas)
        hosting.stop()

    asyncio.run(scenario())


def test_partitions_that_are_made_together_are_spread_over_the_folders(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock(), folders=3)
        hosting.open()
        in_the_first = a_partition()
        anywhere = a_partition()._replace(directories=(UNASSIGNED_DIRECTORY,))
        await hosting.follow(topic_of("t", in_the_first, in_the_first, *[anywhere] * 7))
        assert [len(hosting.folders(number)) for number in range(3)] == [3, 3, 3]
        hosting.stop()

    asyncio.run(scenario())


def marks_of_clean_ends(hosting: Hosting) -> list[bool]:
    return [os.path.exists(f"{each.path}/{CLEAN_SHUTDOWN}") for each in hosting.data_dirs]


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_a_folder_that_fails_takes_its_partitions_offline_and_no_others(tmp_path: Path, number: int) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock(), folders=2)
        hosting.open()
        anywhere = led_by(NODE_ID, 0)._replace(directories=(UNASSIGNED_DIRECTORY,) * 2, isr=(NODE_ID,))
        await hosting.follow(topic_of("t", *[anywhere] * 4))
        partitions = [hosting.replicas.find_by_name(b"t", index) for index in range(4)]
        for hosted in partitions:
            append(hosted, b"before")
        await hosting.store.checkpoint_recovery_points()
        failed: list[OSError] = []
        hosting.store.on_failed_dir = lambda _, error: failed.append(error)
        waiting = hosting.watch(partitions[2])
        hosting.disk.fail("pwrite", "data-0/t-0", number)
        assert refusal(append, partitions[0], b"lost") is Error.KAFKA_STORAGE_ERROR
        hosting.disk.heal()
        assert [error.errno for error in failed] == [number]
        hosting.replicas.take_offline(hosting.data_dirs[0], failed[0])

        await asyncio.wait_for(waiting.answered.wait(), 5)
        for index in (0, 2):
            assert refusal(hosting.replicas.find_by_name, b"t", index) is Error.KAFKA_STORAGE_ERROR
            assert refusal(append, partitions[index], b"lost") is Error.KAFKA_STORAGE_ERROR
            assert partitions[index].outcome(1, 0) is Error.KAFKA_STORAGE_ERROR
        for index in (1, 3):
            append(partitions[index], b"after")
            assert values_in(partitions[index]) == [b"before", b"after"]
        await hosting.replicas.retry_offline(hosting.config)
        await hosting.follow(topic_of("t", *[anywhere._replace(leader_epoch=1, partition_epoch=1)] * 5))
        assert [len(hosting.folders(number)) for number in range(2)] == [2, 3], "none is made in place of one"
        assert refusal(hosting.replicas.find_by_name, b"t", 0) is Error.KAFKA_STORAGE_ERROR
        await hosting.store.checkpoint_recovery_points()
        hosting.stop()
        assert hosting.offsets_in(RECOVERY_POINTS) == {TopicPartition("t", index): 0 for index in (0, 2)}
        assert set(hosting.offsets_in(RECOVERY_POINTS, 1)) == {TopicPartition("t", index) for index in (1, 3, 4)}
        assert marks_of_clean_ends(hosting) == [False, True]

    asyncio.run(scenario())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE])
def test_a_write_that_finds_no_space_or_no_file_costs_no_folder(tmp_path: Path, number: int) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        hosting.open()
        await hosting.follow(a_topic("t"))
        (hosted,) = hosting.replicas
        append(hosted, b"before")
        hosting.disk.fail("pwrite", "/t-0", number)
        assert refusal(append, hosted, b"lost") is Error.KAFKA_STORAGE_ERROR
        hosting.disk.heal()
        append(hosted, b"after")
        assert values_in(hosted) == [b"before", b"after"]
        hosting.stop()

    asyncio.run(scenario())


def test_where_partitions_were_put_is_known_until_the_metadata_says_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock(), folders=2)
        hosting.open()
        anywhere = a_partition()._replace(directories=(UNASSIGNED_DIRECTORY,))
        await hosting.follow(topic_of("t", anywhere, anywhere))
        assert hosting.replicas.misplaced == {(topic_id("t"), 0): folder_id(0), (topic_id("t"), 1): folder_id(1)}
        settled = [
            anywhere._replace(directories=(folder_id(index),), partition_epoch=anywhere.partition_epoch + 1)
            for index in range(2)
        ]
        await hosting.follow(topic_of("t", *settled))
        assert hosting.replicas.misplaced == {}
        hosting.stop()

    asyncio.run(scenario())


def test_partitions_without_a_replica_here_are_not_made(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        await hosting.follow(topic_of("t", a_partition(), led_by(ANOTHER_NODE, 0, (ANOTHER_NODE,))))
        assert refusal(hosting.replicas.find_by_name, b"t", 1) is Error.NOT_LEADER_OR_FOLLOWER
        assert hosting.folders() == ["t-0"]
        hosting.stop()

    asyncio.run(scenario())


def test_what_is_not_in_the_metadata_is_unknown_by_name_and_by_id(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        find_by_name, find_by_id = hosting.replicas.find_by_name, hosting.replicas.find_by_id
        assert refusal(find_by_name, b"t", 0) is Error.UNKNOWN_TOPIC_OR_PARTITION, "before the first image"
        await hosting.follow(a_topic("t"))
        assert refusal(find_by_name, b"ghost", 0) is Error.UNKNOWN_TOPIC_OR_PARTITION
        assert refusal(find_by_name, b"\xff" * 1000, 0) is Error.UNKNOWN_TOPIC_OR_PARTITION
        assert refusal(find_by_id, bytes(16), 0) is Error.UNKNOWN_TOPIC_ID
        for index in (1, -1):
            assert refusal(find_by_name, b"t", index) is Error.UNKNOWN_TOPIC_OR_PARTITION
            assert refusal(find_by_id, topic_id("t"), index) is Error.UNKNOWN_TOPIC_OR_PARTITION
        hosting.stop()

    asyncio.run(scenario())


def test_a_log_that_cannot_be_made_costs_its_partition_until_the_disk_is_well_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        hosting.disk.fail("make_folder", "/t-1")
        await hosting.follow(a_topic("t", partitions=3))
        replicas = hosting.replicas
        append(replicas.find_by_name(b"t", 0), b"served")
        append(replicas.find_by_name(b"t", 2), b"served")
        for _ in range(3):
            assert refusal(replicas.find_by_name, b"t", 1) is Error.KAFKA_STORAGE_ERROR
            assert refusal(replicas.find_by_id, topic_id("t"), 1) is Error.KAFKA_STORAGE_ERROR
            await replicas.retry_offline(hosting.config)
        (line,) = [record.getMessage() for record in caplog.records]
        assert line.startswith("t-1 is offline: ")

        hosting.disk.heal()
        await replicas.retry_offline(hosting.config)
        back = replicas.find_by_name(b"t", 1)
        assert replicas.find_by_id(topic_id("t"), 1) is back
        assert (back.state.is_leader, back.state.leader_epoch) == (True, 3)
        append(back, b"served again")
        assert values_in(back) == [b"served again"]
        hosting.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("operation", ["make_folder", "open"])
def test_a_topic_of_which_no_log_could_be_made_comes_back_as_a_whole(tmp_path: Path, operation: str) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        hosting.disk.fail(operation, "/t-")
        await hosting.follow(a_topic("t", partitions=2))
        assert len(hosting.replicas) == 0
        assert hosting.folders() == [], "nothing half-made stays in the way"
        hosting.disk.heal()
        await hosting.replicas.retry_offline(hosting.config)
        assert [hosting.replicas.find_by_name(b"t", index).index for index in (0, 1)] == [0, 1]
        assert [hosting.replicas.find_by_id(topic_id("t"), index).index for index in (0, 1)] == [0, 1]
        hosting.stop()

    asyncio.run(scenario())


def test_an_offline_partition_follows_the_newest_metadata_when_it_is_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        hosting.disk.fail("make_folder", "/t-0")
        await hosting.follow(topic_of("t", led_by(NODE_ID, 0)))
        retention = {ConfigResource(ResourceType.TOPIC, "t"): {"retention.ms": "1234"}}
        await hosting.follow(topic_of("t", led_by(NODE_ID, 5)), configs=retention)
        hosting.disk.heal()
        await hosting.replicas.retry_offline(hosting.config)
        hosted = hosting.replicas.find_by_name(b"t", 0)
        assert (hosted.state.leader_epoch, hosted.log.config.retention_ms) == (5, 1234)
        hosting.stop()

    asyncio.run(scenario())


def test_an_offline_partition_of_a_deleted_topic_is_not_tried_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        hosting.disk.fail("make_folder", "/t-")
        await hosting.follow(a_topic("t", partitions=2))
        await hosting.follow()
        hosting.disk.heal()
        await hosting.replicas.retry_offline(hosting.config)
        assert hosting.folders() == []
        assert refusal(hosting.replicas.find_by_name, b"t", 0) is Error.UNKNOWN_TOPIC_OR_PARTITION
        hosting.stop()

    asyncio.run(scenario())


def test_a_half_made_folder_that_could_not_be_cleared_away_is_no_obstacle_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        hosting.disk.fail("open", "/t-0/")
        hosting.disk.fail("remove_folder", "/t-0")
        await hosting.follow(a_topic("t"))
        assert hosting.folders() == ["t-0"]
        await hosting.replicas.retry_offline(hosting.config)
        assert refusal(hosting.replicas.find_by_name, b"t", 0) is Error.KAFKA_STORAGE_ERROR
        hosting.disk.heal()
        await hosting.replicas.retry_offline(hosting.config)
        append(hosting.replicas.find_by_name(b"t", 0), b"served")
        hosting.stop()

    asyncio.run(scenario())


def test_a_log_of_an_older_topic_that_cannot_be_renamed_costs_its_partition_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        before = Hosting(tmp_path, ManualClock())
        before.open()
        await before.follow(a_topic("t"))
        append(before.replicas.find_by_name(b"t", 0), b"old")
        before.stop()

        after = Hosting(tmp_path, ManualClock())
        after.open()
        after.disk.fail("rename", "/t-0")
        await after.follow(a_topic("t")._replace(topic_id=topic_id("second")), a_topic("other"))
        append(after.replicas.find_by_name(b"other", 0), b"served")
        for _ in range(3):
            assert refusal(after.replicas.find_by_name, b"t", 0) is Error.KAFKA_STORAGE_ERROR
            await after.replicas.retry_offline(after.config)
        assert len([line for line in caplog.messages if line.startswith("t-0 is offline: ")]) == 1
        assert after.folders() == ["other-0", "t-0"]

        after.disk.heal()
        await after.replicas.retry_offline(after.config)
        second = after.replicas.find_by_name(b"t", 0)
        assert (second.log.topic_id, values_in(second)) == (topic_id("second"), [])
        assert [name.endswith("-stray") for name in after.folders()] == [False, False, True], "the old log is kept"
        after.stop()

    asyncio.run(scenario())


async def with_an_unreadable_log(tmp_path: Path) -> Hosting:
    """A node that led `t-0`, whose three records were copied up to the second, and that after a restart cannot look
    up where its high watermark is."""
    before = Hosting(tmp_path, ManualClock())
    before.open()
    await before.follow(COPIED_ELSEWHERE)
    hosted = before.replicas.find_by_name(b"t", 0)
    for value in (b"a", b"b", b"c"):
        append(hosted, value)
    has_copied(hosted, ANOTHER_NODE, 2)
    before.stop()
    after = Hosting(tmp_path, ManualClock())
    after.open()
    after.disk.fail("open", "/t-0/")
    await after.follow(COPIED_ELSEWHERE, a_topic("other"))
    return after


def test_a_log_whose_high_watermark_cannot_be_looked_up_costs_its_partition_until_it_can(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = await with_an_unreadable_log(tmp_path)
        assert refusal(hosting.replicas.find_by_name, b"t", 0) is Error.KAFKA_STORAGE_ERROR
        append(hosting.replicas.find_by_name(b"other", 0), b"served")
        hosting.store.set_unclaimed_aside()
        await hosting.replicas.retry_offline(hosting.config)
        assert refusal(hosting.replicas.find_by_name, b"t", 0) is Error.KAFKA_STORAGE_ERROR
        hosting.disk.heal()
        await hosting.replicas.retry_offline(hosting.config)
        back = hosting.replicas.find_by_name(b"t", 0)
        assert (values_in(back), back.state.high_watermark.offset) == ([b"a", b"b", b"c"], 2)
        hosting.stop()

    asyncio.run(scenario())


def test_a_log_that_could_not_be_taken_up_keeps_its_high_watermark_for_the_next_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = await with_an_unreadable_log(tmp_path)
        served = {hosted.log: hosted.state.high_watermark.offset for hosted in hosting.replicas}
        await hosting.store.checkpoint_high_watermarks(served)
        assert hosting.offsets_in(HIGH_WATERMARKS)[TopicPartition("t", 0)] == 2
        hosting.stop()
        assert hosting.offsets_in(HIGH_WATERMARKS)[TopicPartition("t", 0)] == 2

    asyncio.run(scenario())


def test_a_log_that_could_not_be_taken_up_goes_with_its_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = await with_an_unreadable_log(tmp_path)
        await hosting.follow(a_topic("other"))
        assert refusal(hosting.replicas.find_by_name, b"t", 0) is Error.UNKNOWN_TOPIC_OR_PARTITION
        other, doomed = hosting.folders()
        assert (other, doomed.startswith("t-0."), doomed.endswith("-delete")) == ("other-0", True, True)
        hosting.disk.heal()
        hosting.stop()

    asyncio.run(scenario())


def test_a_deleted_topic_whose_folder_cannot_be_renamed_is_gone_all_the_same_and_its_folder_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        hosting = Hosting(tmp_path, clock)
        await hosting.follow(a_topic("t", partitions=2), a_topic("kept"))
        hosting.disk.fail("rename", "/t-0")
        await hosting.follow(a_topic("kept"))
        assert refusal(hosting.replicas.find_by_name, b"t", 0) is Error.UNKNOWN_TOPIC_OR_PARTITION
        append(hosting.replicas.find_by_name(b"kept", 0), b"served")
        for _ in range(3):
            await hosting.store.remove_discarded(clock.now_ms())
        kept, stays, neighbour = hosting.folders()
        assert (kept, stays, neighbour.startswith("t-1.")) == ("kept-0", "t-0", True)
        (line,) = caplog.messages
        assert line.startswith("t-0 belongs to no topic but could not be renamed; will retry: ")

        hosting.disk.heal()
        await hosting.store.remove_discarded(clock.now_ms())
        assert hosting.folders()[1].startswith("t-0."), "out of sight now, and still there for its delay"
        clock.advance_ms(hosting.replicas.find_by_name(b"kept", 0).log.config.file_delete_delay_ms)
        await hosting.store.remove_discarded(clock.now_ms())
        assert hosting.folders() == ["kept-0"]
        hosting.stop()

    asyncio.run(scenario())


def test_a_topic_of_the_same_name_waits_until_the_folder_of_the_deleted_one_can_be_renamed(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        await hosting.follow(a_topic("t"))
        append(hosting.replicas.find_by_name(b"t", 0), b"old")
        hosting.disk.fail("rename", "/t-0")
        await hosting.follow(a_topic("t")._replace(topic_id=topic_id("second")))
        assert refusal(hosting.replicas.find_by_name, b"t", 0) is Error.KAFKA_STORAGE_ERROR
        hosting.disk.heal()
        await hosting.replicas.retry_offline(hosting.config)
        second = hosting.replicas.find_by_name(b"t", 0)
        append(second, b"new")
        assert values_in(second) == [b"new"]
        hosting.stop()

    asyncio.run(scenario())


def test_a_topic_whose_folder_somebody_removed_can_be_deleted(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        await hosting.follow(a_topic("t"))
        shutil.rmtree(tmp_path / "data-0" / "t-0")
        await hosting.follow()
        await hosting.follow(a_topic("t")._replace(topic_id=topic_id("second")))
        append(hosting.replicas.find_by_name(b"t", 0), b"served")
        hosting.stop()

    asyncio.run(scenario())


def test_a_deleted_topic_is_gone_at_once_and_its_files_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        hosting = Hosting(tmp_path, clock)
        await hosting.follow(a_topic("t"), a_topic("kept"))
        hosted = hosting.replicas.find_by_name(b"t", 0)
        append(hosted, b"a")
        waiting = hosting.watch(hosted)

        await hosting.follow(a_topic("kept"))

        await asyncio.wait_for(waiting.answered.wait(), 5)
        assert refusal(hosting.replicas.find_by_name, b"t", 0) is Error.UNKNOWN_TOPIC_OR_PARTITION
        assert refusal(hosting.replicas.find_by_id, topic_id("t"), 0) is Error.UNKNOWN_TOPIC_ID
        assert refusal(hosted.append, batch(b"late"), ACKS_LEADER) is Error.NOT_LEADER_OR_FOLLOWER
        assert (hosted.is_removed, hosted.log.is_gone) == (True, True)
        kept, doomed = hosting.folders()
        assert (kept, doomed.startswith("t-0."), doomed.endswith("-delete")) == ("kept-0", True, True)
        await hosting.store.checkpoint_recovery_points()
        assert [name.topic for name in hosting.offsets_in(RECOVERY_POINTS)] == ["kept"]

        clock.advance_ms(hosted.log.config.file_delete_delay_ms - 1)
        await hosting.store.remove_discarded(clock.now_ms())
        assert hosting.folders() == [kept, doomed]
        clock.advance_ms(1)
        await hosting.store.remove_discarded(clock.now_ms())
        assert hosting.folders() == [kept]
        hosting.stop()

    asyncio.run(scenario())


def test_a_topic_deleted_and_made_again_in_one_image_is_another_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        await hosting.follow(a_topic("t"))
        old = hosting.replicas.find_by_name(b"t", 0)
        append(old, b"old")
        again = TopicImage("t", Uuid(b"the second t...."), (a_partition(),))
        await hosting.follow(again)
        new = hosting.replicas.find_by_name(b"t", 0)
        assert new is hosting.replicas.find_by_id(again.topic_id, 0)
        assert (new.log.topic_id, new.log.log_end_offset) == (again.topic_id, 0)
        assert refusal(hosting.replicas.find_by_id, topic_id("t"), 0) is Error.UNKNOWN_TOPIC_ID
        assert old.is_removed
        append(new, b"new")
        assert values_in(new) == [b"new"]
        hosting.stop()

    asyncio.run(scenario())


def test_the_generation_moves_whenever_a_look_up_may_end_otherwise_and_not_without_cause(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        replicas = hosting.replicas
        seen = [replicas.generation]

        def has_moved(replicas: ReplicaManager) -> bool:
            seen.append(replicas.generation)
            return seen[-1] > seen[-2]

        await replicas.retry_offline(hosting.config)
        assert not has_moved(replicas), "no image yet"
        await hosting.follow(topic_of("t", led_by(NODE_ID, 0)))
        assert has_moved(replicas), "a topic is there"
        await replicas.retry_offline(hosting.config)
        assert not has_moved(replicas), "nothing is offline"
        await hosting.follow(topic_of("t", led_by(ANOTHER_NODE, 1)))
        assert has_moved(replicas), "another leads it"
        hosting.disk.fail("make_folder", "/sick-0")
        await hosting.follow(topic_of("t", led_by(ANOTHER_NODE, 1)), a_topic("sick"))
        assert has_moved(replicas), "one more topic, offline"
        hosting.disk.heal()
        await replicas.retry_offline(hosting.config)
        assert has_moved(replicas), "it is back"
        await hosting.follow()
        assert has_moved(replicas), "all are deleted"
        hosting.stop()

    asyncio.run(scenario())


def test_who_acts_on_hosted_partitions_is_told_of_every_change(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        replicas = hosting.replicas
        told: list[list[int]] = []
        replicas.listeners.append(lambda: told.append(sorted(replicas.partitions_of("t"))))
        hosting.disk.fail("make_folder", "/t-1")
        await hosting.follow(a_topic("t", partitions=3))
        hosting.disk.heal()
        await replicas.retry_offline(hosting.config)
        await hosting.follow()
        assert told == [[0, 2], [0, 1, 2], []]
        hosting.stop()

    asyncio.run(scenario())


def test_settings_of_a_topic_reach_its_logs_and_those_of_the_broker_reach_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        topics = a_topic("own", partitions=2), a_topic("plain")
        own: dict[ConfigResource, dict[str, str]] = {ConfigResource(ResourceType.TOPIC, "own"): {"retention.ms": "1"}}
        await hosting.follow(*topics, configs=own)

        def retentions() -> list[int]:
            find = hosting.replicas.find_by_name
            return [
                find(name, index).log.config.retention_ms for name, index in ((b"own", 0), (b"own", 1), (b"plain", 0))
            ]

        assert retentions() == [1, 1, 604_800_000]
        await hosting.follow(*topics, configs={**own, CLUSTER_DEFAULT: {"log.retention.ms": "2"}})
        assert retentions() == [1, 1, 2]
        await hosting.follow(*topics, configs={CLUSTER_DEFAULT: {"log.retention.ms": "2"}})
        assert retentions() == [2, 2, 2]
        await hosting.follow(*topics)
        assert retentions() == [604_800_000] * 3
        hosting.stop()

    asyncio.run(scenario())


def test_after_a_restart_a_partition_goes_on_with_its_log_and_its_high_watermark(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        before = Hosting(tmp_path, clock)
        before.open()
        replicated = topic_of("t", led_by(NODE_ID, 0))
        await before.follow(replicated)
        hosted = before.replicas.find_by_name(b"t", 0)
        for value in (b"a", b"b", b"c"):
            append(hosted, value)
        copied = hosted.log.position_of(2)
        has_copied(hosted, ANOTHER_NODE, 2)
        before.stop()

        after = Hosting(tmp_path, clock)
        assert after.open() == 7
        await after.follow(replicated, configs={ConfigResource(ResourceType.TOPIC, "t"): {"retention.ms": "1234"}})
        again = after.replicas.find_by_name(b"t", 0)
        assert values_in(again) == [b"a", b"b", b"c"]
        assert again.state.high_watermark == copied, "the follower has not said yet that it has more"
        assert again.log.config.retention_ms == 1234
        after.stop()

    asyncio.run(scenario())


def test_a_transaction_whose_end_may_be_lost_is_not_shown_after_a_restart_either(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        before = Hosting(tmp_path, clock)
        before.open()
        replicated = topic_of("t", led_by(NODE_ID, 0))
        await before.follow(replicated)
        hosted = before.replicas.find_by_name(b"t", 0)
        append(hosted, b"plain")
        for sequence in (0, 1):
            hosted.append(idempotent(5, 0, sequence, is_transactional=True), ACKS_LEADER, NOT_NEEDED)
        hosted.append_marker(EndMarker(5, 0, 0, True, 1))
        has_copied(hosted, ANOTHER_NODE, 3)
        assert hosted.last_stable_offset == 1
        before.stop()
        assert before.offsets_in(UNREPLICATED_TXNS) == {TopicPartition("t", 0): 1}

        after = Hosting(tmp_path, clock)
        after.open()
        await after.follow(replicated)
        again = after.replicas.find_by_name(b"t", 0)
        assert again.state.high_watermark.offset == 3
        assert again.last_stable_offset == 1
        has_copied(again, ANOTHER_NODE, 4)
        assert again.last_stable_offset == 4
        after.stop()
        assert UNREPLICATED_TXNS not in os.listdir(after.data_dirs[0].path)

    asyncio.run(scenario())
