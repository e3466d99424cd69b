"""How a voter comes to stand for election, and how it votes.

An election begins with a pre-vote: the epoch stays as it is until a majority says that it would vote for this node, so
that a node that cannot win does not disturb the others. The leader of the new epoch tells all voters
(BeginQuorumEpoch), and one that resigns tells them which should succeed it (EndQuorumEpoch).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import Error
from barnabas.raft.consensus import leading
from barnabas.raft.consensus.election import Election, backoff_ms, succession_ms
from barnabas.raft.consensus.messages import (
    NO_NODE,
    BeginEpochRequest,
    BeginEpochResponse,
    EndEpochRequest,
    EndEpochResponse,
    HardState,
    Role,
    VoteRequest,
    VoteResponse,
)
from barnabas.raft.consensus.node_state import LOST_LEADER_MS

if TYPE_CHECKING:
    from barnabas.raft.consensus.node_state import NodeState
    from barnabas.raft.consensus.voter_sets import VoterEndpoint, VoterNode

START_FRACTION = 4
"""A node that starts waits for this fraction of an election timeout only: with pre-votes it disturbs nobody."""


def begin(this: NodeState) -> None:
    if this.is_sole_voter():
        _stand(this)
    elif this.role is Role.FOLLOWER:
        this.follow_further()
    elif this.is_voter:
        this.deadline_ms = this.now_ms + this.jitter(max(1, this.timeouts.election_ms // START_FRACTION))
    else:
        this.set_election_deadline()


def time_is_up(this: NodeState) -> None:
    """Nothing has happened within the time that this role has."""
    if not this.is_voter:
        if this.role is Role.RESIGNED:
            this.become_unattached(this.epoch + 1)
        this.fetching.is_leader_doubtful = True
        this.set_election_deadline()
    elif this.is_sole_voter():
        _stand(this)
    elif this.role is Role.PROSPECTIVE:
        _return_from_pre_vote(this)
    elif this.role is Role.RESIGNED:
        # So that nobody takes this node for the leader that it was.
        this.persist(HardState(this.epoch + 1))
        _become_prospective(this)
    else:
        _become_prospective(this)


def _become_prospective(this: NodeState) -> None:
    this.become(Role.PROSPECTIVE)
    _ask_for_votes(this)


def _return_from_pre_vote(this: NodeState) -> None:
    """This node would not be elected now: it goes back to whom it followed, or waits."""
    if this.leader_id not in (NO_NODE, this.local.id) and this.leader_endpoints:
        this.follow_further()
    else:
        this.become(Role.UNATTACHED)
        this.set_election_deadline()


def _stand(this: NodeState) -> None:
    this.persist(HardState(this.epoch + 1, NO_NODE, this.local.id, this.local.directory_id))
    this.leader_endpoints = ()
    this.become(Role.CANDIDATE)
    _ask_for_votes(this)


def _ask_for_votes(this: NodeState) -> None:
    this.election = Election(this.voters, this.local.id)
    this.set_election_deadline()
    for node in this.voters:
        send_vote_request(this, node)
    _count_votes(this)


def send_vote_request(this: NodeState, node: VoterNode) -> None:
    if node.id != this.local.id:
        is_pre_vote = this.role is Role.PROSPECTIVE
        request = VoteRequest(this.local, this.epoch, this.log.end, is_pre_vote, node.key)
        this.send(node.id, node.endpoints, request)


def vote_requested(this: NodeState, request: VoteRequest) -> VoteResponse:
    is_granted, error = False, Error.NONE
    last_possible_epoch = request.epoch if request.is_pre_vote else request.epoch - 1
    if not 0 <= request.log_end.epoch <= last_possible_epoch or request.log_end.offset < 0:
        error = Error.INVALID_REQUEST
    elif request.epoch < this.epoch:
        error = Error.FENCED_LEADER_EPOCH
    else:
        if request.epoch > this.epoch:
            this.become_unattached(request.epoch)
        if not this.is_meant(request.voter):
            error = Error.INVALID_VOTER_KEY
        else:
            is_granted = _may_grant(this, request)
    if is_granted and not request.is_pre_vote and this.hard_state.voted_id == NO_NODE:
        candidate = request.candidate
        this.persist(this.hard_state._replace(voted_id=candidate.id, voted_directory_id=candidate.directory_id))
        this.become(Role.UNATTACHED)
        this.set_election_deadline()
    return VoteResponse(this.local.id, this.head(error), is_granted, request.is_pre_vote)


def _may_grant(this: NodeState, request: VoteRequest) -> bool:
    is_up_to_date = request.log_end >= this.log.end
    if request.is_pre_vote:
        has_leader = this.role is Role.LEADER or (this.role is Role.FOLLOWER and this.fetching.has_fetched)
        return is_up_to_date and not has_leader
    if this.role not in (Role.UNATTACHED, Role.PROSPECTIVE):
        return False
    state = this.hard_state
    if state.voted_id != NO_NODE:
        return (state.voted_id, state.voted_directory_id) == request.candidate
    return is_up_to_date and this.leader_id == NO_NODE


def vote_answered(this: NodeState, response: VoteResponse) -> None:
    election = this.election
    is_about_this = response.is_pre_vote is (this.role is Role.PROSPECTIVE) and response.head.epoch == this.epoch
    if this.learn(response.head) or election is None or election is not this.election or not is_about_this:
        return
    this.to_resend.pop(response.voter_id, None)
    if not election.is_lost:
        election.record(response.voter_id, is_granted=response.is_granted)
        _count_votes(this)
    if this.election is election and this.role is Role.PROSPECTIVE and not response.is_granted:
        # It may not have noticed yet that the leader is gone, and asking costs nobody anything.
        this.to_resend[response.voter_id] = this.now_ms + LOST_LEADER_MS


def _count_votes(this: NodeState) -> None:
    election = this.election
    assert election is not None
    if election.is_won:
        if this.role is Role.PROSPECTIVE:
            _stand(this)
        else:
            leading.lead(this, tuple(sorted(election.granted)))
    elif election.is_lost:
        if this.role is Role.PROSPECTIVE:
            _return_from_pre_vote(this)
        else:
            this.to_resend.clear()
            this.lost_elections += 1
            longest_ms = this.timeouts.election_backoff_max_ms
            this.deadline_ms = this.now_ms + backoff_ms(this.lost_elections, longest_ms, this.jitter)


def begin_requested(this: NodeState, request: BeginEpochRequest) -> BeginEpochResponse:
    error = _announced(this, request.leader_id, request.epoch, request.endpoints)
    if error is Error.NONE and not this.is_meant(request.voter):
        error = Error.INVALID_VOTER_KEY
    elif error is Error.NONE and this.role is Role.PROSPECTIVE:
        this.follow_further()
    return BeginEpochResponse(this.local.id, this.head(error))


def end_requested(this: NodeState, request: EndEpochRequest) -> EndEpochResponse:
    error = _announced(this, request.leader_id, request.epoch, request.endpoints)
    if error is Error.NONE and this.role is Role.FOLLOWER and this.leader_id == request.leader_id:
        this.fetching.has_fetched = False
        longest_ms = this.timeouts.election_backoff_max_ms
        this.deadline_ms = this.now_ms + succession_ms(request.successors, this.local, longest_ms)
        if this.is_voter and this.deadline_ms <= this.now_ms:
            _become_prospective(this)
    return EndEpochResponse(this.local.id, this.head(error))


def _announced(this: NodeState, leader_id: int, epoch: int, endpoints: tuple[VoterEndpoint, ...]) -> Error:
    """Somebody says that it leads, or led."""
    if epoch < this.epoch:
        return Error.FENCED_LEADER_EPOCH
    is_contradiction = epoch == this.epoch and this.leader_id not in (NO_NODE, leader_id)
    if leader_id < 0 or leader_id == this.local.id or is_contradiction:
        return Error.INVALID_REQUEST
    this.hear_of(leader_id, epoch, endpoints)
    return Error.NONE
