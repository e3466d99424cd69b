"""The `range` assignor: adjacent partitions of each topic go to the same member.

Members are in the same order for all topics, static ones first, by instance id. So members that are subscribed to the
same topics with the same number of partitions get the same partition numbers of each, which stream joins need, and a
static member keeps its place when it returns under another member id. Earlier assignments do not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.groups.assignors import MemberSpec, PartitionCounts, Partitions
    from barnabas.protocol.uuids import Uuid


def assign(members: Mapping[str, MemberSpec], topics: PartitionCounts) -> dict[str, Partitions]:
    targets: dict[str, dict[Uuid, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic_id, subscribers in _subscribers(members).items():
        quota, extra = divmod(topics[topic_id], len(subscribers))
        start = 0
        for rank, member_id in enumerate(subscribers if quota else subscribers[:extra]):
            end = start + quota + (rank < extra)
            targets[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return {
        member_id: member.assigned if targets[member_id] == member.assigned else targets[member_id]
        for member_id, member in members.items()
    }


def _subscribers(members: Mapping[str, MemberSpec]) -> dict[Uuid, list[str]]:
    """The members of each topic, in the order in which they get their ranges."""
    subscribers: dict[Uuid, list[str]] = {}
    for member_id in sorted(members, key=lambda member_id: _place(member_id, members[member_id])):
        for topic_id in members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    return subscribers


def _place(member_id: str, member: MemberSpec) -> tuple[bool, str]:
    return (True, member_id) if member.instance_id is None else (False, member.instance_id)
