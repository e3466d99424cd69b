"""A consumer group as records of `__consumer_offsets`:

    per group   its epoch and metadata hash; the epoch and time of its target assignment
    per member  its metadata; its target assignment; its current assignment
    per regex   the topics that a regular expression matched

each of which is deleted by a tombstone. Topics and partitions are sorted, so that equal states are equal bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.coordination.effects import Record
from barnabas.groups.consumer.consumer_member import MemberState
from barnabas.protocol import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.groups.assignors import Partitions
    from barnabas.groups.consumer.consumer_member import ConsumerMember, Owned
    from barnabas.protocol.uuids import Uuid


class ResolvedRegex(NamedTuple):
    """The topics that matched a regular expression when it was last resolved."""

    topics: frozenset[str]
    version: int
    """The offset of the metadata log at which it was resolved."""
    timestamp_ms: int


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> Record:
    value = m.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return Record(m.ConsumerGroupMetadataKey(group_id=group_id), value)


def member_metadata(group_id: str, member: ConsumerMember) -> Record:
    value = m.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topics),
        subscribed_topic_regex=member.subscribed_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=member.classic,
    )
    return Record(m.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def with_metadata(member: ConsumerMember, value: m.ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    return member._replace(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topics=frozenset(value.subscribed_topic_names),
        subscribed_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=value.classic_member_metadata,
    )


def target_epoch(group_id: str, epoch: int, timestamp_ms: int) -> Record:
    value = m.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return Record(m.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_assignment(group_id: str, member_id: str, target: Partitions) -> Record:
    topics = [
        m.ConsumerGroupTargetAssignmentMemberValue.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
        for topic_id, partitions in sorted(target.items())
    ]
    value = m.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics)
    return Record(m.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_of(value: m.ConsumerGroupTargetAssignmentMemberValue) -> Partitions:
    return {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}


def current_assignment(group_id: str, member: ConsumerMember) -> Record:
    value = m.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_written(member.assigned),
        partitions_pending_revocation=_written(member.pending_revocation),
    )
    return Record(m.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def with_current_assignment(
    member: ConsumerMember, value: m.ConsumerGroupCurrentMemberAssignmentValue
) -> ConsumerMember:
    return member._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=_owned(value.assigned_partitions, value.member_epoch),
        pending_revocation=_owned(value.partitions_pending_revocation, value.member_epoch),
    )


def _written(owned: Owned) -> list[m.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    written = []
    for topic_id, epochs in sorted(owned.items()):
        partitions = sorted(epochs)
        written.append(
            m.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(
                topic_id=topic_id, partitions=partitions, assignment_epochs=[epochs[each] for each in partitions]
            )
        )
    return written


def _owned(written: Iterable[m.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], member_epoch: int) -> Owned:
    """Before Kafka 4.3 the epochs of partitions were not written: the member's epoch is the latest that they can be."""
    owned: dict[Uuid, dict[int, int]] = {}
    for topic in written:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned


def resolved_regex(group_id: str, regex: str, resolved: ResolvedRegex) -> Record:
    value = m.ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return Record(m.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value)


def resolved_of(value: m.ConsumerGroupRegularExpressionValue) -> ResolvedRegex:
    return ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)


def regex_tombstone(group_id: str, regex: str) -> Record:
    return Record(m.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def partition_metadata_tombstone(group_id: str) -> Record:
    """Kafka before 4.1 wrote the group's topics, where there is now a hash of them."""
    return Record(m.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    return [
        Record(m.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        Record(m.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        Record(m.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str], regexes: Iterable[str]) -> list[Record]:
    """Deletes a whole group. Readers drop a member with its metadata, so that comes after its assignments."""
    current, target, metadata = [], [], []
    for member_id in member_ids:
        tombstones = member_tombstones(group_id, member_id)
        current.append(tombstones[0])
        target.append(tombstones[1])
        metadata.append(tombstones[2])
    return [
        *current,
        *target,
        Record(m.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *metadata,
        *(regex_tombstone(group_id, regex) for regex in regexes),
        partition_metadata_tombstone(group_id),
        Record(m.ConsumerGroupMetadataKey(group_id=group_id), None),
    ]
