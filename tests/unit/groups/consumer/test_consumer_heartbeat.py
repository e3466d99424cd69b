"""What heartbeats do to a consumer group over some time. Single answers and records are compared with Kafka's in
`test_consumer_beside_kafka`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.groups.consumer.consumer_member import STATIC_LEAVE_EPOCH, MemberState
from barnabas.groups.consumer.heartbeat import check_request
from barnabas.groups.consumer.step_context import ConsumerGroupSettings
from barnabas.protocol.errors import Error, KafkaError
from tests.unit.groups.consumer.consumer_driver import GROUP, Driver, Member
from tests.unit.groups.consumer_requests import (
    REBALANCE_TIMEOUT_MS,
    assigned,
    beat,
    cluster,
    join,
    reported,
    topic,
    topic_id,
)

if TYPE_CHECKING:
    from barnabas.protocol import messages as m

SESSION_MS = 45_000
FOO, BAR = topic_id("foo"), topic_id("bar")


@pytest.fixture
def driver() -> Driver:
    return Driver(topic("foo", 4), topic("bar", 2))


def two_members(driver: Driver) -> tuple[Member, Member]:
    one, two = Member("one"), Member("two")
    for member in (one, two):
        assert driver.join(member, "foo").error_code == Error.NONE
    driver.settle(one, two)
    assert sorted(one.owned[FOO] + two.owned[FOO]) == [0, 1, 2, 3]
    return one, two


def test_a_partition_changes_hands_only_when_its_owner_has_given_it_up(driver: Driver) -> None:
    one, two = Member("one"), Member("two")
    driver.join(one, "foo")
    driver.join(two, "foo")
    assert two.owned == {}
    told = driver.ask(beat(GROUP, "one", one.epoch, one.owned))
    staying = assigned(told)
    assert staying is not None
    assert len(staying[FOO]) == 2
    assert driver.member(one).state is MemberState.UNREVOKED_PARTITIONS
    driver.beat(two)
    assert two.owned == {}, "the first member has heard of it, and may still be reading"
    one.take(told)
    driver.beat(one)
    driver.beat(two)
    assert sorted(one.owned[FOO] + two.owned[FOO]) == [0, 1, 2, 3]
    assert driver.state == "Stable"


def test_a_member_that_says_nothing_of_what_it_owns_has_given_up_nothing(driver: Driver) -> None:
    one, two = Member("one"), Member("two")
    driver.join(one, "foo")
    driver.join(two, "foo")
    for _ in range(3):
        one.take(driver.ask(beat(GROUP, "one", one.epoch)))
        driver.beat(two)
    assert two.owned == {}
    assert driver.state == "Reconciling"


def test_an_answer_that_was_lost_is_given_again_to_who_asks_for_all(driver: Driver) -> None:
    one = Member("one")
    driver.join(one, "foo")
    other = Member("other")
    driver.join(other, "bar")
    driver.beat(one)
    full = beat(GROUP, "one", one.epoch - 1, {}, rebalance_timeout_ms=60_000, subscribed_topic_names=["foo"])
    answer = driver.ask(full)
    assert (answer.member_epoch, assigned(answer)) == (one.epoch, one.owned)


def test_what_a_member_that_leaves_had_goes_to_the_others(driver: Driver) -> None:
    one, two = two_members(driver)
    driver.leave(one)
    driver.settle(two)
    assert two.owned == {FOO: [0, 1, 2, 3]}


def test_a_member_that_is_not_heard_of_for_a_session_is_fenced(driver: Driver) -> None:
    one, two = two_members(driver)
    driver.pass_ms(SESSION_MS - 1)
    driver.beat(two)
    driver.pass_ms(1)
    assert list(driver.group.members) == ["two"]
    driver.settle(two)
    assert two.owned == {FOO: [0, 1, 2, 3]}
    assert driver.beat(one).error_code == Error.UNKNOWN_MEMBER_ID
    driver.pass_ms(10 * SESSION_MS)
    assert driver.state == "Empty"


def test_a_member_that_does_not_give_up_partitions_in_time_is_fenced_however_much_it_beats(driver: Driver) -> None:
    one, two = Member("one"), Member("two")
    driver.join(one, "foo")
    driver.join(two, "foo")
    stubborn = one.owned
    for _ in range(6):
        driver.ask(beat(GROUP, "one", one.epoch, stubborn))
        driver.beat(two)
        driver.pass_ms(REBALANCE_TIMEOUT_MS // 6)
    assert list(driver.group.members) == ["two"]
    driver.settle(two)
    assert two.owned == {FOO: [0, 1, 2, 3]}


def test_a_member_that_has_given_up_its_partitions_is_not_fenced_for_it_later(driver: Driver) -> None:
    one, two = two_members(driver)
    for _ in range(6):
        driver.pass_ms(REBALANCE_TIMEOUT_MS // 4)
        driver.beat(one)
        driver.beat(two)
    assert driver.state == "Stable"


def test_topics_that_are_made_enlarged_or_deleted_make_a_new_assignment(driver: Driver) -> None:
    one = Member("one")
    driver.join(one, "foo", "bar", "later")
    epoch = one.epoch
    driver.set_topics(topic("foo", 5), topic("bar", 2))
    driver.settle(one)
    assert one.owned == {FOO: [0, 1, 2, 3, 4], BAR: [0, 1]}
    driver.set_topics(topic("foo", 5), topic("later", 1))
    driver.settle(one)
    assert one.owned == {FOO: [0, 1, 2, 3, 4], topic_id("later"): [0]}
    assert one.epoch == epoch + 2
    driver.set_topics(topic("foo", 5), topic("later", 1), topic("of others", 1))
    driver.settle(one)
    assert one.epoch == epoch + 2, "a topic that nobody wants is no reason"


def test_members_that_come_together_are_assigned_together() -> None:
    driver = Driver(topic("foo", 6), settings=ConsumerGroupSettings(assignment_interval_ms=1_000))
    members = [Member(name) for name in "abcdef"]
    for member in members:
        driver.join(member, "foo")
    assert {member.epoch for member in members} == {2}, "the first join alone was assigned something"
    driver.pass_ms(999)
    for member in members:
        driver.beat(member)
    assert driver.state == "Assigning"
    driver.pass_ms(1)
    driver.settle(*members)
    assert [len(member.owned[FOO]) for member in members] == [1] * 6
    assert driver.group.assignment_epoch == driver.group.epoch == 7


def test_a_group_may_have_timeouts_of_its_own() -> None:
    driver = Driver(topic("foo", 1))
    configs = {GROUP: {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "7000"}}
    driver.image = cluster(topic("foo", 1), group_configs=configs)
    one = Member("one")
    assert driver.join(one, "foo").heartbeat_interval_ms == 7_000
    driver.pass_ms(49_999)
    assert driver.state == "Stable"
    driver.restart()
    driver.pass_ms(49_999)
    assert driver.state == "Stable"
    driver.pass_ms(1)
    assert driver.state == "Empty"


def test_a_static_member_that_comes_back_in_time_has_its_partitions_and_nobody_notices(driver: Driver) -> None:
    one, two = Member("one", instance_id="i"), Member("two")
    driver.join(one, "foo")
    driver.join(two, "foo")
    driver.settle(one, two)
    before, epoch = one.owned, driver.group.epoch
    driver.leave(one, epoch=STATIC_LEAVE_EPOCH)
    driver.pass_ms(SESSION_MS - 1)
    driver.settle(two)
    again = Member("one again", instance_id="i")
    driver.join(again, "foo")
    assert (again.owned, driver.group.epoch) == (before, epoch)
    driver.pass_ms(SESSION_MS - 1)
    driver.settle(two)
    assert driver.beat(again).error_code == Error.NONE
    late = driver.ask(beat(GROUP, "one", again.epoch, instance_id="i"))
    assert late.error_code == Error.FENCED_INSTANCE_ID


def test_a_static_member_that_stays_away_is_gone_with_its_session(driver: Driver) -> None:
    one, two = Member("one", instance_id="i"), Member("two")
    driver.join(one, "foo")
    driver.join(two, "foo")
    driver.settle(one, two)
    driver.leave(one, epoch=STATIC_LEAVE_EPOCH)
    driver.settle(two)
    assert len(two.owned[FOO]) == 2, "nobody else gets them while it may come back"
    driver.pass_ms(SESSION_MS - 1)
    driver.beat(two)
    driver.pass_ms(1)
    driver.settle(two)
    assert two.owned == {FOO: [0, 1, 2, 3]}


def test_an_instance_id_that_a_member_has_changed_is_free(driver: Driver) -> None:
    member = Member("a", instance_id="i")
    driver.join(member, "foo")
    member.instance_id = "j"
    driver.join(member, "foo")
    other = Member("b", instance_id="i")
    assert driver.join(other, "foo").error_code == Error.NONE
    driver.leave(other)
    driver.leave(member)
    assert driver.ask(beat(GROUP, "a", 1, instance_id="i")).error_code == Error.UNKNOWN_MEMBER_ID


def test_nobody_becomes_two_members_by_an_instance_id_that_is_free(driver: Driver) -> None:
    """What the member had would have no owner for ever."""
    away, other = Member("a", instance_id="i"), Member("b")
    driver.join(away, "foo")
    driver.join(other, "foo")
    driver.settle(away, other)
    driver.leave(away, epoch=STATIC_LEAVE_EPOCH)
    before = dict(other.owned)
    refused = driver.ask(join(GROUP, "b", "foo", instance_id="i"))
    assert refused.error_code == Error.INVALID_REQUEST
    driver.settle(other)
    assert other.owned == before


def test_a_member_that_beats_with_epoch_0_is_told_to_rejoin(driver: Driver) -> None:
    """librdkafka sends this when it has left the group and still takes itself for a member."""
    member = Member("a")
    lost = beat(GROUP, "a", 0, subscribed_topic_names=["bar"])
    assert driver.ask(lost).error_code == Error.FENCED_MEMBER_EPOCH
    assert driver.log == [], "it founds no group"
    driver.join(member, "foo")
    driver.leave(member)
    before = list(driver.log)
    for request in (lost, beat(GROUP, "a", 0)):
        assert driver.ask(request).error_code == Error.FENCED_MEMBER_EPOCH
    assert driver.log == before, "and changes none"
    assert driver.join(member, "bar").error_code == Error.NONE
    assert member.owned == {BAR: [0, 1]}
    driver.ask(lost)
    assert driver.beat(member).error_code == Error.NONE, "one that is in the group stays there"
    assert member.owned == {BAR: [0, 1]}


@pytest.mark.parametrize(
    "request_",
    [
        join(GROUP, "a", "foo", rebalance_timeout_ms=-1),
        join(GROUP, "a", "foo", topic_partitions=None),
        join(GROUP, "a", "foo", topic_partitions=reported({FOO: [0]})),
        join(GROUP, "a", "foo", rebalance_timeout_ms=-1, topic_partitions=reported({FOO: [0]})),
        beat(GROUP, "", 0, subscribed_topic_names=["foo"]),
    ],
    ids=["no timeout", "nothing owned", "partitions", "partitions and no timeout", "no member id"],
)
@pytest.mark.parametrize("version", [0, 1])
def test_a_join_that_is_not_in_order_is_refused(request_: m.ConsumerGroupHeartbeatRequest, version: int) -> None:
    with pytest.raises(KafkaError) as refused:
        check_request(request_, version, ("uniform",))
    assert refused.value.error is Error.INVALID_REQUEST


def test_the_assignor_that_most_members_want_is_taken() -> None:
    driver = Driver(topic("foo", 3), topic("bar", 3))
    one, two, three = Member("1"), Member("2"), Member("3")
    driver.join(one, "foo", "bar", server_assignor="range")
    driver.join(two, "foo", "bar", server_assignor="range")
    driver.settle(one, two)
    assert {name: len(each) for name, each in one.owned.items()} == {FOO: 2, BAR: 2}, "topic by topic"
    driver.join(three, "foo", "bar", server_assignor="uniform")
    driver.settle(one, two, three)
    assert driver.group.preferred_assignor(("uniform", "range")) == "range"
    driver.leave(one)
    assert driver.group.preferred_assignor(("uniform", "range")) == "uniform", "of two with a vote each, the first"


def test_a_refused_join_makes_no_group(driver: Driver) -> None:
    assert driver.ask(join(GROUP, "a", regex="(")).error_code == Error.INVALID_REGULAR_EXPRESSION
    assert driver.log == []
    assert driver.shard.list_groups([], []) == []


def test_a_group_is_the_same_after_a_restart_in_the_middle_of_a_rebalance(driver: Driver) -> None:
    one, two = Member("one"), Member("two")
    driver.join(one, "foo")
    driver.join(two, "foo")
    driver.ask(beat(GROUP, "one", one.epoch, one.owned))
    driver.restart()
    assert driver.state == "Reconciling"
    for _ in range(6):
        driver.ask(beat(GROUP, "one", one.epoch, one.owned))
        driver.beat(two)
        driver.pass_ms(REBALANCE_TIMEOUT_MS // 6)
    assert list(driver.group.members) == ["two"], "it has all its time to give up partitions, but not more"
