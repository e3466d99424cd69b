"""Online migration of a group: it is upgraded from classic to consumer when the first member that uses the consumer
protocol joins, and downgraded when the last one leaves.

After an upgrade, classic members stay members, with their assignment as their target, and are asked to rejoin by the
answers to their heartbeats (see `classic_in_consumer`). After a downgrade, they are a classic group that rebalances.
Either way all records of one type are deleted and those of the other written, in one batch with what caused it, so that
no restart finds half a group. `group.consumer.migration.policy` says which directions are enabled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.groups import group_records
from barnabas.groups.classic import classic_records, rebalancing
from barnabas.groups.classic.classic_group import ClassicGroup, ClassicGroupState
from barnabas.groups.classic.classic_members import ClassicMember, InstanceId, MemberId
from barnabas.groups.consumer import consumer_records
from barnabas.groups.consumer.consumer_group import ConsumerGroup
from barnabas.groups.consumer.consumer_member import ConsumerMember, MemberState
from barnabas.groups.consumer.embedded_protocol import (
    PROTOCOL_TYPE,
    by_topic_id,
    read_assignment,
    read_subscription,
    version_for_answer,
    write_assignment,
)
from barnabas.groups.consumer.metadata_hash import NO_TOPICS_HASH
from barnabas.protocol import messages as m
from barnabas.protocol.codec import DecodeError
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from barnabas.coordination.effects import Effects
    from barnabas.groups.assignors import Partitions
    from barnabas.groups.consumer.consumer_member import Owned
    from barnabas.groups.consumer.step_context import ConsumerGroupSettings, StepContext
    from barnabas.metadata.image import TopicsImage
    from barnabas.protocol.uuids import Uuid

_UP: Final = ("upgrade", "bidirectional")
_DOWN: Final = ("downgrade", "bidirectional")
_NO_TIMESTAMP_MS: Final = 0


def may_migrate(settings: ConsumerGroupSettings) -> bool:
    """Whether a group may have members of both protocols at all."""
    return settings.migration_policy.lower() in (*_UP, *_DOWN)


# Upgrade: from classic to consumer.


def check_upgrade(classic: ClassicGroup, settings: ConsumerGroupSettings) -> None:
    """Raises GROUP_ID_NOT_FOUND if the group cannot be upgraded."""
    if settings.migration_policy.lower() not in _UP:
        raise _cannot_upgrade(classic, "online upgrade is disabled")
    if not classic.uses_consumer_protocol:
        raise _cannot_upgrade(classic, "the group does not use the consumer embedded protocol")
    if len(classic.members) > settings.max_size:
        raise _cannot_upgrade(classic, "the group size exceeds the consumer group maximum size")


def upgraded(classic: ClassicGroup, now: StepContext, effects: Effects) -> ConsumerGroup:
    """The consumer group that a classic group is upgraded to. Raises KafkaError if it cannot be.

    The classic group is unchanged until it is replaced."""
    check_upgrade(classic, now.settings)
    members = _members_of(classic, now.image.topics)
    effects.write(group_records.group_tombstone(classic.group_id))
    group = ConsumerGroup(classic.group_id)
    for member in members:
        group.write(consumer_records.member_metadata(group.group_id, member), effects)
    metadata_hash = NO_TOPICS_HASH
    if _share_all(members, now.image.topics):
        metadata_hash = now.hashes.of_group(group.subscribed_topics(), now.image.topics, now.image.brokers)
    group.write(consumer_records.group_epoch(group.group_id, classic.generation, metadata_hash), effects)
    for member in members:
        target = {topic_id: frozenset(owned) for topic_id, owned in member.assigned.items()}
        group.write(consumer_records.target_assignment(group.group_id, member.member_id, target), effects)
    group.write(consumer_records.target_epoch(group.group_id, classic.generation, _NO_TIMESTAMP_MS), effects)
    for member in members:
        group.write(consumer_records.current_assignment(group.group_id, member), effects)
    for classic_member in classic.members:
        group.keep_alive(classic_member.member_id, now.now_ms + classic_member.session_timeout_ms)
    return group


def _members_of(classic: ClassicGroup, topics: TopicsImage) -> list[ConsumerMember]:
    """The members with their last assignment, and with the partitions that they may still be reading beyond it.

    A cooperative member keeps reading the partitions that it had when it joined until it gets its next assignment.
    Whether it has got it is unknown, so the rest counts as pending revocation: otherwise other members could be given
    partitions that it still reads."""
    if not len(classic.members):
        return []
    protocol = _common_protocol(classic)
    taken: set[tuple[Uuid, int]] = set()
    members = {}
    for each in classic.members:
        member = _as_consumer_member(classic, each, protocol, topics)
        members[member.member_id] = member._replace(assigned=_take_free(member.assigned, taken))
    for each in classic.members:
        subscription = read_subscription(each.protocols[protocol])
        owned = by_topic_id(subscription.owned_partitions, topics)
        unrevoked = _take_free(_since(classic.generation, owned), taken)
        if unrevoked:
            members[each.member_id] = members[each.member_id]._replace(
                state=MemberState.UNREVOKED_PARTITIONS, pending_revocation=unrevoked
            )
    return list(members.values())


def _share_all(members: Iterable[ConsumerMember], topics: TopicsImage) -> bool:
    """Whether all partitions of the subscribed topics are assigned. They are not during a rebalance, or when a topic
    has got partitions that the leader has not seen. Then the group is written with a hash that does not match its
    topics, so that a new target is made: a static member that returns with the consumer protocol would not cause
    one."""
    subscribed = {name for member in members for name in member.subscribed_topics}
    existing = [topic for name in subscribed if (topic := topics.get(name)) is not None]
    assigned = sum(len(partitions) for member in members for partitions in member.assigned.values())
    return assigned == sum(len(topic.partitions) for topic in existing)


def _common_protocol(classic: ClassicGroup) -> str:
    """A protocol that all members support. While they rejoin, this need not be the selected one."""
    selected = classic.protocol_name
    if selected is not None and classic.members.all_support_one_of([selected]):
        return selected
    return classic.members.select_protocol()


def _take_free(owned: Owned, taken: set[tuple[Uuid, int]]) -> Owned:
    """The partitions that are not taken yet, which this takes: a leader may have assigned a partition to two
    members."""
    free: dict[Uuid, dict[int, int]] = {}
    for topic_id, partitions in owned.items():
        for partition, epoch in partitions.items():
            if (topic_id, partition) not in taken:
                taken.add((topic_id, partition))
                free.setdefault(topic_id, {})[partition] = epoch
    return free


def _since(epoch: int, partitions: Partitions) -> Owned:
    return {topic_id: dict.fromkeys(numbers, epoch) for topic_id, numbers in partitions.items()}


def _as_consumer_member(
    classic: ClassicGroup, member: ClassicMember, protocol: str, topics: TopicsImage
) -> ConsumerMember:
    try:
        subscription = read_subscription(member.protocols[protocol])
        assignment = read_assignment(member.assignment)
    except DecodeError as malformed:
        raise _cannot_upgrade(classic, "the embedded consumer protocol is malformed") from malformed
    if assignment.user_data:
        # The user data of a custom assignor would be lost.
        raise _cannot_upgrade(
            classic,
            "an unsupported custom assignor is in use. "
            "Please refer to the documentation or switch to a default assignor before re-attempting the upgrade",
        )
    assigned = by_topic_id(assignment.assigned_partitions, topics)
    return ConsumerMember(
        member_id=member.member_id,
        epoch=classic.generation,
        previous_epoch=classic.generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topics=frozenset(subscription.topics),
        assigned=_since(classic.generation, assigned),
        classic=classic_metadata(member.session_timeout_ms, member.protocols),
    )


def classic_metadata(
    session_timeout_ms: int, protocols: Mapping[str, bytes]
) -> m.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata:
    """What is written for a classic member in addition."""
    return m.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=[
            m.ConsumerGroupMemberMetadataValue.ClassicProtocol(name=name, metadata=metadata)
            for name, metadata in protocols.items()
        ],
    )


def _cannot_upgrade(classic: ClassicGroup, why: str) -> KafkaError:
    message = f"Cannot upgrade classic group {classic.group_id} to consumer group because {why}."
    return KafkaError(Error.GROUP_ID_NOT_FOUND, message)


# Downgrade: from consumer to classic.


def is_last_to_go(group: ConsumerGroup, leaving: Collection[ConsumerMember], now: StepContext) -> bool:
    """Whether only classic members are left without these, and the group may be downgraded."""
    staying = len(group.members) - len(leaving)
    return (
        staying > 0
        and _all_others_are_classic(group, leaving)
        and now.settings.migration_policy.lower() in _DOWN
        and staying <= now.classic.group_max_size
    )


def is_last_to_be_replaced(group: ConsumerGroup, replaced: ConsumerMember, now: StepContext) -> bool:
    """Whether the group has only classic members once a classic one has replaced this static member, and may be
    downgraded."""
    return (
        not replaced.uses_classic_protocol
        and _all_others_are_classic(group, [replaced])
        and now.settings.migration_policy.lower() in _DOWN
        and len(group.members) <= now.classic.group_max_size
    )


def _all_others_are_classic(group: ConsumerGroup, some: Collection[ConsumerMember]) -> bool:
    ids = {member.member_id for member in some}
    return all(member.uses_classic_protocol for member in group.members.values() if member.member_id not in ids)


def downgrade(
    group: ConsumerGroup, leaving: Collection[ConsumerMember], generation: int, now: StepContext, effects: Effects
) -> ClassicGroup:
    """Turns a consumer group into a stable classic group of the members that stay, with their targets as assignments.

    The consumer group is dead after that. The caller writes the record of its successor."""
    gone = {member.member_id for member in leaving}
    classic = ClassicGroup(group.group_id, now.classic)
    classic.protocol_type = PROTOCOL_TYPE
    classic.generation = generation
    for member in group.members.values():
        if member.member_id not in gone:
            classic.members.add(_as_classic_member(member))
    classic.protocol_name = classic.members.select_protocol()
    _assign(classic, group.targets, now.image.topics)
    for staying in classic.members:
        classic.prolong_session(staying, now.now_ms)
    classic.state = ClassicGroupState.STABLE
    classic.state_timestamp_ms = now.now_ms
    classic.note_subscribed_topics()
    for tombstone in consumer_records.group_tombstones(
        group.group_id, list(group.members), list(group.resolved_regexes)
    ):
        group.write(tombstone, effects)
    group.successor = classic
    return classic


def downgrade_to_rebalance(
    group: ConsumerGroup, leaving: Collection[ConsumerMember], generation: int, now: StepContext, effects: Effects
) -> None:
    """Turns a consumer group into a classic group that rebalances, because the partitions of members that left are
    free, or because some members have not reached their target.

    Until members have rejoined, their assignments are the partitions that they may still be reading, not their targets:
    if the group is upgraded again before that, the new member gets the rest. Unlike other rebalances, this one is
    written: the next coordinator would otherwise load a stable group with all its members, and some partitions would
    have no reader."""
    held = {member_id: member.held for member_id, member in group.members.items()}
    classic = downgrade(group, leaving, generation, now, effects)
    _assign(classic, held, now.image.topics)
    effects.write(classic_records.record_to_rebalance(classic))
    rebalancing.prepare(classic, now.now_ms, effects)


def _assign(
    classic: ClassicGroup, assignments: Mapping[str, Mapping[Uuid, Collection[int]]], topics: TopicsImage
) -> None:
    assert classic.protocol_name is not None, "a protocol has been selected"
    for member in classic.members:
        version = version_for_answer(member.protocols[classic.protocol_name])
        member.assignment = write_assignment(assignments.get(member.member_id, {}), topics, version)


def _as_classic_member(member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None, f"{member.member_id} uses the consumer protocol"
    return ClassicMember(
        MemberId(member.member_id),
        None if member.instance_id is None else InstanceId(member.instance_id),
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols={each.name: bytes(each.metadata) for each in member.classic.supported_protocols},
    )
