"""Comparing logs by where their epochs begin, and the voters as of an offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.uuids import ZERO_UUID, Uuid
from barnabas.raft.consensus.log_history import BOOTSTRAP, LogEnd, LogHistory, SnapshotId
from barnabas.raft.consensus.voter_sets import Voter, VoterHistory, VoterNode, VoterSet
from tests.unit.raft.cores import node_of, voter


def history(*epochs: int) -> LogHistory:
    """A log with one record for each of these epochs."""
    log = LogHistory(LogEnd(0, 0))
    for epoch in epochs:
        log.append(epoch, log.end.offset + 1)
    return log


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(0, LogEnd(0, 0)), (1, LogEnd(1, 2)), (2, LogEnd(1, 2)), (3, LogEnd(3, 3)), (5, LogEnd(5, 5)), (9, LogEnd(5, 5))],
)
def test_the_end_of_an_epoch_is_where_the_next_one_begins(epoch: int, expected: LogEnd) -> None:
    assert history(1, 1, 3, 5, 5).end_of(epoch) == expected


def test_a_reader_whose_log_is_a_part_of_this_one_goes_on_where_it_ends() -> None:
    log = history(1, 1, 3, 5, 5)
    for end in (LogEnd(0, 0), LogEnd(1, 1), LogEnd(1, 2), LogEnd(3, 3), LogEnd(5, 4), LogEnd(5, 5)):
        assert log.compare(end) is None


def test_a_reader_with_other_records_learns_where_the_epochs_in_common_end() -> None:
    log = history(1, 1, 3, 5, 5)
    assert log.compare(LogEnd(1, 3)) == LogEnd(1, 2)
    assert log.compare(LogEnd(2, 3)) == LogEnd(1, 2)
    assert log.compare(LogEnd(5, 6)) == LogEnd(5, 5)
    assert log.compare(LogEnd(7, 2)) == LogEnd(5, 5)


@given(st.lists(st.integers(1, 4), max_size=8), st.lists(st.integers(1, 4), max_size=8), st.integers(0, 8))
def test_a_follower_that_truncates_until_it_may_go_on_has_what_the_leader_has(
    leader_tail: list[int], follower_tail: list[int], common: int
) -> None:
    shared = [1] * common
    leader_epochs = shared + sorted(each * 2 for each in leader_tail)
    follower_epochs = shared + sorted(each * 2 + 1 for each in follower_tail)
    leader, follower = history(*leader_epochs), history(*follower_epochs)
    rounds = 0
    while (place := leader.compare(follower.end)) is not None:
        assert isinstance(place, LogEnd)
        before = follower.end.offset
        follower.truncate_to(follower.truncation_for(place))
        assert follower.end.offset < before
        rounds += 1
    assert rounds <= len(follower_epochs) + 1
    assert follower_epochs[: follower.end.offset] == leader_epochs[: follower.end.offset]
    assert follower.end.offset >= common


def test_a_reader_before_the_log_starts_from_the_newest_snapshot() -> None:
    log = history(1, 1, 3, 5, 5)
    old, new = SnapshotId(3, 3), SnapshotId(4, 5)
    log.trimmed(3, old, new)
    assert log.compare(LogEnd(0, 0)) == new
    assert log.compare(LogEnd(1, 2)) == new
    assert log.compare(LogEnd(2, 3)) == new
    assert log.compare(LogEnd(3, 3)) is None
    assert log.compare(LogEnd(5, 4)) is None


def test_an_empty_reader_starts_from_a_snapshot_even_if_the_log_goes_back_to_its_beginning() -> None:
    log = history(1, 1, 3)
    log.trimmed(0, BOOTSTRAP, BOOTSTRAP)
    assert log.compare(LogEnd(0, 0)) is None
    log.trimmed(0, BOOTSTRAP, SnapshotId(2, 1))
    assert log.compare(LogEnd(0, 0)) == SnapshotId(2, 1)


def test_a_log_that_begins_with_a_snapshot_has_its_epoch() -> None:
    log = LogHistory(LogEnd(0, 0))
    log.restart_at(SnapshotId(10, 4))
    assert log.end == LogEnd(4, 10)
    assert log.compare(LogEnd(4, 10)) is None
    assert log.compare(LogEnd(3, 10)) == SnapshotId(10, 4)
    log.append(6, 12)
    assert log.compare(LogEnd(4, 10)) is None
    assert log.compare(LogEnd(4, 11)) == LogEnd(4, 10)


def test_the_newest_voters_count_at_once_and_a_truncated_log_goes_back() -> None:
    one, two = VoterSet([node_of(1)]), VoterSet([node_of(1), node_of(2)])
    voters = VoterHistory(1, one)
    voters.append(5, voters=two)
    assert voters.latest.voters == two
    voters.truncate_to(6)
    assert voters.latest.voters == two
    voters.truncate_to(5)
    assert voters.latest.voters == one
    assert voters.latest.offset < 0


def test_committed_voters_are_not_gone_back_behind() -> None:
    voters = VoterHistory(0, VoterSet([node_of(1)]))
    voters.append(5, kraft_version=1)
    voters.append(6, voters=VoterSet([node_of(1), node_of(2)]))
    voters.forget_before(7)
    voters.truncate_to(0)
    assert voters.latest.kraft_version == 1
    assert voters.latest.voters.ids == (1, 2)


def test_a_voter_is_known_by_its_directory_unless_the_configuration_names_it() -> None:
    other_disk = Voter(1, Uuid(b"x" * 16))
    assert VoterSet([node_of(1)]).matching(other_disk) is None
    assert VoterSet([node_of(1)]).matching(voter(1)) == node_of(1)
    static = VoterNode(1, ZERO_UUID, ())
    assert VoterSet([static]).matching(other_disk) == static
