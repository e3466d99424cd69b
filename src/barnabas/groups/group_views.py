"""Groups of either type as an administrator sees them: ListGroups, DescribeGroups, ConsumerGroupDescribe, DeleteGroups,
OffsetDelete. Functions over a shard's groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.groups import group_records
from barnabas.groups.classic.classic_group import ClassicGroup, ClassicGroupState
from barnabas.groups.consumer import consumer_records
from barnabas.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupState
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from barnabas.coordination.effects import Effects
    from barnabas.groups.consumer.consumer_member import ConsumerMember
    from barnabas.groups.offsets.shard_offsets import ShardOffsets
    from barnabas.metadata.image import TopicsImage
    from barnabas.protocol.uuids import Uuid

Group: TypeAlias = ClassicGroup | ConsumerGroup

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
"""Group types as ListGroups names them; the second is also the protocol type of consumers."""

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1
"""Member types of ConsumerGroupDescribe."""

MISSING_GROUP_IS_AN_ERROR_FROM: Final = 6
"""The first version of DescribeGroups that answers GROUP_ID_NOT_FOUND; earlier ones show a "Dead" group."""


def list_groups(
    groups: Iterable[Group], states_filter: Iterable[str], types_filter: Iterable[str]
) -> list[m.ListGroupsResponse.ListedGroup]:
    """The groups in one of the states and of one of the types. No filter matches all, an unknown name none."""
    states = {name.lower().strip() for name in states_filter}
    types = {name.lower() for name in types_filter}
    return [
        listed
        for listed in map(_listed, groups)
        if (not types or listed.group_type in types) and (not states or listed.group_state.lower() in states)
    ]


def state_seen_from_outside(group: Group) -> str:
    """The state of a group that another thread may be changing. One whose members come or go right now is reconciled
    at best in a moment."""
    try:
        state: ClassicGroupState | ConsumerGroupState = group.state
    except RuntimeError:
        state = ConsumerGroupState.RECONCILING
    return str(state.value)


def describe_groups(
    groups: Mapping[str, Group], group_ids: Iterable[str], version: int
) -> list[m.DescribeGroupsResponse.DescribedGroup]:
    return [_described(groups.get(group_id), group_id, version) for group_id in group_ids]


def describe_consumer_groups(
    groups: Mapping[str, Group], group_ids: Iterable[str], assignors: Sequence[str], topics: TopicsImage
) -> list[m.ConsumerGroupDescribeResponse.DescribedGroup]:
    described = []
    for group_id in group_ids:
        group = groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            described.append(_described_consumer_group(group, assignors, topics))
        else:
            missing = "not found." if group is None else "is not a consumer group."
            described.append(
                m.ConsumerGroupDescribeResponse.DescribedGroup(
                    group_id=group_id,
                    error_code=Error.GROUP_ID_NOT_FOUND,
                    error_message=f"Group {group_id} {missing}",
                )
            )
    return described


def check_group_deletion(group: Group | None) -> Error:
    """Whether DeleteGroups may delete a group: it must not have members."""
    if group is None or group.state is ClassicGroupState.DEAD:
        return Error.GROUP_ID_NOT_FOUND
    return Error.NONE if group.is_empty else Error.NON_EMPTY_GROUP


def check_offset_deletion(group: Group | None) -> Error:
    """Whether OffsetDelete may delete any of a group's offsets.

    Of a classic group with members, only the consumer protocol tells which topics are in use.
    """
    error = check_group_deletion(group)
    if error is Error.NON_EMPTY_GROUP and (isinstance(group, ConsumerGroup) or _has_consumers(group)):
        return Error.NONE
    return error


def delete_offsets(
    group: Group, offsets: ShardOffsets, request: m.OffsetDeleteRequest, effects: Effects
) -> m.OffsetDeleteResponse:
    """Deletes offsets of topics that no member is subscribed to; others are refused one by one."""
    response = m.OffsetDeleteResponse()
    for topic in request.topics:
        error = Error.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(topic.name) else Error.NONE
        answered = m.OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name)
        response.topics.append(answered)
        for partition in topic.partitions:
            index = partition.partition_index
            answered.partitions.append(
                m.OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=index, error_code=error)
            )
            if error is Error.NONE and offsets.has(group.group_id, topic.name, index):
                offsets.delete(group.group_id, topic.name, index, effects)
    return response


def is_abandoned(group: Group) -> bool:
    """Whether a group has no members, and none about to join."""
    return group.is_empty and (isinstance(group, ConsumerGroup) or not group.pending_deadlines_ms)


def delete_group(group: Group, effects: Effects) -> None:
    """Deletes all records of a group but those of its offsets."""
    if not isinstance(group, ConsumerGroup):
        effects.write(group_records.group_tombstone(group.group_id))
        return
    for record in consumer_records.group_tombstones(group.group_id, group.members, group.resolved_regexes):
        effects.write(record)


def _has_consumers(group: ClassicGroup | None) -> bool:
    return group is not None and group.uses_consumer_protocol


def _listed(group: Group) -> m.ListGroupsResponse.ListedGroup:
    protocol_type, group_type = (
        (CONSUMER, CONSUMER) if isinstance(group, ConsumerGroup) else (group.protocol_type or "", CLASSIC)
    )
    return m.ListGroupsResponse.ListedGroup(
        group_id=group.group_id, protocol_type=protocol_type, group_state=group.state.value, group_type=group_type
    )


def _described(group: Group | None, group_id: str, version: int) -> m.DescribeGroupsResponse.DescribedGroup:
    if group is not None and not isinstance(group, ConsumerGroup):
        return group.describe()
    described = m.DescribeGroupsResponse.DescribedGroup(group_id=group_id, group_state=ClassicGroupState.DEAD.value)
    if version >= MISSING_GROUP_IS_AN_ERROR_FROM:
        missing = "not found." if group is None else "is not a classic group."
        described.error_code = Error.GROUP_ID_NOT_FOUND
        described.error_message = f"Group {group_id} {missing}"
    return described


def _described_consumer_group(
    group: ConsumerGroup, assignors: Sequence[str], topics: TopicsImage
) -> m.ConsumerGroupDescribeResponse.DescribedGroup:
    return m.ConsumerGroupDescribeResponse.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(assignors),
        members=[_described_consumer_member(group, member, topics) for member in group.members.values()],
    )


def _described_consumer_member(
    group: ConsumerGroup, member: ConsumerMember, topics: TopicsImage
) -> m.ConsumerGroupDescribeResponse.Member:
    return m.ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topics),
        subscribed_topic_regex=member.subscribed_regex,
        assignment=_assignment((member.assigned, member.pending_revocation), topics),
        target_assignment=_assignment((group.target_of(member.member_id),), topics),
        member_type=CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    )


def _assignment(
    parts: Iterable[Mapping[Uuid, Collection[int]]], topics: TopicsImage
) -> m.ConsumerGroupDescribeResponse.Assignment:
    """Topics that no longer exist are left out."""
    together: dict[Uuid, set[int]] = {}
    for part in parts:
        for topic_id, partitions in part.items():
            together.setdefault(topic_id, set()).update(partitions)
    return m.ConsumerGroupDescribeResponse.Assignment(
        topic_partitions=[
            m.ConsumerGroupDescribeResponse.TopicPartitions(
                topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions)
            )
            for topic_id, partitions in sorted(together.items())
            if (topic := topics.by_id(topic_id)) is not None
        ]
    )
