"""The leader's view of a partition: who is in sync decides how far readers see."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.errors import Error, KafkaError
from barnabas.replication.partition import (
    NO_BROKER_EPOCH,
    BrokerId,
    ClusterView,
    LeaderEpoch,
    PartitionState,
    Pulse,
)

LAG_MS = 1000
EPOCH_OF_BROKER = 70


class At(NamedTuple):
    offset: int


ME, OTHER, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)


def view_of(*active: BrokerId) -> ClusterView:
    view = ClusterView(LAG_MS)
    view.active_brokers = dict.fromkeys(active or (ME, OTHER, THIRD), EPOCH_OF_BROKER)
    return view


def leader(
    *isr: BrokerId, epoch: int = 0, end: int = 0, min_isr: int = 1, now_ms: int = 0, view: ClusterView | None = None
) -> PartitionState[At]:
    state = PartitionState(ME, At(end), At(0), view or view_of())
    state.min_insync_replicas = min_isr
    state.follow_metadata(ME, LeaderEpoch(epoch), 0, (ME, OTHER, THIRD), isr or (ME,), now_ms)
    return state


def fetched(
    state: PartitionState[At], follower: BrokerId, offset: int, now_ms: int = 0, broker_epoch: int = EPOCH_OF_BROKER
) -> bool:
    return state.follower_fetched(
        follower, At(offset), log_start_offset=0, broker_epoch=broker_epoch, pulse=Pulse(now_ms)
    )


def admit(state: PartitionState[At], *isr: BrokerId, now_ms: int = 0) -> bool:
    assert state.proposal is not None
    return state.proposal_accepted(state.proposal, state.leader_epoch, state.partition_epoch + 1, isr, now_ms)


def test_a_lone_replica_commits_what_it_writes_at_once() -> None:
    state = PartitionState(ME, At(0), At(0))
    state.min_insync_replicas = 2
    state.follow_metadata(ME, LeaderEpoch(0), 0, (ME,), (ME,))
    assert state.commits_alone
    assert state.local_log_grew(At(5))
    assert state.high_watermark == At(5)


def test_a_lone_replica_that_takes_the_lead_has_committed_its_whole_log() -> None:
    assert leader(ME, end=7).high_watermark == At(7)


def test_the_high_watermark_waits_for_every_in_sync_replica() -> None:
    state = leader(ME, OTHER, THIRD)
    assert not state.local_log_grew(At(10))
    assert not fetched(state, OTHER, 10)
    assert fetched(state, THIRD, 4)
    assert state.high_watermark == At(4)


def test_a_replica_that_leaves_the_in_sync_set_is_no_longer_waited_for() -> None:
    state = leader(ME, OTHER)
    state.local_log_grew(At(10))
    assert state.follow_metadata(ME, LeaderEpoch(0), 1, (ME, OTHER), (ME,), now_ms=2 * LAG_MS)
    assert state.high_watermark == At(10)


def test_a_new_epoch_forgets_what_followers_had_fetched() -> None:
    state = leader(ME, OTHER)
    state.local_log_grew(At(10))
    fetched(state, OTHER, 5)
    state.follow_metadata(ME, LeaderEpoch(1), 1, (ME, OTHER), (ME, OTHER))
    assert not state.local_log_grew(At(12))
    assert state.high_watermark == At(5)


def test_a_truncated_log_takes_the_high_watermark_with_it() -> None:
    state = leader(ME, end=10)
    state.local_log_truncated(At(3))
    assert (state.log_end, state.high_watermark) == (At(3), At(3))


# ── min.insync.replicas ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_high_watermark_stands_still_below_the_minimum_of_in_sync_replicas() -> None:
    state = leader(ME, min_isr=2)
    assert not state.local_log_grew(At(5))
    assert state.high_watermark == At(0)
    assert not fetched(state, OTHER, 5)
    assert state.propose_joining(OTHER)
    assert admit(state, ME, OTHER)
    assert state.high_watermark == At(5)


def test_acks_all_needs_the_minimum_of_in_sync_replicas() -> None:
    leader(ME, OTHER, min_isr=2).require_in_sync()
    with pytest.raises(KafkaError, match=r"1 in-sync replicas, but min.insync.replicas requires 2") as refused:
        leader(ME, min_isr=2).require_in_sync()
    assert refused.value.error is Error.NOT_ENOUGH_REPLICAS


def test_acks_all_never_needs_more_replicas_than_there_are() -> None:
    leader(ME, OTHER, THIRD, min_isr=9).require_in_sync()


def test_a_write_that_all_have_fails_if_too_few_are_left_in_sync_by_then() -> None:
    state = leader(ME, OTHER, min_isr=2)
    state.local_log_grew(At(5))
    assert state.outcome(5) is None
    fetched(state, OTHER, 5)
    assert state.outcome(5) is Error.NONE
    state.follow_metadata(ME, LeaderEpoch(0), 1, (ME, OTHER, THIRD), (ME,))
    assert state.outcome(5) is Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND


# ── joining ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_follower_that_has_all_that_is_committed_may_join_and_counts_before_it_is_in() -> None:
    state = leader(ME)
    state.local_log_grew(At(10), 2 * LAG_MS)
    fetched(state, OTHER, 10, now_ms=2 * LAG_MS)
    proposal = state.propose_joining(OTHER)
    assert proposal is not None
    assert proposal.isr == ((ME, NO_BROKER_EPOCH), (OTHER, EPOCH_OF_BROKER))
    assert (set(state.isr), set(state.maximal_isr)) == ({ME}, {ME, OTHER})
    assert not state.local_log_grew(At(20), 10 * LAG_MS), "it may be in already, and does not have this"
    assert state.propose_joining(THIRD) is None, "one proposal at a time"
    assert not admit(state, ME, OTHER)
    assert (set(state.isr), state.partition_epoch) == ({ME, OTHER}, 1)
    assert fetched(state, OTHER, 20)


@pytest.mark.parametrize(
    ("offset", "broker_epoch", "active", "may_join"),
    [
        (10, EPOCH_OF_BROKER, True, True),
        (10, NO_BROKER_EPOCH, True, True),
        (9, EPOCH_OF_BROKER, True, False),
        (10, EPOCH_OF_BROKER - 1, True, False),
        (10, EPOCH_OF_BROKER + 1, True, False),
        (10, EPOCH_OF_BROKER, False, False),
    ],
)
def test_who_may_join(offset: int, broker_epoch: int, active: bool, may_join: bool) -> None:
    state = leader(ME, end=10, view=view_of(ME, OTHER) if active else view_of(ME))
    fetched(state, OTHER, offset, broker_epoch=broker_epoch)
    assert (state.propose_joining(OTHER) is not None) == may_join


def test_nobody_joins_without_what_the_leader_had_when_its_epoch_began() -> None:
    state = leader(ME, OTHER, end=10)
    assert state.high_watermark == At(0)
    fetched(state, THIRD, 9)
    assert state.propose_joining(THIRD) is None
    fetched(state, THIRD, 10)
    assert state.propose_joining(THIRD)


def test_a_follower_that_nearly_caught_up_is_waited_for_so_that_it_can_join() -> None:
    state = leader(ME)
    state.local_log_grew(At(10), 5 * LAG_MS)
    fetched(state, OTHER, 8, now_ms=5 * LAG_MS)
    assert state.high_watermark == At(10)
    state.local_log_grew(At(12), 5 * LAG_MS)
    fetched(state, OTHER, 10, now_ms=5 * LAG_MS + 1)
    assert not state.local_log_grew(At(14), 5 * LAG_MS + 2)
    assert state.high_watermark == At(12)
    assert state.local_log_grew(At(15), 7 * LAG_MS), "it is not waited for longer than it may lag"
    assert state.high_watermark == At(15)


# ── leaving ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_follower_that_lags_for_too_long_has_to_leave_and_counts_until_it_has_left() -> None:
    state = leader(ME, OTHER, THIRD)
    state.local_log_grew(At(10))
    fetched(state, THIRD, 10, now_ms=LAG_MS)
    assert state.propose_leaving(LAG_MS) is None
    proposal = state.propose_leaving(LAG_MS + 1)
    assert proposal is not None
    assert [replica for replica, _ in proposal.isr] == [ME, THIRD]
    assert state.maximal_isr == {ME, OTHER, THIRD}
    assert state.high_watermark == At(0)
    assert admit(state, ME, THIRD, now_ms=LAG_MS + 2)
    assert state.high_watermark == At(10)


def test_who_has_everything_never_lags_however_long_nothing_is_written() -> None:
    state = leader(ME, OTHER)
    state.local_log_grew(At(10))
    fetched(state, OTHER, 10)
    assert state.propose_leaving(1000 * LAG_MS) is None
    assert not state.is_anybody_waited_for()


def test_a_session_keeps_its_partitions_caught_up_without_naming_them() -> None:
    state = leader(ME, OTHER)
    pulse = Pulse(0)
    state.follower_fetched(OTHER, At(0), log_start_offset=0, broker_epoch=EPOCH_OF_BROKER, pulse=pulse)
    pulse.last_ms = 50 * LAG_MS
    state.local_log_grew(At(10), 50 * LAG_MS + 5)
    assert state.is_anybody_waited_for()
    assert state.propose_leaving(51 * LAG_MS) is None
    assert state.propose_leaving(51 * LAG_MS + 1) is not None


def test_who_always_gets_what_there_was_when_it_asked_before_does_not_lag() -> None:
    state = leader(ME, OTHER)
    for now_ms in range(0, 10 * LAG_MS, LAG_MS // 2):
        state.local_log_grew(At(now_ms + 10), now_ms)
        fetched(state, OTHER, now_ms - LAG_MS // 2 + 10 if now_ms else 0, now_ms)
        assert state.propose_leaving(now_ms) is None


# ── how proposals end ────────────────────────────────────────────────────────────────────────────────────────────────


def with_proposal() -> PartitionState[At]:
    state = leader(ME, end=10)
    fetched(state, OTHER, 10)
    assert state.propose_joining(OTHER)
    return state


@pytest.mark.parametrize("error", [Error.INELIGIBLE_REPLICA, Error.OPERATION_NOT_ATTEMPTED])
def test_what_was_certainly_not_done_is_as_if_it_had_not_been_proposed(error: Error) -> None:
    state = with_proposal()
    assert state.proposal is not None
    assert not state.proposal_refused(state.proposal, error)
    assert state.maximal_isr == {ME}
    assert state.propose_joining(OTHER), "it may be proposed again"


@pytest.mark.parametrize(
    "error",
    [
        Error.INVALID_UPDATE_VERSION,
        Error.FENCED_LEADER_EPOCH,
        Error.NEW_LEADER_ELECTED,
        Error.UNKNOWN_TOPIC_ID,
        Error.INVALID_REQUEST,
    ],
)
def test_where_the_outcome_is_unknown_the_metadata_has_to_tell(error: Error) -> None:
    state = with_proposal()
    assert state.proposal is not None
    assert not state.proposal_refused(state.proposal, error)
    assert state.maximal_isr == {ME, OTHER}
    assert state.propose_leaving(10 * LAG_MS) is None
    state.follow_metadata(ME, LeaderEpoch(0), 1, (ME, OTHER, THIRD), (ME, OTHER))
    assert state.proposal is None


def test_other_errors_are_tried_again() -> None:
    state = with_proposal()
    assert state.proposal is not None
    assert state.proposal_refused(state.proposal, Error.UNKNOWN_SERVER_ERROR)


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(1, 9), (0, 4)])
def test_an_answer_that_the_metadata_has_overtaken_changes_nothing(leader_epoch: int, partition_epoch: int) -> None:
    state = with_proposal()
    proposal = state.proposal
    assert proposal is not None
    state.follow_metadata(ME, LeaderEpoch(0), 5, (ME, OTHER, THIRD), (ME,))
    assert not state.proposal_accepted(proposal, leader_epoch, partition_epoch, (ME, OTHER), 0)
    assert not state.proposal_refused(proposal, Error.UNKNOWN_SERVER_ERROR)
    assert (set(state.isr), state.partition_epoch) == ({ME}, 5)


# ── what readers and followers are told ──────────────────────────────────────────────────────────────────────────────


def test_a_new_leader_knows_its_end_once_the_high_watermark_has_reached_the_start_of_its_epoch() -> None:
    state = leader(ME, OTHER, end=10)
    assert not state.knows_its_end()
    fetched(state, OTHER, 9)
    assert not state.knows_its_end()
    fetched(state, OTHER, 10)
    assert state.knows_its_end()


@pytest.mark.parametrize(
    ("reader_epoch", "error"),
    [(-1, Error.NONE), (3, Error.NONE), (2, Error.FENCED_LEADER_EPOCH), (4, Error.UNKNOWN_LEADER_EPOCH)],
)
def test_a_reader_is_fenced_by_its_leader_epoch(reader_epoch: int, error: Error) -> None:
    assert leader(epoch=3).check_reader_epoch(reader_epoch) is error


@pytest.mark.parametrize(
    ("follower", "broker_epoch", "request_epoch", "error"),
    [
        (2, EPOCH_OF_BROKER, 0, Error.NONE),
        (2, NO_BROKER_EPOCH, 0, Error.NONE),
        (2, EPOCH_OF_BROKER + 1, 0, Error.NONE),
        (2, EPOCH_OF_BROKER - 1, 0, Error.NOT_LEADER_OR_FOLLOWER),
        (9, EPOCH_OF_BROKER, 0, Error.UNKNOWN_LEADER_EPOCH),
        (9, EPOCH_OF_BROKER, -1, Error.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_who_may_fetch_as_a_follower(follower: int, broker_epoch: int, request_epoch: int, error: Error) -> None:
    assert leader().check_follower(follower, broker_epoch, request_epoch) is error


@given(st.lists(st.tuples(st.sampled_from([ME, OTHER, THIRD]), st.integers(0, 20)), max_size=40))
def test_the_high_watermark_never_falls_and_never_passes_an_in_sync_replica(steps: list[tuple[BrokerId, int]]) -> None:
    state = leader(ME, OTHER, THIRD)
    ends = {ME: 0, OTHER: 0, THIRD: 0}
    for replica, grown in steps:
        before = state.high_watermark.offset
        if replica == ME:
            ends[ME] += grown
            state.local_log_grew(At(ends[ME]))
        else:
            ends[replica] = min(ends[ME], ends[replica] + grown)
            fetched(state, replica, ends[replica])
        assert before <= state.high_watermark.offset <= min(ends.values())


def test_a_consumer_is_sent_to_the_in_sync_follower_of_its_rack_that_has_most() -> None:
    view = view_of()
    view.racks = {ME: "a", OTHER: "b", THIRD: "b"}
    state = leader(ME, OTHER, THIRD, end=10, view=view)
    assert state.nearest_replica("b", 5) is None, "nobody has fetched yet"
    fetched(state, OTHER, 8, now_ms=5)
    fetched(state, THIRD, 7, now_ms=9)
    assert state.nearest_replica("b", 5) == OTHER
    assert state.nearest_replica("b", 8) == OTHER
    assert state.nearest_replica("b", 9) is None, "nobody there has got so far"
    fetched(state, THIRD, 8, now_ms=9)
    state.follow_metadata(ME, LeaderEpoch(0), 1, (ME, OTHER, THIRD), (ME, THIRD))
    assert state.nearest_replica("b", 5) == THIRD
    assert state.nearest_replica("a", 5) is None, "the leader is as near"
    assert state.nearest_replica("c", 5) is None
