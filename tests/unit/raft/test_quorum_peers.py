"""What other nodes of the quorum answer, and what a node makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.net.dispatch import Route
from barnabas.net.peer import PeerEnvironment
from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import Uuid
from barnabas.raft.consensus.log_history import LogEnd
from barnabas.raft.consensus.messages import Outbound, VoteRequest, VoteResponse
from barnabas.raft.consensus.voter_sets import Voter, VoterEndpoint
from barnabas.raft.driver import RequestError
from barnabas.raft.wire.quorum_peers import PeerOptions, QuorumPeers
from barnabas.testing.event_loop import Scheduler
from barnabas.testing.network import SimulatedNetwork
from barnabas.testing.randomness import SeededRandom
from tests.unit.net.serving import Served

if TYPE_CHECKING:
    from barnabas.net.dispatch import Caller

PORT = 9093
UNKNOWN_CODE = 30_001
OTHER = Voter(2, Uuid(b"2" * 16))
VOTE = VoteRequest(Voter(1, Uuid(b"1" * 16)), 5, LogEnd(0, 0), voter=OTHER)


def answer_to_a_vote(answer: m.VoteResponse) -> VoteResponse:
    """How a node understands this answer of another one to its vote."""
    scheduler = Scheduler()
    network = SimulatedNetwork(scheduler, 1)
    here, there = scheduler.new_loop("here"), scheduler.new_loop("there")
    served = Served(there, network.host("there"), "there", PORT)

    def vote(_served: Served, _request: m.VoteRequest, _caller: Caller) -> m.VoteResponse:
        return answer

    newest = APIS[ApiKey.VOTE].max_version
    served.routes[ApiKey.VOTE] = Route(ApiKey.VOTE, (0, newest), vote, None).served_by(served)

    async def scenario() -> VoteResponse:
        environment = PeerEnvironment.of(here, network.host("here"), SeededRandom(1))
        peers = QuorumPeers(PeerOptions("cluster", "CONTROLLER"), environment, local_id=1)
        try:
            response = await peers.ask(Outbound(OTHER.id, (VoterEndpoint("CONTROLLER", "there", PORT),), VOTE))
        finally:
            await peers.close()
        assert isinstance(response, VoteResponse)
        return response

    return here.run(scenario(), limit_s=60)


def test_an_answer_with_an_unknown_error_code_is_a_refusal() -> None:
    with pytest.raises(RequestError, match="node 2 at there:9093 refused VoteRequest: UNKNOWN_SERVER_ERROR"):
        answer_to_a_vote(m.VoteResponse(error_code=UNKNOWN_CODE))


def test_an_unknown_error_code_of_the_partition_is_an_unknown_error() -> None:
    partition = m.VoteResponse.PartitionData(partition_index=0, error_code=UNKNOWN_CODE, leader_id=-1, leader_epoch=5)
    topic = m.VoteResponse.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    response = answer_to_a_vote(m.VoteResponse(topics=[topic]))
    assert response.head.error is Error.UNKNOWN_SERVER_ERROR
    assert not response.is_granted
