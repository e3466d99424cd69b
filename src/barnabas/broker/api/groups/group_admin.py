"""ListGroups, DescribeGroups, DeleteGroups, and the descriptions of share and streams groups, of which there are none.

A request may name groups of several partitions: each partition is asked for its own, and one that cannot answer fails
only its own groups. ListGroups fails as a whole while one of the node's partitions is being loaded.

ListGroups: v3 is flexible · v4 filters by state and answers it · v5 does the same with types
DescribeGroups: v3 may ask for permitted operations · v4 shows static members · v5 is flexible · v6 has an error for a
group that does not exist, which is described as "Dead" before
DeleteGroups: v2 is flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.broker.api.environments import GroupEnvironment
from barnabas.broker.api.registry import handles
from barnabas.groups.classic.rebalancing import ClassicGroupState
from barnabas.groups.consumer.consumer_group import ConsumerGroupState
from barnabas.groups.group_views import CLASSIC, CONSUMER
from barnabas.net.large_requests import NAME_BYTES, SHORT_BYTES_MAX, Cut
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.authorized_operations import GROUP_OPERATIONS
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from barnabas.broker.coordinators.group_coordinator import GroupCoordinator
    from barnabas.net.dispatch import Caller, Handler
    from barnabas.net.large_requests import LargeRequest

    ClassicDescription: TypeAlias = m.DescribeGroupsResponse.DescribedGroup
    Deleted: TypeAlias = m.DeleteGroupsResponse.DeletableGroupResult

DESCRIBE_WITH_OPERATIONS = 3

GROUP_STATES = frozenset(state.value.lower() for state in (*ClassicGroupState, *ConsumerGroupState))
GROUP_TYPES = frozenset((CLASSIC, CONSUMER))

NewerDescription = TypeVar("NewerDescription")


@handles(ApiKey.LIST_GROUPS, GroupEnvironment, versions=(0, 5), long_answer="groups")
async def list_groups(
    environment: GroupEnvironment,
    request: m.ListGroupsRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.ListGroupsResponse:
    try:
        states = narrowed((name.lower().strip() for name in request.states_filter), GROUP_STATES)
        types = narrowed((name.lower() for name in request.types_filter), GROUP_TYPES)
        listed = await environment.groups.read_all_in_slices(
            lambda shard: shard.group_ids(), lambda shard, group_ids: shard.list_groups(states, types, group_ids)
        )
    except KafkaError as failed:
        return m.ListGroupsResponse(error_code=failed.error)
    return m.ListGroupsResponse(groups=listed)


def narrowed(names: Iterable[str], known: frozenset[str]) -> list[str]:
    """The names of a filter that can match something. If there are none, one of the others is kept, so that nothing
    matches."""
    asked = set(names)
    return list(asked & known) or list(asked)[:1]


@handles(
    ApiKey.DESCRIBE_GROUPS,
    GroupEnvironment,
    versions=(0, 6),
    cuts=[Cut(("groups",), ("groups",))],
    whole_bytes_max=SHORT_BYTES_MAX,
)
async def describe_groups(
    environment: GroupEnvironment, request: m.DescribeGroupsRequest, caller: Caller
) -> m.DescribeGroupsResponse:
    described: list[ClassicDescription] = []
    for group_ids in by_partition(environment.groups, request.groups):
        described += await describe_in_one_partition(environment.groups, group_ids, caller.api_version)
    if caller.api_version >= DESCRIBE_WITH_OPERATIONS and request.include_authorized_operations:
        for group in described:
            if group.error_code == Error.NONE:
                group.authorized_operations = GROUP_OPERATIONS
    return m.DescribeGroupsResponse(groups=described)


async def describe_in_one_partition(
    groups: GroupCoordinator, group_ids: list[str], version: int
) -> list[ClassicDescription]:
    try:
        return await groups.read(group_ids[0], lambda shard: shard.describe_groups(group_ids, version))
    except KafkaError as failed:
        return [
            m.DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=failed.error)
            for group_id in group_ids
        ]


async def delete_many_groups(
    handler: Handler, environment: GroupEnvironment, request: LargeRequest, caller: Caller
) -> Any:
    """A group that is named several times is deleted and answered once."""
    await request.check()
    seen: set[str] = set()
    async for piece in request.pieces():
        names = [name for name in dict.fromkeys(piece.groups_names) if name not in seen]
        seen.update(names)
        await request.charge(len(names) * NAME_BYTES)
        piece.groups_names = names
        await request.add((await request.call(handler, environment, piece, caller)).results)
    await request.forget(seen)
    return m.DeleteGroupsResponse()


@handles(
    ApiKey.DELETE_GROUPS,
    GroupEnvironment,
    versions=(0, 2),
    cuts=[Cut(("groups_names",), ("results",))],
    large_handler=delete_many_groups,
)
async def delete_groups(
    environment: GroupEnvironment,
    request: m.DeleteGroupsRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.DeleteGroupsResponse:
    results: list[Deleted] = []
    for group_ids in by_partition(environment.groups, dict.fromkeys(request.groups_names)):
        results += await delete_in_one_partition(environment.groups, group_ids)
    return m.DeleteGroupsResponse(results=results)


async def delete_in_one_partition(groups: GroupCoordinator, group_ids: list[str]) -> list[Deleted]:
    try:
        response: m.DeleteGroupsResponse = await groups.step(
            group_ids[0], lambda shard, reply_to, _: shard.delete_groups(group_ids, reply_to)
        )
    except KafkaError as failed:
        return [
            m.DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=failed.error)
            for group_id in group_ids
        ]
    return response.results


def by_partition(groups: GroupCoordinator, group_ids: Iterable[str]) -> list[list[str]]:
    """The groups by partition, so that each partition is asked once."""
    by_partition: dict[int, list[str]] = {}
    for group_id in group_ids:
        by_partition.setdefault(groups.partition_of(group_id), []).append(group_id)
    return list(by_partition.values())


# ── share and streams groups ────────────────────────────────────────────────────────────────────────────────────


@handles(
    ApiKey.SHARE_GROUP_DESCRIBE,
    GroupEnvironment,
    versions=(1, 1),
    cuts=[Cut(("group_ids",), ("groups",))],
    whole_bytes_max=SHORT_BYTES_MAX,
)
async def share_group_describe(
    environment: GroupEnvironment,
    request: m.ShareGroupDescribeRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.ShareGroupDescribeResponse:
    described = m.ShareGroupDescribeResponse.DescribedGroup
    return m.ShareGroupDescribeResponse(
        groups=await refuse_all(environment.groups, request.group_ids, "share", described)
    )


@handles(
    ApiKey.STREAMS_GROUP_DESCRIBE,
    GroupEnvironment,
    versions=(0, 0),
    cuts=[Cut(("group_ids",), ("groups",))],
    whole_bytes_max=SHORT_BYTES_MAX,
)
async def streams_group_describe(
    environment: GroupEnvironment,
    request: m.StreamsGroupDescribeRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.StreamsGroupDescribeResponse:
    described = m.StreamsGroupDescribeResponse.DescribedGroup
    return m.StreamsGroupDescribeResponse(
        groups=await refuse_all(environment.groups, request.group_ids, "streams", described)
    )


async def refuse_all(
    groups: GroupCoordinator, group_ids: Iterable[str], kind: str, described: Callable[..., NewerDescription]
) -> list[NewerDescription]:
    """Admin clients try this first, and fall back to describing a classic group after these answers. Empty names, of
    which no coordinator is asked, come first, as with Kafka."""
    answers = []
    for group_id in sorted(group_ids, key=bool):
        error, message = await refusal(groups, group_id, kind)
        answers.append(described(group_id=group_id, error_code=error, error_message=message))
    return answers


async def refusal(groups: GroupCoordinator, group_id: str, kind: str) -> tuple[Error, str | None]:
    if not group_id:
        return Error.INVALID_GROUP_ID, None
    try:
        exists = await groups.read(group_id, lambda shard: shard.has_group(group_id))
    except KafkaError as failed:
        return failed.error, None
    missing = f"Group {group_id} is not a {kind} group." if exists else f"Group {group_id} not found."
    return Error.GROUP_ID_NOT_FOUND, missing
