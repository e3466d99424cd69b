"""Fencing: members that are removed because they leave, are sent away by an administrator, or miss a deadline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.groups import conversion
from barnabas.groups.consumer import consumer_records
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.coordination.effects import Effects
    from barnabas.groups.consumer.consumer_group import ConsumerGroup
    from barnabas.groups.consumer.consumer_member import ConsumerMember
    from barnabas.groups.consumer.step_context import StepContext


def fence(group: ConsumerGroup, members: Iterable[ConsumerMember], now: StepContext, effects: Effects) -> None:
    """Removes members from the group. Their partitions are free at once, and the group needs a new assignment.

    If only classic members are left, the group is downgraded to a classic one."""
    members = list(members)
    if conversion.is_last_to_go(group, members, now):
        conversion.downgrade_to_rebalance(group, members, group.epoch, now, effects)
        return
    group.note_change(now.now_ms)
    for member in members:
        for record in consumer_records.member_tombstones(group.group_id, member.member_id):
            group.write(record, effects)
    for regex in sorted({member.regex for member in members if member.regex is not None}):
        forget_unused_regex(group, regex, effects)
    bump_epoch(group, now, effects)


def remove_members(
    group: ConsumerGroup, request: m.LeaveGroupRequest, now: StepContext, effects: Effects
) -> m.LeaveGroupResponse:
    """LeaveGroup, by which classic members leave, and an administrator removes any. Each member has its own result."""
    response = m.LeaveGroupResponse()
    leaving: dict[str, ConsumerMember] = {}
    for identity in request.members:
        member, error = _find(group, identity)
        if member is not None:
            leaving[member.member_id] = member
        response.members.append(
            m.LeaveGroupResponse.MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
            )
        )
    if leaving:
        fence(group, leaving.values(), now, effects)
    return response


def _find(group: ConsumerGroup, identity: m.LeaveGroupRequest.MemberIdentity) -> tuple[ConsumerMember | None, Error]:
    """A static member may be named by its instance id alone."""
    if identity.group_instance_id is None:
        member = group.members.get(identity.member_id)
    else:
        member = group.static_member(identity.group_instance_id)
        if member is not None and identity.member_id not in ("", member.member_id):
            return None, Error.FENCED_INSTANCE_ID
    return member, Error.UNKNOWN_MEMBER_ID if member is None else Error.NONE


def expire(group: ConsumerGroup, now: StepContext, effects: Effects) -> None:
    """Fences members whose session has expired, and those that did not revoke partitions, rejoin or sync within their
    rebalance timeout."""
    late = {
        member_id: why
        for why, deadlines_ms in (
            ("it did not sync within its rebalance timeout", group.sync_deadlines_ms),
            ("it did not rejoin within its rebalance timeout", group.rejoin_deadlines_ms),
            ("its session timed out", group.session_deadlines_ms),
        )
        for member_id, at_ms in deadlines_ms.items()
        if at_ms <= now.now_ms
    }
    for member_id, deadline in list(group.rebalance_deadlines.items()):
        if deadline.at_ms <= now.now_ms:
            if group.members[member_id].epoch == deadline.epoch:
                late[member_id] = "it did not revoke partitions within its rebalance timeout"
            del group.rebalance_deadlines[member_id]
    if late:
        for member_id, why in sorted(late.items()):
            effects.note(f"group {group.group_id}: member {member_id} fenced: {why}")
        fence(group, [group.members[member_id] for member_id in sorted(late)], now, effects)
    group.note_earliest_deadline()


def bump_epoch(group: ConsumerGroup, now: StepContext, effects: Effects) -> None:
    group.write(consumer_records.group_epoch(group.group_id, group.epoch + 1, current_hash(group, now)), effects)
    group.hashed_at_change = now.topic_changes


def current_hash(group: ConsumerGroup, now: StepContext) -> int:
    return now.hashes.of_group(group.subscribed_topics(), now.image.topics, now.image.brokers)


def forget_unused_regex(group: ConsumerGroup, regex: str, effects: Effects) -> None:
    if regex not in group.subscribed_regexes:
        group.write(consumer_records.regex_tombstone(group.group_id, regex), effects)
