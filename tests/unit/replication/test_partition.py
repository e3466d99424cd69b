"""The leader's view of a partition: who is in sync decides how far readers see."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.errors import Error, KafkaError
from barnabas.replication.partition import BrokerId, LeaderEpoch, PartitionState


class At(NamedTuple):
    offset: int


ME, OTHER, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)


def leader(*isr: BrokerId, epoch: int = 0, end: int = 0) -> PartitionState[At]:
    state = PartitionState(ME, At(end), At(0))
    state.follow_metadata(ME, LeaderEpoch(epoch), 0, (ME, OTHER, THIRD), isr or (ME,))
    return state


def test_a_lone_replica_commits_what_it_writes_at_once() -> None:
    state = leader(ME)
    assert state.local_log_grew(At(5))
    assert state.high_watermark == At(5)


def test_a_lone_replica_that_takes_the_lead_has_committed_its_whole_log() -> None:
    assert leader(ME, end=7).high_watermark == At(7)


def test_the_high_watermark_waits_for_every_in_sync_replica() -> None:
    state = leader(ME, OTHER, THIRD)
    assert not state.local_log_grew(At(10))
    assert not state.follower_fetched(OTHER, At(10))
    assert state.follower_fetched(THIRD, At(4))
    assert state.high_watermark == At(4)


def test_a_replica_that_leaves_the_in_sync_set_is_no_longer_waited_for() -> None:
    state = leader(ME, OTHER)
    state.local_log_grew(At(10))
    state.follow_metadata(ME, LeaderEpoch(0), 1, (ME, OTHER), (ME,))
    assert state.high_watermark == At(10)


def test_a_new_epoch_forgets_what_followers_had_fetched() -> None:
    state = leader(ME, OTHER)
    state.local_log_grew(At(10))
    state.follower_fetched(OTHER, At(5))
    state.follow_metadata(ME, LeaderEpoch(1), 1, (ME, OTHER), (ME, OTHER))
    assert not state.local_log_grew(At(12))
    assert state.high_watermark == At(5)


def test_a_truncated_log_takes_the_high_watermark_with_it() -> None:
    state = leader(ME)
    state.local_log_grew(At(10))
    state.local_log_truncated(At(3))
    assert (state.log_end, state.high_watermark) == (At(3), At(3))


def test_acks_all_needs_the_minimum_of_in_sync_replicas() -> None:
    leader(ME, OTHER).require_in_sync(2)
    with pytest.raises(KafkaError, match=r"1 in-sync replicas, but min.insync.replicas requires 2") as refused:
        leader(ME).require_in_sync(2)
    assert refused.value.error is Error.NOT_ENOUGH_REPLICAS


def test_acks_all_never_needs_more_replicas_than_there_are() -> None:
    leader(ME, OTHER, THIRD).require_in_sync(9)


@pytest.mark.parametrize(
    ("reader_epoch", "error"),
    [(-1, Error.NONE), (3, Error.NONE), (2, Error.FENCED_LEADER_EPOCH), (4, Error.UNKNOWN_LEADER_EPOCH)],
)
def test_a_reader_is_fenced_by_its_leader_epoch(reader_epoch: int, error: Error) -> None:
    assert leader(epoch=3).check_reader_epoch(reader_epoch) is error


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
            state.follower_fetched(replica, At(ends[replica]))
        assert before <= state.high_watermark.offset <= min(ends.values())
