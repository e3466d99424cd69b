"""Members that join a consumer group and are answered when there is an assignment for them.

Apache Kafka assigns a group anew for the first member that comes, and then not for a while, so that many that come
together cost few assignments (`group.consumer.assignment.interval.ms`). But who comes second is answered with nothing,
and hears of its partitions by a later heartbeat, seconds after; and who came first has to give up most of what it got.

Here a group waits until nobody has come or gone for a moment (`gathering_ms`), and joins are answered with what the
assignment then gives them. So members that are started together, or restarted, are settled by one assignment. Where the
interval makes them wait for too long, they are answered with nothing, as they would be there. Without an interval each
join is assigned and answered at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.groups import consumer_heartbeat
from barnabas.groups.consumer_group import WaitingJoin
from barnabas.groups.consumer_member import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.coordination.effects import Effects, ReplyTo
    from barnabas.groups.consumer_circumstances import Circumstances
    from barnabas.groups.consumer_group import ConsumerGroup

WAIT_MS_MAX: Final = 1_000
"""For who joins, to be answered."""


def has_to_wait(group: ConsumerGroup, request: m.ConsumerGroupHeartbeatRequest, now: Circumstances) -> bool:
    """Whether a heartbeat that was taken is answered later."""
    return request.member_epoch == JOIN_EPOCH and not group.is_assigned and now.settings.gathering_ms > 0


def wait(group: ConsumerGroup, answer: m.ConsumerGroupHeartbeatResponse, reply_to: ReplyTo, now: Circumstances) -> None:
    """Lets a member wait that would be given this answer now."""
    assert answer.member_id is not None, "who joins has an id from then on"
    until_ms = now.now_ms + WAIT_MS_MAX
    group.waiting_joins.append(WaitingJoin(answer.member_id, reply_to, until_ms))
    group.wake_by(until_ms)


def answer_joins(group: ConsumerGroup, now: Circumstances, effects: Effects) -> None:
    """To be called after each step of a group: answers those whose assignment is made, who have waited enough, and who
    are no longer in the group."""
    if not group.waiting_joins:
        return
    if not (group.is_assigned or group.has_lost_members or group.waiting_joins[0].until_ms <= now.now_ms):
        return  # Very many may wait, and each of them has come by a step.
    still_waiting = []
    for join in group.waiting_joins:
        if not _is_in(group, join.member_id):
            effects.answer(join.reply_to, _refusal(Error.UNKNOWN_MEMBER_ID, f"{join.member_id} left while it joined"))
        elif group.is_assigned or join.until_ms <= now.now_ms:
            effects.answer(join.reply_to, consumer_heartbeat.welcome(group, join.member_id, now, effects))
        else:
            still_waiting.append(join)
    group.waiting_joins = still_waiting
    group.has_lost_members = False


def abandon(group: ConsumerGroup, effects: Effects) -> None:
    """The group is no longer coordinated here."""
    for join in group.waiting_joins:
        effects.answer(join.reply_to, _refusal(Error.NOT_COORDINATOR, f"{group.group_id} is coordinated elsewhere"))
    group.waiting_joins = []


def _is_in(group: ConsumerGroup, member_id: str) -> bool:
    """Whether the member that joined is still there, and speaks the protocol in which it asked."""
    member = group.members.get(member_id)
    has_left = member is None or member.epoch == STATIC_LEAVE_EPOCH or member.uses_classic_protocol
    return group.successor is None and not has_left


def _refusal(error: Error, message: str) -> m.ConsumerGroupHeartbeatResponse:
    return m.ConsumerGroupHeartbeatResponse(error_code=error, error_message=message)
