"""Subscriptions by regular expression: when they are resolved, and what of."""

from __future__ import annotations

import pytest

from barnabas.groups.consumer_circumstances import ConsumerGroupSettings
from barnabas.groups.consumer_regex import ResolveRegexes
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.unit.groups.consumer_driver import GROUP, Driver, Member
from tests.unit.groups.consumer_requests import CLIENT, join, leave, topic, topic_id

FOO, FOOD, FOOT = topic_id("foo"), topic_id("food"), topic_id("foot")


@pytest.fixture
def driver() -> Driver:
    return Driver(topic("foo", 2), topic("food", 1), topic("bar", 1))


def joined(driver: Driver, member_id: str, regex: str, *topics: str) -> Member:
    member = Member(member_id)
    assert driver.join(member, *topics, regex=regex).error_code == Error.NONE
    return member


def regex_records(driver: Driver) -> list[tuple[str, list[str] | None]]:
    return [
        (
            record.key.regular_expression,
            list(record.value.topics) if isinstance(record.value, m.ConsumerGroupRegularExpressionValue) else None,
        )
        for record in driver.log
        if isinstance(record.key, m.ConsumerGroupRegularExpressionKey)
    ]


def test_a_member_gets_the_topics_that_match_with_the_heartbeat_after_its_first(driver: Driver) -> None:
    member = joined(driver, "a", "foo.*")
    assert member.owned == {}
    driver.beat(member)
    assert member.owned == {FOO: [0, 1], FOOD: [0]}
    assert regex_records(driver) == [("foo.*", ["foo", "food"])]


def test_topics_are_looked_through_outside_of_the_step_and_once_at_a_time(driver: Driver) -> None:
    effects = driver.shard.consumer_heartbeat(join(GROUP, "a", regex="foo.*"), CLIENT, "us", driver.now_ms)
    assert effects.answers, "nobody waits for it"
    [order] = effects.orders
    assert isinstance(order, ResolveRegexes)
    effects = driver.shard.consumer_heartbeat(join(GROUP, "b", regex="bar"), CLIENT, "us", driver.now_ms)
    assert effects.orders == []
    found = order.find()
    assert found == {"foo.*": {"foo", "food"}}
    driver.shard.regexes_resolved(order, found, driver.now_ms)
    assert driver.group.resolved_regexes.keys() == {"foo.*"}
    driver.now_ms += 10_001
    [order] = driver.shard.consumer_heartbeat(join(GROUP, "b", regex="bar"), CLIENT, "us", driver.now_ms).orders
    assert isinstance(order, ResolveRegexes)
    assert order.find() == {"bar": {"bar"}, "foo.*": {"foo", "food"}}


def test_what_is_found_for_an_expression_that_nobody_wants_any_more_is_of_no_interest(driver: Driver) -> None:
    effects = driver.shard.consumer_heartbeat(join(GROUP, "a", regex="foo.*"), CLIENT, "us", driver.now_ms)
    [order] = effects.orders
    assert isinstance(order, ResolveRegexes)
    driver.shard.consumer_heartbeat(leave(GROUP, "a"), CLIENT, "us", driver.now_ms)
    assert driver.shard.regexes_resolved(order, order.find(), driver.now_ms).records == []
    driver.shard.delete_groups([GROUP], "us")
    assert driver.shard.regexes_resolved(order, order.find(), driver.now_ms).records == []


def test_topics_by_name_and_by_expression_add_up(driver: Driver) -> None:
    member = joined(driver, "a", "food", "foo")
    driver.settle(member)
    assert member.owned == {FOO: [0, 1], FOOD: [0]}


def test_the_whole_name_has_to_match(driver: Driver) -> None:
    member = joined(driver, "a", "oo")
    driver.settle(member)
    assert member.owned == {}
    assert regex_records(driver) == [("oo", [])]


def test_new_topics_are_found_but_not_within_ten_seconds_of_the_last_look(driver: Driver) -> None:
    member = joined(driver, "a", "foo.*")
    driver.settle(member)
    driver.set_topics(topic("foo", 2), topic("food", 1), topic("foot", 1))
    driver.pass_ms(10_000)
    driver.settle(member)
    assert FOOT not in member.owned
    driver.pass_ms(1)
    driver.settle(member)
    assert member.owned == {FOO: [0, 1], FOOD: [0], FOOT: [0]}
    looks = len(regex_records(driver))
    driver.pass_ms(11_000)
    driver.settle(member)
    assert len(regex_records(driver)) == looks, "there is nothing new to look for"


def test_topics_are_looked_through_once_in_a_while_though_none_are_new() -> None:
    driver = Driver(topic("foo", 2), settings=ConsumerGroupSettings(regex_refresh_interval_ms=20_000))
    member = joined(driver, "a", "foo")
    driver.settle(member)
    driver.pass_ms(20_000)
    driver.beat(member)
    assert len(regex_records(driver)) == 1
    driver.pass_ms(1)
    epoch = driver.group.epoch
    driver.settle(member)
    assert len(regex_records(driver)) == 2
    assert driver.group.epoch == epoch, "the same topics are no reason for a rebalance"


def test_a_second_expression_waits_for_the_next_look(driver: Driver) -> None:
    first = joined(driver, "a", "foo")
    second = joined(driver, "b", "bar")
    driver.settle(first, second)
    assert second.owned == {}
    driver.pass_ms(10_001)
    driver.settle(first, second)
    assert second.owned == {topic_id("bar"): [0]}


def test_an_expression_that_nobody_wants_any_more_is_forgotten(driver: Driver) -> None:
    first, second = joined(driver, "a", "foo"), joined(driver, "b", "foo")
    driver.settle(first, second)
    driver.leave(first)
    assert list(driver.group.resolved_regexes) == ["foo"]
    driver.settle(second)
    driver.beat(second, subscribed_topic_regex="bar")
    assert list(driver.group.resolved_regexes) == ["bar"]
    assert regex_records(driver)[-2:] == [("foo", None), ("bar", ["bar"])]
    driver.settle(second)
    driver.leave(second)
    assert regex_records(driver)[-1] == ("bar", None)


def test_what_was_found_is_known_after_a_restart(driver: Driver) -> None:
    member = joined(driver, "a", "foo.*")
    driver.settle(member)
    driver.restart()
    resolved = driver.group.resolved_regexes["foo.*"]
    assert (resolved.topics, resolved.timestamp_ms) == (frozenset({"foo", "food"}), driver.now_ms)
    driver.settle(member)
    assert member.owned == {FOO: [0, 1], FOOD: [0]}


def test_offsets_of_topics_that_match_are_in_use(driver: Driver) -> None:
    member = joined(driver, "a", "foo.*")
    driver.settle(member)
    assert driver.group.is_subscribed_to("food")
    assert not driver.group.is_subscribed_to("bar")
    assert driver.shard.list_groups([], ["consumer"])[0].group_id == GROUP
