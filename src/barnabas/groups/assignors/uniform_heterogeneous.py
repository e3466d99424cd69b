"""The `uniform` assignor where members are subscribed to different topics.

A partition may then go to some members only, and sharing out is a search. First every member keeps what it has of its
topics. What has no owner goes, topic by topic, to those subscribers that have least, beginning with the topics that
have most partitions for each subscriber, since these leave the least choice. Then partitions are moved, again topic by
topic, from subscribers that have most to those that have least, until a whole round moves nothing. Where subscriptions
overlap without being equal, rounds come ever closer to balance without an end in sight, hence the limit.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from barnabas.groups.assignors.spec import MemberSpec, PartitionCounts, Partitions
    from barnabas.protocol.uuids import Uuid

ROUNDS_MAX: Final = 16
NO_OWNER: Final = -1
_HALVES: Final = Struct(">qq")


def assign(members: Mapping[str, MemberSpec], topics: PartitionCounts) -> dict[str, Partitions]:
    sharing = _Sharing(members, topics)
    sharing.give_out()
    sharing.balance()
    return sharing.targets()


class _Sharing:
    """An assignment in the making. Members are numbers here: their places in the mapping.

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
        """Gives the partitions that have no owner to the subscribers that have least."""
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
        """Moves partitions of one topic to subscribers that have least; returns how many."""
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
        """Whom to give a partition next, with how many each of its likes had, if one is given after each step.

        The members that have least form the head of the list. Each of them gets one, then those join them that had one
        more from the start, and so on.
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
        """Whom to take a partition from next, with how many each of its likes had: `_least_loaded` from the other end.

        Members that have none of the topic to give any more are moved behind the end of those that may be asked.
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
        """Topics with most partitions for each subscriber first. An id counts as two signed numbers, as in Kafka."""

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
