"""The answers of a classic group to its members, and its description."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.groups.classic.classic_group import ClassicGroup
    from barnabas.groups.classic.classic_members import ClassicMember


def join_refused(error: Error, member_id: str) -> m.JoinGroupResponse:
    return m.JoinGroupResponse(error_code=error, member_id=member_id)


def joined_as_follower(group: ClassicGroup, member: ClassicMember, leader_id: str) -> m.JoinGroupResponse:
    return m.JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader_id,
        member_id=member.member_id,
    )


def joined(group: ClassicGroup, member: ClassicMember) -> m.JoinGroupResponse:
    """A member has joined the current generation. The leader also learns about the other members and their metadata."""
    leader_id = group.members.leader_id
    assert leader_id is not None, f"group {group.group_id} has members and no leader"
    response = joined_as_follower(group, member, leader_id)
    if leader_id == member.member_id:
        response.members = [_for_the_leader(group, other) for other in group.members]
    return response


def _for_the_leader(group: ClassicGroup, member: ClassicMember) -> m.JoinGroupResponse.JoinGroupResponseMember:
    return m.JoinGroupResponse.JoinGroupResponseMember(
        member_id=member.member_id, group_instance_id=member.instance_id, metadata=metadata_of(group, member)
    )


def metadata_of(group: ClassicGroup, member: ClassicMember) -> bytes:
    """The member's metadata for the selected protocol, which all members support."""
    assert group.protocol_name is not None, f"group {group.group_id} has members and no protocol"
    return member.protocols[group.protocol_name]


def sync_refused(error: Error) -> m.SyncGroupResponse:
    return m.SyncGroupResponse(error_code=error)


def all_unknown(request: m.LeaveGroupRequest) -> m.LeaveGroupResponse:
    """The answer to LeaveGroup if the group does not exist."""
    members = [
        m.LeaveGroupResponse.MemberResponse(
            member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=Error.UNKNOWN_MEMBER_ID
        )
        for each in request.members
    ]
    return m.LeaveGroupResponse(members=members)


def assigned(group: ClassicGroup, member: ClassicMember) -> m.SyncGroupResponse:
    return m.SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def described(group: ClassicGroup) -> m.DescribeGroupsResponse.DescribedGroup:
    """The metadata of members is shown only while the group is stable."""
    description = m.DescribeGroupsResponse.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        members=[_described_member(member) for member in group.members],
    )
    if group.is_stable:
        description.protocol_data = group.protocol_name or ""
        for shown, member in zip(description.members, group.members, strict=True):
            shown.member_metadata = metadata_of(group, member)
    return description


def _described_member(member: ClassicMember) -> m.DescribeGroupsResponse.DescribedGroupMember:
    return m.DescribeGroupsResponse.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_assignment=member.assignment,
    )
