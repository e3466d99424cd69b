"""Who may join a classic group, and whether that moves the group.

v4 has a dynamic member fetch its member id first, so that a lost answer does not leave a ghost behind · v5 knows
static members · v9 tells a static leader that came back that there is nothing to assign
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.groups import classic_answers as answers
from barnabas.groups import classic_rebalance as rebalance
from barnabas.groups.classic_member import (
    NO_MEMBER_ID,
    ClassicMember,
    InstanceId,
    MemberId,
    protocols_of,
    rebalance_timeout_of,
)
from barnabas.groups.classic_state import GroupState
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.coordination.effects import Effects, ReplyTo
    from barnabas.groups.classic import ClassicGroup
    from barnabas.groups.classic_member import ClientInfo
    from barnabas.protocol import messages as m

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""A new member does not know its id and sends no heartbeats. If it is gone, it is held for so long, not for ever."""

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
    if group.state is GroupState.DEAD:
        effects.answer(reply_to, answers.join_refused(Error.COORDINATOR_NOT_AVAILABLE, request.member_id))
    elif not _has_room(group, request.member_id):
        _turn_away(group, request.member_id, reply_to, now_ms, effects)
    elif not _fits(group, request):
        effects.answer(reply_to, answers.join_refused(Error.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    elif request.member_id == NO_MEMBER_ID:
        _join_as_new(group, request, client, reply_to, now_ms, effects)
    elif request.member_id in group.pending_deadlines_ms:
        _join_with_given_id(group, request, client, reply_to, now_ms, effects)
    else:
        _join_again(group, request, reply_to, now_ms, effects)


def _has_room(group: ClassicGroup, member_id: str) -> bool:
    """While a group prepares a rebalance those count that have joined it, so that a group which is over its size
    shows out the last to come."""
    limit = group.settings.group_max_size
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        return (member is not None and member.waiting_for_join is not None) or group.members.joined_count < limit
    return group.is_empty or member is not None or len(group.members) < limit


def _turn_away(group: ClassicGroup, member_id: str, reply_to: ReplyTo, now_ms: int, effects: Effects) -> None:
    effects.answer(reply_to, answers.join_refused(Error.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID))
    group.pending_deadlines_ms.pop(MemberId(member_id), None)
    count_before = len(group.members)
    member = group.members.get(member_id)
    if member is not None:
        rebalance.remove(group, member, effects)
    rebalance.go_on_with_fewer(group, count_before, now_ms, effects)


def _fits(group: ClassicGroup, request: m.JoinGroupRequest) -> bool:
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


def _join_with_given_id(
    group: ClassicGroup,
    request: m.JoinGroupRequest,
    client: ClientInfo,
    reply_to: ReplyTo,
    now_ms: int,
    effects: Effects,
) -> None:
    if request.group_instance_id is not None:
        # Ids are given out to dynamic members only; Kafka, too, has no better code for a client that mixes them up.
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
    rebalance.begin_or_complete(group, now_ms, effects)


def _take_over(
    group: ClassicGroup,
    predecessor: ClassicMember,
    request: m.JoinGroupRequest,
    client: ClientInfo,
    reply_to: ReplyTo,
    now_ms: int,
    effects: Effects,
) -> None:
    """A static member is back under a new member id. Should its older self still be about, that one is fenced.

    A stable group goes on as it is, unless the member now wants something that changes the protocol. While the leader
    works out an assignment the old member id is in it, so that this generation cannot be completed."""
    fenced = Error.FENCED_INSTANCE_ID
    rebalance.answer_join(group, predecessor, answers.join_refused(fenced, predecessor.member_id), effects)
    rebalance.answer_sync(predecessor, answers.sync_refused(fenced), effects)
    former_leader_id = group.members.leader_id or NO_MEMBER_ID
    member = group.members.replace(predecessor, MemberId(client.new_member_id))
    group.expect_no_sync(predecessor.member_id)
    group.prolong_session(member, now_ms)
    group.members.update(member, request)
    if not group.is_stable or group.members.select_protocol() != group.protocol_name:
        group.members.let_wait_for_join(member, reply_to)
        rebalance.begin_or_complete(group, now_ms, effects)
        return
    group.note_subscribed_topics()
    effects.write(group.record())
    if client.version >= _FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT:
        response = answers.joined(group, member)
        response.skip_assignment = group.members.leader_id == member.member_id
    else:
        # Were it told that it leads, it would hand in an assignment that nobody asked for.
        response = answers.joined_as_follower(group, member, former_leader_id)
    effects.answer(reply_to, response)


def _join_again(
    group: ClassicGroup, request: m.JoinGroupRequest, reply_to: ReplyTo, now_ms: int, effects: Effects
) -> None:
    error = group.check_identity(request.member_id, request.group_instance_id)
    if error is not Error.NONE:
        effects.answer(reply_to, answers.join_refused(error, request.member_id))
        return
    member = group.members[request.member_id]
    if _moves_nothing(group, member, request):
        effects.answer(reply_to, answers.joined(group, member))
        return
    group.members.update(member, request)
    # The member has asked again and will not read this; but no request is left without an answer.
    superseded = answers.join_refused(Error.REBALANCE_IN_PROGRESS, member.member_id)
    rebalance.answer_join(group, member, superseded, effects)
    group.members.let_wait_for_join(member, reply_to)
    rebalance.begin_or_complete(group, now_ms, effects)


def _moves_nothing(group: ClassicGroup, member: ClassicMember, request: m.JoinGroupRequest) -> bool:
    """A member that repeats itself may have missed the last answer. A stable group's leader means a rebalance by it:
    what it assigns has changed, the number of partitions for one."""
    if group.state is GroupState.PREPARING_REBALANCE:
        return False
    leads_at_rest = group.is_stable and group.members.leader_id == member.member_id
    return member.says_the_same(request) and not leads_at_rest
