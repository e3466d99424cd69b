"""Subscriptions by regular expression: what they match, and when they are resolved."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.groups.consumer.regex_subscriptions import ResolveRegexes, check_regex, resolve_regex
from barnabas.groups.consumer.step_context import ConsumerGroupSettings
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from tests.unit.groups.consumer.consumer_driver import GROUP, Driver, Member
from tests.unit.groups.consumer_requests import CLIENT, join, leave, topic, topic_id

BAD_REGEXES = ("(", "[a", "a**", "*", "a{2000}", "\\", "(?<n", "[b-a]", "\\8", "x(?=y)")
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
    [action] = effects.actions
    assert isinstance(action, ResolveRegexes)
    effects = driver.shard.consumer_heartbeat(join(GROUP, "b", regex="bar"), CLIENT, "us", driver.now_ms)
    assert effects.actions == []
    found = action.find()
    assert found == {"foo.*": {"foo", "food"}}
    driver.shard.regexes_resolved(action, found, driver.now_ms)
    assert driver.group.resolved_regexes.keys() == {"foo.*"}
    driver.now_ms += 10_001
    [action] = driver.shard.consumer_heartbeat(join(GROUP, "b", regex="bar"), CLIENT, "us", driver.now_ms).actions
    assert isinstance(action, ResolveRegexes)
    assert action.find() == {"bar": {"bar"}, "foo.*": {"foo", "food"}}


def test_what_is_found_for_an_expression_that_nobody_wants_any_more_is_of_no_interest(driver: Driver) -> None:
    effects = driver.shard.consumer_heartbeat(join(GROUP, "a", regex="foo.*"), CLIENT, "us", driver.now_ms)
    [action] = effects.actions
    assert isinstance(action, ResolveRegexes)
    driver.shard.consumer_heartbeat(leave(GROUP, "a"), CLIENT, "us", driver.now_ms)
    assert driver.shard.regexes_resolved(action, action.find(), driver.now_ms).records == []
    driver.shard.delete_groups([GROUP], "us")
    assert driver.shard.regexes_resolved(action, action.find(), driver.now_ms).records == []


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


def test_a_regular_expression_matches_whole_names_and_internal_topics_too() -> None:
    names = ["orders", "orders.eu", "old-orders", "__consumer_offsets"]
    assert resolve_regex("orders", names) == {"orders"}
    assert resolve_regex("orders.*", names) == {"orders", "orders.eu"}
    assert resolve_regex("old|old-orders", names) == {"old-orders"}
    assert resolve_regex(".*", names) == set(names)


@pytest.mark.parametrize("regex", BAD_REGEXES)
def test_a_bad_regular_expression_is_refused_by_name(regex: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_regex(regex)
    assert refused.value.error is Error.INVALID_REGULAR_EXPRESSION
    assert f"`{regex}`" in refused.value.message


def test_a_regular_expression_that_would_make_others_slow_does_no_harm() -> None:
    check_regex("(a*)*b")
    assert resolve_regex("(a*)*b", ["a" * 200]) == frozenset()


def test_the_library_is_loaded_with_the_first_regular_expression() -> None:
    program = (
        "import sys; from barnabas.groups.consumer.regex_subscriptions import check_regex\n"
        "assert 're2' not in sys.modules\n"
        "check_regex('a'); assert 're2' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_an_expression_that_cannot_be_read_matches_nothing() -> None:
    """It may have come with a group that Kafka wrote."""
    assert resolve_regex("(", ["(", "foo"]) == frozenset()
