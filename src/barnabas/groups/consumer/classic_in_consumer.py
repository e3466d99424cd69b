"""Classic members of a consumer group: JoinGroup, SyncGroup and Heartbeat during an online migration.

Such a member is reconciled like any other, but by requests of the classic protocol. Its generation is its member epoch.
The answer to a heartbeat tells it to rejoin when there is a newer target for it, when it has partitions to revoke, or
when partitions that it waits for are free. Its JoinGroup, which lists the partitions that it owns, is its next step
towards the target. It is answered at once, as there is no leader and no other member to wait for. Its SyncGroup gets
its assignment.

A member that is told to rejoin, or that has joined and has to sync, must do so within its rebalance timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.groups import conversion
from barnabas.groups.classic import classic_answers as answers
from barnabas.groups.classic.classic_members import NO_MEMBER_ID, protocols_of, rebalance_timeout_of
from barnabas.groups.consumer.consumer_member import NO_REGEX, ConsumerMember, MemberState
from barnabas.groups.consumer.embedded_protocol import (
    PROTOCOL_TYPE,
    by_topic_id,
    read_subscription,
    version_for_answer,
    write_assignment,
)
from barnabas.groups.consumer.heartbeat import move_on, note, replace_instance
from barnabas.groups.consumer.target_assignment import update_target
from barnabas.protocol import messages as m
from barnabas.protocol.codec import DecodeError
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.coordination.effects import Effects, ReplyTo
    from barnabas.groups.classic.classic_members import ClientInfo
    from barnabas.groups.consumer.consumer_group import ConsumerGroup
    from barnabas.groups.consumer.step_context import StepContext

_FIRST_VERSION_WITH_KNOWN_MEMBER_ID: Final = 4


# Joining.


def join(
    group: ConsumerGroup,
    request: m.JoinGroupRequest,
    client: ClientInfo,
    reply_to: ReplyTo,
    now: StepContext,
    effects: Effects,
) -> None:
    """A member joins, or takes its next step. The group has members already."""
    if not now.classic.accepts_session_timeout(request.session_timeout_ms):
        effects.answer(reply_to, answers.join_refused(Error.INVALID_SESSION_TIMEOUT, request.member_id))
        return
    error = _check_join(group, request, now)
    if error is not Error.NONE:
        effects.answer(reply_to, answers.join_refused(error, NO_MEMBER_ID))
    elif _needs_member_id(request, client):
        effects.answer(reply_to, answers.join_refused(Error.MEMBER_ID_REQUIRED, client.new_member_id))
    else:
        _join(group, request, client, reply_to, now, effects)


def _check_join(group: ConsumerGroup, request: m.JoinGroupRequest, now: StepContext) -> Error:
    if not conversion.may_migrate(now.settings):
        return Error.INCONSISTENT_GROUP_PROTOCOL
    if len(group.members) >= now.settings.max_size and request.member_id not in group.members:
        return Error.GROUP_MAX_SIZE_REACHED
    protocols = protocols_of(request)
    if request.protocol_type != PROTOCOL_TYPE or not _all_support_one_of(group, protocols):
        return Error.INCONSISTENT_GROUP_PROTOCOL
    if request.group_instance_id is not None and request.member_id != NO_MEMBER_ID:
        error = _check_identity(group, request.member_id, request.group_instance_id)
        if error is not Error.NONE:
            return error
    try:
        subscription = read_subscription(_first(protocols))
    except DecodeError:
        # Kafka, too, has no better error code for a subscription that cannot be decoded.
        return Error.UNKNOWN_SERVER_ERROR
    is_known = request.member_id == NO_MEMBER_ID or request.member_id in group.members
    if not is_known and any(each.partitions for each in subscription.owned_partitions):
        # It was a member before, and goes on reading partitions of others until it learns that it is none any more.
        return Error.UNKNOWN_MEMBER_ID
    return Error.NONE


def _all_support_one_of(group: ConsumerGroup, protocols: Mapping[str, bytes]) -> bool:
    """Whether there is a protocol that this member and all classic members support, in case of a downgrade."""
    common = set(protocols)
    for member in group.members.values():
        if member.classic is not None:
            common.intersection_update([protocol.name for protocol in member.classic.supported_protocols])
    return bool(common)


def _needs_member_id(request: m.JoinGroupRequest, client: ClientInfo) -> bool:
    """A dynamic member gets its id first, so that a lost answer leaves no dead member behind."""
    is_new = request.member_id == NO_MEMBER_ID and request.group_instance_id is None
    return is_new and client.version >= _FIRST_VERSION_WITH_KNOWN_MEMBER_ID


def _join(
    group: ConsumerGroup,
    request: m.JoinGroupRequest,
    client: ClientInfo,
    reply_to: ReplyTo,
    now: StepContext,
    effects: Effects,
) -> None:
    epoch_before = group.epoch
    member_id = request.member_id or client.new_member_id
    replaced = None if request.group_instance_id is None else group.static_member(request.group_instance_id)
    becomes_classic = replaced is not None and conversion.is_last_to_be_replaced(group, replaced, now)
    if replaced is not None and request.member_id == NO_MEMBER_ID:
        before = replace_instance(group, replaced, member_id, effects)
    else:
        before = group.members.get(member_id) or ConsumerMember(member_id)
    has_new_subscription = note(group, before, _updated(before, request, client), now, effects)
    if not becomes_classic:
        update_target(group, now, effects)
    is_stale = becomes_classic and group.assignment_epoch < group.epoch
    if not is_stale:
        reported = _owned(request, now)
        move_on(group, member_id, reported, now, effects, has_new_subscription=has_new_subscription)
    effects.answer(reply_to, _joined(group.members[member_id]))
    if becomes_classic:
        is_settled = all(member.is_reconciled_to(group.epoch) for member in group.members.values())
        if is_settled:
            effects.write(conversion.downgrade(group, (), epoch_before, now, effects).record())
        else:
            # Some members have not reached their target, and only a rebalance tells classic members so.
            conversion.downgrade_to_rebalance(group, (), epoch_before, now, effects)
    else:
        group.keep_alive(member_id, now.now_ms + request.session_timeout_ms)
        group.rejoin_deadlines_ms.pop(member_id, None)
        group.expect_sync(member_id, now.now_ms + rebalance_timeout_of(request))


def _updated(member: ConsumerMember, request: m.JoinGroupRequest, client: ClientInfo) -> ConsumerMember:
    """The member updated by the request. Its subscription is the same in all of its protocols."""
    protocols = protocols_of(request)
    subscription = read_subscription(_first(protocols))
    return member._replace(
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=rebalance_timeout_of(request),
        subscribed_topics=frozenset(subscription.topics),
        subscribed_regex=NO_REGEX,
        client_id=client.client_id,
        client_host=client.host,
        classic=conversion.classic_metadata(request.session_timeout_ms, protocols),
    )


def _owned(request: m.JoinGroupRequest, now: StepContext) -> list[m.ConsumerGroupHeartbeatRequest.TopicPartitions]:
    """The partitions that the member owns, in the form of the consumer protocol."""
    subscription = read_subscription(_first(protocols_of(request)))
    return [
        m.ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
        for topic_id, partitions in by_topic_id(subscription.owned_partitions, now.image.topics).items()
    ]


def _first(protocols: Mapping[str, bytes]) -> bytes:
    return next(iter(protocols.values()))


def _joined(member: ConsumerMember) -> m.JoinGroupResponse:
    """There is no leader, as no member makes an assignment."""
    return m.JoinGroupResponse(
        member_id=member.member_id,
        generation_id=member.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=_protocol(member).name,
    )


def _protocol(member: ConsumerMember) -> m.ConsumerGroupMemberMetadataValue.ClassicProtocol:
    assert member.classic is not None, f"{member.member_id} uses the consumer protocol"
    return member.classic.supported_protocols[0]


# SyncGroup and Heartbeat.


def sync(
    group: ConsumerGroup, request: m.SyncGroupRequest, reply_to: ReplyTo, now: StepContext, effects: Effects
) -> None:
    """Answered with the member's assignment."""
    error = _check_sync(group, request)
    if error is Error.REBALANCE_IN_PROGRESS:
        _expect_rejoin(group, group.members[request.member_id], now)
    if error is not Error.NONE:
        effects.answer(reply_to, answers.sync_refused(error))
        return
    member = group.members[request.member_id]
    group.sync_deadlines_ms.pop(member.member_id, None)
    _keep_alive(group, member, now)
    version = version_for_answer(_protocol(member).metadata)
    response = m.SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=write_assignment(member.assigned, now.image.topics, version),
    )
    effects.answer(reply_to, response)


def heartbeat(
    group: ConsumerGroup, request: m.HeartbeatRequest, reply_to: ReplyTo, now: StepContext, effects: Effects
) -> None:
    error = _check_member(group, request.member_id, request.group_instance_id, request.generation_id)
    if error is Error.NONE:
        member = group.members[request.member_id]
        _keep_alive(group, member, now)
        if _has_to_rejoin(group, member):
            error = Error.REBALANCE_IN_PROGRESS
            _expect_rejoin(group, member, now)
    effects.answer(reply_to, m.HeartbeatResponse(error_code=error))


def _has_to_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    if member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member)


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    return any(
        group.owner_of(topic_id, partition) is not None
        for topic_id, partitions in group.target_of(member.member_id).items()
        for partition in partitions - member.assigned.get(topic_id, {}).keys()
    )


def _keep_alive(group: ConsumerGroup, member: ConsumerMember, now: StepContext) -> None:
    assert member.classic is not None, f"{member.member_id} uses the consumer protocol"
    group.keep_alive(member.member_id, now.now_ms + member.classic.session_timeout_ms)


def _expect_rejoin(group: ConsumerGroup, member: ConsumerMember, now: StepContext) -> None:
    """The time runs from when it is first told so; further heartbeats do not extend it."""
    if member.member_id not in group.rejoin_deadlines_ms:
        group.expect_rejoin(member.member_id, now.now_ms + member.rebalance_timeout_ms)


# Checks.


def _check_identity(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Error:
    if instance_id is not None:
        current = group.static_member(instance_id)
        if current is None:
            return Error.UNKNOWN_MEMBER_ID
        if current.member_id != member_id:
            return Error.FENCED_INSTANCE_ID
    return Error.NONE if member_id in group.members else Error.UNKNOWN_MEMBER_ID


def _check_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> Error:
    error = _check_identity(group, member_id, instance_id)
    if error is not Error.NONE:
        return error
    member = group.members[member_id]
    if not member.uses_classic_protocol:
        return Error.UNKNOWN_MEMBER_ID
    return Error.NONE if generation == member.epoch else Error.ILLEGAL_GENERATION


def _check_sync(group: ConsumerGroup, request: m.SyncGroupRequest) -> Error:
    error = _check_member(group, request.member_id, request.group_instance_id, request.generation_id)
    if error is not Error.NONE:
        return error
    member = group.members[request.member_id]
    if request.protocol_type not in (None, PROTOCOL_TYPE):
        return Error.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name not in (None, _protocol(member).name):
        return Error.INCONSISTENT_GROUP_PROTOCOL
    # A member with partitions to revoke has rejoined already, and has to revoke them first.
    is_behind = member.epoch < group.assignment_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS
    return Error.REBALANCE_IN_PROGRESS if is_behind else Error.NONE
