"""How a classic group gets from one generation to the next: sync, heartbeats, leaving, and what time does."""

from __future__ import annotations

import pytest

from barnabas.groups.classic.classic_group import ClassicGroupSettings, ClassicGroupState
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.unit.groups.classic.classic_driver import INITIAL_DELAY_MS, REBALANCE_MS, SESSION_MS, Driver


@pytest.fixture
def driver() -> Driver:
    return Driver()


class TestInitialDelay:
    def test_the_first_rebalance_waits_for_the_initial_delay(self, driver: Driver) -> None:
        call = driver.enter()
        driver.pass_time(INITIAL_DELAY_MS - 1)
        assert call.waits
        driver.pass_time(1)
        assert call.response.generation_id == 1

    def test_it_is_put_off_while_members_keep_coming(self, driver: Driver) -> None:
        first = driver.enter()
        driver.pass_time(INITIAL_DELAY_MS - 1)
        second = driver.enter()
        driver.pass_time(INITIAL_DELAY_MS)
        assert first.waits
        assert second.waits
        driver.pass_time(1)
        assert first.response.generation_id == second.response.generation_id == 1

    def test_it_is_put_off_for_no_longer_than_the_rebalance_timeout(self, driver: Driver) -> None:
        first = driver.enter()
        for _ in range(REBALANCE_MS // 2_000 - 1):
            driver.pass_time(2_000)
            driver.enter()
        assert first.waits
        driver.pass_time(2_000)
        assert first.response.generation_id == 1
        assert len(first.response.members) == REBALANCE_MS // 2_000

    def test_without_a_delay_the_first_member_is_answered_at_once(self) -> None:
        driver = Driver(ClassicGroupSettings(group_initial_rebalance_delay_ms=0))
        call = driver.enter()
        driver.pass_time(0)
        assert call.response.generation_id == 1


class TestSync:
    def test_followers_wait_for_the_leader_who_assigns(self, driver: Driver) -> None:
        calls = driver.enter(), driver.enter()
        driver.pass_time(2 * INITIAL_DELAY_MS)
        leader, follower = (call.response for call in calls)
        waiting = driver.sync(follower)
        assert waiting.waits
        assert driver.records == []
        assignments = {leader.member_id: b"mine", follower.member_id: b"yours"}
        own = driver.sync(leader, assignments=assignments, protocol_name="range")
        assert own.response.assignment == b"mine"
        assert waiting.response == m.SyncGroupResponse(
            protocol_type="consumer", protocol_name="range", assignment=b"yours"
        )
        assert driver.group.state is ClassicGroupState.STABLE
        assert len(driver.records) == 1

    def test_a_member_that_the_leader_left_out_gets_nothing(self, driver: Driver) -> None:
        calls = driver.enter(), driver.enter()
        driver.pass_time(2 * INITIAL_DELAY_MS)
        leader, follower = (call.response for call in calls)
        driver.sync(leader, assignments={leader.member_id: b"all", "stranger": b"what"})
        assert driver.sync(follower).response == m.SyncGroupResponse(protocol_type="consumer", protocol_name="range")

    def test_a_stable_group_answers_with_the_assignment_as_often_as_asked(self, driver: Driver) -> None:
        leader, follower = driver.stable(2)
        for joined in (leader, follower, leader):
            assert driver.sync(joined).response.assignment == joined.member_id.encode()

    @pytest.mark.parametrize("generation", [-1, 0, 2])
    def test_another_generation_is_refused(self, driver: Driver, generation: int) -> None:
        (leader,) = driver.stable(1)
        assert driver.sync(leader, generation=generation).response.error_code == Error.ILLEGAL_GENERATION

    def test_another_protocol_than_the_groups_is_refused(self, driver: Driver) -> None:
        (leader,) = driver.stable(1)
        inconsistent = Error.INCONSISTENT_GROUP_PROTOCOL
        assert driver.sync(leader, protocol_name="roundrobin").response.error_code == inconsistent
        assert driver.sync(leader, protocol_type="connect").response.error_code == inconsistent
        assert driver.sync(leader, protocol_type=None).response.error_code == Error.NONE

    def test_an_unknown_member_is_refused(self, driver: Driver) -> None:
        stranger = m.JoinGroupResponse(member_id="stranger", generation_id=0)
        assert driver.sync(stranger).response.error_code == Error.UNKNOWN_MEMBER_ID
        driver.stable(1)
        assert driver.sync(stranger, generation=1).response.error_code == Error.UNKNOWN_MEMBER_ID

    def test_a_rebalance_that_has_begun_sends_members_back_to_join(self, driver: Driver) -> None:
        leader, follower = driver.stable(2)
        driver.join(leader.member_id)
        assert driver.sync(follower).response.error_code == Error.REBALANCE_IN_PROGRESS

    def test_a_rebalance_that_begins_takes_back_what_was_waited_for(self, driver: Driver) -> None:
        calls = driver.enter(), driver.enter()
        driver.pass_time(2 * INITIAL_DELAY_MS)
        waiting = driver.sync(calls[1].response)
        driver.enter()
        assert waiting.response == m.SyncGroupResponse(error_code=Error.REBALANCE_IN_PROGRESS)

    def test_a_sync_that_a_member_repeats_answers_the_one_that_was_waiting(self, driver: Driver) -> None:
        calls = driver.enter(), driver.enter()
        driver.pass_time(2 * INITIAL_DELAY_MS)
        first, second = driver.sync(calls[1].response), driver.sync(calls[1].response)
        assert first.response.error_code == Error.REBALANCE_IN_PROGRESS
        assert second.waits

    def test_members_that_do_not_sync_in_time_are_out(self, driver: Driver) -> None:
        calls = driver.enter(), driver.enter()
        driver.pass_time(2 * INITIAL_DELAY_MS)
        leader, follower = (call.response for call in calls)
        driver.sync(leader, assignments={leader.member_id: b"mine"})
        for _ in range(REBALANCE_MS // 5_000 - 1):
            driver.pass_time(5_000)
            assert driver.heartbeat(leader.member_id) == Error.NONE
            assert driver.heartbeat(follower.member_id) == Error.NONE
        driver.pass_time(5_000)
        assert driver.heartbeat(follower.member_id) == Error.UNKNOWN_MEMBER_ID
        assert driver.heartbeat(leader.member_id) == Error.REBALANCE_IN_PROGRESS

    def test_a_leader_that_does_not_assign_in_time_is_replaced(self, driver: Driver) -> None:
        calls = driver.enter(), driver.enter()
        driver.pass_time(2 * INITIAL_DELAY_MS)
        leader, follower = (call.response for call in calls)
        waiting = driver.sync(follower)
        driver.pass_time(SESSION_MS)
        assert waiting.response.error_code == Error.REBALANCE_IN_PROGRESS
        rejoined = driver.join(follower.member_id)
        assert rejoined.response.leader == follower.member_id
        assert leader.member_id not in driver.group.members


class TestHeartbeat:
    def test_a_member_that_sends_them_stays(self, driver: Driver) -> None:
        (leader,) = driver.stable(1)
        for _ in range(100):
            driver.pass_time(SESSION_MS - 1)
            assert driver.heartbeat(leader.member_id) == Error.NONE
        assert driver.group.generation == 1

    def test_a_member_that_falls_silent_is_out_after_its_session(self, driver: Driver) -> None:
        leader, follower = driver.stable(2)
        driver.pass_time(SESSION_MS - 1)
        assert driver.heartbeat(leader.member_id) == Error.NONE
        driver.pass_time(1)
        assert driver.heartbeat(follower.member_id) == Error.UNKNOWN_MEMBER_ID
        assert driver.heartbeat(leader.member_id) == Error.REBALANCE_IN_PROGRESS
        assert driver.join(leader.member_id).response.generation_id == 2

    def test_that_a_member_is_removed_is_noted(self, driver: Driver) -> None:
        (leader,) = driver.stable(1)
        effects = driver.group.expire(driver.now_ms + SESSION_MS)
        assert effects.notes == [
            f"group readers: member {leader.member_id} removed: it sent no heartbeat for {SESSION_MS} ms"
        ]

    def test_commits_count_as_signs_of_life(self, driver: Driver) -> None:
        (leader,) = driver.stable(1)
        driver.pass_time(SESSION_MS - 1)
        driver.group.keep_alive(leader.member_id, driver.now_ms)
        driver.pass_time(SESSION_MS - 1)
        assert driver.heartbeat(leader.member_id) == Error.NONE

    def test_a_member_that_waits_for_an_answer_is_not_silent(self, driver: Driver) -> None:
        leader, follower = driver.stable(2)
        rejoined = driver.join(leader.member_id)
        for _ in range(5):
            driver.pass_time(SESSION_MS - 1)
            assert driver.heartbeat(follower.member_id) == Error.REBALANCE_IN_PROGRESS
        assert rejoined.waits
        driver.join(follower.member_id)
        assert rejoined.response.error_code == Error.NONE

    def test_members_that_all_wait_are_not_disturbed_when_their_sessions_would_end(self, driver: Driver) -> None:
        calls = [driver.enter() for _ in range(3)]
        driver.pass_time(2 * INITIAL_DELAY_MS)
        leader, *followers = (call.response for call in calls)
        waiting = [driver.sync(follower) for follower in followers]
        driver.pass_time(SESSION_MS - 1)
        assert driver.heartbeat(leader.member_id) == Error.NONE
        driver.pass_time(1)
        assert all(call.waits for call in waiting)
        driver.sync(leader, assignments={})
        assert [call.response.error_code for call in waiting] == [Error.NONE, Error.NONE]

    def test_strangers_and_other_generations_are_refused(self, driver: Driver) -> None:
        assert driver.heartbeat("stranger") == Error.UNKNOWN_MEMBER_ID
        (leader,) = driver.stable(1)
        assert driver.heartbeat("stranger") == Error.UNKNOWN_MEMBER_ID
        assert driver.heartbeat(leader.member_id, generation=0) == Error.ILLEGAL_GENERATION
        assert driver.heartbeat(leader.member_id, generation=2) == Error.ILLEGAL_GENERATION

    def test_while_the_leader_assigns_they_are_taken(self, driver: Driver) -> None:
        call = driver.enter()
        driver.pass_time(INITIAL_DELAY_MS)
        assert driver.heartbeat(call.response.member_id) == Error.NONE


class TestLeaving:
    def test_who_leaves_sets_off_a_rebalance(self, driver: Driver) -> None:
        leader, follower = driver.stable(2)
        assert driver.leave((leader.member_id, None)) == [Error.NONE]
        rejoined = driver.join(follower.member_id)
        assert rejoined.response.generation_id == 2
        assert rejoined.response.leader == follower.member_id

    def test_a_group_that_all_have_left_is_empty_and_written(self, driver: Driver) -> None:
        leader, follower = driver.stable(2)
        assert driver.leave((leader.member_id, None), (follower.member_id, None)) == [Error.NONE, Error.NONE]
        assert driver.group.is_empty
        assert driver.group.generation == 2
        assert driver.records[-1] == driver.group.record()
        assert driver.group.next_deadline_ms is None or driver.group.expire(driver.now_ms + SESSION_MS).records == []

    def test_each_is_answered_on_its_own(self, driver: Driver) -> None:
        leader, _ = driver.stable(2)
        answers = driver.leave(("stranger", None), (leader.member_id, None), ("", None), ("", "nobody"))
        assert answers == [
            Error.UNKNOWN_MEMBER_ID,
            Error.NONE,
            Error.UNKNOWN_MEMBER_ID,
            Error.UNKNOWN_MEMBER_ID,
        ]

    def test_a_refused_leave_moves_nothing(self, driver: Driver) -> None:
        driver.stable(2)
        assert driver.leave(("stranger", None)) == [Error.UNKNOWN_MEMBER_ID]
        assert driver.leave() == []
        assert driver.group.state is ClassicGroupState.STABLE

    def test_an_id_that_nobody_joined_with_can_be_given_back(self, driver: Driver) -> None:
        leader, follower = driver.stable(2)
        given = driver.join().response.member_id
        calls = driver.join(leader.member_id), driver.join(follower.member_id)
        assert calls[0].waits
        assert driver.leave((given, None)) == [Error.NONE]
        assert [call.response.generation_id for call in calls] == [2, 2]

    def test_a_stable_group_rebalances_for_it_as_with_kafka(self, driver: Driver) -> None:
        driver.stable(1)
        given = driver.join().response.member_id
        assert driver.leave((given, None)) == [Error.NONE]
        assert driver.group.state is ClassicGroupState.PREPARING_REBALANCE

    def test_an_empty_group_does_not(self, driver: Driver) -> None:
        given = driver.join().response.member_id
        assert driver.leave((given, None)) == [Error.NONE]
        assert driver.group.state is ClassicGroupState.EMPTY

    def test_who_waits_is_answered_when_it_is_removed(self, driver: Driver) -> None:
        leader, follower = driver.stable(2)
        joining = driver.join(leader.member_id)
        driver.leave((leader.member_id, None))
        assert (joining.response.error_code, joining.response.member_id) == (Error.UNKNOWN_MEMBER_ID, "")
        rejoined = driver.join(follower.member_id).response
        late = driver.enter()
        driver.join(rejoined.member_id)
        syncing = driver.sync(late.response)
        driver.leave((late.response.member_id, None))
        assert syncing.response.error_code == Error.UNKNOWN_MEMBER_ID


def test_a_rebalance_takes_no_longer_than_the_slowest_member_may(driver: Driver) -> None:
    leader, follower = driver.stable(2)
    rejoined = driver.join(leader.member_id)
    for _ in range(REBALANCE_MS // 5_000 - 1):
        driver.pass_time(5_000)
        assert driver.heartbeat(follower.member_id) == Error.REBALANCE_IN_PROGRESS
    assert rejoined.waits
    driver.pass_time(5_000)
    assert rejoined.response.generation_id == 2
    assert [member.member_id for member in rejoined.response.members] == [leader.member_id]
    assert driver.heartbeat(follower.member_id, generation=1) == Error.UNKNOWN_MEMBER_ID


def test_a_leader_that_did_not_rejoin_in_time_hands_over_to_one_who_did(driver: Driver) -> None:
    leader, second, third = driver.stable(3)
    rejoined = driver.join(third.member_id, protocols=[("range", b"changed")])
    for _ in range(REBALANCE_MS // 5_000):
        driver.pass_time(5_000)
        driver.heartbeat(leader.member_id)
        driver.heartbeat(second.member_id)
    assert rejoined.response.leader == third.member_id
    assert [member.member_id for member in driver.group.members] == [third.member_id]


def test_a_resigning_coordinator_answers_all_who_wait(driver: Driver) -> None:
    leader, follower = driver.stable(2)
    joining = driver.join(leader.member_id)
    driver.take(driver.group.abandon(Error.NOT_COORDINATOR))
    assert (joining.response.error_code, joining.response.member_id) == (Error.NOT_COORDINATOR, leader.member_id)
    assert driver.group.next_deadline_ms is None
    assert driver.heartbeat(follower.member_id) == Error.COORDINATOR_NOT_AVAILABLE
    assert driver.join(follower.member_id).response.error_code == Error.COORDINATOR_NOT_AVAILABLE
    assert driver.sync(follower).response.error_code == Error.COORDINATOR_NOT_AVAILABLE


def test_a_resigning_coordinator_answers_those_who_wait_for_the_leader(driver: Driver) -> None:
    calls = driver.enter(), driver.enter()
    driver.pass_time(2 * INITIAL_DELAY_MS)
    syncing = driver.sync(calls[1].response)
    driver.take(driver.group.abandon(Error.NOT_COORDINATOR))
    assert syncing.response.error_code == Error.NOT_COORDINATOR


class TestCommits:
    def test_somebody_who_is_in_no_group_may_commit_while_it_is_empty(self, driver: Driver) -> None:
        assert driver.group.check_commit("", None, -1) is Error.NONE
        (leader,) = driver.stable(1)
        assert driver.group.check_commit("", None, -1) is Error.UNKNOWN_MEMBER_ID
        driver.leave((leader.member_id, None))
        assert driver.group.check_commit("", None, -1) is Error.NONE

    def test_members_commit_in_their_generation(self, driver: Driver) -> None:
        (leader,) = driver.stable(1)
        assert driver.group.check_commit(leader.member_id, None, 1) is Error.NONE
        assert driver.group.check_commit(leader.member_id, None, 0) is Error.ILLEGAL_GENERATION
        assert driver.group.check_commit(leader.member_id, None, -1) is Error.ILLEGAL_GENERATION
        assert driver.group.check_commit("stranger", None, 1) is Error.UNKNOWN_MEMBER_ID
        assert driver.group.check_commit(leader.member_id, "nobody", 1) is Error.UNKNOWN_MEMBER_ID

    def test_a_zombies_late_commit_is_refused(self, driver: Driver) -> None:
        _, follower = driver.stable(2)
        driver.pass_time(SESSION_MS)
        assert driver.group.check_commit(follower.member_id, None, 1) is Error.UNKNOWN_MEMBER_ID

    def test_members_may_commit_while_a_rebalance_is_prepared_but_not_while_it_is_completed(
        self, driver: Driver
    ) -> None:
        leader, follower = driver.stable(2)
        rejoined = driver.join(leader.member_id)
        assert driver.group.check_commit(follower.member_id, None, 1) is Error.NONE
        driver.join(follower.member_id)
        assert rejoined.response.generation_id == 2
        assert driver.group.check_commit(follower.member_id, None, 2) is Error.REBALANCE_IN_PROGRESS

    def test_a_transaction_may_leave_out_its_consumer(self, driver: Driver) -> None:
        (leader,) = driver.stable(1)
        assert driver.group.check_transactional_commit("", None, -1) is Error.NONE
        assert driver.group.check_transactional_commit(leader.member_id, None, 1) is Error.NONE
        assert driver.group.check_transactional_commit(leader.member_id, None, 7) is Error.ILLEGAL_GENERATION
        driver.take(driver.group.abandon(Error.NOT_COORDINATOR))
        assert driver.group.check_transactional_commit("", None, -1) is Error.COORDINATOR_NOT_AVAILABLE
        assert driver.group.check_commit("", None, -1) is Error.COORDINATOR_NOT_AVAILABLE
