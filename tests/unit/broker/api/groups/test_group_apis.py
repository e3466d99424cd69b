"""The APIs of groups in the form that each version has, above all where a group cannot be asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.api.groups import classic_groups, consumer_groups, group_admin, offset_commit, offset_fetch
from barnabas.metadata.image import FeaturesImage
from barnabas.protocol import messages as m
from barnabas.protocol.codec import encode
from barnabas.protocol.errors import Error
from tests.unit.broker.api.stand_ins import caller, topic_id
from tests.unit.broker.coordinators.group_household import TOPIC, Household, household
from tests.wire.requests import error_codes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from barnabas.broker.api.environments import GroupEnvironment
    from barnabas.net.dispatch import Caller
    from barnabas.protocol.compiler.structs import Message

GROUP = "g"
ANOTHER_TOPIC = "not-there"


def a_commit(*partitions: int, topic: str = TOPIC, group_id: str = GROUP) -> m.OffsetCommitRequest:
    request = m.OffsetCommitRequest
    offsets = [request.OffsetCommitRequestPartition(partition_index=each, committed_offset=5) for each in partitions]
    return request(group_id=group_id, topics=[request.OffsetCommitRequestTopic(name=topic, partitions=offsets)])


def commit(environment: GroupEnvironment, request: m.OffsetCommitRequest, caller: Caller) -> Awaitable[Any]:
    return offset_commit.commit(environment, request, caller.api_version)


def a_fetch(version: int) -> m.OffsetFetchRequest:
    request = m.OffsetFetchRequest
    if version < 8:
        topic = request.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        return request(group_id=GROUP, topics=[topic])
    named: dict[str, Any] = {"topic_id": topic_id(TOPIC)} if version >= 10 else {"name": TOPIC}
    topics = [request.OffsetFetchRequestTopics(partition_indexes=[0], **named)]
    return request(groups=[request.OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])


def a_deletion(*partitions: int, group_id: str = GROUP, topic: str = TOPIC) -> m.OffsetDeleteRequest:
    request = m.OffsetDeleteRequest
    wanted = [request.OffsetDeleteRequestPartition(partition_index=each) for each in partitions]
    return request(group_id=group_id, topics=[request.OffsetDeleteRequestTopic(name=topic, partitions=wanted)])


def a_join(group_id: str = GROUP, instance_id: str | None = None) -> m.JoinGroupRequest:
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    return m.JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


def a_consumer(group_id: str = GROUP, member_id: str = "x") -> m.ConsumerGroupHeartbeatRequest:
    return m.ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )


def a_leave(version: int, group_id: str = GROUP) -> m.LeaveGroupRequest:
    if version < 3:
        return m.LeaveGroupRequest(group_id=group_id, member_id="x")
    return m.LeaveGroupRequest(group_id=group_id, members=[m.LeaveGroupRequest.MemberIdentity(member_id="x")])


def a_sync(version: int, group_id: str = GROUP) -> m.SyncGroupRequest:
    protocol = "range" if version >= 5 else None
    return m.SyncGroupRequest(group_id=group_id, member_id="x", protocol_type=protocol, protocol_name=protocol)


Handler = Any
EVERY_API: list[tuple[Handler, Callable[[int], Message], tuple[int, int]]] = [
    (classic_groups.join_group, lambda _: a_join(), (0, 9)),
    (classic_groups.sync_group, a_sync, (0, 5)),
    (classic_groups.heartbeat, lambda _: m.HeartbeatRequest(group_id=GROUP, member_id="x"), (0, 4)),
    (classic_groups.leave_group, a_leave, (0, 5)),
    (commit, lambda _: a_commit(0), (2, 9)),
    (offset_fetch.offset_fetch, a_fetch, (1, 10)),
    (offset_fetch.offset_delete, lambda _: a_deletion(0), (0, 0)),
    (group_admin.describe_groups, lambda _: m.DescribeGroupsRequest(groups=[GROUP]), (0, 6)),
    (group_admin.delete_groups, lambda _: m.DeleteGroupsRequest(groups_names=[GROUP]), (0, 2)),
    (consumer_groups.consumer_group_heartbeat, lambda _: a_consumer(), (0, 1)),
    (consumer_groups.consumer_group_describe, lambda _: m.ConsumerGroupDescribeRequest(group_ids=[GROUP]), (0, 1)),
    (group_admin.share_group_describe, lambda _: m.ShareGroupDescribeRequest(group_ids=[GROUP]), (1, 1)),
    (group_admin.streams_group_describe, lambda _: m.StreamsGroupDescribeRequest(group_ids=[GROUP]), (0, 0)),
]
EVERY_VERSION = [
    pytest.param(handler, make, version, id=f"{handler.__name__} v{version}")
    for handler, make, (low, high) in EVERY_API
    for version in range(low, high + 1)
]


def run(root: Path, scenario: Callable[[Household], Awaitable[None]], **settings: str) -> None:
    async def in_household() -> None:
        async with household(root, group_initial_rebalance_delay_ms="0", **settings) as house:
            await scenario(house)

    asyncio.run(in_household())


async def errors_in(answer: Awaitable[Any], version: int) -> set[int]:
    """The error codes in an answer that can be sent in this version."""
    response = await answer
    encode(response, version)
    return set(error_codes(response))


@pytest.mark.parametrize(("handler", "make", "version"), EVERY_VERSION)
def test_a_group_that_another_node_coordinates_is_answered_so(
    tmp_path: Path, handler: Handler, make: Callable[[int], Message], version: int
) -> None:
    async def scenario(house: Household) -> None:
        await house.lead(2, leader=-1)
        errors = await errors_in(handler(house.for_group_handlers, make(version), caller(version)), version)
        assert errors - {Error.NONE} == {Error.NOT_COORDINATOR}

    run(tmp_path, scenario)


@pytest.mark.parametrize(("handler", "make", "version"), EVERY_VERSION)
def test_while_a_group_is_loaded_clients_are_told_to_wait_and_members_that_all_is_well(
    tmp_path: Path, handler: Handler, make: Callable[[int], Message], version: int
) -> None:
    async def scenario(house: Household) -> None:
        await house.commit(GROUP, 1)
        house.threads.hold()
        await house.lead(2)
        errors = await errors_in(handler(house.for_group_handlers, make(version), caller(version)), version)
        expected = set() if handler is classic_groups.heartbeat else {Error.COORDINATOR_LOAD_IN_PROGRESS}
        assert errors - {Error.NONE} == expected

    run(tmp_path, scenario)


def test_groups_are_not_listed_while_some_are_loaded(tmp_path: Path) -> None:
    async def scenario(house: Household) -> None:
        await house.commit(GROUP, 1)
        listed = await group_admin.list_groups(house.for_group_handlers, m.ListGroupsRequest(), caller(5))
        assert [group.group_id for group in listed.groups] == [GROUP]
        house.threads.hold()
        await house.lead(2)
        refused = await group_admin.list_groups(house.for_group_handlers, m.ListGroupsRequest(), caller(5))
        assert (refused.error_code, refused.groups) == (Error.COORDINATOR_LOAD_IN_PROGRESS, [])

    run(tmp_path, scenario)


@pytest.mark.parametrize("version", range(1, 11))
def test_a_write_that_is_not_committed_in_time_makes_old_consumers_look_for_the_coordinator(
    tmp_path: Path, version: int
) -> None:
    async def scenario(house: Household) -> None:
        await house.lead(2, replicas=(1, 2))
        await house.loaded()
        committing = asyncio.ensure_future(errors_in(commit(house.for_group_handlers, a_commit(0), caller(9)), 9))
        await asyncio.sleep(0)
        fetching = errors_in(
            offset_fetch.offset_fetch(house.for_group_handlers, a_fetch(version), caller(version)), version
        )
        assert await fetching - {Error.NONE} == {Error.NOT_COORDINATOR}
        assert await committing == {Error.COORDINATOR_NOT_AVAILABLE}

    run(tmp_path, scenario, offsets_commit_timeout_ms="20")


@pytest.mark.parametrize(
    ("handler", "request_", "version"),
    [
        (classic_groups.join_group, a_join(""), 9),
        (classic_groups.join_group, a_join(""), 0),
        (classic_groups.sync_group, a_sync(5, ""), 5),
        (classic_groups.heartbeat, m.HeartbeatRequest(group_id=""), 4),
        (classic_groups.leave_group, a_leave(5, ""), 5),
        (classic_groups.leave_group, a_leave(0, ""), 0),
        (offset_fetch.offset_delete, a_deletion(0, group_id=""), 0),
        (consumer_groups.consumer_group_describe, m.ConsumerGroupDescribeRequest(group_ids=[""]), 1),
        (group_admin.share_group_describe, m.ShareGroupDescribeRequest(group_ids=[""]), 1),
        (group_admin.streams_group_describe, m.StreamsGroupDescribeRequest(group_ids=[""]), 0),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_the_empty_group_id_is_refused(tmp_path: Path, handler: Handler, request_: Message, version: int) -> None:
    async def scenario(house: Household) -> None:
        assert await errors_in(handler(house.for_group_handlers, request_, caller(version)), version) == {
            Error.INVALID_GROUP_ID
        }

    run(tmp_path, scenario)


def test_empty_names_come_first_where_groups_of_other_kinds_are_described(tmp_path: Path) -> None:
    names, in_order = ["", GROUP, ""], ["", "", GROUP]
    consumers, shares = m.ConsumerGroupDescribeRequest(group_ids=names), m.ShareGroupDescribeRequest(group_ids=names)
    streams = m.StreamsGroupDescribeRequest(group_ids=names)

    async def scenario(house: Household) -> None:
        handlers = house.for_group_handlers
        described: Sequence[Any]
        described = (await consumer_groups.consumer_group_describe(handlers, consumers, caller(1))).groups
        assert [each.group_id for each in described] == in_order
        described = (await group_admin.share_group_describe(handlers, shares, caller(1))).groups
        assert [each.group_id for each in described] == in_order
        described = (await group_admin.streams_group_describe(handlers, streams, caller(0))).groups
        assert [each.group_id for each in described] == in_order

    run(tmp_path, scenario)


def test_offsets_may_be_kept_under_the_empty_group_id(tmp_path: Path) -> None:
    async def scenario(house: Household) -> None:
        answer = commit(house.for_group_handlers, a_commit(0, group_id=""), caller(9))
        assert await errors_in(answer, 9) == {Error.NONE}
        assert await house.committed("") == 5

    run(tmp_path, scenario)


def test_partitions_and_topics_that_do_not_exist_are_refused_beside_those_that_do(tmp_path: Path) -> None:
    async def scenario(house: Household) -> None:
        request = a_commit(0, 7)
        request.topics = [*request.topics, *a_commit(0, topic=ANOTHER_TOPIC).topics]
        response = await commit(house.for_group_handlers, request, caller(9))
        answered = {
            topic.name: [(p.partition_index, p.error_code) for p in topic.partitions] for topic in response.topics
        }
        unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
        assert answered == {TOPIC: [(7, unknown), (0, Error.NONE)], ANOTHER_TOPIC: [(0, unknown)]}
        deletion = await offset_fetch.offset_delete(house.for_group_handlers, a_deletion(0, 7), caller(0))
        ((topic),) = deletion.topics
        assert [(p.partition_index, p.error_code) for p in topic.partitions] == [(7, unknown), (0, Error.NONE)]

    run(tmp_path, scenario)


def test_from_v10_on_offsets_are_kept_and_found_by_topic_id(tmp_path: Path) -> None:
    async def scenario(house: Household) -> None:
        request = a_commit(0)
        request.topics[0].name, request.topics[0].topic_id = "", topic_id(TOPIC)
        unknown = a_commit(0).topics[0]
        unknown.name, unknown.topic_id = "", topic_id(ANOTHER_TOPIC)
        request.topics = [unknown, *request.topics]
        response = await commit(house.for_group_handlers, request, caller(10))
        assert [(t.topic_id, t.partitions[0].error_code) for t in response.topics] == [
            (topic_id(ANOTHER_TOPIC), Error.UNKNOWN_TOPIC_ID),
            (topic_id(TOPIC), Error.NONE),
        ]
        every = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=None)
        request_all = m.OffsetFetchRequest(groups=[every, *a_fetch(10).groups])
        fetched = await offset_fetch.offset_fetch(house.for_group_handlers, request_all, caller(10))
        assert [
            [(topic.topic_id, topic.partitions[0].committed_offset) for topic in group.topics]
            for group in fetched.groups
        ] == [[(topic_id(TOPIC), 5)]] * 2

    run(tmp_path, scenario)


def test_a_member_id_is_made_of_the_client_id_or_the_instance_id(tmp_path: Path) -> None:
    async def scenario(house: Household) -> None:
        dynamic = await classic_groups.join_group(house.for_group_handlers, a_join(), caller(9))
        assert dynamic.error_code == Error.MEMBER_ID_REQUIRED
        assert dynamic.member_id.startswith("client-")
        static = await classic_groups.join_group(house.for_group_handlers, a_join("static", "one"), caller(9))
        assert static.error_code == Error.NONE
        assert static.member_id.startswith("one-")
        too_long = await classic_groups.join_group(house.for_group_handlers, a_join("static", "x" * 32_767), caller(9))
        assert too_long.error_code == Error.UNKNOWN_SERVER_ERROR

    run(tmp_path, scenario)


def test_from_v5_on_a_sync_names_its_protocol(tmp_path: Path) -> None:
    async def scenario(house: Household) -> None:
        unnamed = await classic_groups.sync_group(house.for_group_handlers, a_sync(4), caller(5))
        assert unnamed.error_code == Error.INCONSISTENT_GROUP_PROTOCOL

    run(tmp_path, scenario)


def test_a_member_of_a_consumer_group_is_assigned_the_topics_that_there_are(tmp_path: Path) -> None:
    async def scenario(house: Household) -> None:
        joined = await consumer_groups.consumer_group_heartbeat(
            house.for_group_handlers, a_consumer(member_id=""), caller(0)
        )
        assert joined.error_code == Error.NONE
        assert joined.member_id
        assert joined.assignment is not None
        assert [each.topic_id for each in joined.assignment.topic_partitions] == [topic_id(TOPIC)]
        request = m.ConsumerGroupDescribeRequest(group_ids=[GROUP, ""], include_authorized_operations=True)
        response = await consumer_groups.consumer_group_describe(house.for_group_handlers, request, caller(1))
        unnamed, described = response.groups
        assert unnamed.error_code == Error.INVALID_GROUP_ID
        assert [member.client_host for member in described.members] == ["/127.0.0.1"]
        assert (described.group_state, described.authorized_operations) == ("Stable", 3400)

    run(tmp_path, scenario)


@pytest.mark.parametrize("is_off_by", ["settings", "feature"])
def test_consumer_groups_may_be_off(tmp_path: Path, is_off_by: str) -> None:
    async def scenario(house: Household) -> None:
        if is_off_by == "feature":
            house.hosting.image = house.image._replace(features=FeaturesImage(30, {}))
        for handler, make, (_, version) in EVERY_API:
            if handler.__module__ == consumer_groups.__name__:
                answer = handler(house.for_group_handlers, make(version), caller(version))
                assert await errors_in(answer, version) == {Error.UNSUPPORTED_VERSION}

    protocols = "classic,consumer" if is_off_by == "feature" else "classic"
    run(tmp_path, scenario, group_coordinator_rebalance_protocols=protocols)


def test_a_group_of_another_kind_is_told_from_one_that_does_not_exist(tmp_path: Path) -> None:
    async def scenario(house: Household) -> None:
        await house.commit(GROUP, 1)
        request = m.ConsumerGroupDescribeRequest(group_ids=[GROUP, "nobody"])
        response: Any = await consumer_groups.consumer_group_describe(house.for_group_handlers, request, caller(1))
        assert [(group.error_code, group.error_message) for group in response.groups] == [
            (Error.GROUP_ID_NOT_FOUND, "Group g is not a consumer group."),
            (Error.GROUP_ID_NOT_FOUND, "Group nobody not found."),
        ]
        await consumer_groups.consumer_group_heartbeat(house.for_group_handlers, a_consumer("consumers"), caller(1))
        for group_id in (GROUP, "consumers"):
            shares = m.ShareGroupDescribeRequest(group_ids=[group_id])
            response = await group_admin.share_group_describe(house.for_group_handlers, shares, caller(1))
            assert response.groups[0].error_message == f"Group {group_id} is not a share group."

    run(tmp_path, scenario)


def test_permitted_operations_are_told_where_they_are_asked_for(tmp_path: Path) -> None:
    async def scenario(house: Household) -> None:
        await house.commit(GROUP, 1)
        request = m.DescribeGroupsRequest(groups=[GROUP, "nobody"], include_authorized_operations=True)
        response = await group_admin.describe_groups(house.for_group_handlers, request, caller(6))
        operations = {group.group_id: group.authorized_operations for group in response.groups}
        assert operations == {GROUP: 3400, "nobody": -(1 << 31)}

    run(tmp_path, scenario)


def test_a_group_that_is_named_twice_is_deleted_once(tmp_path: Path) -> None:
    async def scenario(house: Household) -> None:
        await house.commit(GROUP, 1)
        request = m.DeleteGroupsRequest(groups_names=[GROUP, "nobody", GROUP])
        response = await group_admin.delete_groups(house.for_group_handlers, request, caller(2))
        results = sorted((each.group_id, each.error_code) for each in response.results)
        assert results == [(GROUP, Error.NONE), ("nobody", Error.GROUP_ID_NOT_FOUND)]

    run(tmp_path, scenario)
