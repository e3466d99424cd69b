"""ConsumerGroupHeartbeat, ConsumerGroupDescribe: groups that are assigned by the broker (KIP-848).

A member joins, stays and leaves with the same request, whose rules are in `groups/consumer/heartbeat`. Both APIs are
refused if `group.coordinator.rebalance.protocols` or the cluster's `group.version` does not enable the protocol.

ConsumerGroupHeartbeat: v1 subscribes by regular expression, and members make up their own ids
ConsumerGroupDescribe: v1 tells which protocol a member speaks
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.broker.api.environments import GroupEnvironment
from barnabas.broker.api.groups.group_admin import by_partition
from barnabas.broker.api.groups.group_steps import step_in_group
from barnabas.broker.api.registry import handles
from barnabas.groups.classic.classic_members import ClientInfo
from barnabas.groups.consumer.consumer_member import JOIN_EPOCH, LEAVE_EPOCH
from barnabas.net.large_requests import SHORT_BYTES_MAX, Cut
from barnabas.net.pending import answered
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.authorized_operations import GROUP_OPERATIONS
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.uuids import to_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from barnabas.broker.coordinators.group_coordinator import GroupCoordinator
    from barnabas.net.dispatch import Caller
    from barnabas.net.pending import Pending

    Description: TypeAlias = m.ConsumerGroupDescribeResponse.DescribedGroup

CONSUMER_PROTOCOL: Final = "consumer"
GROUP_VERSION_FEATURE: Final = "group.version"


def is_enabled(environment: GroupEnvironment) -> bool:
    """Whether groups of this protocol are served here."""
    has_feature = environment.metadata.image.features.finalized.get(GROUP_VERSION_FEATURE, 0) >= 1
    return has_feature and CONSUMER_PROTOCOL in environment.settings.config.group_coordinator_rebalance_protocols


@handles(ApiKey.CONSUMER_GROUP_HEARTBEAT, GroupEnvironment, versions=(0, 1))
def consumer_group_heartbeat(
    environment: GroupEnvironment, request: m.ConsumerGroupHeartbeatRequest, caller: Caller
) -> Pending[m.ConsumerGroupHeartbeatResponse]:
    if not is_enabled(environment):
        return answered(m.ConsumerGroupHeartbeatResponse(error_code=Error.UNSUPPORTED_VERSION))
    client = ClientInfo(
        client_id=caller.client_id or "",
        host=f"/{caller.host}",
        version=caller.api_version,
        new_member_id=to_text(environment.random.uuid()),
    )
    answer = beat(environment.groups, request, client)
    if not answer.done() and request.member_epoch == JOIN_EPOCH and request.instance_id is None:
        answer.when_abandoned(
            partial(leave, environment.groups, request.group_id, request.member_id or client.new_member_id, client)
        )
    return answer


def beat(
    groups: GroupCoordinator, request: m.ConsumerGroupHeartbeatRequest, client: ClientInfo
) -> Pending[m.ConsumerGroupHeartbeatResponse]:
    return step_in_group(
        groups,
        request.group_id,
        lambda shard, reply_to, now_ms: shard.consumer_heartbeat(request, client, reply_to, now_ms),
        m.ConsumerGroupHeartbeatResponse,
    )


def leave(groups: GroupCoordinator, group_id: str, member_id: str, client: ClientInfo) -> None:
    """For a client that went away before its join was answered. It has no epoch to leave with, and would stay a member
    until its session expires. A static member may come back, so it is kept."""
    beat(
        groups,
        m.ConsumerGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=LEAVE_EPOCH),
        client,
    )


@handles(
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    GroupEnvironment,
    versions=(0, 1),
    cuts=[Cut(("group_ids",), ("groups",))],
    whole_bytes_max=SHORT_BYTES_MAX,
)
async def consumer_group_describe(
    environment: GroupEnvironment,
    request: m.ConsumerGroupDescribeRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.ConsumerGroupDescribeResponse:
    if not is_enabled(environment):
        return m.ConsumerGroupDescribeResponse(groups=refuse(request.group_ids, Error.UNSUPPORTED_VERSION))
    named = [group_id for group_id in request.group_ids if group_id]
    described = refuse([group_id for group_id in request.group_ids if not group_id], Error.INVALID_GROUP_ID)
    for group_ids in by_partition(environment.groups, named):
        described += await describe_in_one_partition(environment.groups, group_ids)
    if request.include_authorized_operations:
        for group in described:
            if group.error_code == Error.NONE:
                group.authorized_operations = GROUP_OPERATIONS
    return m.ConsumerGroupDescribeResponse(groups=described)


async def describe_in_one_partition(groups: GroupCoordinator, group_ids: list[str]) -> list[Description]:
    try:
        return await groups.read(group_ids[0], lambda shard: shard.describe_consumer_groups(group_ids))
    except KafkaError as failed:
        return refuse(group_ids, failed.error)


def refuse(group_ids: Iterable[str], error: Error) -> list[Description]:
    return [
        m.ConsumerGroupDescribeResponse.DescribedGroup(group_id=group_id, error_code=error) for group_id in group_ids
    ]
