"""Making the target assignment of a consumer group for its epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.groups import consumer_record
from barnabas.groups.assignors import ASSIGNORS
from barnabas.groups.assignors.spec import MemberSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.coordination.effects import Effects
    from barnabas.groups.consumer_circumstances import Circumstances
    from barnabas.groups.consumer_group import ConsumerGroup
    from barnabas.metadata.image import TopicsImage
    from barnabas.protocol.uuids import Uuid


def update_target(group: ConsumerGroup, now: Circumstances, effects: Effects) -> None:
    """Makes a target assignment if the group's epoch has none and the last one is old enough."""
    if group.assignment_epoch >= group.epoch or not _is_due(group, now):
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
            group.write(consumer_record.target_assignment(group.group_id, member_id, target), effects)
    group.write(consumer_record.target_epoch(group.group_id, group.epoch, now.now_ms), effects)


def topic_ids(names: Iterable[str], topics: TopicsImage) -> frozenset[Uuid]:
    """The ids of those of the topics that exist."""
    return frozenset(topic.topic_id for name in names if (topic := topics.get(name)) is not None)


def _is_due(group: ConsumerGroup, now: Circumstances) -> bool:
    """The first one is made at once. Time that has gone backwards is no reason to wait for longer than the interval."""
    since_ms = now.now_ms - group.assignment_timestamp_ms
    return group.assignment_timestamp_ms == 0 or not 0 <= since_ms < now.settings.assignment_interval_ms
