"""The `uniform` assignor: all members get the same number of partitions, and keep as many of theirs as that allows.

If all members are subscribed to the same topics, this takes two passes: each member keeps partitions up to its quota,
and the rest goes to the members below theirs.

If they are not, a partition can only go to some members, and the assignment is a search. First every member keeps what
it has of its topics. Partitions without an owner go, topic by topic, to the subscribers that have fewest, beginning
with the topics that have most partitions per subscriber, since these leave the least choice. Then partitions are moved,
again topic by topic, from the subscribers that have most to those that have fewest, until a whole round moves nothing.
Where subscriptions overlap without being equal, rounds may approach balance without ever reaching it, hence the limit.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from barnabas.groups.assignors import MemberSpec, PartitionCounts, Partitions
    from barnabas.protocol.uuids import Uuid

ROUNDS_MAX: Final = 16
NO_OWNER: Final = -1
_HALVES: Final = Struct(">qq")


def assign(members: Mapping[str, MemberSpec], topics: PartitionCounts) -> dict[str, Partitions]:
    if not members:
        return {}
    subscription = next(iter(members.values())).topics
    if any(member.topics != subscription for member in members.values()):
        return _assign_heterogeneous(members, topics)
    return _assign_homogeneous(members, {topic_id: topics[topic_id] for topic_id in sorted(subscription)})


def _assign_homogeneous(members: Mapping[str, MemberSpec], topics: PartitionCounts) -> dict[str, Partitions]:
    """If partitions cannot be divided evenly, some members get one more: those that have it already, and if there are
    too few of these, the last ones of the mapping."""
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
    """The partitions that a member keeps, those beyond its quota, and how much of the quota is unused."""
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


# Members with different subscriptions.


def _assign_heterogeneous(members: Mapping[str, MemberSpec], topics: PartitionCounts) -> dict[str, Partitions]:
    sharing = _Sharing(members, topics)
    sharing.give_out()
    sharing.balance()
    return sharing.targets()


class _Sharing:
    """An assignment in the making. Members are numbers here: their positions in the mapping.

    Invariant: `sizes[i]` is how often member `i` occurs in all the lists of `owners`.
    """

    __slots__ = ("members", "owners", "sizes", "subscribers")

    def __init__(self, members: Mapping[str, MemberSpec], topics: PartitionCounts) -> None:
        self.members = members
        self.sizes = [0] * len(members)
        self.subscribers: dict[Uuid, list[int]] = {}
        for number, member in enumerate(members.values()):
            for topic_id in member.topics:
                self.subscribers.setdefault(topic_id, []).append(number)
        self.owners = {topic_id: [NO_OWNER] * topics[topic_id] for topic_id in self.subscribers}
        """The owner of each partition, by topic."""
        for number, member in enumerate(members.values()):
            self._keep(number, member)

    def _keep(self, number: int, member: MemberSpec) -> None:
        for topic_id, partitions in member.assigned.items():
            if topic_id in member.topics:
                owners = self.owners[topic_id]
                for partition in partitions:
                    owners[partition] = number
                self.sizes[number] += len(partitions)

    def give_out(self) -> None:
        """Gives the partitions that have no owner to the subscribers that have fewest."""
        for topic_id in self._by_weight(topic_id for topic_id, owners in self.owners.items() if NO_OWNER in owners):
            owners = self.owners[topic_id]
            least_loaded = self._least_loaded(self._by_size(topic_id))
            for partition, owner in enumerate(owners):
                if owner == NO_OWNER:
                    _, member = next(least_loaded)
                    owners[partition] = member
                    self.sizes[member] += 1

    def balance(self) -> None:
        topic_ids = self._by_weight(topic_id for topic_id, members in self.subscribers.items() if len(members) > 1)
        last_moved: Uuid | None = None
        for _ in range(ROUNDS_MAX):
            for topic_id in topic_ids:
                if topic_id == last_moved:
                    return
                moved = self._balance_topic(topic_id)
                if moved or last_moved is None:
                    last_moved = topic_id

    def _balance_topic(self, topic_id: Uuid) -> int:
        """Moves partitions of one topic to the subscribers that have fewest; returns how many were moved."""
        loads = [self.sizes[member] for member in self.subscribers[topic_id]]
        if max(loads) - min(loads) <= 1:
            return 0
        owners = self.owners[topic_id]
        to_give: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            to_give.setdefault(owner, []).append(partition)
        by_size = self._by_size(topic_id)
        moved = 0
        pairs = zip(self._most_loaded(by_size, to_give), self._least_loaded(by_size), strict=False)
        for (most, giver), (least, taker) in pairs:
            if most - least <= 1:
                break
            owners[to_give[giver].pop()] = taker
            self.sizes[giver] -= 1
            self.sizes[taker] += 1
            moved += 1
        return moved

    def _least_loaded(self, by_size: list[int]) -> Iterator[tuple[int, int]]:
        """The member to give the next partition to, with the number that it has, if every yielded member is given one.

        The members that have fewest form the head of the list. When each of them has got one, they are joined by those
        that had one more from the start, and so on.
        """
        level = self.sizes[by_size[0]]
        end = 0
        while True:
            while end < len(by_size) and self.sizes[by_size[end]] == level:
                end += 1
            for place in range(end):
                yield level, by_size[place]
            level += 1

    def _most_loaded(self, by_size: list[int], to_give: Mapping[int, list[int]]) -> Iterator[tuple[int, int]]:
        """The member to take the next partition from, with the number that it has: `_least_loaded` from the other end.

        Members that have no partition of the topic left to give are moved behind `end`.
        """
        start = end = len(by_size)
        place = end - 1
        level = self.sizes[by_size[-1]] + 1
        while True:
            if place < start:
                level = self.sizes[by_size[start - 1]] if end <= start and start > 0 else level - 1
                while start > 0 and self.sizes[by_size[start - 1]] == level:
                    start -= 1
                place = end - 1
            if place < 0:
                return
            member = by_size[place]
            if to_give.get(member):
                place -= 1
                yield level, member
            else:
                end -= 1
                by_size[place], by_size[end] = by_size[end], member
                place -= 1

    def _by_size(self, topic_id: Uuid) -> list[int]:
        return sorted(self.subscribers[topic_id], key=self.sizes.__getitem__)

    def _by_weight(self, topic_ids: Iterable[Uuid]) -> list[Uuid]:
        """Topics with most partitions per subscriber first. Ids are compared as two signed numbers, as in Kafka."""

        def weight(topic_id: Uuid) -> tuple[float, int, tuple[int, int]]:
            subscribers = len(self.subscribers[topic_id])
            return -len(self.owners[topic_id]) / subscribers, subscribers, _HALVES.unpack(topic_id)

        return sorted(topic_ids, key=weight)

    def targets(self) -> dict[str, Partitions]:
        found: list[dict[Uuid, list[int]]] = [{} for _ in self.members]
        for topic_id, owners in self.owners.items():
            for partition, owner in enumerate(owners):
                found[owner].setdefault(topic_id, []).append(partition)
        targets: dict[str, Partitions] = {}
        for (member_id, member), by_topic in zip(self.members.items(), found, strict=True):
            target = {topic_id: frozenset(partitions) for topic_id, partitions in by_topic.items()}
            targets[member_id] = member.assigned if target == member.assigned else target
        return targets
