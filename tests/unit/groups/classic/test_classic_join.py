"""Who may join a classic group, under which id, and with which protocols."""

from __future__ import annotations

import pytest

from barnabas.groups.classic.classic_group import ClassicGroupSettings, ClassicGroupState
from barnabas.groups.classic.joining import NEW_MEMBER_JOIN_TIMEOUT_MS
from barnabas.protocol.errors import Error
from tests.unit.groups.classic.classic_driver import INITIAL_DELAY_MS, SESSION_MS, Driver


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.mark.parametrize("version", range(4, 10))
def test_a_dynamic_member_is_given_an_id_to_join_with(driver: Driver, version: int) -> None:
    first = driver.join(version=version).response
    assert first.error_code == Error.MEMBER_ID_REQUIRED
    assert first.member_id == "app-1"
    assert first.generation_id == -1
    assert driver.group.state is ClassicGroupState.EMPTY

    second = driver.join(first.member_id, version=version)
    assert second.waits
    driver.pass_time(INITIAL_DELAY_MS)
    assert second.response.error_code == Error.NONE
    assert second.response.member_id == "app-1"


@pytest.mark.parametrize("version", range(4))
def test_before_version_4_a_member_joins_without_an_id(driver: Driver, version: int) -> None:
    call = driver.join(version=version)
    driver.pass_time(INITIAL_DELAY_MS)
    assert call.response.error_code == Error.NONE
    assert call.response.member_id == "app-1"


def test_the_session_timeout_serves_as_rebalance_timeout_where_none_is_given(driver: Driver) -> None:
    driver.join(version=0, rebalance_timeout_ms=-1, session_timeout_ms=7_000)
    (member,) = driver.group.members
    assert member.rebalance_timeout_ms == 7_000


@pytest.mark.parametrize("session_timeout_ms", [-1, 0, 5_999, 1_800_001])
def test_a_session_timeout_outside_the_settings_is_refused(driver: Driver, session_timeout_ms: int) -> None:
    response = driver.join(session_timeout_ms=session_timeout_ms).response
    assert response.error_code == Error.INVALID_SESSION_TIMEOUT
    assert driver.group.next_deadline_ms is None


@pytest.mark.parametrize("session_timeout_ms", [6_000, 1_800_000])
def test_a_session_timeout_at_the_edge_of_the_settings_is_taken(driver: Driver, session_timeout_ms: int) -> None:
    assert driver.join(session_timeout_ms=session_timeout_ms).response.error_code == Error.MEMBER_ID_REQUIRED


def test_an_unknown_member_id_is_refused(driver: Driver) -> None:
    driver.stable(1)
    response = driver.join("never-given-out").response
    assert (response.error_code, response.member_id) == (Error.UNKNOWN_MEMBER_ID, "never-given-out")
    assert driver.group.state is ClassicGroupState.STABLE


def test_an_id_that_was_given_out_lapses_with_the_session_timeout(driver: Driver) -> None:
    driver.stable(1)
    given = driver.join().response.member_id
    driver.pass_time(SESSION_MS - 1)
    driver.heartbeat("app-1")
    driver.pass_time(1)
    assert driver.join(given).response.error_code == Error.UNKNOWN_MEMBER_ID


def test_an_id_that_was_given_out_is_for_dynamic_members_only(driver: Driver) -> None:
    given = driver.join().response.member_id
    assert driver.join(given, instance_id="one").response.error_code == Error.UNKNOWN_SERVER_ERROR
    assert driver.group.state is ClassicGroupState.EMPTY


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", (("range", b""),)), ("consumer", ())])
def test_a_first_member_must_bring_a_protocol_type_and_a_protocol(
    driver: Driver, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    response = driver.join(protocol_type=protocol_type, protocols=protocols).response
    assert response.error_code == Error.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_that_shares_no_protocol_with_all_others_is_refused(driver: Driver) -> None:
    joined = driver.stable(2)
    assert driver.join(protocols=[("sticky", b"")]).response.error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    assert driver.join(protocol_type="connect").response.error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    again = driver.join(joined[1].member_id, protocols=[("sticky", b"")]).response
    assert (again.error_code, again.member_id) == (Error.INCONSISTENT_GROUP_PROTOCOL, joined[1].member_id)
    assert driver.group.state is ClassicGroupState.STABLE


def test_the_protocol_is_the_one_most_members_like_best_among_those_that_all_support(driver: Driver) -> None:
    calls = [
        driver.enter(protocols=[("sticky", b""), ("range", b""), ("roundrobin", b"")]),
        driver.enter(protocols=[("roundrobin", b""), ("range", b"")]),
        driver.enter(protocols=[("range", b""), ("roundrobin", b""), ("mine", b"")]),
    ]
    driver.pass_time(INITIAL_DELAY_MS)
    driver.pass_time(INITIAL_DELAY_MS)
    assert {call.response.protocol_name for call in calls} == {"range"}


def test_a_protocol_that_is_named_twice_counts_once(driver: Driver) -> None:
    call = driver.enter(protocols=[("range", b"first"), ("range", b"second")])
    driver.pass_time(INITIAL_DELAY_MS)
    assert call.response.protocol_name == "range"
    assert [member.metadata for member in call.response.members] == [b"first"]


def test_the_leader_alone_learns_who_the_members_are(driver: Driver) -> None:
    first, second = driver.enter(protocols=[("range", b"one")]), driver.enter(protocols=[("range", b"two")])
    driver.pass_time(2 * INITIAL_DELAY_MS)
    assert first.response.leader == second.response.leader == first.response.member_id
    assert [(member.member_id, member.metadata) for member in first.response.members] == [
        (first.response.member_id, b"one"),
        (second.response.member_id, b"two"),
    ]
    assert second.response.members == []
    assert (first.response.generation_id, second.response.generation_id) == (1, 1)
    assert first.response.protocol_type == "consumer"


def test_a_follower_that_repeats_its_join_is_answered_without_a_rebalance(driver: Driver) -> None:
    _, follower = driver.stable(2)
    response = driver.join(follower.member_id).response
    assert (response.error_code, response.generation_id, response.members) == (Error.NONE, 1, [])
    assert driver.group.state is ClassicGroupState.STABLE


def test_a_follower_that_changes_its_subscription_sets_off_a_rebalance(driver: Driver) -> None:
    leader, follower = driver.stable(2)
    assert driver.join(follower.member_id, protocols=[("range", b"other")]).waits
    assert driver.heartbeat(leader.member_id) == Error.REBALANCE_IN_PROGRESS


def test_a_leader_that_joins_again_sets_off_a_rebalance(driver: Driver) -> None:
    leader, _ = driver.stable(2)
    assert driver.join(leader.member_id).waits
    assert driver.group.state is ClassicGroupState.PREPARING_REBALANCE


def test_a_member_that_missed_its_answer_gets_it_again_while_the_leader_assigns(driver: Driver) -> None:
    leader, follower = driver.enter(), driver.enter()
    driver.pass_time(2 * INITIAL_DELAY_MS)
    assert driver.join(leader.response.member_id).response == leader.response
    assert driver.join(follower.response.member_id).response == follower.response
    assert driver.group.generation == 1


def test_a_join_that_a_member_repeats_answers_the_one_that_was_waiting(driver: Driver) -> None:
    first = driver.enter()
    (member,) = driver.group.members
    second = driver.join(member.member_id)
    assert first.response.error_code == Error.REBALANCE_IN_PROGRESS
    driver.pass_time(INITIAL_DELAY_MS)
    assert second.response.error_code == Error.NONE


def test_a_new_member_that_went_away_while_waiting_is_not_kept_for_ever() -> None:
    driver = Driver(ClassicGroupSettings(group_initial_rebalance_delay_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS))
    call = driver.join(version=3, rebalance_timeout_ms=10 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    driver.pass_time(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert call.waits
    driver.pass_time(1)
    assert (call.response.error_code, call.response.member_id) == (Error.UNKNOWN_MEMBER_ID, "")
    assert len(driver.group.members) == 0


class TestGroupMaxSize:
    @pytest.fixture
    def driver(self) -> Driver:
        return Driver(ClassicGroupSettings(group_max_size=2, group_initial_rebalance_delay_ms=INITIAL_DELAY_MS))

    def test_a_full_group_takes_nobody_in(self, driver: Driver) -> None:
        driver.stable(2)
        records_before = list(driver.records)
        response = driver.join().response
        assert (response.error_code, response.member_id) == (Error.GROUP_MAX_SIZE_REACHED, "")
        assert driver.group.state is ClassicGroupState.STABLE
        assert driver.records == records_before

    def test_members_of_a_full_group_may_join_again(self, driver: Driver) -> None:
        leader, follower = driver.stable(2)
        calls = driver.join(leader.member_id), driver.join(follower.member_id)
        assert [call.response.error_code for call in calls] == [Error.NONE, Error.NONE]

    def test_a_join_during_a_rebalance_counts_those_who_have_joined(self, driver: Driver) -> None:
        driver.enter()
        driver.enter()
        assert driver.join().response.error_code == Error.GROUP_MAX_SIZE_REACHED

    def test_a_group_over_its_size_after_a_restart_shows_the_last_out(self, driver: Driver) -> None:
        wide = Driver()
        members = wide.stable(3)
        driver.records = wide.records
        driver.restart()
        assert driver.group.state is ClassicGroupState.PREPARING_REBALANCE
        calls = [driver.join(member.member_id) for member in members]
        assert [call.response.error_code for call in calls] == [Error.NONE, Error.NONE, Error.GROUP_MAX_SIZE_REACHED]
        assert driver.group.generation == 2
