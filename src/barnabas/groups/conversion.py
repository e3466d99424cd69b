"""A group changes its protocol while it runs: from classic to consumer with the first member that speaks the newer
protocol, and back with the last one that goes.

Going up, classic members stay members, with what they were assigned as their target, and are asked to rejoin by the
answers to their heartbeats (see `classic_in_consumer`). Going down, they are a classic group that is told to rebalance.
Either way all records of one kind are taken back and those of the other written, in one batch with what caused it, so
that no restart finds half a group. `group.consumer.migration.policy` says which ways are open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.groups import classic_rebalance, classic_record, consumer_record, records
from barnabas.groups.classic import ClassicGroup, GroupState
from barnabas.groups.classic_member import ClassicMember, InstanceId, MemberId
from barnabas.groups.consumer_group import ConsumerGroup
from barnabas.groups.consumer_member import ConsumerMember, MemberState
from barnabas.groups.embedded_protocol import (
    PROTOCOL_TYPE,
    by_topic_id,
    read_assignment,
    read_subscription,
    version_for_answer,
    write_assignment,
)
from barnabas.groups.subscriptions import NO_TOPICS_HASH
from barnabas.protocol import messages as m
from barnabas.protocol.codec import DecodeError
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from barnabas.coordination.effects import Effects
    from barnabas.groups.assignors.spec import Partitions
    from barnabas.groups.consumer_circumstances import Circumstances, ConsumerGroupSettings
    from barnabas.groups.consumer_member import Owned
    from barnabas.metadata.image import TopicsImage
    from barnabas.protocol.uuids import Uuid

_UP: Final = ("upgrade", "bidirectional")
_DOWN: Final = ("downgrade", "bidirectional")
_NO_TIMESTAMP_MS: Final = 0


def may_migrate(settings: ConsumerGroupSettings) -> bool:
    """Whether members of both protocols may be in one group at all."""
    return settings.migration_policy.lower() in (*_UP, *_DOWN)


# From classic to consumer.


def check_upgrade(classic: ClassicGroup, settings: ConsumerGroupSettings) -> None:
    """Raises GROUP_ID_NOT_FOUND, as the group is none that the newer protocol can join, and says why."""
    if settings.migration_policy.lower() not in _UP:
        raise _cannot_upgrade(classic, f"group.consumer.migration.policy is {settings.migration_policy}")
    if not classic.uses_consumer_protocol:
        raise _cannot_upgrade(classic, "its members are not consumers")
    if len(classic.members) > settings.max_size:
        raise _cannot_upgrade(classic, f"it has more members than group.consumer.max.size, {settings.max_size}, allows")


def upgraded(classic: ClassicGroup, now: Circumstances, effects: Effects) -> ConsumerGroup:
    """The consumer group that a classic group becomes. Raises KafkaError where that cannot be.

    Nothing has happened to the classic group until it is abandoned for the other."""
    check_upgrade(classic, now.settings)
    members = _members_of(classic, now.image.topics)
    effects.write(records.group_tombstone(classic.group_id))
    group = ConsumerGroup(classic.group_id)
    for member in members:
        group.write(consumer_record.member_metadata(group.group_id, member), effects)
    metadata_hash = NO_TOPICS_HASH
    if _share_all(members, now.image.topics):
        metadata_hash = now.hashes.of_group(group.subscribed_topics(), now.image.topics, now.image.brokers)
    group.write(consumer_record.group_epoch(group.group_id, classic.generation, metadata_hash), effects)
    for member in members:
        target = {topic_id: frozenset(owned) for topic_id, owned in member.assigned.items()}
        group.write(consumer_record.target_assignment(group.group_id, member.member_id, target), effects)
    group.write(consumer_record.target_epoch(group.group_id, classic.generation, _NO_TIMESTAMP_MS), effects)
    for member in members:
        group.write(consumer_record.current_assignment(group.group_id, member), effects)
    for classic_member in classic.members:
        group.keep_alive(classic_member.member_id, now.now_ms + classic_member.session_timeout_ms)
    return group


def _members_of(classic: ClassicGroup, topics: TopicsImage) -> list[ConsumerMember]:
    """The members with what they were last assigned, and with what they may still read beyond that.

    A cooperative member goes on reading what it had when it joined until it has fetched its next assignment. Whether it
    has cannot be known, so it counts as told to give up the rest: otherwise others would be given what it reads."""
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
    """Whether members are assigned all partitions of their topics. They are not in a rebalance, nor when a topic has
    grown and their leader has not seen it. Then the group is written as one for other topics, which makes a new target:
    a static member that comes back to it by the newer protocol is no reason for one."""
    subscribed = {name for member in members for name in member.subscribed_topics}
    existing = [topic for name in subscribed if (topic := topics.get(name)) is not None]
    assigned = sum(len(partitions) for member in members for partitions in member.assigned.values())
    return assigned == sum(len(topic.partitions) for topic in existing)


def _common_protocol(classic: ClassicGroup) -> str:
    """A protocol that all members support: while they join again, they need no longer support the selected one."""
    selected = classic.protocol_name
    if selected is not None and classic.members.all_support_one_of([selected]):
        return selected
    return classic.members.select_protocol()


def _take_free(owned: Owned, taken: set[tuple[Uuid, int]]) -> Owned:
    """What nobody has taken before, and what is taken by that. A leader can give a partition to two members."""
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
        raise _cannot_upgrade(classic, "the subscription or assignment of a member cannot be read") from malformed
    if assignment.user_data:
        # What an assignor of the application's own keeps there would be lost.
        reason = "its assignor keeps data of its own in assignments: give the members another assignor first"
        raise _cannot_upgrade(classic, reason)
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
    """What is written of a member beyond what consumer members have."""
    return m.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=[
            m.ConsumerGroupMemberMetadataValue.ClassicProtocol(name=name, metadata=metadata)
            for name, metadata in protocols.items()
        ],
    )


def _cannot_upgrade(classic: ClassicGroup, why: str) -> KafkaError:
    message = f"classic group {classic.group_id} cannot become a consumer group: {why}"
    return KafkaError(Error.GROUP_ID_NOT_FOUND, message)


# From consumer to classic.


def is_last_to_go(group: ConsumerGroup, leaving: Collection[ConsumerMember], now: Circumstances) -> bool:
    """Whether only members of the classic protocol are left without these, and may be a classic group."""
    staying = len(group.members) - len(leaving)
    return (
        staying > 0
        and _all_others_are_classic(group, leaving)
        and now.settings.migration_policy.lower() in _DOWN
        and staying <= now.classic.group_max_size
    )


def is_last_to_be_replaced(group: ConsumerGroup, replaced: ConsumerMember, now: Circumstances) -> bool:
    """Whether the group has only classic members once one has taken the place of a static member."""
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
    group: ConsumerGroup, leaving: Collection[ConsumerMember], generation: int, now: Circumstances, effects: Effects
) -> ClassicGroup:
    """Makes a consumer group a stable classic group of the members that stay, with their targets as assignments.

    The consumer group is dead after that, and its successor is to take its place as soon as it is written."""
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
    classic.state = GroupState.STABLE
    classic.state_timestamp_ms = now.now_ms
    classic.note_subscribed_topics()
    for tombstone in consumer_record.group_tombstones(
        group.group_id, list(group.members), list(group.resolved_regexes)
    ):
        group.write(tombstone, effects)
    group.successor = classic
    return classic


def downgrade_to_rebalance(
    group: ConsumerGroup, leaving: Collection[ConsumerMember], generation: int, now: Circumstances, effects: Effects
) -> None:
    """Makes a consumer group a classic group that has to rebalance: members have gone whose partitions are to be shared
    out, or not all have what they are to have.

    Until they have rejoined, the assignments of members are what they may still read, and not what they were to have: a
    member of the newer protocol that comes before that is given the rest. That the group is to rebalance is written,
    for a rebalance of a classic group is not: the next coordinator would find a stable group and nobody missing in it,
    and some partitions would stay idle."""
    held = {member_id: member.held for member_id, member in group.members.items()}
    classic = downgrade(group, leaving, generation, now, effects)
    _assign(classic, held, now.image.topics)
    effects.write(classic_record.record_to_rebalance(classic))
    classic_rebalance.prepare(classic, now.now_ms, effects)


def _assign(
    classic: ClassicGroup, assignments: Mapping[str, Mapping[Uuid, Collection[int]]], topics: TopicsImage
) -> None:
    assert classic.protocol_name is not None, "a protocol has been selected"
    for member in classic.members:
        version = version_for_answer(member.protocols[classic.protocol_name])
        member.assignment = write_assignment(assignments.get(member.member_id, {}), topics, version)


def _as_classic_member(member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None, f"{member.member_id} speaks the newer protocol"
    return ClassicMember(
        MemberId(member.member_id),
        None if member.instance_id is None else InstanceId(member.instance_id),
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols={each.name: bytes(each.metadata) for each in member.classic.supported_protocols},
    )
