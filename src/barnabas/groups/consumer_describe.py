"""ConsumerGroupDescribe: a consumer group as an administrator sees it. Topics that no longer exist are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.protocol import messages as m

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from barnabas.groups.consumer_group import ConsumerGroup
    from barnabas.groups.consumer_member import ConsumerMember
    from barnabas.metadata.image import TopicsImage
    from barnabas.protocol.uuids import Uuid

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


def described(
    group: ConsumerGroup, assignors: Sequence[str], topics: TopicsImage
) -> m.ConsumerGroupDescribeResponse.DescribedGroup:
    return m.ConsumerGroupDescribeResponse.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(assignors),
        members=[_described_member(group, member, topics) for member in group.members.values()],
    )


def _described_member(
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
