"""The rules of the quorum, message by message."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID, Uuid
from barnabas.raft.consensus.core import RaftCore
from barnabas.raft.consensus.log_history import LogEnd, LogHistory, SnapshotId
from barnabas.raft.consensus.messages import (
    NO_NODE,
    AppendFailed,
    BeginEpochRequest,
    BeginEpochResponse,
    CommittedRecordsLostError,
    EndEpochRequest,
    EndEpochResponse,
    Entry,
    FetchedBatch,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Flushed,
    HardState,
    Head,
    LeaderChange,
    NotLeaderError,
    Outbound,
    Propose,
    Ready,
    RequestFailed,
    Resign,
    Role,
    SnapshotLoaded,
    SnapshotPart,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
    VotersChange,
)
from barnabas.raft.consensus.node_state import QuorumTimeouts
from barnabas.raft.consensus.replica_log import ReplicaLog
from barnabas.raft.consensus.voter_sets import BEFORE_LOG, Voter, VoterHistory, VoterNode, VoterSet
from tests.unit.raft.cores import node_of, voter

ONE, TWO, THREE, FOUR, FIVE = (voter(number) for number in range(1, 6))
ELECTION_MS = QuorumTimeouts().election_ms
FETCH_MS = QuorumTimeouts().fetch_ms


def core(
    *voters: Voter,
    local: Voter = ONE,
    state: HardState | None = None,
    log_end: LogEnd | None = None,
    named_at: int = 0,
    high_watermark: int = 0,
    kraft_version: int = 1,
) -> RaftCore:
    """A node whose log names these voters."""
    nodes = VoterSet(node_of(each.id) for each in (voters or (ONE,)))
    end = log_end or LogEnd(0, 0)
    log = ReplicaLog(LogHistory(end), VoterHistory(kraft_version, nodes, named_at), high_watermark=high_watermark)
    return RaftCore(local, state or HardState(), log, endpoints=node_of(local.id).endpoints)


def granted(voter_id: int, epoch: int, *, is_pre_vote: bool = False, is_granted: bool = True) -> VoteResponse:
    return VoteResponse(voter_id, Head(Error.NONE, epoch), is_granted, is_pre_vote)


def candidate_of(*voters: Voter, log_end: LogEnd | None = None, state: HardState | None = None) -> RaftCore:
    """A core for which a majority of `voters` would vote."""
    candidate = core(*voters, log_end=log_end, state=state)
    candidate.tick(0)
    candidate.tick(5_000)
    for each in voters[1:]:
        candidate.step(granted(each.id, candidate.epoch, is_pre_vote=True))
    assert candidate.role is Role.CANDIDATE
    return candidate


def leader_of(*voters: Voter, log_end: LogEnd | None = None) -> RaftCore:
    """A core that a majority of `voters` has elected."""
    if len(voters) == 1:
        leader = core(*voters, log_end=log_end)
        leader.tick(5_000)
    else:
        leader = candidate_of(*voters, log_end=log_end)
        for each in voters[1:]:
            leader.step(granted(each.id, leader.epoch))
    assert leader.role is Role.LEADER
    return leader


def follower_of(leader_id: int = 2, epoch: int = 5, log_end: LogEnd | None = None, **options: Any) -> RaftCore:
    follower = core(ONE, TWO, THREE, log_end=log_end, **options)
    follower.tick(0)
    follower.step(BeginEpochRequest(leader_id, epoch))
    assert follower.role is Role.FOLLOWER
    return follower


def fetch(replica: Voter, leader: RaftCore, offset: int, epoch: int | None = None) -> FetchRequest:
    return FetchRequest(replica, leader.epoch, LogEnd(leader.epoch if epoch is None else epoch, offset))


def requests(ready: Ready) -> list[object]:
    return [outbound.request for outbound in ready.messages]


def only_fetch(ready: Ready) -> FetchRequest:
    (outbound,) = ready.messages
    assert isinstance(outbound.request, FetchRequest)
    return outbound.request


# A quorum of one


def test_a_sole_voter_leads_at_its_first_tick() -> None:
    ready = core().tick(0)
    change = LeaderChange(1, (1,), (1,))
    assert ready == Ready(hard_state=HardState(1, leader_id=1), entries=(Entry(0, 1, 1, change),), role=Role.LEADER)


def test_every_start_begins_a_new_epoch_after_the_last() -> None:
    ready = core(state=HardState(7, leader_id=1), log_end=LogEnd(7, 30)).tick(0)
    assert ready.hard_state == HardState(8, leader_id=1)
    assert [(entry.base_offset, entry.epoch) for entry in ready.entries] == [(30, 8)]


def test_an_epoch_follows_that_of_the_last_record_where_the_state_is_lost_or_old() -> None:
    for state in (HardState(), HardState(5, leader_id=2, voted_id=2)):
        ready = core(state=state, log_end=LogEnd(7, 30)).tick(0)
        assert ready.hard_state == HardState(8, leader_id=1)
        assert [(entry.base_offset, entry.epoch) for entry in ready.entries] == [(30, 8)]


def test_voters_that_the_log_does_not_name_yet_are_named_when_an_epoch_begins() -> None:
    ready = core(named_at=BEFORE_LOG).tick(0)
    assert ready.entries == (Entry(0, 1, 3, LeaderChange(1, (1,), (1,), (node_of(1),))),)


def test_voters_that_the_configuration_names_are_never_named_in_the_log() -> None:
    ready = core(named_at=BEFORE_LOG, kraft_version=0).tick(0)
    assert ready.entries == (Entry(0, 1, 1, LeaderChange(1, (1,), (1,))),)


def test_a_leader_that_is_reached_elsewhere_than_the_log_says_names_the_voters_again() -> None:
    log = ReplicaLog(LogHistory(LogEnd(1, 9)), VoterHistory(1, VoterSet([node_of(1, port=1)]), 2))
    moved = RaftCore(ONE, HardState(), log, endpoints=node_of(1, port=2).endpoints)
    assert moved.tick(0).entries == (Entry(9, 2, 3, LeaderChange(1, (1,), (1,), (node_of(1, port=2),))),)


def test_voters_are_named_again_until_a_leader_has_them_in_its_log_for_good() -> None:
    leader = core(named_at=BEFORE_LOG)
    leader.tick(0)
    leader.step(AppendFailed(LogEnd(0, 0)))
    (entry,) = leader.tick(5000).entries
    assert entry == Entry(0, 2, 3, LeaderChange(1, (1,), (1,), (node_of(1),)))
    leader.step(Flushed(3))
    leader.step(Resign())
    (entry,) = leader.tick(10_000).entries
    assert entry == Entry(3, 3, 1, LeaderChange(1, (1,), (1,)))


def test_the_high_watermark_of_one_voter_is_what_it_has_flushed() -> None:
    leader = core()
    leader.tick(0)
    (entry,) = leader.step(Propose("topic", 3)).entries
    assert entry == Entry(1, 1, 3, "topic")
    assert leader.high_watermark == 0
    assert leader.step(Flushed(1)).high_watermark == 1
    assert leader.step(Flushed(4)).high_watermark == 4
    assert leader.step(Flushed(4)).high_watermark is None


def test_who_resigned_appends_nothing_and_leads_again_only_in_a_new_epoch() -> None:
    leader = core()
    leader.tick(0)
    epoch = leader.epoch
    assert leader.step(Resign()).role is Role.RESIGNED
    with pytest.raises(NotLeaderError):
        leader.step(Propose("late", 1))
    assert leader.step(Flushed(1)).high_watermark is None
    assert leader.tick(5000).role is Role.LEADER
    assert leader.epoch == epoch + 1


def test_offsets_that_could_not_be_written_are_given_again() -> None:
    leader = core()
    leader.tick(0)
    leader.step(Flushed(1))
    leader.step(Propose("lost", 5))
    assert leader.step(AppendFailed(LogEnd(1, 1))).role is Role.RESIGNED
    (entry,) = leader.tick(5000).entries
    assert entry.base_offset == 1


# Elections


def test_a_node_first_asks_whether_it_would_be_elected_and_changes_nothing_for_that() -> None:
    node = core(ONE, TWO, THREE, state=HardState(4), log_end=LogEnd(4, 9))
    node.tick(0)
    ready = node.tick(ELECTION_MS)
    assert ready.role is Role.PROSPECTIVE
    assert ready.hard_state is None
    assert ready.messages == tuple(
        Outbound(each.id, node_of(each.id).endpoints, VoteRequest(ONE, 4, LogEnd(4, 9), True, each))
        for each in (TWO, THREE)
    )


def test_who_would_be_elected_asks_for_votes_in_the_next_epoch_and_makes_its_own_durable_first() -> None:
    node = core(ONE, TWO, THREE, state=HardState(4), log_end=LogEnd(4, 9))
    node.tick(0)
    node.tick(ELECTION_MS)
    ready = node.step(granted(2, 4, is_pre_vote=True))
    assert ready.role is Role.CANDIDATE
    assert ready.hard_state == HardState(5, voted_id=1, voted_directory_id=ONE.directory_id)
    assert requests(ready) == [VoteRequest(ONE, 5, LogEnd(4, 9), False, each) for each in (TWO, THREE)]


def test_who_would_not_be_elected_stays_in_its_epoch() -> None:
    node = core(ONE, TWO, THREE, state=HardState(4))
    node.tick(0)
    node.tick(ELECTION_MS)
    node.step(granted(2, 4, is_pre_vote=True, is_granted=False))
    assert node.step(granted(3, 4, is_pre_vote=True, is_granted=False)).role is Role.UNATTACHED
    assert node.epoch == 4


@pytest.mark.parametrize(("size", "needed"), [(2, 1), (3, 1), (4, 2), (5, 2)])
def test_a_majority_of_voters_elects(size: int, needed: int) -> None:
    voters = (ONE, TWO, THREE, FOUR, FIVE)[:size]
    candidate = candidate_of(*voters)
    for each in voters[1 : 1 + needed]:
        assert candidate.role is Role.CANDIDATE
        candidate.step(granted(each.id, candidate.epoch))
    assert candidate.role is Role.LEADER


def test_votes_of_strangers_refusals_repetitions_and_other_epochs_do_not_count() -> None:
    candidate = candidate_of(ONE, TWO, THREE, FOUR, FIVE)
    candidate.step(granted(9, 1))
    candidate.step(granted(2, 1, is_granted=False))
    candidate.step(granted(3, 0))
    candidate.step(granted(3, 1, is_pre_vote=True))
    candidate.step(granted(4, 1))
    candidate.step(granted(4, 1))
    assert candidate.role is Role.CANDIDATE
    assert candidate.step(granted(5, 1)).entries[0].payload == LeaderChange(1, (1, 2, 3, 4, 5), (1, 4, 5))


def test_a_candidate_that_has_lost_waits_a_while_and_asks_again_whether_it_would_win() -> None:
    candidate = candidate_of(ONE, TWO, THREE)
    candidate.step(granted(2, 1, is_granted=False))
    candidate.step(granted(3, 1, is_granted=False))
    assert candidate.role is Role.CANDIDATE
    deadline = candidate.deadline_ms
    assert deadline is not None
    assert candidate.tick(deadline).role is Role.PROSPECTIVE
    assert candidate.epoch == 1


def test_a_voter_that_could_not_be_asked_is_asked_again() -> None:
    candidate = candidate_of(ONE, TWO, THREE)
    request = VoteRequest(ONE, 1, LogEnd(0, 0), False, TWO)
    candidate.step(RequestFailed(2, request, is_unreachable=True))
    deadline = candidate.deadline_ms
    assert deadline is not None
    assert deadline < 5_000 + 100
    assert requests(candidate.tick(deadline)) == [request]


def test_a_voter_that_would_not_vote_yet_is_asked_again_whether_it_would() -> None:
    node = core(ONE, TWO, THREE, state=HardState(4))
    node.tick(0)
    node.tick(ELECTION_MS)
    node.step(granted(2, 4, is_pre_vote=True, is_granted=False))
    assert requests(node.tick(ELECTION_MS + 100)) == [VoteRequest(ONE, 4, LogEnd(0, 0), True, TWO)]
    assert node.step(granted(2, 4, is_pre_vote=True)).role is Role.CANDIDATE


def test_a_leader_that_starts_again_stands_soon_in_a_new_epoch() -> None:
    old = core(ONE, TWO, THREE, state=HardState(4, leader_id=1), log_end=LogEnd(4, 9))
    assert old.role is Role.RESIGNED
    old.tick(0)
    ready = old.tick(ELECTION_MS // 2)
    assert ready.role is Role.PROSPECTIVE
    assert ready.hard_state == HardState(5)


def test_a_voter_votes_once_in_an_epoch_and_makes_it_durable_first() -> None:
    asked = core(ONE, TWO, THREE)
    ready = asked.step(VoteRequest(TWO, 3, LogEnd(0, 0)))
    assert ready.hard_state == HardState(3, voted_id=2, voted_directory_id=TWO.directory_id)
    assert ready.reply == granted(1, 3)
    assert asked.step(VoteRequest(THREE, 3, LogEnd(0, 0))).reply == granted(1, 3, is_granted=False)
    again = asked.step(VoteRequest(TWO, 3, LogEnd(0, 0)))
    assert again.reply == granted(1, 3)
    assert again.hard_state is None


def test_a_vote_given_before_a_restart_is_remembered() -> None:
    voted = HardState(3, voted_id=2, voted_directory_id=TWO.directory_id)
    answer = core(ONE, TWO, THREE, state=voted).step(VoteRequest(THREE, 3, LogEnd(0, 0)))
    assert answer.reply == granted(1, 3, is_granted=False)


def test_a_voter_that_lost_its_state_votes_in_no_epoch_before_that_of_its_log() -> None:
    asked = core(ONE, TWO, THREE, log_end=LogEnd(7, 30))
    reply = asked.step(VoteRequest(TWO, 6, LogEnd(5, 99))).reply
    assert reply == VoteResponse(1, Head(Error.FENCED_LEADER_EPOCH, 7), is_granted=False)


def test_a_candidate_with_a_new_disk_does_not_get_the_vote_of_the_old_one() -> None:
    asked = core(ONE, TWO, THREE)
    asked.step(VoteRequest(TWO, 3, LogEnd(0, 0)))
    replaced = Voter(TWO.id, Uuid(b"x" * 16))
    assert asked.step(VoteRequest(replaced, 3, LogEnd(0, 0))).reply == granted(1, 3, is_granted=False)


def test_a_vote_that_is_asked_of_a_disk_that_is_gone_is_refused() -> None:
    asked = core(ONE, TWO, THREE)
    for meant in (Voter(1, Uuid(b"x" * 16)), TWO):
        reply = asked.step(VoteRequest(TWO, 3, LogEnd(0, 0), voter=meant)).reply
        assert reply == VoteResponse(1, Head(Error.INVALID_VOTER_KEY, 3), is_granted=False)
    assert asked.step(VoteRequest(TWO, 3, LogEnd(0, 0), voter=Voter(1, ZERO_UUID))).reply == granted(1, 3)


@pytest.mark.parametrize("behind", [LogEnd(4, 11), LogEnd(5, 9)])
@pytest.mark.parametrize("is_pre_vote", [False, True])
def test_nobody_votes_for_a_shorter_log(behind: LogEnd, is_pre_vote: bool) -> None:
    asked = core(ONE, TWO, THREE, log_end=LogEnd(5, 10))
    reply = asked.step(VoteRequest(TWO, 6, behind, is_pre_vote)).reply
    assert reply == granted(1, 6, is_pre_vote=is_pre_vote, is_granted=False)


def test_a_log_of_the_epoch_that_is_asked_for_is_no_candidates() -> None:
    reply = core(ONE, TWO, THREE).step(VoteRequest(TWO, 3, LogEnd(3, 9))).reply
    assert isinstance(reply, VoteResponse)
    assert reply.head.error is Error.INVALID_REQUEST
    assert core(ONE, TWO, THREE).step(VoteRequest(TWO, 3, LogEnd(3, 9), is_pre_vote=True)).reply == granted(
        1, 3, is_pre_vote=True
    )


def test_a_follower_that_its_leader_answers_supports_no_pre_vote() -> None:
    follower = follower_of(epoch=5)
    ask = VoteRequest(THREE, 5, LogEnd(5, 99), is_pre_vote=True)
    assert follower.step(ask).reply == VoteResponse(
        1, Head(Error.NONE, 5, 2, node_of(2).endpoints), is_granted=True, is_pre_vote=True
    )
    request = FetchRequest(ONE, 5, LogEnd(0, 0), 0)
    follower.step(FetchResponse(request, Head(Error.NONE, 5, 2)))
    reply = follower.step(ask).reply
    assert isinstance(reply, VoteResponse)
    assert not reply.is_granted


def test_a_leader_and_its_followers_give_no_vote_in_their_epoch() -> None:
    leader = leader_of(ONE, TWO, THREE)
    for is_pre_vote in (False, True):
        reply = leader.step(VoteRequest(TWO, leader.epoch, LogEnd(0, 99), is_pre_vote)).reply
        assert isinstance(reply, VoteResponse)
        assert not reply.is_granted
    reply = follower_of(epoch=5).step(VoteRequest(THREE, 5, LogEnd(4, 99))).reply
    assert isinstance(reply, VoteResponse)
    assert not reply.is_granted


def test_a_higher_epoch_ends_a_candidacy_and_a_leadership() -> None:
    candidate = candidate_of(ONE, TWO, THREE)
    refused = VoteResponse(2, Head(Error.FENCED_LEADER_EPOCH, 9), is_granted=False)
    assert candidate.step(refused).role is Role.UNATTACHED
    leader = leader_of(ONE, TWO, THREE)
    assert leader.step(BeginEpochRequest(2, leader.epoch + 1)).role is Role.FOLLOWER
    assert leader.leader_id == 2
    with pytest.raises(NotLeaderError):
        leader.step(Propose("late", 1))


def test_a_pre_vote_that_finds_a_leader_follows_it() -> None:
    node = core(ONE, TWO, THREE)
    node.tick(0)
    node.tick(ELECTION_MS)
    answer = VoteResponse(2, Head(Error.FENCED_LEADER_EPOCH, 7, 3, node_of(3).endpoints), False, True)
    ready = node.step(answer)
    assert ready.role is Role.FOLLOWER
    assert ready.hard_state == HardState(7, leader_id=3)
    assert ready.messages == (Outbound(3, node_of(3).endpoints, FetchRequest(ONE, 7, LogEnd(0, 0), 0)),)


# A leader and its voters


def test_a_leader_tells_every_voter_and_again_those_who_do_not_fetch() -> None:
    leader = candidate_of(ONE, TWO, THREE)
    ready = leader.step(granted(2, 1))
    begins = [BeginEpochRequest(1, 1, node_of(1).endpoints, each) for each in (TWO, THREE)]
    assert requests(ready) == begins
    leader.step(fetch(TWO, leader, 1), 5_900)
    assert requests(leader.tick(6_000)) == begins[1:]


def test_a_voter_that_learns_of_a_leader_fetches_from_it() -> None:
    node = core(ONE, TWO, THREE)
    node.tick(0)
    ready = node.step(BeginEpochRequest(2, 5, node_of(2, port=7).endpoints, ONE))
    assert ready.reply == BeginEpochResponse(1, Head(Error.NONE, 5, 2, node_of(2, port=7).endpoints))
    assert ready.hard_state == HardState(5, leader_id=2)
    assert ready.messages == (Outbound(2, node_of(2, port=7).endpoints, FetchRequest(ONE, 5, LogEnd(0, 0), 0)),)


def test_an_old_leader_is_told_of_the_new_epoch() -> None:
    follower = follower_of(leader_id=2, epoch=5)
    for request in (BeginEpochRequest(3, 4), EndEpochRequest(3, 4)):
        reply = follower.step(request).reply
        assert isinstance(reply, BeginEpochResponse | EndEpochResponse)
        assert reply.head == Head(Error.FENCED_LEADER_EPOCH, 5, 2, node_of(2).endpoints)
    assert follower.step(BeginEpochRequest(3, 5)).reply == BeginEpochResponse(
        1, Head(Error.INVALID_REQUEST, 5, 2, node_of(2).endpoints)
    )


def test_a_leader_that_stops_names_its_successors_by_how_far_they_are() -> None:
    leader = leader_of(ONE, TWO, THREE)
    leader.step(Propose("records", 5))
    leader.step(fetch(TWO, leader, 2))
    leader.step(fetch(THREE, leader, 4))
    ready = leader.step(Resign())
    assert ready.role is Role.RESIGNED
    end = EndEpochRequest(1, leader.epoch, (THREE, TWO), node_of(1).endpoints)
    assert requests(ready) == [end, end]


def test_the_first_successor_stands_at_once_and_the_others_later() -> None:
    first = follower_of(epoch=5)
    assert first.step(EndEpochRequest(2, 5, (ONE, THREE))).role is Role.PROSPECTIVE
    second = follower_of(epoch=5)
    assert second.step(EndEpochRequest(2, 5, (THREE, ONE))).role is None
    assert second.deadline_ms is not None
    assert 0 < second.deadline_ms <= 1_000


def test_a_follower_that_hears_nothing_stands_and_one_that_hears_does_not() -> None:
    follower = follower_of(epoch=5)
    follower.step(FetchResponse(FetchRequest(ONE, 5, LogEnd(0, 0), 0), Head(Error.NONE, 5, 2)), 1_500)
    assert follower.tick(1_500 + FETCH_MS - 1).role is None
    assert follower.tick(1_500 + FETCH_MS).role is Role.PROSPECTIVE
    assert follower.epoch == 5


def test_a_follower_whose_leader_takes_no_connections_does_not_wait_for_the_fetch_timeout() -> None:
    follower = follower_of(epoch=5)
    follower.step(RequestFailed(2, FetchRequest(ONE, 5, LogEnd(0, 0), 0), is_unreachable=True), 100)
    assert follower.tick(200).role is Role.PROSPECTIVE


@pytest.mark.parametrize(
    ("ends", "expected"),
    [([9], 9), ([9, 5], 5), ([9, 5, 7], 7), ([9, 5, 7, 6], 6), ([9, 5, 7, 6, 8], 7)],
)
def test_the_high_watermark_is_what_a_majority_has(ends: list[int], expected: int) -> None:
    voters = (ONE, TWO, THREE, FOUR, FIVE)[: len(ends)]
    for order in permutations(range(len(ends))):
        leader = leader_of(*voters)
        leader.step(Propose("records", 10))
        for index in order:
            if index == 0:
                leader.step(Flushed(ends[0]))
            else:
                leader.step(fetch(voters[index], leader, ends[index]))
        assert leader.high_watermark == expected


def test_records_of_earlier_epochs_are_committed_only_with_one_of_this_epoch() -> None:
    leader = leader_of(ONE, TWO, THREE, log_end=LogEnd(0, 20))
    leader.step(Flushed(21))
    assert leader.step(fetch(TWO, leader, 20, epoch=0)).high_watermark is None
    assert leader.step(fetch(TWO, leader, 21)).high_watermark == 21


def test_readers_learn_no_high_watermark_before_the_leaders_epoch_has_one() -> None:
    leader = leader_of(ONE, TWO, THREE)
    reply = leader.step(fetch(TWO, leader, 0, epoch=0)).reply
    assert isinstance(reply, FetchResponse)
    assert reply.high_watermark == -1
    leader.step(Flushed(1))
    reply = leader.step(fetch(TWO, leader, 1)).reply
    assert isinstance(reply, FetchResponse)
    assert reply.high_watermark == 1


def test_fetches_of_other_epochs_and_of_observers_move_nothing() -> None:
    leader = leader_of(ONE, TWO, THREE)
    leader.step(Flushed(1))
    old = FetchRequest(TWO, leader.epoch - 1, LogEnd(0, 1))
    for request, error in (
        (old, Error.FENCED_LEADER_EPOCH),
        (old._replace(epoch=leader.epoch + 1), Error.UNKNOWN_LEADER_EPOCH),
        (fetch(Voter(9, Uuid(b"9" * 16)), leader, 1), Error.NONE),
        (fetch(Voter(2, Uuid(b"x" * 16)), leader, 1), Error.NONE),
    ):
        ready = leader.step(request)
        assert ready.high_watermark is None
        assert isinstance(ready.reply, FetchResponse)
        assert ready.reply.head.error is error
    voters, observers = leader.describe(5_000)
    assert [status.replica for status in voters] == [ONE, TWO, THREE]
    assert [status.replica.id for status in observers] == [9, 2]


def test_who_does_not_lead_says_who_does() -> None:
    reply = follower_of(leader_id=2, epoch=5).step(FetchRequest(THREE, 5, LogEnd(0, 0))).reply
    assert isinstance(reply, FetchResponse)
    assert reply.head == Head(Error.NOT_LEADER_OR_FOLLOWER, 5, 2, node_of(2).endpoints)


def test_a_leader_that_a_majority_does_not_fetch_from_resigns() -> None:
    leader = leader_of(ONE, TWO, THREE)
    leader.step(fetch(TWO, leader, 1), 6_000)
    assert leader.tick(8_999).role is None
    assert leader.tick(9_000).role is Role.RESIGNED


def test_a_node_that_fetches_a_snapshot_is_alive() -> None:
    leader = leader_of(ONE, TWO, THREE)
    leader.step(FetchSnapshotRequest(TWO, leader.epoch, SnapshotId(3, 1), 0), 7_000)
    assert leader.tick(9_999).role is None
    assert leader.tick(10_000).role is Role.RESIGNED


def test_a_leader_knows_who_was_caught_up_when() -> None:
    leader = leader_of(ONE, TWO, THREE)
    leader.step(Propose("records", 4))
    leader.step(fetch(TWO, leader, 5), 6_000)
    leader.step(fetch(THREE, leader, 2), 6_100)
    leader.step(Propose("records", 1))
    leader.step(fetch(THREE, leader, 5), 6_200)
    voters, _ = leader.describe(7_000)
    assert [(status.end_offset, status.fetched_ms, status.caught_up_ms) for status in voters] == [
        (6, 7_000, 7_000),
        (5, 6_000, 6_000),
        (5, 6_200, 6_100),
    ]


def test_a_voter_that_moved_is_named_at_its_new_address_once_nothing_else_changes() -> None:
    leader = leader_of(ONE, TWO, THREE)
    moved = UpdateVoterRequest(TWO, leader.epoch, node_of(2, port=7).endpoints)
    reply = leader.step(moved).reply
    assert isinstance(reply, UpdateVoterResponse)
    assert reply.head.error is Error.REQUEST_TIMED_OUT
    leader.step(Flushed(1))
    leader.step(fetch(TWO, leader, 1))
    ready = leader.step(moved)
    assert ready.entries == (Entry(1, 1, 1, VotersChange((node_of(1), node_of(2, port=7), node_of(3)))),)
    assert leader.voters.endpoints_of(2) == node_of(2, port=7).endpoints
    stranger = leader.step(moved._replace(voter=Voter(2, Uuid(b"x" * 16)))).reply
    assert isinstance(stranger, UpdateVoterResponse)
    assert stranger.head.error is Error.REQUEST_TIMED_OUT
    leader.step(Flushed(2))
    leader.step(fetch(TWO, leader, 2))
    stranger = leader.step(moved._replace(voter=Voter(2, Uuid(b"x" * 16)))).reply
    assert isinstance(stranger, UpdateVoterResponse)
    assert stranger.head.error is Error.VOTER_NOT_FOUND


# A follower and its log


def test_the_next_fetch_leaves_when_everything_that_came_is_durable() -> None:
    follower = follower_of(epoch=5)
    request = FetchRequest(ONE, 5, LogEnd(0, 0), 0)
    batches = (FetchedBatch(0, 2, 4, "a"), FetchedBatch(2, 3, 5, "b"))
    ready = follower.step(FetchResponse(request, Head(Error.NONE, 5, 2), 2, batches=batches))
    assert ready.entries == (Entry(0, 4, 2, "a"), Entry(2, 5, 1, "b"))
    assert ready.messages == ()
    assert ready.high_watermark is None
    assert follower.step(Flushed(2)) == Ready(high_watermark=2)
    assert only_fetch(follower.step(Flushed(3))) == FetchRequest(ONE, 5, LogEnd(5, 3), 2)


def test_a_followers_high_watermark_is_never_beyond_its_log() -> None:
    follower = follower_of(epoch=5)
    request = FetchRequest(ONE, 5, LogEnd(0, 0), 0)
    follower.step(FetchResponse(request, Head(Error.NONE, 5, 2), 100, batches=(FetchedBatch(0, 2, 5, "a"),)))
    assert follower.step(Flushed(2)).high_watermark == 2


def test_a_batch_that_does_not_continue_the_log_is_dropped() -> None:
    for batch in (FetchedBatch(3, 4, 5, "gap"), FetchedBatch(0, 1, 6, "of an epoch to come")):
        follower = follower_of(epoch=5)
        request = FetchRequest(ONE, 5, LogEnd(0, 0), 0)
        ready = follower.step(FetchResponse(request, Head(Error.NONE, 5, 2), 0, batches=(batch,)))
        assert ready.entries == ()
        assert follower.log_end_offset == 0


def test_what_the_leader_does_not_have_is_truncated_and_fetched_again() -> None:
    follower = follower_of(epoch=5, log_end=LogEnd(3, 10))
    request = FetchRequest(ONE, 5, LogEnd(3, 10), 0)
    ready = follower.step(FetchResponse(request, Head(Error.NONE, 5, 2), divergence=LogEnd(3, 6)))
    assert ready.truncate_to == 6
    assert only_fetch(ready) == FetchRequest(ONE, 5, LogEnd(3, 6), 0)


def test_what_was_committed_is_not_truncated() -> None:
    follower = follower_of(epoch=5, log_end=LogEnd(3, 10), high_watermark=8)
    request = FetchRequest(ONE, 5, LogEnd(3, 10), 8)
    with pytest.raises(CommittedRecordsLostError, match="everything below 8 was committed"):
        follower.step(FetchResponse(request, Head(Error.NONE, 5, 2), divergence=LogEnd(3, 6)))


def test_voters_count_as_soon_as_they_are_appended_and_are_forgotten_with_a_truncated_log() -> None:
    follower = follower_of(epoch=5, named_at=BEFORE_LOG)
    request = FetchRequest(ONE, 5, LogEnd(0, 0), 0)
    nodes = (node_of(1), node_of(2), node_of(4))
    follower.step(FetchResponse(request, Head(Error.NONE, 5, 2), 0, batches=(FetchedBatch(0, 3, 5, "a", 1, nodes),)))
    assert follower.voters.ids == (1, 2, 4)
    again = only_fetch(follower.step(Flushed(3)))
    follower.step(FetchResponse(again, Head(Error.NONE, 5, 2), divergence=LogEnd(0, 0)))
    assert follower.voters.ids == (1, 2, 3)


def test_a_snapshot_is_fetched_piece_by_piece_and_takes_the_place_of_the_log() -> None:
    follower = follower_of(epoch=5, log_end=LogEnd(2, 4))
    snapshot = SnapshotId(50, 4)
    ready = follower.step(
        FetchResponse(FetchRequest(ONE, 5, LogEnd(2, 4), 0), Head(Error.NONE, 5, 2), snapshot=snapshot)
    )
    asked = FetchSnapshotRequest(ONE, 5, snapshot, 0)
    assert requests(ready) == [asked]
    ready = follower.step(FetchSnapshotResponse(asked, Head(Error.NONE, 5, 2), 6, b"head"))
    assert ready.snapshot_part == SnapshotPart(snapshot, 0, b"head", is_last=False)
    asked = FetchSnapshotRequest(ONE, 5, snapshot, 4)
    assert requests(ready) == [asked]
    ready = follower.step(FetchSnapshotResponse(asked, Head(Error.NONE, 5, 2), 6, b"er"))
    assert ready.snapshot_part == SnapshotPart(snapshot, 4, b"er", is_last=True)
    assert ready.messages == ()
    ready = follower.step(SnapshotLoaded(snapshot, 1, (node_of(1), node_of(2))))
    assert ready.high_watermark == 50
    assert only_fetch(ready) == FetchRequest(ONE, 5, LogEnd(4, 50), 50)
    assert follower.voters.ids == (1, 2)


def test_a_snapshot_that_the_leader_no_longer_has_is_asked_for_no_more() -> None:
    follower = follower_of(epoch=5)
    snapshot = SnapshotId(50, 4)
    follower.step(FetchResponse(FetchRequest(ONE, 5, LogEnd(0, 0), 0), Head(Error.NONE, 5, 2), snapshot=snapshot))
    asked = FetchSnapshotRequest(ONE, 5, snapshot, 0)
    ready = follower.step(FetchSnapshotResponse(asked, Head(Error.SNAPSHOT_NOT_FOUND, 5, 2)))
    assert only_fetch(ready) == FetchRequest(ONE, 5, LogEnd(0, 0), 0)


def test_an_answer_to_a_request_of_an_earlier_epoch_changes_nothing() -> None:
    follower = follower_of(epoch=5)
    old = FetchRequest(ONE, 5, LogEnd(0, 0), 0)
    follower.step(BeginEpochRequest(3, 6))
    ready = follower.step(FetchResponse(old, Head(Error.NONE, 5, 2), 9, batches=(FetchedBatch(0, 2, 5, "a"),)))
    assert ready == Ready()


def test_a_follower_that_moved_tells_its_leader_once_it_knows_the_newest_voters() -> None:
    nodes = VoterSet([VoterNode(1, ONE.directory_id, node_of(1, port=1).endpoints), node_of(2)])
    log = ReplicaLog(LogHistory(LogEnd(0, 0)), VoterHistory(1, nodes, 0))
    moved = RaftCore(ONE, HardState(), log, endpoints=node_of(1, port=2).endpoints)
    moved.tick(0)
    moved.step(BeginEpochRequest(2, 5))
    ready = moved.step(FetchResponse(FetchRequest(ONE, 5, LogEnd(0, 0), 0), Head(Error.NONE, 5, 2), 0))
    assert requests(ready)[0] == UpdateVoterRequest(ONE, 5, node_of(1, port=2).endpoints)


# Observers


def test_an_observer_asks_around_and_never_stands() -> None:
    observer = core(ONE, TWO, local=FIVE)
    asked = only_fetch(observer.tick(0))
    assert asked == FetchRequest(FIVE, 0, LogEnd(0, 0), 0)
    observer.step(RequestFailed(NO_NODE, asked, is_unreachable=True))
    for now_ms in (100_000, 200_000):
        assert observer.tick(now_ms).role is None


def test_an_observer_follows_whom_it_is_told_to_and_asks_others_when_that_one_is_gone() -> None:
    observer = core(ONE, TWO, local=FIVE)
    asked = only_fetch(observer.tick(0))
    told = Head(Error.FENCED_LEADER_EPOCH, 7, 2, node_of(2).endpoints)
    observer.step(FetchResponse(asked, told))
    ready = observer.tick(50)
    assert ready.messages == (Outbound(2, node_of(2).endpoints, FetchRequest(FIVE, 7, LogEnd(0, 0), 0)),)
    observer.step(RequestFailed(2, only_fetch(ready), is_unreachable=True))
    (outbound,) = observer.tick(100).messages
    assert outbound.to == NO_NODE


def test_an_observer_that_asks_the_leader_itself_takes_its_answer() -> None:
    observer = core(ONE, TWO, local=FIVE, state=HardState(7))
    asked = only_fetch(observer.tick(0))
    answer = FetchResponse(
        asked, Head(Error.NONE, 7, 2, node_of(2).endpoints), 2, batches=(FetchedBatch(0, 2, 7, "a"),)
    )
    ready = observer.step(answer)
    assert ready.role is Role.FOLLOWER
    assert ready.entries == (Entry(0, 7, 2, "a"),)


def test_a_voter_id_with_another_directory_is_an_observer() -> None:
    replaced = core(ONE, TWO, THREE, local=Voter(1, Uuid(b"x" * 16)))
    assert not replaced.is_voter
    replaced.tick(0)
    assert replaced.tick(100_000).role is None
