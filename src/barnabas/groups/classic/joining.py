"""JoinGroup: which members may join a classic group, and whether that causes a rebalance.

v4 makes a dynamic member get its member id first, so that a lost answer leaves no dead member behind · v5 has static
members · v9 tells a static leader that returns to skip the assignment
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.coordination.effects import Effects
from barnabas.groups.classic import classic_answers as answers
from barnabas.groups.classic import rebalancing
from barnabas.groups.classic.classic_members import (
    NO_MEMBER_ID,
    ClassicMember,
    InstanceId,
    MemberId,
    protocols_of,
    rebalance_timeout_of,
)
from barnabas.groups.classic.rebalancing import ClassicGroupState
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.coordination.effects import ReplyTo
    from barnabas.groups.classic.classic_group import ClassicGroup
    from barnabas.groups.classic.classic_members import ClientInfo
    from barnabas.protocol import messages as m

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long a new member is kept without a heartbeat: it sends none until it is answered and knows its id."""

_FIRST_VERSION_WITH_KNOWN_MEMBER_ID: Final = 4
_FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT: Final = 9


def join(
    group: ClassicGroup,
    request: m.JoinGroupRequest,
    client: ClientInfo,
    reply_to: ReplyTo,
    now_ms: int,
    effects: Effects,
) -> None:
    if group.state is ClassicGroupState.DEAD:
        effects.answer(reply_to, answers.join_refused(Error.COORDINATOR_NOT_AVAILABLE, request.member_id))
    elif not _has_room(group, request.member_id):
        _turn_away(group, request.member_id, reply_to, now_ms, effects)
    elif not _has_common_protocol(group, request):
        effects.answer(reply_to, answers.join_refused(Error.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    elif request.member_id == NO_MEMBER_ID:
        _join_as_new(group, request, client, reply_to, now_ms, effects)
    elif request.member_id in group.pending_deadlines_ms:
        _join_with_issued_id(group, request, client, reply_to, now_ms, effects)
    else:
        _join_again(group, request, reply_to, now_ms, effects)


def _has_room(group: ClassicGroup, member_id: str) -> bool:
    """While a group prepares a rebalance, only members that have rejoined count, so that a group which exceeds its
    limit loses the last ones to rejoin."""
    limit = group.settings.group_max_size
    member = group.members.get(member_id)
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return (member is not None and member.waiting_for_join is not None) or group.members.joined_count < limit
    return group.is_empty or member is not None or len(group.members) < limit


def _turn_away(group: ClassicGroup, member_id: str, reply_to: ReplyTo, now_ms: int, effects: Effects) -> None:
    effects.answer(reply_to, answers.join_refused(Error.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID))
    group.pending_deadlines_ms.pop(MemberId(member_id), None)
    count_before = len(group.members)
    member = group.members.get(member_id)
    if member is not None:
        rebalancing.remove(group, member, effects)
    rebalancing.go_on_with_fewer(group, count_before, now_ms, effects)


def _has_common_protocol(group: ClassicGroup, request: m.JoinGroupRequest) -> bool:
    if group.is_empty:
        return bool(request.protocol_type) and bool(request.protocols)
    return request.protocol_type == group.protocol_type and group.members.all_support_one_of(protocols_of(request))


def _join_as_new(
    group: ClassicGroup,
    request: m.JoinGroupRequest,
    client: ClientInfo,
    reply_to: ReplyTo,
    now_ms: int,
    effects: Effects,
) -> None:
    new_id = MemberId(client.new_member_id)
    predecessor = group.members.of_instance(request.group_instance_id)
    if predecessor is not None:
        _take_over(group, predecessor, request, client, reply_to, now_ms, effects)
    elif request.group_instance_id is None and client.version >= _FIRST_VERSION_WITH_KNOWN_MEMBER_ID:
        group.pending_deadlines_ms[new_id] = now_ms + request.session_timeout_ms
        group.wake_by(group.pending_deadlines_ms[new_id])
        effects.answer(reply_to, answers.join_refused(Error.MEMBER_ID_REQUIRED, new_id))
    else:
        _add(group, new_id, request, client, reply_to, now_ms, effects)


def _join_with_issued_id(
    group: ClassicGroup,
    request: m.JoinGroupRequest,
    client: ClientInfo,
    reply_to: ReplyTo,
    now_ms: int,
    effects: Effects,
) -> None:
    if request.group_instance_id is not None:
        # Ids are issued to dynamic members only. For this mistake Kafka, too, has no better error code.
        effects.answer(reply_to, answers.join_refused(Error.UNKNOWN_SERVER_ERROR, NO_MEMBER_ID))
        return
    del group.pending_deadlines_ms[MemberId(request.member_id)]
    _add(group, MemberId(request.member_id), request, client, reply_to, now_ms, effects)


def _add(
    group: ClassicGroup,
    member_id: MemberId,
    request: m.JoinGroupRequest,
    client: ClientInfo,
    reply_to: ReplyTo,
    now_ms: int,
    effects: Effects,
) -> None:
    instance_id = request.group_instance_id
    member = ClassicMember(
        member_id,
        None if instance_id is None else InstanceId(instance_id),
        client_id=client.client_id,
        client_host=client.host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_of(request),
        protocols=protocols_of(request),
    )
    member.is_new = True
    member.session_deadline_ms = now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
    group.wake_by(member.session_deadline_ms)
    if not len(group.members):
        group.protocol_type = request.protocol_type
    group.members.add(member)
    group.members.let_wait_for_join(member, reply_to)
    group.has_new_members = True
    rebalancing.begin_or_complete(group, now_ms, effects)


def _take_over(
    group: ClassicGroup,
    predecessor: ClassicMember,
    request: m.JoinGroupRequest,
    client: ClientInfo,
    reply_to: ReplyTo,
    now_ms: int,
    effects: Effects,
) -> None:
    """A static member returns under a new member id. If its previous instance is still running, that one is fenced.

    A stable group stays as it is, unless the member's protocols change the selected one. A group that waits for its
    leader's assignment has to rebalance, because the old member id would be in it."""
    fenced = Error.FENCED_INSTANCE_ID
    rebalancing.answer_join(group, predecessor, answers.join_refused(fenced, predecessor.member_id), effects)
    rebalancing.answer_sync(predecessor, answers.sync_refused(fenced), effects)
    former_leader_id = group.members.leader_id or NO_MEMBER_ID
    member = group.members.replace(predecessor, MemberId(client.new_member_id))
    group.expect_no_sync(predecessor.member_id)
    group.prolong_session(member, now_ms)
    group.members.update(member, request)
    if not group.is_stable or group.members.select_protocol() != group.protocol_name:
        group.members.let_wait_for_join(member, reply_to)
        rebalancing.begin_or_complete(group, now_ms, effects)
        return
    group.note_subscribed_topics()
    effects.write(group.record(), partial(_bring_back, group, predecessor, member, former_leader_id))
    if client.version >= _FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT:
        response = answers.joined(group, member)
        response.skip_assignment = group.members.leader_id == member.member_id
    else:
        # If it learned that it leads, it would send an assignment that the group does not expect.
        response = answers.joined_as_follower(group, member, former_leader_id)
    effects.answer(reply_to, response)


def _bring_back(
    group: ClassicGroup,
    predecessor: ClassicMember,
    successor: ClassicMember,
    leader_id: str,
    _error: Error,
    now_ms: int,
) -> Effects:
    """That a static member returned could not be written: the group has it under its old id."""
    group.members.remove(successor)
    group.members.add(predecessor)
    group.members.leader_id = MemberId(leader_id)
    group.prolong_session(predecessor, now_ms)
    group.note_subscribed_topics()
    return Effects()


def _join_again(
    group: ClassicGroup, request: m.JoinGroupRequest, reply_to: ReplyTo, now_ms: int, effects: Effects
) -> None:
    error = group.check_identity(request.member_id, request.group_instance_id)
    if error is not Error.NONE:
        effects.answer(reply_to, answers.join_refused(error, request.member_id))
        return
    member = group.members[request.member_id]
    if _changes_nothing(group, member, request):
        effects.answer(reply_to, answers.joined(group, member))
        return
    group.members.update(member, request)
    # The member has sent a new request and will ignore this answer, but every request is answered.
    superseded = answers.join_refused(Error.REBALANCE_IN_PROGRESS, member.member_id)
    rebalancing.answer_join(group, member, superseded, effects)
    group.members.let_wait_for_join(member, reply_to)
    rebalancing.begin_or_complete(group, now_ms, effects)


def _changes_nothing(group: ClassicGroup, member: ClassicMember, request: m.JoinGroupRequest) -> bool:
    """A member that repeats its request may have missed the answer. But the leader of a stable group asks for a
    rebalance that way: its assignment has to change, because a topic has more partitions, for example."""
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return False
    leads_at_rest = group.is_stable and group.members.leader_id == member.member_id
    return member.says_the_same(request) and not leads_at_rest
