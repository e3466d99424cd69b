"""The target assignment of a consumer group: when it is due, and how it is made for a group epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.groups.assignors import ASSIGNORS, MemberSpec
from barnabas.groups.consumer import consumer_records
from barnabas.groups.consumer.consumer_group import QUIET_MS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.coordination.effects import Effects
    from barnabas.groups.consumer.consumer_group import ConsumerGroup
    from barnabas.groups.consumer.step_context import StepContext
    from barnabas.metadata.image import TopicsImage
    from barnabas.protocol.uuids import Uuid


def update_target(group: ConsumerGroup, now: StepContext, effects: Effects) -> None:
    """Makes a target assignment if the group epoch has none, the last one is old enough, and the group is quiet."""
    if group.is_assigned or due_at_ms(group, now) > now.now_ms:
        return
    topics = now.image.topics
    subscriptions: dict[frozenset[str], frozenset[Uuid]] = {}
    members = {}
    for member in group.members.values():
        names = group.topics_of(member)
        if (ids := subscriptions.get(names)) is None:
            ids = subscriptions[names] = topic_ids(names, topics)
        members[member.member_id] = MemberSpec(ids, group.target_of(member.member_id), member.instance_id)
    counts = {
        topic.topic_id: len(topic.partitions)
        for name in group.subscribed_topics()
        if (topic := topics.get(name)) is not None
    }
    assign = ASSIGNORS[group.preferred_assignor(now.settings.assignors)]
    for member_id, target in assign(members, counts).items():
        if target != group.targets.get(member_id):
            group.write(consumer_records.target_assignment(group.group_id, member_id, target), effects)
    group.write(consumer_records.target_epoch(group.group_id, group.epoch, now.now_ms), effects)


def await_target(group: ConsumerGroup, now: StepContext) -> None:
    """Has the group checked when its assignment is due, in case no heartbeat makes it before: those of classic members
    never do, and joins wait for it."""
    if group.members and not group.is_assigned and group.successor is None:
        group.wake_by(due_at_ms(group, now))


def topic_ids(names: Iterable[str], topics: TopicsImage) -> frozenset[Uuid]:
    """The ids of those of the topics that exist."""
    return frozenset(topic.topic_id for name in names if (topic := topics.get(name)) is not None)


def due_at_ms(group: ConsumerGroup, now: StepContext) -> int:
    """When the next target assignment may be made, if no member joins or leaves until then."""
    interval_ms = now.settings.assignment_interval_ms
    gathering_ms = min(now.settings.gathering_ms, interval_ms)
    return max(
        now.now_ms,
        _end_ms(group.assignment_timestamp_ms, interval_ms, now.now_ms),
        min(
            _end_ms(group.last_change_ms, gathering_ms, now.now_ms),
            _end_ms(group.first_change_ms, QUIET_MS_MAX, now.now_ms),
        ),
    )


def _end_ms(begin_ms: int, duration_ms: int, now_ms: int) -> int:
    """The end of a period that has begun. One that begins in the future, as the clock was set back, counts as over."""
    return begin_ms + duration_ms if 0 <= now_ms - begin_ms < duration_ms else now_ms
