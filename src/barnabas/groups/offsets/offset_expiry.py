"""Which offsets of a group have expired: Kafka's rules for `offsets.retention.minutes`.

- A classic group without members keeps its offsets for that long after its last member left.
- A group that never had members, as its consumers assign their partitions themselves: after the last commit of each.
- A stable classic group of consumers keeps the offsets of its subscribed topics; others: after the last commit.
- A consumer group keeps the offsets of its subscribed topics in any state; others: after the last commit.
- Any other group keeps all, because its subscriptions are unknown or a rebalance is under way.

A commit of an old client may have an expiry time of its own, which takes precedence. An offset that an open transaction
is about to change does not expire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.groups.classic.classic_records import NO_TIMESTAMP_MS
from barnabas.groups.consumer.consumer_group import ConsumerGroup
from barnabas.groups.group_records import NO_EXPIRY_MS

if TYPE_CHECKING:
    from barnabas.groups.group_views import Group
    from barnabas.groups.offsets.group_offsets import GroupOffsets, TopicPartition
    from barnabas.protocol import messages as m


def expired_offsets(group: Group, offsets: GroupOffsets, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    if not _can_expire(group):
        return []
    empty_since_ms = _empty_since_ms(group)
    return [
        (topic, partition)
        for topic, partitions in offsets.by_topic()
        if not group.is_subscribed_to(topic)
        for partition, value in partitions.items()
        if now_ms >= _expires_at_ms(value, empty_since_ms, retention_ms) and offsets.is_stable(topic, partition)
    ]


def _can_expire(group: Group) -> bool:
    if isinstance(group, ConsumerGroup) or group.protocol_type is None or group.is_empty:
        return True
    return group.is_stable and group.uses_consumer_protocol and group.subscribed_topics() is not None


def _empty_since_ms(group: Group) -> int | None:
    """None if the last commit counts instead, as it does for groups written by an old Kafka, which left this out."""
    if isinstance(group, ConsumerGroup):
        return None
    if group.protocol_type is None or not group.is_empty or group.state_timestamp_ms == NO_TIMESTAMP_MS:
        return None
    return group.state_timestamp_ms


def _expires_at_ms(value: m.OffsetCommitValue, empty_since_ms: int | None, retention_ms: int) -> int:
    if value.expire_timestamp != NO_EXPIRY_MS:
        return value.expire_timestamp
    return (value.commit_timestamp if empty_since_ms is None else empty_since_ms) + retention_ms
