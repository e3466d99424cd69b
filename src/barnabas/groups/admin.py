"""Groups as an administrator sees them: listed, described, deleted, whole or their offsets alone. Functions over a
shard's groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.groups import consumer_describe, consumer_record, records
from barnabas.groups.classic_state import GroupState
from barnabas.groups.consumer_group import ConsumerGroup
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.coordination.effects import Effects
    from barnabas.groups.classic import ClassicGroup
    from barnabas.groups.group import Group
    from barnabas.groups.shard_offsets import ShardOffsets
    from barnabas.metadata.image import TopicsImage

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
"""The types of groups as ListGroups names them; the second is the protocol type of consumers too."""

MISSING_GROUP_IS_AN_ERROR_FROM: Final = 6
"""The first version of DescribeGroups that says of a group that there is none; before, such a group is "Dead"."""


def list_groups(
    groups: Iterable[Group], states_filter: Iterable[str], types_filter: Iterable[str]
) -> list[m.ListGroupsResponse.ListedGroup]:
    """The groups in one of the states and of one of the types. No filter lets all pass, an unknown name none."""
    states = {name.lower().strip() for name in states_filter}
    types = {name.lower() for name in types_filter}
    return [
        listed
        for listed in map(_listed, groups)
        if (not types or listed.group_type in types) and (not states or listed.group_state.lower() in states)
    ]


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
            described.append(consumer_describe.described(group, assignors, topics))
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
    """Whether DeleteGroups may delete a group: nobody may be in it."""
    if group is None or group.state is GroupState.DEAD:
        return Error.GROUP_ID_NOT_FOUND
    return Error.NONE if group.is_empty else Error.NON_EMPTY_GROUP


def check_offset_deletion(group: Group | None) -> Error:
    """Whether OffsetDelete may look at a group's offsets at all.

    Of a classic group with members only the consumers' own protocol tells which topics are in use.
    """
    error = check_group_deletion(group)
    if error is Error.NON_EMPTY_GROUP and (isinstance(group, ConsumerGroup) or _has_consumers(group)):
        return Error.NONE
    return error


def delete_offsets(
    group: Group, offsets: ShardOffsets, request: m.OffsetDeleteRequest, effects: Effects
) -> m.OffsetDeleteResponse:
    """Deletes offsets of topics that nobody in the group uses; the others are refused one by one."""
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
    """Whether nobody is in a group, nor about to join it."""
    return group.is_empty and (isinstance(group, ConsumerGroup) or not group.pending_deadlines_ms)


def delete_group(group: Group, effects: Effects) -> None:
    """Takes back all that was written of a group but for its offsets."""
    if not isinstance(group, ConsumerGroup):
        effects.write(records.group_tombstone(group.group_id))
        return
    for record in consumer_record.group_tombstones(group.group_id, group.members, group.resolved_regexes):
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
    described = m.DescribeGroupsResponse.DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if version >= MISSING_GROUP_IS_AN_ERROR_FROM:
        missing = "not found." if group is None else "is not a classic group."
        described.error_code = Error.GROUP_ID_NOT_FOUND
        described.error_message = f"Group {group_id} {missing}"
    return described
