"""A classic group as a record of `__consumer_offsets`, and the topics that its members' metadata names.

Only a group at rest is written: stable with its members and their assignment, or empty. A rebalance that is under way
means nothing after a restart, when every member sends its request again. There is one exception: a consumer group that
was downgraded to a classic one and has to rebalance is written without a leader, as it has had none yet. When it is
loaded, it rebalances. To Kafka such a group is stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.coordination.effects import Record
from barnabas.groups.classic.classic_answers import metadata_of
from barnabas.groups.classic.classic_members import ClassicMember, InstanceId, MemberId
from barnabas.protocol import messages as m
from barnabas.protocol.codec import DecodeError, decode_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.groups.classic.classic_group import ClassicGroup

NO_TIMESTAMP_MS: Final = -1
CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_VERSION_BYTES: Final = 2
"""The consumer protocol puts its version, an int16, before the subscription."""


def group_record(group: ClassicGroup) -> Record:
    return _record(group, group.members.leader_id)


def record_to_rebalance(group: ClassicGroup) -> Record:
    """A group that has to rebalance, because some partitions are assigned to no member."""
    return _record(group, None)


def has_to_rebalance(value: m.GroupMetadataValue) -> bool:
    return bool(value.members) and value.leader is None


def _record(group: ClassicGroup, leader_id: MemberId | None) -> Record:
    value = m.GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=leader_id,
        current_state_timestamp=group.state_timestamp_ms,
        members=[_written_member(group, member) for member in group.members],
    )
    return Record(m.GroupMetadataKey(group=group.group_id), value)


def _written_member(group: ClassicGroup, member: ClassicMember) -> m.GroupMetadataValue.MemberMetadata:
    return m.GroupMetadataValue.MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=metadata_of(group, member),
        assignment=member.assignment,
    )


def members_of(value: m.GroupMetadataValue) -> Iterator[ClassicMember]:
    """The members of a written group. Of their protocols, only the selected one is in the record."""
    for written in value.members:
        instance_id = written.group_instance_id
        yield ClassicMember(
            MemberId(written.member_id),
            None if instance_id is None else InstanceId(instance_id),
            client_id=written.client_id,
            client_host=written.client_host,
            session_timeout_ms=written.session_timeout,
            rebalance_timeout_ms=(
                written.session_timeout if written.rebalance_timeout == -1 else written.rebalance_timeout
            ),
            protocols={value.protocol or "": bytes(written.subscription)},
            assignment=bytes(written.assignment),
        )


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """The topics that members of the current generation are subscribed to; None if their metadata does not tell.

    Every version of the consumer protocol's subscription begins with the fields of version 0, so that is what is
    read."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    if not len(group.members):
        return frozenset()
    topics: set[str] = set()
    for member in group.members:
        try:
            subscription, _ = decode_prefix(
                m.ConsumerProtocolSubscription, metadata_of(group, member), 0, _VERSION_BYTES
            )
        except DecodeError:
            # A custom assignor may use other metadata; the group works without its topics being known.
            return None
        topics.update(subscription.topics)
    return frozenset(topics)
