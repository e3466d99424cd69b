"""Joins of a consumer group that wait for an assignment before they are answered.

Apache Kafka makes a new assignment for the first member that joins, and then none for a while, so that many members
that join together cost few assignments (`group.consumer.assignment.interval.ms`). But the second member is answered
with an empty assignment, and learns of its partitions by a later heartbeat, seconds after; and the first has to give up
most of what it got.

Here a group waits until no member has joined or left for a moment (`gathering_ms`), and joins are answered with what
the assignment then gives them. So members that start or restart together are settled by one assignment. If the interval
would make them wait for too long, they are answered with an empty assignment, as by Kafka. Without an interval each
join is assigned and answered at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.groups.consumer import heartbeat
from barnabas.groups.consumer.consumer_group import WaitingJoin
from barnabas.groups.consumer.consumer_member import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.coordination.effects import Effects, ReplyTo
    from barnabas.groups.consumer.consumer_group import ConsumerGroup
    from barnabas.groups.consumer.step_context import StepContext

WAIT_MS_MAX: Final = 1_000
"""The longest that a join waits for its answer."""


def has_to_wait(group: ConsumerGroup, request: m.ConsumerGroupHeartbeatRequest, now: StepContext) -> bool:
    """Whether a heartbeat that was accepted is answered later."""
    return request.member_epoch == JOIN_EPOCH and not group.is_assigned and now.settings.gathering_ms > 0


def wait(group: ConsumerGroup, answer: m.ConsumerGroupHeartbeatResponse, reply_to: ReplyTo, now: StepContext) -> None:
    """Lets a member wait that would get this answer now."""
    assert answer.member_id is not None, "a member that joins has an id"
    until_ms = now.now_ms + WAIT_MS_MAX
    group.waiting_joins.append(WaitingJoin(answer.member_id, reply_to, until_ms))
    group.wake_by(until_ms)


def answer_joins(group: ConsumerGroup, now: StepContext, effects: Effects) -> None:
    """To be called after each step of a group: answers joins whose assignment is made, that have waited for too long,
    or whose member is no longer in the group."""
    if not group.waiting_joins:
        return
    if not (group.is_assigned or group.has_lost_members or group.waiting_joins[0].until_ms <= now.now_ms):
        return  # Very many joins may wait, and each of them took a step.
    still_waiting = []
    for join in group.waiting_joins:
        if not _is_in(group, join.member_id):
            effects.answer(
                join.reply_to,
                _refusal(Error.UNKNOWN_MEMBER_ID, f"Member {join.member_id} left the group while it was joining."),
            )
        elif group.is_assigned or join.until_ms <= now.now_ms:
            effects.answer(join.reply_to, heartbeat.welcome(group, join.member_id, now, effects))
        else:
            still_waiting.append(join)
    group.waiting_joins = still_waiting
    group.has_lost_members = False


def abandon(group: ConsumerGroup, effects: Effects) -> None:
    """The group is no longer coordinated here."""
    for join in group.waiting_joins:
        effects.answer(
            join.reply_to,
            _refusal(Error.NOT_COORDINATOR, f"Group {group.group_id} is no longer coordinated by this broker."),
        )
    group.waiting_joins = []


def _is_in(group: ConsumerGroup, member_id: str) -> bool:
    """Whether the member is still in the group, and still uses the consumer protocol."""
    member = group.members.get(member_id)
    has_left = member is None or member.epoch == STATIC_LEAVE_EPOCH or member.uses_classic_protocol
    return group.successor is None and not has_left


def _refusal(error: Error, message: str) -> m.ConsumerGroupHeartbeatResponse:
    return m.ConsumerGroupHeartbeatResponse(error_code=error, error_message=message)
