"""Steps of classic groups whose record cannot be written: clients are told, the group goes on, and nothing is read
anew."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC
from barnabas.config.topic_config import TopicConfig
from barnabas.groups.classic.classic_members import ClientInfo
from barnabas.metadata.image import ConfigResource, ResourceType, TopicImage
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from tests.unit.broker.api.stand_ins import NODE_ID, a_partition, a_topic, topic_id
from tests.unit.broker.coordinators.group_household import PARTITIONS, TOPIC, household

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from barnabas.broker.coordinators.led_shard import Step
    from barnabas.groups.group_shard import GroupShard
    from tests.unit.broker.coordinators.group_household import Household

ANOTHER_NODE = 2
NO_DELAY = {"group_initial_rebalance_delay_ms": "0"}


async def take(house: Household, group_id: str, step: Step[GroupShard]) -> Any:
    """As JoinGroup and its like are handled: whether they write is known only when the step is taken."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    house.groups.begin_step(group_id, step, answer)
    return await asyncio.wait_for(answer, 10)


def join(
    house: Household, group_id: str, member_id: str = "", *, instance: str | None = None, new_id: str = "m"
) -> Coroutine[Any, Any, m.JoinGroupResponse]:
    request = m.JoinGroupRequest(
        group_id=group_id,
        member_id=member_id,
        group_instance_id=instance,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"x" * 300)],
    )
    client = ClientInfo("client", "/127.0.0.1", 3 if instance is None else 9, new_id)
    return take(house, group_id, lambda shard, to, now_ms: shard.join(request, client, to, now_ms))


def sync(
    house: Household, group_id: str, joined: m.JoinGroupResponse, instance: str | None = None
) -> Coroutine[Any, Any, m.SyncGroupResponse]:
    request = m.SyncGroupRequest(
        group_id=group_id,
        member_id=joined.member_id,
        group_instance_id=instance,
        generation_id=joined.generation_id,
        assignments=[m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
    )
    return take(house, group_id, lambda shard, to, now_ms: shard.sync(request, to, now_ms))


async def heartbeat(house: Household, group_id: str, joined: m.JoinGroupResponse, instance: str | None = None) -> Error:
    request = m.HeartbeatRequest(
        group_id=group_id,
        member_id=joined.member_id,
        group_instance_id=instance,
        generation_id=joined.generation_id,
    )
    return Error(
        (await take(house, group_id, lambda shard, to, now_ms: shard.heartbeat(request, to, now_ms))).error_code
    )


async def refused(request: Coroutine[Any, Any, Any]) -> Error:
    with pytest.raises(KafkaError) as error:
        await request
    return error.value.error


async def set_in_sync(house: Household, *in_sync: int, epoch: int) -> None:
    """So many of two replicas are in sync, and two have to be."""
    partition = a_partition(NODE_ID, (NODE_ID, ANOTHER_NODE), in_sync)._replace(leader_epoch=1, partition_epoch=epoch)
    offsets = TopicImage(OFFSETS_TOPIC, topic_id(OFFSETS_TOPIC), (partition,) * PARTITIONS)
    resource = ConfigResource(ResourceType.TOPIC, OFFSETS_TOPIC)
    await house.hosting.follow(offsets, a_topic(TOPIC), configs={resource: {"min.insync.replicas": "2"}})


def forbid_reading(house: Household) -> None:
    """Whatever would load the shard again waits from here on, and so would everything after it."""
    house.threads.hold()


def test_a_group_that_cannot_be_written_is_not_there_and_its_neighbours_are(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path, **NO_DELAY) as house:
            assert await house.commit("i", 3) == Error.NONE
            await set_in_sync(house, NODE_ID, epoch=2)
            forbid_reading(house)
            for _ in range(3):
                assert (await join(house, "g")).error_code == Error.COORDINATOR_NOT_AVAILABLE
            assert await asyncio.wait_for(house.committed("i"), 10) == 3
            assert not await asyncio.wait_for(house.groups.read("g", lambda shard: shard.has_group("g")), 10)

    asyncio.run(scenario())


def test_an_assignment_for_which_replicas_are_missing_makes_the_members_join_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path, **NO_DELAY) as house:
            joined = await join(house, "g")
            await set_in_sync(house, NODE_ID, epoch=2)
            forbid_reading(house)
            assert await refused(sync(house, "g", joined)) is Error.COORDINATOR_NOT_AVAILABLE
            assert await heartbeat(house, "g", joined) is Error.REBALANCE_IN_PROGRESS
            again = await join(house, "g", joined.member_id)
            assert (again.error_code, again.generation_id) == (Error.NONE, joined.generation_id + 1)
            assert await refused(sync(house, "g", again)) is Error.COORDINATOR_NOT_AVAILABLE

    asyncio.run(scenario())


def test_an_assignment_that_no_batch_can_hold_is_refused_and_the_group_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path, **NO_DELAY) as house:
            assert await house.commit("i", 3) == Error.NONE
            joined = await join(house, "g")
            config = house.partition_of("g").log.config
            house.partition_of("g").log.config = TopicConfig(max_message_bytes=200)
            forbid_reading(house)
            committing = asyncio.ensure_future(house.commit("i", 4))
            assert await committing == Error.NONE
            assert await refused(sync(house, "g", joined)) is Error.UNKNOWN_SERVER_ERROR
            assert await asyncio.wait_for(house.committed("i"), 10) == 4
            house.partition_of("g").log.config = config
            again = await join(house, "g", joined.member_id)
            assert bytes((await sync(house, "g", again)).assignment) == b"all"
            assert await heartbeat(house, "g", again) is Error.NONE

    asyncio.run(scenario())


def test_a_static_member_whose_return_cannot_be_written_is_still_the_old_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path, **NO_DELAY) as house:
            joined = await join(house, "g", instance="one", new_id="first")
            assert bytes((await sync(house, "g", joined, "one")).assignment) == b"all"
            config = house.partition_of("g").log.config
            house.partition_of("g").log.config = TopicConfig(max_message_bytes=200)
            forbid_reading(house)
            assert await refused(join(house, "g", instance="one", new_id="second")) is Error.UNKNOWN_SERVER_ERROR
            assert await heartbeat(house, "g", joined, "one") is Error.NONE
            house.partition_of("g").log.config = config
            returned = await join(house, "g", instance="one", new_id="third")
            assert (returned.member_id, returned.generation_id) == ("third", joined.generation_id)
            assert await heartbeat(house, "g", joined, "one") is Error.FENCED_INSTANCE_ID

    asyncio.run(scenario())
