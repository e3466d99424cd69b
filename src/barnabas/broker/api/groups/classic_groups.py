"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: membership in a classic group.

A join is answered when all members have joined, and a sync when the leader has assigned, which may take a while; the
rules are in `groups/classic`.

JoinGroup: v1 has a rebalance timeout of its own · v4 makes a member ask twice, the second time with the id it was
given · v5 knows static members · v6 is flexible · v7 names the protocol's type · v8 gives a reason · v9 may skip the
assignment
SyncGroup: v3 knows static members · v4 is flexible · v5 must name the protocol
Heartbeat: v3 knows static members · v4 is flexible
LeaveGroup: v3 lets several leave at once · v4 is flexible · v5 gives a reason
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from barnabas.broker.api.environments import GroupEnvironment
from barnabas.broker.api.groups.group_steps import step_in_group
from barnabas.broker.api.registry import handles
from barnabas.groups.classic.classic_members import ClientInfo
from barnabas.net.large_requests import Cut
from barnabas.net.pending import answered
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.net.dispatch import Caller
    from barnabas.net.pending import Pending
    from barnabas.ports import Random

JOIN_WITH_NULL_PROTOCOL = 7
SYNC_WITH_PROTOCOL = 5
LEAVE_WITH_MANY_MEMBERS = 3

MEMBER_ID_BYTES_MAX = (1 << 15) - 1
"""What a string can hold. A client id or instance id of nearly that length leaves no room for a UUID after it."""


@handles(ApiKey.JOIN_GROUP, GroupEnvironment, versions=(0, 9))
def join_group(
    environment: GroupEnvironment, request: m.JoinGroupRequest, caller: Caller
) -> Pending[m.JoinGroupResponse]:
    def finish(response: m.JoinGroupResponse) -> m.JoinGroupResponse:
        if response.error_code:
            response.protocol_name = None if caller.api_version >= JOIN_WITH_NULL_PROTOCOL else ""
        return response

    if not request.group_id:
        return answered(finish(m.JoinGroupResponse(error_code=Error.INVALID_GROUP_ID, member_id=request.member_id)))
    client = client_of(request, caller, environment.random)
    if len(client.new_member_id.encode()) > MEMBER_ID_BYTES_MAX:
        return answered(finish(m.JoinGroupResponse(error_code=Error.UNKNOWN_SERVER_ERROR)))
    return step_in_group(
        environment.groups,
        request.group_id,
        lambda shard, reply_to, now_ms: shard.join(request, client, reply_to, now_ms),
        m.JoinGroupResponse,
        finish,
    )


def client_of(request: m.JoinGroupRequest, caller: Caller, random: Random) -> ClientInfo:
    """Kafka puts a slash in front of addresses, and tools expect it."""
    client_id = caller.client_id or ""
    unique = uuid.UUID(bytes=random.uuid(), version=4)
    name = client_id if request.group_instance_id is None else request.group_instance_id
    return ClientInfo(client_id, f"/{caller.host}", caller.api_version, f"{name}-{unique}")


@handles(ApiKey.SYNC_GROUP, GroupEnvironment, versions=(0, 5))
def sync_group(
    environment: GroupEnvironment, request: m.SyncGroupRequest, caller: Caller
) -> Pending[m.SyncGroupResponse]:
    if caller.api_version >= SYNC_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        return answered(m.SyncGroupResponse(error_code=Error.INCONSISTENT_GROUP_PROTOCOL))
    if not request.group_id:
        return answered(m.SyncGroupResponse(error_code=Error.INVALID_GROUP_ID))
    return step_in_group(
        environment.groups,
        request.group_id,
        lambda shard, reply_to, now_ms: shard.sync(request, reply_to, now_ms),
        m.SyncGroupResponse,
    )


@handles(ApiKey.HEARTBEAT, GroupEnvironment, versions=(0, 4))
def heartbeat(
    environment: GroupEnvironment,
    request: m.HeartbeatRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> Pending[m.HeartbeatResponse]:
    """While the group is being loaded, every heartbeat is accepted: sessions start anew afterwards anyway."""
    if not request.group_id:
        return answered(m.HeartbeatResponse(error_code=Error.INVALID_GROUP_ID))
    return step_in_group(
        environment.groups,
        request.group_id,
        lambda shard, reply_to, now_ms: shard.heartbeat(request, reply_to, now_ms),
        refuse_heartbeat,
    )


def refuse_heartbeat(error_code: Error) -> m.HeartbeatResponse:
    is_loading = error_code is Error.COORDINATOR_LOAD_IN_PROGRESS
    return m.HeartbeatResponse(error_code=Error.NONE if is_loading else error_code)


@handles(
    ApiKey.LEAVE_GROUP,
    GroupEnvironment,
    versions=(0, 5),
    cuts=[Cut(("members",), ("members",), first_version=LEAVE_WITH_MANY_MEMBERS)],
)
def leave_group(
    environment: GroupEnvironment, request: m.LeaveGroupRequest, caller: Caller
) -> Pending[m.LeaveGroupResponse]:
    if not request.group_id:
        return answered(m.LeaveGroupResponse(error_code=Error.INVALID_GROUP_ID))
    leaves_alone = caller.api_version < LEAVE_WITH_MANY_MEMBERS
    if leaves_alone:
        request.members = [m.LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
        request.member_id = ""
    return step_in_group(
        environment.groups,
        request.group_id,
        lambda shard, reply_to, now_ms: shard.leave(request, reply_to, now_ms),
        m.LeaveGroupResponse,
        for_the_only_member if leaves_alone else None,
    )


def for_the_only_member(response: m.LeaveGroupResponse) -> m.LeaveGroupResponse:
    if not response.members:
        return response
    return m.LeaveGroupResponse(error_code=response.error_code or response.members[0].error_code)
