"""The rules of the quorum, message by message."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.uuids import Uuid
from barnabas.raft.core import (
    AppendFailed,
    Entry,
    FetchSeen,
    Flushed,
    HardState,
    LeaderChange,
    LeaderSeen,
    LogEnd,
    NotLeaderError,
    Propose,
    RaftCore,
    Ready,
    Resign,
    Role,
    Voter,
    VoteRequest,
    VoteResponse,
)

ONE, TWO, THREE, FOUR, FIVE = (Voter(number, Uuid(bytes([number]) * 16)) for number in range(1, 6))


def core(
    *voters: Voter, state: HardState | None = None, log_end: LogEnd | None = None, names_voters: bool = False
) -> RaftCore:
    return RaftCore(
        ONE,
        voters or (ONE,),
        state or HardState(),
        log_end or LogEnd(0, 0),
        is_voters_record_due=names_voters,
    )


def leader_of(*voters: Voter, log_end: LogEnd | None = None) -> RaftCore:
    """A core that a majority of `voters` has elected."""
    leader = core(*voters, log_end=log_end)
    leader.tick(0)
    leader.tick(10_000)
    for voter in voters:
        leader.step(VoteResponse(voter.id, leader.epoch, is_granted=True))
    assert leader.role is Role.LEADER
    return leader


def test_a_sole_voter_leads_at_its_first_tick() -> None:
    ready = core().tick(0)
    change = LeaderChange(1, (1,), (1,), names_voters=False)
    assert ready == Ready(HardState(1, leader_id=1), (Entry(0, 1, 1, change),), (), None, Role.LEADER)


def test_every_start_begins_a_new_epoch_after_the_last() -> None:
    ready = core(state=HardState(7, leader_id=1), log_end=LogEnd(7, 30)).tick(0)
    assert ready.hard_state == HardState(8, leader_id=1)
    assert [(entry.base_offset, entry.epoch) for entry in ready.entries] == [(30, 8)]


def test_an_epoch_follows_that_of_the_last_record_where_the_state_is_lost_or_old() -> None:
    for state in (HardState(), HardState(5, leader_id=2, voted_id=2)):
        ready = core(state=state, log_end=LogEnd(7, 30)).tick(0)
        assert ready.hard_state == HardState(8, leader_id=1)
        assert [(entry.base_offset, entry.epoch) for entry in ready.entries] == [(30, 8)]


def test_a_voter_that_lost_its_state_votes_in_no_epoch_before_that_of_its_log() -> None:
    voter = core(ONE, TWO, THREE, log_end=LogEnd(7, 30))
    (answer,) = voter.step(VoteRequest(TWO, 6, LogEnd(9, 99))).messages
    assert answer.message == VoteResponse(1, 7, is_granted=False)


def test_voters_that_the_log_does_not_name_yet_are_named_when_an_epoch_begins() -> None:
    ready = core(names_voters=True).tick(0)
    assert ready.entries == (Entry(0, 1, 3, LeaderChange(1, (1,), (1,), names_voters=True)),)


def test_voters_are_named_again_until_a_leader_has_them_in_its_log_for_good() -> None:
    leader = core(names_voters=True)
    leader.tick(0)
    leader.step(AppendFailed(LogEnd(0, 0)))
    (entry,) = leader.tick(5000).entries
    assert entry == Entry(0, 2, 3, LeaderChange(1, (1,), (1,), names_voters=True))
    leader.step(Flushed(3))
    leader.step(Resign())
    (entry,) = leader.tick(10_000).entries
    assert entry == Entry(3, 3, 1, LeaderChange(1, (1,), (1,), names_voters=False))


def test_a_node_that_is_no_voter_never_campaigns() -> None:
    observer = RaftCore(FIVE, [ONE, TWO], HardState(), LogEnd(0, 0))
    assert observer.tick(0) == Ready()
    assert observer.tick(100_000) == Ready()


def test_the_high_watermark_of_one_voter_is_what_it_has_flushed() -> None:
    leader = core()
    leader.tick(0)
    (entry,) = leader.step(Propose("topic", 3)).entries
    assert entry == Entry(1, 1, 3, "topic")
    assert leader.high_watermark == 0
    assert leader.step(Flushed(1)).high_watermark == 1
    assert leader.step(Flushed(4)).high_watermark == 4
    assert leader.step(Flushed(4)).high_watermark is None


def test_with_peers_an_election_waits_for_its_timeout_and_asks_every_other_voter() -> None:
    candidate = core(ONE, TWO, THREE, state=HardState(4), log_end=LogEnd(4, 9))
    assert candidate.tick(0) == Ready()
    assert candidate.tick(999) == Ready()
    ready = candidate.tick(1000)
    assert ready.hard_state == HardState(5, voted_id=1, voted_directory_id=ONE.directory_id)
    request = VoteRequest(ONE, 5, LogEnd(4, 9))
    assert [(out.to, out.message) for out in ready.messages] == [(2, request), (3, request)]
    assert ready.role is Role.CANDIDATE


@pytest.mark.parametrize(("size", "needed"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)])
def test_a_majority_of_voters_elects(size: int, needed: int) -> None:
    voters = (ONE, TWO, THREE, FOUR, FIVE)[:size]
    candidate = core(*voters)
    candidate.tick(0)
    candidate.tick(1000)
    for voter in voters[1 : 1 + needed]:
        assert candidate.role is Role.CANDIDATE
        candidate.step(VoteResponse(voter.id, candidate.epoch, is_granted=True))
    assert candidate.role is Role.LEADER


def test_votes_of_strangers_refusals_repetitions_and_other_epochs_do_not_count() -> None:
    candidate = core(ONE, TWO, THREE, FOUR, FIVE)
    candidate.tick(0)
    candidate.tick(1000)
    candidate.step(VoteResponse(9, 1, is_granted=True))
    candidate.step(VoteResponse(2, 1, is_granted=False))
    candidate.step(VoteResponse(3, 0, is_granted=True))
    candidate.step(VoteResponse(4, 1, is_granted=True))
    candidate.step(VoteResponse(4, 1, is_granted=True))
    assert candidate.role is Role.CANDIDATE
    assert candidate.step(VoteResponse(5, 1, is_granted=True)).entries[0].payload == LeaderChange(
        1, (1, 2, 3, 4, 5), (1, 4, 5), names_voters=False
    )


def test_a_voter_votes_once_in_an_epoch_and_makes_it_durable_first() -> None:
    voter = core(ONE, TWO, THREE)
    ready = voter.step(VoteRequest(TWO, 3, LogEnd(0, 0)))
    assert ready.hard_state == HardState(3, voted_id=2, voted_directory_id=TWO.directory_id)
    assert ready.messages[0].message == VoteResponse(1, 3, is_granted=True)
    assert voter.step(VoteRequest(THREE, 3, LogEnd(0, 0))).messages[0].message == VoteResponse(1, 3, is_granted=False)
    again = voter.step(VoteRequest(TWO, 3, LogEnd(0, 0)))
    assert again.messages[0].message == VoteResponse(1, 3, is_granted=True)
    assert again.hard_state is None


def test_a_vote_given_before_a_restart_is_remembered() -> None:
    voted = HardState(3, voted_id=2, voted_directory_id=TWO.directory_id)
    answer = core(ONE, TWO, THREE, state=voted).step(VoteRequest(THREE, 3, LogEnd(0, 0)))
    assert answer.messages[0].message == VoteResponse(1, 3, is_granted=False)


def test_a_candidate_with_a_new_disk_does_not_get_the_vote_of_the_old_one() -> None:
    voter = core(ONE, TWO, THREE)
    voter.step(VoteRequest(TWO, 3, LogEnd(0, 0)))
    replaced = Voter(TWO.id, Uuid(b"x" * 16))
    assert voter.step(VoteRequest(replaced, 3, LogEnd(0, 0))).messages[0].message == VoteResponse(
        1, 3, is_granted=False
    )


@pytest.mark.parametrize("behind", [LogEnd(4, 11), LogEnd(5, 9)])
def test_nobody_votes_for_a_shorter_log(behind: LogEnd) -> None:
    voter = core(ONE, TWO, THREE, log_end=LogEnd(5, 10))
    assert voter.step(VoteRequest(TWO, 6, behind)).messages[0].message == VoteResponse(1, 6, is_granted=False)


def test_a_higher_epoch_ends_a_candidacy_and_a_leadership() -> None:
    candidate = core(ONE, TWO, THREE)
    candidate.tick(0)
    candidate.tick(1000)
    assert candidate.step(VoteResponse(2, 9, is_granted=False)).role is Role.UNATTACHED
    leader = leader_of(ONE, TWO, THREE)
    assert leader.step(LeaderSeen(2, leader.epoch + 1)).role is Role.FOLLOWER
    assert leader.leader_id == 2
    with pytest.raises(NotLeaderError):
        leader.step(Propose("late", 1))


def test_a_follower_that_hears_nothing_campaigns_and_one_that_hears_does_not() -> None:
    follower = core(ONE, TWO, THREE)
    follower.tick(0)
    follower.step(LeaderSeen(2, 5))
    follower.tick(1500)
    follower.step(LeaderSeen(2, 5))
    assert follower.tick(3400).role is None
    assert follower.tick(3500).role is Role.CANDIDATE
    assert follower.epoch == 6


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
                leader.step(FetchSeen(voters[index].id, leader.epoch, ends[index]))
        assert leader.high_watermark == expected


def test_records_of_earlier_epochs_are_committed_only_with_one_of_this_epoch() -> None:
    leader = leader_of(ONE, TWO, THREE, log_end=LogEnd(0, 20))
    leader.step(Flushed(21))
    assert leader.step(FetchSeen(2, leader.epoch, 20)).high_watermark is None
    assert leader.step(FetchSeen(2, leader.epoch, 21)).high_watermark == 21


def test_fetches_of_other_epochs_and_of_strangers_move_nothing() -> None:
    leader = leader_of(ONE, TWO, THREE)
    leader.step(Flushed(1))
    assert leader.step(FetchSeen(2, leader.epoch - 1, 1)) == Ready()
    assert leader.step(FetchSeen(9, leader.epoch, 1)) == Ready()


def test_a_leader_that_a_majority_does_not_fetch_from_resigns() -> None:
    leader = leader_of(ONE, TWO, THREE)
    leader.tick(11_000)
    leader.step(FetchSeen(2, leader.epoch, 1))
    assert leader.tick(13_900).role is None
    assert leader.tick(14_000).role is Role.RESIGNED


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


class Network:
    """Five cores and the messages between them, delivered, dropped and delayed as a test says."""

    def __init__(self) -> None:
        voters = (ONE, TWO, THREE, FOUR, FIVE)
        self.cores = {voter.id: self.make_core(voter, voters) for voter in voters}
        self.in_flight: list[tuple[int, object]] = []
        self.leaders: dict[int, int] = {}
        self.now_ms = 0
        for node in self.cores.values():
            self.take(node, node.tick(0))

    @staticmethod
    def make_core(voter: Voter, voters: tuple[Voter, ...]) -> RaftCore:
        return RaftCore(voter, voters, HardState(), LogEnd(0, 0), jitter=lambda _: voter.id * 7)

    def take(self, node: RaftCore, ready: Ready) -> None:
        self.in_flight += [(out.to, out.message) for out in ready.messages]
        if ready.role is Role.LEADER:
            assert self.leaders.setdefault(node.epoch, id(node)) == id(node), "two leaders in one epoch"


@given(st.lists(st.tuples(st.sampled_from(["tick", "deliver", "drop"]), st.integers(0, 50)), max_size=200))
@settings(max_examples=60, deadline=None)
def test_an_epoch_never_has_two_leaders_whatever_the_network_does(steps: list[tuple[str, int]]) -> None:
    network = Network()
    for action, number in steps:
        if action == "tick":
            network.now_ms += 200
            node = network.cores[number % 5 + 1]
            network.take(node, node.tick(network.now_ms))
        elif network.in_flight:
            to, message = network.in_flight.pop(number % len(network.in_flight))
            if action == "deliver":
                network.take(network.cores[to], network.cores[to].step(message))  # type: ignore[arg-type]
