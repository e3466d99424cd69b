"""The coordinator serves the groups of the partitions that this node leads, for as long as it does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.coordinators import sharded_coordinator
from barnabas.broker.coordinators.group_coordinator import shard_settings
from barnabas.config.values import ConfigError
from barnabas.groups.classic.classic_members import ClientInfo
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from tests.unit.broker.api.stand_ins import NODE_ID, a_config, a_topic
from tests.unit.broker.coordinators.group_household import TOPIC, Household, household, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from barnabas.groups.group_shard import GroupShard

ANOTHER_NODE = 2
NO_OFFSET = -1


async def is_refused(house: Household, group_id: str) -> Error:
    with pytest.raises(KafkaError) as refused:
        await house.committed(group_id)
    return refused.value.error


async def described(house: Household, group_id: str) -> m.ConsumerGroupDescribeResponse.DescribedGroup:
    [group] = await house.groups.read(group_id, lambda shard: shard.describe_consumer_groups([group_id]))
    return group


async def is_empty(house: Household, group_id: str) -> bool:
    return await house.state_of(group_id) == "Empty"


def test_without_the_topic_of_groups_this_node_coordinates_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        house = Household(tmp_path)
        assert await is_refused(house, "g") is Error.NOT_COORDINATOR
        assert await house.groups.read_all(lambda shard: shard.list_groups([], [])) == []
        await house.stop()

    asyncio.run(scenario())


def test_groups_of_a_partition_that_another_node_leads_are_not_served(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            await house.commit("g", 1)
            await house.lead(2, leader=ANOTHER_NODE, replicas=(NODE_ID, ANOTHER_NODE))
            assert await is_refused(house, "g") is Error.NOT_COORDINATOR
            with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
                await house.commit("g", 2)

    asyncio.run(scenario())


def test_topics_are_looked_through_in_a_thread_while_groups_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            client = ClientInfo(client_id="c", host="/127.0.0.1", version=1, new_member_id="unused")
            request = m.ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="a",
                rebalance_timeout_ms=60_000,
                subscribed_topic_regex=f"{TOPIC}|nothing",
                topic_partitions=[],
            )
            house.threads.hold()
            joined = await house.groups.step(
                "g", lambda shard, reply_to, now_ms: shard.consumer_heartbeat(request, client, reply_to, now_ms)
            )
            assert joined.error_code == Error.NONE
            before = await described(house, "g")
            house.threads.let_go()

            async def is_resolved() -> bool:
                return (await described(house, "g")).group_epoch > before.group_epoch

            await until(is_resolved)

    asyncio.run(scenario())


def test_who_waits_in_a_group_is_sent_off_when_the_node_resigns(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path, group_initial_rebalance_delay_ms="60000") as house:
            joining = asyncio.ensure_future(house.join("g"))
            await asyncio.sleep(0)
            await house.lead(2, leader=ANOTHER_NODE, replicas=(NODE_ID, ANOTHER_NODE))
            assert (await asyncio.wait_for(joining, 10)).error_code == Error.NOT_COORDINATOR

    asyncio.run(scenario())


def test_answers_that_wait_for_replicas_become_refusals_when_the_node_resigns(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            await house.lead(2, replicas=(NODE_ID, ANOTHER_NODE))
            await house.loaded()
            writing = asyncio.ensure_future(house.commit("g", 1))
            _, waiting = await asyncio.wait([writing], timeout=0.05)
            assert waiting == {writing}
            await house.lead(3, leader=ANOTHER_NODE, replicas=(NODE_ID, ANOTHER_NODE))
            with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
                await asyncio.wait_for(writing, 10)

    asyncio.run(scenario())


def test_in_a_new_leader_epoch_the_groups_are_read_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            await house.commit("g", 1)
            await house.lead(2)
            await house.loaded()
            assert await house.committed("g") == 1
            assert await house.commit("g", 2) == Error.NONE
            assert [header.partition_leader_epoch for header in house.batches_of("g")] == [1, 2]

    asyncio.run(scenario())


def test_groups_go_with_their_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            await house.commit("g", 1)
            await house.hosting.follow()
            assert await is_refused(house, "g") is Error.NOT_COORDINATOR

    asyncio.run(scenario())


def test_a_member_is_gone_when_its_session_is_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {"group_initial_rebalance_delay_ms": "0", "group_min_session_timeout_ms": "1"}
        async with household(tmp_path, **settings) as house:
            joined = await house.join("g", session_timeout_ms=50)
            await house.sync("g", joined)
            assert await house.state_of("g") == "Stable"
            await until(lambda: is_empty(house, "g"))
            assert await house.heartbeat("g", joined) == Error.UNKNOWN_MEMBER_ID

    asyncio.run(scenario())


def test_the_first_rebalance_of_a_group_waits_for_further_members(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path, group_initial_rebalance_delay_ms="50") as house:
            async with asyncio.timeout(10):
                joined = await asyncio.gather(*[house.join("g") for _ in range(3)])
            assert {each.generation_id for each in joined} == {1}
            assert sorted(len(each.members) for each in joined) == [0, 0, 3]

    asyncio.run(scenario())


def test_groups_of_all_partitions_are_listed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            for number in range(10):
                await house.commit(f"g{number}", number)
            listed = await house.groups.read_all(lambda shard: shard.list_groups([], []))
            assert len(listed) == 2
            assert all(listed)
            assert {group.group_id for groups in listed for group in groups} == {f"g{n}" for n in range(10)}

    asyncio.run(scenario())


def test_very_many_groups_of_a_partition_are_listed_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharded_coordinator, "NAMES_AT_ONCE", 7)
    read: list[int] = []

    def listed(shard: GroupShard, group_ids: Sequence[str]) -> list[str]:
        read.append(len(group_ids))
        return [group.group_id for group in shard.list_groups([], [], group_ids)]

    async def scenario() -> None:
        async with household(tmp_path) as house:
            names = [f"group-{number}" for number in range(50)]
            await asyncio.gather(*[house.commit(name, 1) for name in names])
            assert sorted(await house.groups.read_all_in_slices(lambda shard: shard.group_ids(), listed)) == sorted(
                names
            )
            assert max(read) == 7
            assert len(read) >= 8

    asyncio.run(scenario())


def test_offsets_of_a_deleted_topic_are_deleted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            await house.commit("g", 1)
            await house.groups.topics_deleted([a_topic(TOPIC)])
            assert await house.committed("g") == NO_OFFSET
        async with household(tmp_path) as house:
            assert await house.committed("g") == NO_OFFSET

    asyncio.run(scenario())


def test_offsets_of_a_topic_that_is_deleted_while_groups_are_read_are_deleted_then(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            await house.commit("g", 1)
        house = Household(tmp_path)
        house.threads.hold()
        await house.lead()
        await house.groups.topics_deleted([a_topic(TOPIC)])
        house.threads.let_go()
        await house.loaded()
        assert await house.committed("g") == NO_OFFSET
        await house.stop()

    asyncio.run(scenario())


def test_a_setting_that_changes_while_the_node_runs_counts_from_then_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path, group_consumer_assignment_interval_ms="15000") as house:
            first = await beat(house, "a")
            assert (await beat(house, "b")).member_epoch == first.member_epoch
            house.groups.reconfigure(house.config.with_dynamic({"group.consumer.assignment.interval.ms": "0"}, {}))
            assert (await beat(house, "c")).member_epoch > first.member_epoch

    asyncio.run(scenario())


async def beat(house: Household, member_id: str) -> m.ConsumerGroupHeartbeatResponse:
    """The first heartbeat of a member of a consumer group."""
    request = m.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    client = ClientInfo("client", "/127.0.0.1", 1, "unused")
    response: m.ConsumerGroupHeartbeatResponse = await house.groups.step(
        "g", lambda shard, reply_to, now_ms: shard.consumer_heartbeat(request, client, reply_to, now_ms)
    )
    return response


def test_assignors_may_be_named_by_kafkas_classes() -> None:
    package = "org.apache.kafka.coordinator.group.assignor"
    config = a_config(group_consumer_assignors=f"{package}.RangeAssignor,uniform")
    assert shard_settings(config).consumer.assignors == ("range", "uniform")
    with pytest.raises(ConfigError, match="sticky is not a known assignor; known are uniform and range"):
        shard_settings(a_config(group_consumer_assignors="sticky"))


def test_a_closed_coordinator_serves_nobody_and_follows_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            house.groups.close()
            assert await is_refused(house, "g") is Error.NOT_COORDINATOR
            await house.lead(2)
            assert await is_refused(house, "g") is Error.NOT_COORDINATOR

    asyncio.run(scenario())
