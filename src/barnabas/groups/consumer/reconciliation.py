"""Reconciliation: bringing one member to its target assignment, without a partition ever having two owners.

A member first revokes partitions that are not in its target. It is told so by an answer without them, and stays in its
epoch until a heartbeat lists what it owns, and they are not in it. Only then does it reach the target's epoch, and gets
the partitions that no other member owns. Those that others still own it gets with a later heartbeat, when they have
been revoked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.groups.consumer.consumer_member import MemberState

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from barnabas.groups.assignors import Partitions
    from barnabas.groups.consumer.consumer_member import ConsumerMember, Owned
    from barnabas.protocol import messages as m
    from barnabas.protocol.uuids import Uuid


class Target(NamedTuple):
    """A member's target, and what stands in its way."""

    epoch: int
    partitions: Partitions
    subscribed_topics: Container[Uuid]
    """The topics that the member is subscribed to now. A target from before that may have others."""
    owner_of: Callable[[Uuid, int], str | None]


Reported = list["m.ConsumerGroupHeartbeatRequest.TopicPartitions"] | None
"""The partitions that a member says it owns; None if it does not say."""


def reconcile(
    member: ConsumerMember, target: Target, reported: Reported, *, has_new_subscription: bool
) -> ConsumerMember:
    """The member after its next step towards the target; unchanged if there is no step to take now."""
    if member.state is MemberState.STABLE and member.epoch == target.epoch:
        return _without_unsubscribed(member, target, reported) if has_new_subscription else member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_owns(member.pending_revocation, reported):
        return _without_unsubscribed(member, target, reported) if has_new_subscription else member
    return _towards(member, target, reported)


def _towards(member: ConsumerMember, target: Target, reported: Reported) -> ConsumerMember:
    kept: dict[Uuid, Mapping[int, int]] = {}
    revoked: dict[Uuid, Mapping[int, int]] = {}
    gained: dict[Uuid, dict[int, int]] = {}
    waits = False
    for topic_id in {**target.partitions, **member.assigned}:
        wanted = target.partitions.get(topic_id, frozenset()) if topic_id in target.subscribed_topics else frozenset()
        owned = member.assigned.get(topic_id, {})
        if staying := {each: epoch for each, epoch in owned.items() if each in wanted}:
            kept[topic_id] = staying
        if leaving := {each: epoch for each, epoch in owned.items() if each not in wanted}:
            revoked[topic_id] = leaving
        missing = wanted - owned.keys()
        free = {each for each in missing if target.owner_of(topic_id, each) in (None, member.member_id)}
        waits = waits or len(free) < len(missing)
        if free:
            gained[topic_id] = dict.fromkeys(free, target.epoch)
    if revoked and _still_owns(revoked, reported):
        return member.at_epoch(member.epoch)._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=revoked
        )
    return member.at_epoch(target.epoch)._replace(
        state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
        assigned=_together(kept, gained),
        pending_revocation={},
    )


def _without_unsubscribed(member: ConsumerMember, target: Target, reported: Reported) -> ConsumerMember:
    """Revokes partitions of topics that a member is no longer subscribed to, before there is a target without them."""
    leaving = {each: owned for each, owned in member.assigned.items() if each not in target.subscribed_topics}
    if not leaving:
        return member
    kept = {each: owned for each, owned in member.assigned.items() if each not in leaving}
    revoked = _together(member.pending_revocation, leaving)
    member = member.at_epoch(member.epoch)
    if _still_owns(revoked, reported):
        return member._replace(state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=revoked)
    return member._replace(assigned=kept)


def _together(one: Owned, other: Owned) -> Owned:
    return {**one, **{topic_id: {**one.get(topic_id, {}), **owned} for topic_id, owned in other.items()}}


def _still_owns(revoked: Owned, reported: Reported) -> bool:
    """Whether a member has yet to revoke partitions. One that does not say has."""
    if reported is None:
        return True
    return any(
        topic.topic_id in revoked and not revoked[topic.topic_id].keys().isdisjoint(topic.partitions)
        for topic in reported
    )
