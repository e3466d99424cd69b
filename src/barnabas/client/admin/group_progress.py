"""How far a group has come in each of its partitions, who reads them, and what is still to be read.

for place in progress(cluster, described["report"]):
    print(place.topic, place.partition, place.lag)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.admin.groups import fetch_offsets
from barnabas.client.admin.topics import TopicState, describe_topics
from barnabas.client.offset_queries import LATEST, list_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.admin.groups import GroupDescription
    from barnabas.client.cluster import Cluster, TopicPartition
    from barnabas.client.offset_queries import CommittedOffset


class Owner(NamedTuple):
    """The member that reads a partition."""

    member_id: str
    host: str
    client_id: str


class Place(NamedTuple):
    """How far a group has come in a partition."""

    topic: str
    partition: int
    committed: CommittedOffset | None
    """None where it has committed nothing yet."""
    end: int | None
    """None where the partition is gone, or nobody leads it."""
    owner: Owner | None

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else self.end - self.committed.offset


def progress(cluster: Cluster, group: GroupDescription) -> list[Place]:
    """The partitions that members have, and those that offsets are committed for, in order."""
    owners = owners_of(group)
    committed = fetch_offsets(cluster, group.group)
    partitions = sorted(owners.keys() | committed.keys())
    ends = ends_of(cluster, partitions)
    return [Place(*each, committed.get(each), ends.get(each), owners.get(each)) for each in partitions]


def owners_of(group: GroupDescription) -> dict[TopicPartition, Owner]:
    return {
        place: Owner(member.member_id, member.host, member.client_id)
        for member in group.members
        for place in member.assignment
    }


def ends_of(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The end of each partition that is there and has a leader."""
    wanted = set(partitions)
    led = {
        (topic, each.partition)
        for topic, state in describe_topics(cluster, {topic for topic, _ in wanted}).items()
        if isinstance(state, TopicState)
        for each in state.partitions
        if each.leader_id >= 0
    }
    found = list_offsets(cluster, dict.fromkeys(sorted(wanted & led), LATEST))
    return {place: at.offset for place, at in found.items() if at is not None}
