"""A led partition of groups: what steps want written is written together, answers wait until it is committed, and a
failure takes the groups back to what the log has."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC
from barnabas.config.topic_config import TopicConfig
from barnabas.metadata.image import ConfigResource, ResourceType, TopicImage
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from barnabas.replication.hosted import HostedPartition
from barnabas.replication.partition import BrokerId, LeaderEpoch
from tests.unit.broker.api.partitions import has_copied
from tests.unit.broker.api.stand_ins import NODE_ID, a_partition, a_topic, topic_id
from tests.unit.broker.coordinators.group_household import PARTITIONS, TOPIC, household

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path
    from typing import Any

    from barnabas.coordination.effects import Effects, ReplyTo
    from barnabas.groups.group_shard import GroupShard

ANOTHER_NODE = 2
NO_OFFSET = -1
NEIGHBOUR = "i"
"""A group in the same partition as `g`."""


async def refused(request: Coroutine[Any, Any, Any]) -> Error:
    with pytest.raises(KafkaError) as error:
        await asyncio.wait_for(request, 10)
    return error.value.error


def test_steps_of_one_turn_are_one_batch(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            assert await asyncio.gather(*[house.commit("g", offset) for offset in range(5)]) == [Error.NONE] * 5
            assert [header.record_count for header in house.batches_of("g")] == [5]
            await house.commit("g", 6)
            assert [header.record_count for header in house.batches_of("g")] == [5, 1]

    asyncio.run(scenario())


def test_a_turn_that_is_too_much_for_one_batch_takes_several(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            house.partition_of("g").log.config = TopicConfig(max_message_bytes=500)
            await asyncio.gather(*[house.commit("g", offset) for offset in range(20)])
            assert len(house.batches_of("g")) > 1
            assert sum(header.record_count for header in house.batches_of("g")) == 20
            assert max(header.size for header in house.batches_of("g")) <= 500
            assert await house.committed("g") == 19

    asyncio.run(scenario())


def test_an_answer_waits_until_every_in_sync_replica_has_what_it_speaks_of(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            await house.lead(2, replicas=(NODE_ID, ANOTHER_NODE))
            await house.loaded()
            hosted = house.partition_of("g")
            writing = asyncio.ensure_future(house.commit("g", 3))
            reading = asyncio.ensure_future(house.committed("g"))
            _, waiting = await asyncio.wait([writing, reading], timeout=0.05)
            assert waiting == {writing, reading}
            has_copied(hosted, ANOTHER_NODE, hosted.log.log_end_offset)
            assert await asyncio.wait_for(writing, 10) == Error.NONE
            assert await asyncio.wait_for(reading, 10) == 3

    asyncio.run(scenario())


def test_an_answer_of_an_epoch_that_has_ended_is_not_given_though_its_offset_is_committed_now(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            await house.lead(2, replicas=(NODE_ID, ANOTHER_NODE))
            await house.loaded()
            hosted = house.partition_of("g")
            writing = asyncio.ensure_future(refused(house.commit("g", 3)))
            await asyncio.wait([writing], timeout=0.05)
            # Led by others and here again, which the coordinator has not heard of yet.
            alone = [BrokerId(NODE_ID)]
            hosted.state.follow_metadata(BrokerId(NODE_ID), LeaderEpoch(4), 4, alone, alone)
            house.purgatory.wake(hosted.watchers)
            _, waiting = await asyncio.wait([writing], timeout=0.05)
            assert waiting == {writing}
            await house.lead(5)
            assert await asyncio.wait_for(writing, 10) is Error.NOT_COORDINATOR

    asyncio.run(scenario())


def test_what_is_not_committed_in_time_is_answered_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path, offsets_commit_timeout_ms="20") as house:
            await house.lead(2, replicas=(NODE_ID, ANOTHER_NODE))
            await house.loaded()
            assert await refused(house.commit("g", 3)) is Error.COORDINATOR_NOT_AVAILABLE

    asyncio.run(scenario())


def test_too_few_in_sync_replicas_take_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            await house.lead(2, replicas=(NODE_ID, ANOTHER_NODE))
            await house.loaded()
            hosted = house.partition_of("g")
            hosted.state.isr = frozenset({BrokerId(NODE_ID)})
            hosted.reconfigure(TopicConfig(min_insync_replicas=2))
            assert await refused(house.commit("g", 3)) is Error.COORDINATOR_NOT_AVAILABLE
            await house.loaded()
            assert house.batches_of("g") == []
            assert await house.committed("g") == NO_OFFSET

    asyncio.run(scenario())


def test_with_too_few_in_sync_replicas_a_group_still_answers_those_who_write_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path, group_initial_rebalance_delay_ms="0") as house:
            assert await house.commit("g", 3) == Error.NONE
            joined = await house.join("g")
            await house.sync("g", joined)
            few = a_partition(NODE_ID, (NODE_ID, ANOTHER_NODE), (NODE_ID,))._replace(leader_epoch=1, partition_epoch=2)
            offsets = TopicImage(OFFSETS_TOPIC, topic_id(OFFSETS_TOPIC), (few,) * PARTITIONS)
            resource = ConfigResource(ResourceType.TOPIC, OFFSETS_TOPIC)
            await house.hosting.follow(offsets, a_topic(TOPIC), configs={resource: {"min.insync.replicas": "2"}})
            house.threads.hold()  # so that it would be noticed if the shard were loaded again
            assert await refused(house.commit("g", 4)) is Error.COORDINATOR_NOT_AVAILABLE
            beat = m.HeartbeatRequest(group_id="g", member_id=joined.member_id, generation_id=joined.generation_id)
            answer: asyncio.Future[m.HeartbeatResponse] = asyncio.get_running_loop().create_future()
            house.groups.begin_step("g", lambda shard, to, now_ms: shard.heartbeat(beat, to, now_ms), answer)
            assert (await asyncio.wait_for(answer, 10)).error_code == Error.NONE
            assert await asyncio.wait_for(house.committed("g"), 10) == 3

    asyncio.run(scenario())


def test_what_was_committed_can_be_read_when_too_few_replicas_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            assert await house.commit("g", 3) == Error.NONE
            monkeypatch.setattr(HostedPartition, "outcome", lambda *_: Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            assert await asyncio.wait_for(house.committed("g"), 10) == 3

    asyncio.run(scenario())


def test_a_shard_whose_partition_has_moved_is_not_loaded_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            assert await house.commit("g", 3) == Error.NONE
            hosted = house.partition_of("g")
            others = [BrokerId(ANOTHER_NODE)]
            # The coordinator has not heard of it yet.
            hosted.state.follow_metadata(BrokerId(ANOTHER_NODE), LeaderEpoch(9), 9, others, others)
            request = house.commit_request("g", 4)
            answer: asyncio.Future[m.OffsetCommitResponse] = asyncio.get_running_loop().create_future()
            house.groups.begin_step("g", lambda shard, to, now_ms: shard.commit_offsets(request, 9, to, now_ms), answer)
            with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
                await asyncio.wait_for(answer, 10)

    asyncio.run(scenario())
    assert "loading its groups again" not in caplog.text


def test_where_the_topic_asks_for_it_answers_wait_for_the_device(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            house.partition_of("g").log.config = TopicConfig(flush_messages=1)
            house.threads.hold()
            writing = asyncio.ensure_future(house.commit("g", 3))
            reading = asyncio.ensure_future(house.committed("g"))
            _, waiting = await asyncio.wait([writing, reading], timeout=0.05)
            assert waiting == {writing, reading}
            house.threads.let_go()
            assert await asyncio.wait_for(writing, 10) == Error.NONE
            assert await asyncio.wait_for(reading, 10) == 3
            assert house.partition_of("g").log.unflushed_messages == 0

    asyncio.run(scenario())


def test_a_device_that_fails_leaves_nobody_without_an_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            house.partition_of("g").log.config = TopicConfig(flush_messages=1)
            house.threads.hold()
            early = asyncio.ensure_future(refused(house.commit("g", 3)))
            await asyncio.sleep(0.01)
            led = house.groups.serving(house.groups.partition_of("g"))
            [delivery] = led._undelivered
            late = asyncio.ensure_future(refused(house.commit(NEIGHBOUR, 4)))
            for _ in range(2):  # It is in a task of a task. After that it has taken its step, and the turn is not over.
                await asyncio.sleep(0)
            assert led._answers
            led.sync_failed(delivery, OSError("the device is gone"))
            house.threads.let_go()
            assert await early is Error.NOT_COORDINATOR
            assert await late is Error.NOT_COORDINATOR

    asyncio.run(scenario())


def test_a_full_disk_takes_the_groups_back_to_what_the_log_has(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path, group_initial_rebalance_delay_ms="0") as house:
            await house.commit("g", 1)
            house.disk.is_full = True
            answers = await asyncio.gather(*[house.commit("g", offset) for offset in (2, 3)], return_exceptions=True)
            assert [isinstance(answer, KafkaError) and answer.error for answer in answers] == [
                Error.NOT_COORDINATOR
            ] * 2
            await house.loaded()
            assert await house.committed("g") == 1
            house.disk.is_full = False
            assert await house.commit("g", 4) == Error.NONE
            assert await house.committed("g") == 4
            assert [header.base_offset for header in house.batches_of("g")] == [0, 1]

    asyncio.run(scenario())


def test_a_record_that_no_batch_can_hold_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            await house.commit("g", 1)
            house.partition_of("g").log.config = TopicConfig(max_message_bytes=500)
            assert await refused(house.commit("g", 2, "x" * 1000)) is Error.UNKNOWN_SERVER_ERROR
            await house.loaded()
            assert await house.committed("g") == 1

    asyncio.run(scenario())


def test_who_waits_in_a_group_is_sent_off_when_its_partition_drops_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path, group_initial_rebalance_delay_ms="60000") as house:
            joining = asyncio.ensure_future(house.join("g"))
            await house.commit(NEIGHBOUR, 1)
            assert house.partition_of("g") is house.partition_of(NEIGHBOUR)
            house.disk.is_full = True
            assert await refused(house.commit(NEIGHBOUR, 2)) is Error.NOT_COORDINATOR
            assert (await asyncio.wait_for(joining, 10)).error_code == Error.NOT_COORDINATOR

    asyncio.run(scenario())


def test_a_step_that_fails_in_the_node_is_undone_and_what_came_before_it_stands(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:

            def fails(shard: GroupShard, reply_to: ReplyTo, now_ms: int) -> Effects:
                shard.commit_offsets(house.commit_request("g", 9), 9, reply_to, now_ms)
                raise RuntimeError("a mistake in the node")

            async def fail() -> None:
                await house.groups.step("g", fails)

            before = asyncio.ensure_future(house.commit("g", 1))
            failing = asyncio.ensure_future(refused(fail()))
            assert await before == Error.NONE
            assert await failing is Error.UNKNOWN_SERVER_ERROR
            await house.loaded()
            assert await house.committed("g") == 1

    asyncio.run(scenario())
