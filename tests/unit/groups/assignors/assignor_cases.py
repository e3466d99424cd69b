"""Groups to assign, made up at random, and the forms in which they are written down."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from barnabas.groups.assignors import MemberSpec
from barnabas.protocol.uuids import Uuid, from_text, to_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.groups.assignors import PartitionCounts, Partitions


def topic(number: int) -> Uuid:
    """Ids that Kafka's sets of few topics hold in ascending order, which is ours."""
    return Uuid(number.to_bytes(16, "big", signed=True))


class Case:
    """Members and topics as an assignor gets them."""

    def __init__(self, members: Mapping[str, MemberSpec], topics: PartitionCounts) -> None:
        self.members = members
        self.topics = topics

    def question(self, assignor: str) -> dict[str, Any]:
        return {
            "ask": "assign",
            "assignor": assignor,
            "topics": {to_text(topic_id): count for topic_id, count in self.topics.items()},
            "members": [
                {
                    "id": member_id,
                    "instance": member.instance_id,
                    "topics": [to_text(topic_id) for topic_id in sorted(member.topics)],
                    "assigned": to_json(member.assigned),
                }
                for member_id, member in self.members.items()
            ],
        }

    def answer(self, given: Mapping[str, Any]) -> dict[str, Partitions]:
        """Kafka leaves out members that get nothing because nobody is subscribed to anything."""
        return {member_id: from_json(given.get(member_id, {})) for member_id in self.members}


def to_json(partitions: Partitions) -> dict[str, list[int]]:
    return {to_text(topic_id): sorted(numbers) for topic_id, numbers in partitions.items()}


def from_json(partitions: Mapping[str, list[int]]) -> Partitions:
    return {from_text(topic_id): frozenset(numbers) for topic_id, numbers in partitions.items()}


def random_case(seed: int, *, equal_subscriptions: bool) -> Case:
    chance = random.Random(seed)
    numbers = [1, 2, 3, 4, 5] if equal_subscriptions else [1, 2, 3, -4, -5]
    topics = {topic(number): chance.randint(1, 12) for number in numbers[: chance.randint(1, 5)]}
    everybodys = frozenset(chance.sample(sorted(topics), chance.randint(0, len(topics))))
    members: dict[str, MemberSpec] = {}
    owners = random_owners(chance, topics)
    for number in chance.sample(range(20), chance.randint(1, 8)):
        own = (
            everybodys
            if equal_subscriptions
            else frozenset(chance.sample(sorted(topics), chance.randint(0, 3) % (len(topics) + 1)))
        )
        instance_id = f"instance-{chance.randint(0, 10**6)}" if chance.random() < 0.3 else None
        members[f"member-{number}"] = MemberSpec(own, owners.get(len(members), {}), instance_id)
    return Case(members, topics)


def random_owners(chance: random.Random, topics: PartitionCounts) -> dict[int, Partitions]:
    """What the first, second, … member had: anything, as long as nothing is anybody else's."""
    skew = chance.choice([1, 3, 8])
    found: dict[int, dict[Uuid, set[int]]] = {}
    for topic_id, count in sorted(topics.items()):
        for partition in range(count):
            owner = chance.randrange(-skew, skew)
            if owner >= 0:
                found.setdefault(owner, {}).setdefault(topic_id, set()).add(partition)
    return {
        owner: {topic_id: frozenset(partitions) for topic_id, partitions in by_topic.items()}
        for owner, by_topic in found.items()
    }
