"""Groups and transactional ids have one coordinator at a time: all brokers name the same one, and no other answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.unit.broker.several_brokers import SeveralBrokers, until
from tests.wire.requests import error_codes

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from barnabas.protocol.compiler.structs import Message

TOPIC, GROUP, ID = "t", "g", "payments"
GROUP_KEY, TRANSACTION_KEY = 0, 1


def run(scenario: Callable[[SeveralBrokers], Coroutine[Any, Any, None]], **settings: str) -> None:
    cluster = SeveralBrokers(3, **settings)
    cluster.place(OFFSETS_TOPIC, 2)
    cluster.place(TRANSACTIONS_TOPIC, 3)
    cluster.place(TOPIC, 1)

    async def settled() -> None:
        await asyncio.sleep(1)
        await scenario(cluster)

    cluster.run(settled())


async def coordinator_of(cluster: SeveralBrokers, asked: int, key_type: int, key: str) -> tuple[Error, int]:
    response = await cluster.client(asked).send(m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
    (found,) = response.coordinators
    return Error(found.error_code), found.node_id


async def coordinators(cluster: SeveralBrokers, key_type: int, key: str) -> set[tuple[Error, int]]:
    return {await coordinator_of(cluster, broker_id, key_type, key) for broker_id in cluster.brokers}


def test_all_brokers_name_the_same_coordinator() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        assert await coordinators(cluster, GROUP_KEY, GROUP) == {(Error.NONE, 2)}
        assert await coordinators(cluster, TRANSACTION_KEY, ID) == {(Error.NONE, 3)}
        cluster.place(OFFSETS_TOPIC, 1)
        cluster.lead(TRANSACTIONS_TOPIC, -1)
        await asyncio.sleep(1)
        assert await coordinators(cluster, GROUP_KEY, GROUP) == {(Error.NONE, 1)}
        assert await coordinators(cluster, TRANSACTION_KEY, ID) == {(Error.COORDINATOR_NOT_AVAILABLE, -1)}

    run(scenario)


def test_a_topic_of_coordinators_that_cannot_be_created_leaves_groups_without_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = SeveralBrokers(2)

    async def scenario() -> None:
        for _ in range(3):
            assert await coordinators(cluster, GROUP_KEY, GROUP) == {(Error.COORDINATOR_NOT_AVAILABLE, -1)}
            await asyncio.sleep(1)

    cluster.run(scenario())
    complaints = [line for line in caplog.messages if "topic __consumer_offsets was not created" in line]
    assert len(complaints) == 2, "each broker says it once, however often it is asked"
    assert all("INVALID_REPLICATION_FACTOR" in line for line in complaints)
    assert all(line.endswith("Start more brokers, or lower offsets.topic.replication.factor") for line in complaints)


REQUESTS: list[Message] = [
    m.JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    ),
    m.SyncGroupRequest(group_id=GROUP, member_id="m", protocol_type="consumer", protocol_name="range"),
    m.HeartbeatRequest(group_id=GROUP, member_id="m"),
    m.LeaveGroupRequest(group_id=GROUP),
    m.ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=1),
    m.OffsetCommitRequest(
        group_id=GROUP,
        topics=[
            m.OffsetCommitRequest.OffsetCommitRequestTopic(
                name=TOPIC, partitions=[m.OffsetCommitRequest.OffsetCommitRequestPartition(committed_offset=1)]
            )
        ],
    ),
    m.OffsetFetchRequest(groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP)]),
    m.DescribeGroupsRequest(groups=[GROUP]),
    m.ConsumerGroupDescribeRequest(group_ids=[GROUP]),
    m.DeleteGroupsRequest(groups_names=[GROUP]),
    m.OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            m.OffsetDeleteRequest.OffsetDeleteRequestTopic(
                name=TOPIC, partitions=[m.OffsetDeleteRequest.OffsetDeleteRequestPartition()]
            )
        ],
    ),
    m.InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000),
    m.AddOffsetsToTxnRequest(transactional_id=ID, producer_id=1, producer_epoch=0, group_id=GROUP),
    m.EndTxnRequest(transactional_id=ID, producer_id=1, producer_epoch=0),
    m.DescribeTransactionsRequest(transactional_ids=[ID]),
]
AN_IDEMPOTENT_PRODUCER = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
VERSIONS = {m.OffsetCommitRequest: 9, m.OffsetFetchRequest: 9}
"""The last ones that name topics."""


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a_broker_that_is_not_the_coordinator_says_so(request_: Message) -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        response = await cluster.client(1).send(request_, VERSIONS.get(type(request_)))
        assert {Error(code) for code in error_codes(response)} - {Error.NONE} == {Error.NOT_COORDINATOR}

    run(scenario)


def a_join(member_id: str = "") -> m.JoinGroupRequest:
    return m.JoinGroupRequest(
        group_id=GROUP,
        member_id=member_id,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def test_a_member_that_waits_is_told_when_its_coordinator_moves() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        first, second = cluster.client(2), cluster.client(2)
        joined = await first.send(a_join(), 3)
        assert Error(joined.error_code) is Error.NONE
        joining = asyncio.ensure_future(second.send(a_join(), 3))
        _, waiting = await asyncio.wait([joining], timeout=5)
        assert waiting, "the first member has not joined again"
        cluster.place(OFFSETS_TOPIC, 3)
        assert Error((await joining).error_code) is Error.NOT_COORDINATOR
        assert (await coordinator_of(cluster, 1, GROUP_KEY, GROUP)) == (Error.NONE, 3)
        again = await cluster.client(3).send(a_join(), 3)
        assert Error(again.error_code) is Error.NONE

    run(scenario, group_initial_rebalance_delay_ms="0")


def test_producer_ids_survive_a_controller_that_is_away_for_a_moment() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        cluster.refuses = lambda _: Error.NOT_CONTROLLER
        asking = asyncio.ensure_future(cluster.client(1).send(AN_IDEMPOTENT_PRODUCER))
        await asyncio.sleep(0.5)
        cluster.refuses = lambda _: Error.NONE
        response = await asking
        assert (Error(response.error_code), response.producer_id) == (Error.NONE, 1000)

    run(scenario)


def test_without_a_controller_producers_are_told_to_try_again() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        cluster.refuses = lambda _: Error.NOT_CONTROLLER
        begun = cluster.scheduler.now
        response = await cluster.client(1).send(AN_IDEMPOTENT_PRODUCER)
        assert Error(response.error_code) is Error.COORDINATOR_LOAD_IN_PROGRESS
        assert cluster.scheduler.now - begun < 1.5
        tried = [each for each in cluster.brokers[1].asked_controller if isinstance(each, m.AllocateProducerIdsRequest)]
        assert 2 <= len(tried) <= 25

    run(scenario)


def test_no_id_is_given_twice_in_a_cluster() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        given: list[int] = []
        for broker_id in cluster.brokers:
            client = cluster.client(broker_id)
            for _ in range(20):
                response = await client.send(AN_IDEMPOTENT_PRODUCER)
                given.append(response.producer_id)
        assert len(set(given)) == len(given) == 60

    run(scenario)


def test_a_shard_that_comes_back_has_what_was_committed() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        commit = REQUESTS[5]
        assert isinstance(commit, m.OffsetCommitRequest)
        response = await cluster.client(2).send(commit, 9)
        assert set(error_codes(response)) <= {Error.NONE}
        cluster.lead(OFFSETS_TOPIC, -1)
        await asyncio.sleep(1)
        response = await cluster.client(2).send(commit, 9)
        assert {Error(code) for code in error_codes(response)} == {Error.NOT_COORDINATOR}
        cluster.lead(OFFSETS_TOPIC, 2)

        async def is_there() -> bool:
            topic = m.OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
            asked = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
            fetched = await cluster.client(2).send(m.OffsetFetchRequest(groups=[asked]), 9)
            (group,) = fetched.groups
            if group.error_code in (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR):
                return False
            return bool(group.topics[0].partitions[0].committed_offset == 1)

        await until(is_there)

    run(scenario)
