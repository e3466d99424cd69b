"""Members that come together are assigned together, and are answered with what they are to read."""

from __future__ import annotations

import pytest

from barnabas.groups.consumer.consumer_member import STATIC_LEAVE_EPOCH
from barnabas.groups.consumer.step_context import ConsumerGroupSettings
from barnabas.protocol.errors import Error
from tests.unit.groups.consumer.consumer_driver import GROUP, Driver, Member
from tests.unit.groups.consumer_requests import leave, topic, topic_id

INTERVAL_MS = 1_000
GATHERING_MS = 50
FOO = topic_id("foo")


def a_driver(partitions: int = 6, interval_ms: int = INTERVAL_MS) -> Driver:
    settings = ConsumerGroupSettings(assignment_interval_ms=interval_ms, gathering_ms=GATHERING_MS)
    return Driver(topic("foo", partitions), settings=settings)


def shares(*members: Member) -> list[int]:
    return [len(member.owned.get(FOO, [])) for member in members]


def test_who_comes_alone_is_answered_with_everything_after_a_moment() -> None:
    driver, one = a_driver(), Member("one")
    driver.begin_to_join(one, "foo")
    driver.pass_ms(GATHERING_MS - 1)
    assert not one.is_in
    driver.pass_ms(1)
    assert (one.owned, driver.state) == ({FOO: [0, 1, 2, 3, 4, 5]}, "Stable")


def test_members_that_come_one_shortly_after_the_other_are_settled_by_one_assignment() -> None:
    driver = a_driver()
    members = [Member(name) for name in "abcdef"]
    for member in members:
        driver.begin_to_join(member, "foo")
        driver.pass_ms(GATHERING_MS - 1)
    driver.pass_ms(1)
    assert shares(*members) == [1] * 6
    assert {member.epoch for member in members} == {driver.group.epoch}
    assert driver.state == "Stable"


def test_members_that_are_restarted_together_take_over_what_those_had_before() -> None:
    driver = a_driver()
    stays, old, new = Member("stays"), [Member("old 1"), Member("old 2")], [Member("new 1"), Member("new 2")]
    for member in (stays, *old):
        driver.begin_to_join(member, "foo")
    driver.pass_ms(2 * INTERVAL_MS)
    before = stays.owned
    for member in old:
        driver.leave(member)
        driver.beat(stays)
    for member in new:
        driver.begin_to_join(member, "foo")
    driver.pass_ms(GATHERING_MS)
    assert shares(*new) == [2, 2]
    driver.beat(stays)
    assert (stays.owned, driver.state) == (before, "Stable")


def test_members_that_are_all_restarted_after_a_while_are_settled_by_one_assignment() -> None:
    driver = a_driver()
    old, new = [Member("old 1"), Member("old 2")], [Member("new 1"), Member("new 2"), Member("new 3")]
    for member in old:
        driver.begin_to_join(member, "foo")
    driver.pass_ms(INTERVAL_MS)
    for member in old:
        driver.leave(member)
    driver.pass_ms(3 * INTERVAL_MS)
    for member in new:
        driver.begin_to_join(member, "foo")
        driver.pass_ms(10)
    driver.pass_ms(GATHERING_MS)
    assert (shares(*new), driver.state) == ([2, 2, 2], "Stable")


def test_what_a_member_that_is_there_asks_for_is_assigned_with_its_heartbeat() -> None:
    driver, one = a_driver(), Member("one")
    driver.set_topics(topic("foo", 6), topic("bar", 2))
    driver.join(one, "foo")
    driver.pass_ms(INTERVAL_MS)
    driver.beat(one, subscribed_topic_names=["bar"])
    driver.beat(one)
    assert (one.owned, driver.state) == ({topic_id("bar"): [0, 1]}, "Stable")
    driver.pass_ms(INTERVAL_MS)
    driver.set_topics(topic("foo", 6), topic("bar", 3))
    driver.beat(one)
    assert (one.owned, driver.state) == ({topic_id("bar"): [0, 1, 2]}, "Stable")


def test_what_a_member_leaves_is_assigned_before_the_next_heartbeat_of_another() -> None:
    driver, one, two = a_driver(), Member("one"), Member("two")
    driver.begin_to_join(one, "foo")
    driver.begin_to_join(two, "foo")
    driver.pass_ms(2 * INTERVAL_MS)
    driver.leave(two)
    driver.pass_ms(GATHERING_MS)
    assert driver.group.is_assigned
    driver.beat(one)
    assert shares(one) == [6]


def test_who_comes_while_the_last_assignment_is_young_is_answered_by_the_next_one() -> None:
    driver, one, two = a_driver(), Member("one"), Member("two")
    driver.join(one, "foo")
    driver.begin_to_join(two, "foo")
    driver.pass_ms(INTERVAL_MS - 1)
    assert two.epoch == 0
    driver.pass_ms(1)
    assert two.epoch == driver.group.epoch == driver.group.assignment_epoch
    driver.settle(one, two)
    assert shares(one, two) == [3, 3]


def test_nobody_waits_longer_than_a_second_whatever_the_interval() -> None:
    driver, one, two = a_driver(interval_ms=15_000), Member("one"), Member("two")
    driver.join(one, "foo")
    driver.begin_to_join(two, "foo")
    driver.pass_ms(999)
    assert not two.is_in
    driver.pass_ms(1)
    assert (two.is_in, two.owned, driver.state) == (True, {}, "Assigning")


def test_a_group_in_which_members_keep_coming_is_assigned_after_a_second() -> None:
    driver = a_driver(partitions=100)
    members = [Member(str(number)) for number in range(60)]
    for member in members:
        driver.begin_to_join(member, "foo")
        driver.pass_ms(20)
    answered = [member for member in members if member.is_in]
    assert 40 <= len(answered) < 60
    assert all(shares(*answered))


def test_the_heartbeat_of_another_member_makes_the_assignment_that_joins_wait_for() -> None:
    driver, one, two = a_driver(), Member("one"), Member("two")
    driver.join(one, "foo")
    driver.pass_ms(INTERVAL_MS)
    driver.begin_to_join(two, "foo")
    driver.now_ms += GATHERING_MS
    driver.beat(one)
    assert two.is_in


def test_without_an_interval_everybody_is_answered_at_once() -> None:
    driver, one = a_driver(interval_ms=0), Member("one")
    driver.begin_to_join(one, "foo")
    assert shares(one) == [6]


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -1), ("i", STATIC_LEAVE_EPOCH)])
def test_who_leaves_before_it_is_answered_is_told_that_it_is_no_member(instance_id: str | None, epoch: int) -> None:
    driver, one = a_driver(), Member("one", instance_id=instance_id)
    answers: list[int] = []
    one.take = lambda response: answers.append(response.error_code)  # type: ignore[method-assign]
    driver.begin_to_join(one, "foo")
    driver.ask(leave(GROUP, "one", instance_id=instance_id, epoch=epoch))
    assert answers == [Error.UNKNOWN_MEMBER_ID]


def test_who_joins_twice_is_answered_twice() -> None:
    driver, one, twin = a_driver(), Member("one"), Member("one")
    driver.begin_to_join(one, "foo")
    driver.begin_to_join(twin, "foo")
    driver.pass_ms(GATHERING_MS)
    assert one.owned == twin.owned == {FOO: [0, 1, 2, 3, 4, 5]}


def test_who_waits_is_sent_away_when_the_group_moves_elsewhere() -> None:
    driver, one = a_driver(), Member("one")
    driver.begin_to_join(one, "foo")
    [(_, answer)] = driver.shard.unload().answers
    assert getattr(answer, "error_code", None) == Error.NOT_COORDINATOR
