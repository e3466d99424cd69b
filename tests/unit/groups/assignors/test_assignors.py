"""The assignors give every partition to one subscriber, share out evenly, and let members keep what they have."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.groups.assignors import ASSIGNORS, MemberSpec, range_assignor, uniform_assignor
from tests.unit.groups.assignors.assignor_cases import Case, random_case, topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.groups.assignors import Partitions


class Had(NamedTuple):
    """A member: the numbers of its topics, and which of their partitions it has."""

    topics: tuple[int, ...]
    assigned: Mapping[int, set[int]]
    instance_id: str | None = None

    @property
    def spec(self) -> MemberSpec:
        return MemberSpec(frozenset(map(topic, self.topics)), partitions(self.assigned), self.instance_id)


class Row(NamedTuple):
    assignor: str
    counts: Mapping[int, int]
    members: Mapping[str, Had]
    targets: Mapping[str, Mapping[int, set[int]]]


KAFKAS_ANSWERS = {
    "members of an empty group share out both topics": Row(
        "uniform",
        {1: 3, 2: 3},
        {"a": Had((1, 2), {}), "b": Had((1, 2), {})},
        {"a": {1: {0, 1, 2}}, "b": {2: {0, 1, 2}}},
    ),
    "with fewer partitions than members, the last ones get them": Row(
        "uniform",
        {1: 2},
        {"a": Had((1,), {}), "b": Had((1,), {}), "c": Had((1,), {})},
        {"a": {}, "b": {1: {0}}, "c": {1: {1}}},
    ),
    "a third member takes from both": Row(
        "uniform",
        {1: 6},
        {"a": Had((1,), {1: {0, 1, 2}}), "b": Had((1,), {1: {3, 4, 5}}), "c": Had((1,), {})},
        {"a": {1: {0, 1}}, "b": {1: {3, 4}}, "c": {1: {2, 5}}},
    ),
    "who has one more keeps it": Row(
        "uniform",
        {1: 4},
        {"a": Had((1,), {}), "b": Had((1,), {1: {0, 1}}), "c": Had((1,), {1: {2, 3}})},
        {"a": {1: {3}}, "b": {1: {0, 1}}, "c": {1: {2}}},
    ),
    "what a member left behind is shared out": Row(
        "uniform",
        {1: 7},
        {"a": Had((1,), {1: {0, 1}}), "b": Had((1,), {1: {5, 6}})},
        {"a": {1: {0, 1, 2}}, "b": {1: {3, 4, 5, 6}}},
    ),
    "a topic that has grown": Row(
        "uniform",
        {1: 5},
        {"a": Had((1,), {1: {0}}), "b": Had((1,), {1: {1}})},
        {"a": {1: {0, 2}}, "b": {1: {1, 3, 4}}},
    ),
    "a topic that nobody is subscribed to any more": Row(
        "uniform",
        {1: 2},
        {"a": Had((1,), {1: {0}, 2: {0, 1}}), "b": Had((1,), {1: {1}})},
        {"a": {1: {0}}, "b": {1: {1}}},
    ),
    "nobody is subscribed to anything": Row("uniform", {}, {"a": Had((), {1: {0}})}, {"a": {}}),
    "different subscriptions, nothing assigned": Row(
        "uniform",
        {1: 4, 2: 2},
        {"a": Had((1,), {}), "b": Had((1, 2), {}), "c": Had((2,), {})},
        {"a": {1: {0, 2}}, "b": {1: {1, 3}}, "c": {2: {0, 1}}},
    ),
    "different subscriptions, one member has all": Row(
        "uniform",
        {1: 6, 2: 3},
        {"a": Had((1, 2), {1: {0, 1, 2, 3, 4, 5}, 2: {0, 1, 2}}), "b": Had((1,), {}), "c": Had((2,), {})},
        {"a": {1: {0, 1}, 2: {0}}, "b": {1: {2, 3, 4, 5}}, "c": {2: {1, 2}}},
    ),
    "different subscriptions in balance stay": Row(
        "uniform",
        {1: 3, 2: 3},
        {"a": Had((1,), {1: {0, 2}}), "b": Had((1, 2), {1: {1}, 2: {1}}), "c": Had((2,), {2: {0, 2}})},
        {"a": {1: {0, 2}}, "b": {1: {1}, 2: {1}}, "c": {2: {0, 2}}},
    ),
    "a member that is subscribed to less gives up the rest": Row(
        "uniform",
        {1: 2, 2: 2},
        {"a": Had((1,), {1: {0}, 2: {0}}), "b": Had((1, 2), {1: {1}, 2: {1}})},
        {"a": {1: {0, 1}}, "b": {2: {0, 1}}},
    ),
    "topics of the same size are assigned alike": Row(
        "range",
        {1: 3, 2: 3},
        {"b": Had((1, 2), {}), "a": Had((1, 2), {})},
        {"b": {1: {2}, 2: {2}}, "a": {1: {0, 1}, 2: {0, 1}}},
    ),
    "topics of different sizes": Row(
        "range",
        {1: 5, 2: 1},
        {"a": Had((1, 2), {}), "b": Had((1, 2), {}), "c": Had((1, 2), {})},
        {"a": {1: {0, 1}, 2: {0}}, "b": {1: {2, 3}}, "c": {1: {4}}},
    ),
    "ranges among the subscribers of each topic": Row(
        "range",
        {1: 4, 2: 3},
        {"a": Had((1,), {}), "b": Had((1, 2), {}), "c": Had((2,), {})},
        {"a": {1: {0, 1}}, "b": {1: {2, 3}, 2: {0, 1}}, "c": {2: {2}}},
    ),
    "ranges do not stick": Row(
        "range",
        {1: 4},
        {"a": Had((1,), {}), "b": Had((1,), {1: {0, 1, 2, 3}})},
        {"a": {1: {0, 1}}, "b": {1: {2, 3}}},
    ),
    "static members first, by their instances": Row(
        "range",
        {1: 3},
        {"a": Had((1,), {}), "z": Had((1,), {}, "i-1"), "y": Had((1,), {}, "i-2")},
        {"a": {1: {2}}, "z": {1: {0}}, "y": {1: {1}}},
    ),
}
"""What the classes of Apache Kafka 4.3.1 said of each."""


def partitions(numbers: Mapping[int, set[int]]) -> Partitions:
    return {topic(number): frozenset(each) for number, each in numbers.items()}


@pytest.mark.parametrize("row", KAFKAS_ANSWERS.values(), ids=KAFKAS_ANSWERS)
def test_the_assignment_is_kafkas(row: Row) -> None:
    members = {member_id: had.spec for member_id, had in row.members.items()}
    topics = {topic(number): count for number, count in row.counts.items()}
    targets = {member_id: partitions(target) for member_id, target in row.targets.items()}
    assert ASSIGNORS[row.assignor](members, topics) == targets


def test_a_group_without_members_has_no_assignment() -> None:
    assert uniform_assignor.assign({}, {}) == {}
    assert range_assignor.assign({}, {}) == {}


SEEDS = st.integers(min_value=0)


@given(SEEDS, st.booleans(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_goes_to_exactly_one_subscriber(seed: int, equal_subscriptions: bool, assignor: str) -> None:
    case = random_case(seed, equal_subscriptions=equal_subscriptions)
    owned = [
        (topic_id, partition)
        for member_id, target in ASSIGNORS[assignor](case.members, case.topics).items()
        for topic_id, numbers in target.items()
        for partition in numbers
        if topic_id in case.members[member_id].topics
    ]
    subscribed = frozenset().union(*(member.topics for member in case.members.values()))
    assert sorted(owned) == sorted((each, partition) for each in subscribed for partition in range(case.topics[each]))


@given(SEEDS)
def test_members_with_the_same_topics_differ_by_one_partition_at_most(seed: int) -> None:
    case = random_case(seed, equal_subscriptions=True)
    loads = [size(target) for target in uniform_assignor.assign(case.members, case.topics).values()]
    assert max(loads) - min(loads) <= 1


@given(SEEDS)
def test_a_member_with_the_same_topics_loses_only_what_it_has_beyond_its_share(seed: int) -> None:
    case = random_case(seed, equal_subscriptions=True)
    targets = uniform_assignor.assign(case.members, case.topics)
    for member_id, member in case.members.items():
        had = {topic_id: numbers for topic_id, numbers in member.assigned.items() if topic_id in member.topics}
        kept = sum(len(numbers & targets[member_id].get(topic_id, frozenset())) for topic_id, numbers in had.items())
        assert kept == min(size(had), size(targets[member_id]))


@given(SEEDS, st.booleans(), st.sampled_from(sorted(ASSIGNORS)))
def test_an_assignment_that_was_made_stays_as_the_very_same_object(seed: int, equal: bool, assignor: str) -> None:
    case = random_case(seed, equal_subscriptions=equal)
    case = settled(case, assignor)
    again = ASSIGNORS[assignor](case.members, case.topics)
    assert all(again[member_id] is member.assigned for member_id, member in case.members.items())


@given(SEEDS)
def test_when_a_member_leaves_the_others_lose_nothing(seed: int) -> None:
    case = settled(random_case(seed, equal_subscriptions=True), "uniform")
    _, *rest = case.members
    stayed = {member_id: case.members[member_id] for member_id in rest}
    for member_id, target in uniform_assignor.assign(stayed, case.topics).items():
        for topic_id, numbers in stayed[member_id].assigned.items():
            assert numbers <= target[topic_id]


def settled(case: Case, assignor: str) -> Case:
    """The group once it has been assigned; where subscriptions differ, until another round changes nothing."""
    for _ in range(20):
        targets = ASSIGNORS[assignor](case.members, case.topics)
        if all(targets[member_id] is member.assigned for member_id, member in case.members.items()):
            return case
        members = {each: member._replace(assigned=targets[each]) for each, member in case.members.items()}
        case = Case(members, case.topics)
    raise AssertionError("the assignment does not settle")


def size(target: Partitions) -> int:
    return sum(map(len, target.values()))
