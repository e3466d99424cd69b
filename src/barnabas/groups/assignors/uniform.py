"""The `uniform` assignor: members get as many partitions as each other, and keep what they have as far as that allows.

Where all members are subscribed to the same topics, this needs two passes: each member keeps up to its quota, and what
is left fills up those below theirs. Other groups are the matter of `uniform_heterogeneous`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.groups.assignors import uniform_heterogeneous

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.groups.assignors.spec import MemberSpec, PartitionCounts, Partitions
    from barnabas.protocol.uuids import Uuid


def assign(members: Mapping[str, MemberSpec], topics: PartitionCounts) -> dict[str, Partitions]:
    if not members:
        return {}
    subscription = next(iter(members.values())).topics
    if any(member.topics != subscription for member in members.values()):
        return uniform_heterogeneous.assign(members, topics)
    return _assign_homogeneous(members, {topic_id: topics[topic_id] for topic_id in sorted(subscription)})


def _assign_homogeneous(members: Mapping[str, MemberSpec], topics: PartitionCounts) -> dict[str, Partitions]:
    """Where partitions cannot be shared out evenly, some members get one more: those that have it already, and if these
    are too few, the last of the mapping."""
    quota, extra = divmod(sum(topics.values()), len(members))
    left = list(_unassigned(members, topics))
    targets: dict[str, Partitions] = {}
    room: dict[str, int] = {}
    for rank, (member_id, member) in enumerate(members.items()):
        one_more = 1 if extra else 0
        kept, revoked, unused = _keep(member.assigned, topics, quota + one_more)
        if unused and one_more and len(members) - rank > extra:
            one_more = 0
            unused -= 1
        extra -= one_more
        targets[member_id] = kept
        left.extend(revoked)
        if unused:
            room[member_id] = unused
    taken = 0
    for member_id, count in room.items():
        targets[member_id] = _with(targets[member_id], left[taken : taken + count])
        taken += count
    return targets


def _unassigned(members: Mapping[str, MemberSpec], topics: PartitionCounts) -> Iterator[tuple[Uuid, int]]:
    assigned: dict[Uuid, set[int]] = {topic_id: set() for topic_id in topics}
    for member in members.values():
        for topic_id, partitions in member.assigned.items():
            if topic_id in assigned:
                assigned[topic_id] |= partitions
    for topic_id, count in topics.items():
        has_owner = assigned[topic_id]
        yield from ((topic_id, partition) for partition in range(count) if partition not in has_owner)


def _keep(assigned: Partitions, topics: PartitionCounts, quota: int) -> tuple[Partitions, list[tuple[Uuid, int]], int]:
    """What a member keeps of its partitions, what it has beyond its quota, and how much of the quota is unused."""
    kept: dict[Uuid, frozenset[int]] = {}
    revoked: list[tuple[Uuid, int]] = []
    for topic_id, partitions in assigned.items():
        if topic_id not in topics:
            continue
        if len(partitions) > quota:
            in_order = sorted(partitions)
            revoked.extend((topic_id, partition) for partition in in_order[quota:])
            partitions = frozenset(in_order[:quota])
        if partitions:
            kept[topic_id] = partitions
            quota -= len(partitions)
    return (assigned if kept == assigned else kept), revoked, quota


def _with(partitions: Partitions, added: list[tuple[Uuid, int]]) -> Partitions:
    if not added:
        return partitions
    by_topic: dict[Uuid, list[int]] = {}
    for topic_id, partition in added:
        by_topic.setdefault(topic_id, []).append(partition)
    joined = dict(partitions)
    for topic_id, more in by_topic.items():
        joined[topic_id] = joined.get(topic_id, frozenset()).union(more)
    return joined
