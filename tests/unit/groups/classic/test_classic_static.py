"""Static members: those with a `group.instance.id`, who come back as the same member under a new member id."""

from __future__ import annotations

import pytest

from barnabas.groups.classic.classic_group import ClassicGroupState
from barnabas.protocol.errors import Error
from tests.unit.groups.classic.classic_driver import INITIAL_DELAY_MS, REBALANCE_MS, SESSION_MS, Driver


@pytest.fixture
def driver() -> Driver:
    """A stable group of two static members: `one`, which leads, and `two`."""
    driver = Driver()
    calls = driver.join(instance_id="one"), driver.join(instance_id="two")
    driver.settle(*calls, instance_ids=["one", "two"])
    return driver


def member_id(driver: Driver, instance_id: str) -> str:
    member = driver.group.members.of_instance(instance_id)
    assert member is not None
    return member.member_id


def test_a_static_member_joins_without_being_given_an_id_first() -> None:
    driver = Driver()
    call = driver.join(instance_id="one")
    driver.pass_time(INITIAL_DELAY_MS)
    assert call.response.member_id == "one-1"
    assert [member.group_instance_id for member in call.response.members] == ["one"]


def test_one_that_comes_back_keeps_its_assignment_without_a_rebalance(driver: Driver) -> None:
    old_id = member_id(driver, "two")
    back = driver.join(instance_id="two").response
    assert (back.error_code, back.generation_id, back.skip_assignment, back.members) == (Error.NONE, 1, False, [])
    assert back.member_id != old_id
    assert driver.sync(back, instance_id="two").response.assignment == old_id.encode()
    assert driver.group.state is ClassicGroupState.STABLE
    assert driver.heartbeat(member_id(driver, "one"), instance_id="one") == Error.NONE


def test_its_new_id_is_written(driver: Driver) -> None:
    back = driver.join(instance_id="two").response
    driver.restart()
    assert member_id(driver, "two") == back.member_id


def test_a_leader_that_comes_back_is_told_to_assign_nothing(driver: Driver) -> None:
    back = driver.join(instance_id="one").response
    assert back.leader == back.member_id
    assert back.skip_assignment
    assert {member.group_instance_id for member in back.members} == {"one", "two"}


@pytest.mark.parametrize("version", range(5, 9))
def test_before_version_9_it_is_not_told_that_it_leads(driver: Driver, version: int) -> None:
    old_id = member_id(driver, "one")
    back = driver.join(instance_id="one", version=version).response
    assert (back.error_code, back.leader, back.members, back.skip_assignment) == (Error.NONE, old_id, [], False)
    assert driver.group.members.leader_id == back.member_id


def test_its_older_self_is_fenced(driver: Driver) -> None:
    old_id = member_id(driver, "two")
    driver.join(instance_id="two")
    fenced = Error.FENCED_INSTANCE_ID
    assert driver.heartbeat(old_id, instance_id="two") == fenced
    assert driver.group.check_commit(old_id, "two", 1) is fenced
    assert driver.join(old_id, instance_id="two").response.error_code == fenced
    assert driver.leave((old_id, "two")) == [fenced]
    assert driver.heartbeat(old_id) == Error.UNKNOWN_MEMBER_ID


def test_its_older_self_is_answered_if_it_waits_to_join(driver: Driver) -> None:
    old_id = member_id(driver, "one")
    waiting = driver.join(old_id, instance_id="one")
    assert waiting.waits
    newer = driver.join(instance_id="one")
    assert (waiting.response.error_code, waiting.response.member_id) == (Error.FENCED_INSTANCE_ID, old_id)
    driver.join(member_id(driver, "two"), instance_id="two")
    assert newer.response.generation_id == 2


def test_its_older_self_is_answered_if_it_waits_for_its_assignment(driver: Driver) -> None:
    leading = driver.join(member_id(driver, "one"), instance_id="one")
    following = driver.join(member_id(driver, "two"), instance_id="two")
    waiting = driver.sync(following.response, instance_id="two")
    newer = driver.join(instance_id="two")
    assert waiting.response.error_code == Error.FENCED_INSTANCE_ID
    assert newer.waits, "the leader's assignment knows the old id only, so there is another rebalance"
    late = driver.sync(leading.response, instance_id="one", assignments={})
    assert late.response.error_code == Error.REBALANCE_IN_PROGRESS


def test_one_that_restarts_before_it_asked_for_its_assignment_is_not_waited_for_under_its_old_id() -> None:
    driver = Driver()
    calls = driver.join(instance_id="one"), driver.join(instance_id="two")
    driver.pass_time(2 * INITIAL_DELAY_MS)
    driver.sync(calls[0].response, instance_id="one", assignments={})
    driver.join(instance_id="two")
    for _ in range(2 * REBALANCE_MS // 5_000):
        driver.pass_time(5_000)
        for instance_id in ("one", "two"):
            assert driver.heartbeat(member_id(driver, instance_id), instance_id=instance_id) == Error.NONE


def test_an_unknown_instance_id_with_a_member_id_is_refused(driver: Driver) -> None:
    assert driver.join("three-1", instance_id="three").response.error_code == Error.UNKNOWN_MEMBER_ID


def test_one_that_wants_something_else_with_the_same_protocol_sets_off_no_rebalance(driver: Driver) -> None:
    back = driver.join(instance_id="two", protocols=[("range", b"other topics")])
    assert back.response.error_code == Error.NONE
    assert driver.group.state is ClassicGroupState.STABLE


def test_one_that_changes_the_protocol_sets_off_a_rebalance(driver: Driver) -> None:
    back = driver.join(instance_id="two", protocols=[("roundrobin", b"")])
    assert back.waits
    rejoined = driver.join(member_id(driver, "one"), instance_id="one")
    assert rejoined.response.protocol_name == back.response.protocol_name == "roundrobin"


def test_one_that_stays_away_is_out_after_its_session(driver: Driver) -> None:
    driver.pass_time(SESSION_MS - 1)
    driver.heartbeat(member_id(driver, "one"), instance_id="one")
    driver.pass_time(1)
    assert driver.group.members.of_instance("two") is None
    assert driver.group.state is ClassicGroupState.PREPARING_REBALANCE


def test_one_that_is_away_during_a_rebalance_is_assigned_to_all_the_same() -> None:
    driver = Driver()
    short_ms = SESSION_MS // 2
    calls = [driver.join(instance_id=name, rebalance_timeout_ms=short_ms) for name in ("one", "two")]
    driver.settle(*calls, instance_ids=["one", "two"])
    rejoined = driver.join(calls[0].response.member_id, instance_id="one", rebalance_timeout_ms=short_ms)
    driver.pass_time(short_ms - 1)
    assert rejoined.waits
    driver.pass_time(1)
    assert {member.group_instance_id for member in rejoined.response.members} == {"one", "two"}


def test_with_nobody_back_a_rebalance_goes_on_until_sessions_end(driver: Driver) -> None:
    driver.leave(("", "one"))
    assert driver.group.state is ClassicGroupState.PREPARING_REBALANCE
    for _ in range(2 * REBALANCE_MS // 5_000):
        driver.pass_time(5_000)
        assert driver.heartbeat(member_id(driver, "two"), instance_id="two") == Error.REBALANCE_IN_PROGRESS
    driver.pass_time(SESSION_MS)
    assert driver.group.is_empty


def test_an_administrator_removes_one_by_its_instance_id(driver: Driver) -> None:
    assert driver.leave(("", "two"), ("", "two")) == [Error.NONE, Error.UNKNOWN_MEMBER_ID]
    assert driver.group.members.of_instance("two") is None


def test_after_a_restart_of_the_coordinator_it_is_still_the_same_member(driver: Driver) -> None:
    two = member_id(driver, "two")
    driver.restart()
    back = driver.join(instance_id="two").response
    assert back.generation_id == 1
    assert driver.sync(back, instance_id="two").response.assignment == two.encode()
