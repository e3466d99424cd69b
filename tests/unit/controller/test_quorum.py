"""Quorums of three and five controllers: leaders come and go, and what was committed stays."""

from __future__ import annotations

import errno
import logging
import random
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.net.frames import WireError
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import METADATA_TOPIC_ID, ZERO_UUID
from barnabas.raft.folder.metadata_log import MetadataLogLimits, metadata_folder
from barnabas.raft.folder.snapshots import list_snapshots
from barnabas.raft.quorum_client import ForeignClusterError
from tests.unit.controller.cluster import CLUSTER_ID
from tests.unit.controller.quorums import FOLDER, Quorum, QuorumNode, directory, registration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.raft.consensus.voter_sets import VoterSet

OFTEN = MetadataLogLimits(idle_interval_ms=3_600_000, snapshot_bytes=1, retention_bytes=1)
"""A snapshot after every record, and nothing kept before it."""


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    yield
    Quorum.bury()


@pytest.mark.parametrize("voters", [2, 3, 5])
@pytest.mark.parametrize("kraft_version", [0, 1])
def test_voters_elect_a_leader_soon_and_everybody_sees_what_it_decides(voters: int, kraft_version: int) -> None:
    quorum = Quorum(voters=voters, kraft_version=kraft_version)
    quorum.start()
    active = quorum.active
    assert quorum.scheduler.now < 2
    assert active.register(100) == Error.NONE
    quorum.agree_on(100)
    for node in quorum.others():
        assert node.register(101) == Error.NOT_CONTROLLER
    quorum.check()


def test_every_controller_is_registered_whoever_leads() -> None:
    quorum = Quorum()
    quorum.start()
    quorum.until(lambda: all(set(node.image.controllers) == {1, 2, 3} for node in quorum.nodes.values()))
    for number, record in quorum.active.image.controllers.items():
        assert [(each.host, each.port) for each in record.end_points] == [(f"c{number}", 9093)]


def test_a_leader_that_is_killed_is_replaced_and_what_it_decided_stays() -> None:
    quorum = Quorum(voters=3)
    quorum.start()
    for broker_id in (100, 101, 102):
        active = quorum.active
        assert active.register(broker_id) == Error.NONE
        active.kill()
        killed_at = quorum.scheduler.now
        assert quorum.active is not active
        assert quorum.scheduler.now - killed_at < 1.0
        active.launch()
        quorum.until(lambda node=active: node.is_running)  # type: ignore[misc]
    quorum.agree_on(100, 101, 102)
    quorum.check()


def unfenced(node: QuorumNode, broker_id: int) -> None:
    """Registers a broker with the controller, and has it say that it is alive."""
    registered = node.ask(registration(broker_id))
    assert registered.error_code == Error.NONE
    heartbeat = m.BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=registered.broker_epoch,
        current_metadata_offset=registered.broker_epoch,
        want_fence=False,
    )
    assert not node.ask(heartbeat).is_fenced


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_a_controller_among_several_does_not_take_the_broker_of_its_own_node_for_gone(kraft_version: int) -> None:
    """A sole voter would: nobody else can have heard of a later incarnation, and it holds the folder's lock."""
    quorum = Quorum(voters=3, kraft_version=kraft_version)
    quorum.start()
    for number in quorum.nodes:
        unfenced(quorum.active, number)
    for node in quorum.nodes.values():
        node.kill()
    quorum.start()
    active = quorum.active
    led_since = quorum.scheduler.now
    while (answer := active.ask(registration(active.number, incarnation=2)).error_code) != Error.NONE:
        assert answer == Error.DUPLICATE_BROKER_REGISTRATION
        quorum.run_for(0.25)
    assert quorum.scheduler.now - led_since > 8, "the session of the old one takes nine seconds"
    quorum.check()


def test_a_sole_voter_takes_the_broker_of_its_own_node_for_gone_and_no_other() -> None:
    quorum = Quorum(voters=1)
    quorum.start()
    for number in (1, 2):
        unfenced(quorum.active, number)
    quorum.active.kill()
    quorum.start()
    assert quorum.active.ask(registration(2, incarnation=2)).error_code == Error.DUPLICATE_BROKER_REGISTRATION
    assert quorum.active.ask(registration(1, incarnation=2)).error_code == Error.NONE


def test_a_leader_that_stops_cleanly_hands_over_at_once() -> None:
    quorum = Quorum(voters=3)
    quorum.start()
    active = quorum.active
    active.register(100)
    active.stop()
    stopped_at = quorum.scheduler.now
    assert quorum.active is not active
    assert quorum.scheduler.now - stopped_at < 0.5
    quorum.agree_on(100)


def test_a_leader_without_a_majority_commits_nothing_and_drops_back_to_what_is_committed() -> None:
    quorum = Quorum(voters=3)
    quorum.start()
    old = quorum.active
    old.register(100)
    quorum.agree_on(100)
    quorum.network.isolate(old.name)
    lost = old.outside.create_task(old.node.ask(registration(101)))  # type: ignore[union-attr]
    quorum.run_for(0.5)
    assert set(old.image.brokers) == {100}
    quorum.until(lambda: any(node.is_active for node in quorum.nodes.values() if node is not old))
    new = quorum.active
    assert new is not old
    assert new.register(102) == Error.NONE
    quorum.until(lost.done)
    assert lost.result().response.error_code == Error.NOT_CONTROLLER
    quorum.network.heal_all()
    quorum.agree_on(100, 102)
    quorum.check()


def test_all_nodes_killed_at_once_come_back_with_everything_committed() -> None:
    quorum = Quorum(voters=5)
    quorum.start()
    for broker_id in (100, 101, 102):
        assert quorum.active.register(broker_id) == Error.NONE
    for node in quorum.nodes.values():
        node.kill()
    quorum.start()
    quorum.agree_on(100, 101, 102)
    assert quorum.active.register(103) == Error.NONE
    quorum.check()


def test_a_node_alone_shows_nothing_that_it_does_not_know_to_be_committed() -> None:
    quorum = Quorum(voters=3)
    quorum.start()
    quorum.active.register(100)
    quorum.agree_on(100)
    for node in quorum.nodes.values():
        node.kill()
    node = quorum.nodes[1]
    node.launch()
    quorum.run_for(20)
    assert not node.is_running
    assert set(node.image.brokers) == set()
    quorum.start(2)
    quorum.until(lambda: node.is_running)
    quorum.agree_on(100)


def test_an_observer_follows_through_changes_of_the_leader() -> None:
    quorum = Quorum(voters=3, observers=1)
    quorum.start()
    observer = quorum.nodes[4]
    leaders: list[int] = []
    observer.node.current_leader.follow(observer.outside, lambda leader: leaders.append(leader.id))
    for broker_id in (100, 101):
        active = quorum.active
        active.register(broker_id)
        active.kill()
        quorum.active.register(broker_id + 10)
        quorum.start(active.number)
    quorum.agree_on(100, 101, 110, 111)
    leader = observer.node.current_leader.leader
    assert leader.id == quorum.active.number == leaders[-1]
    assert leader.endpoint is not None
    assert (leader.endpoint.host, leader.endpoint.port) == (f"c{leader.id}", 9093)
    quorum.check()


@pytest.mark.parametrize("is_observer", [False, True])
def test_a_node_that_was_away_for_long_starts_from_a_snapshot(is_observer: bool) -> None:
    quorum = Quorum(voters=3, observers=1, limits=OFTEN)
    away = quorum.nodes[4 if is_observer else 3]
    running = [number for number in quorum.nodes if number != away.number]
    quorum.start(*running)
    for broker_id in range(100, 120):
        assert quorum.active.register(broker_id) == Error.NONE
        quorum.run_for(0.2)
    assert all(_log_start(quorum.nodes[number]) > 0 for number in (1, 2))
    away.launch()
    quorum.until(lambda: away.is_running)
    quorum.agree_on(*range(100, 120))
    assert list_snapshots(away.disk, metadata_folder(FOLDER))[0].end_offset > 0
    away.kill()
    quorum.start(away.number)
    quorum.agree_on(*range(100, 120))
    quorum.check()


def _log_start(node: QuorumNode) -> int:
    return node.controller.quorum_client.log_start_offset


def test_a_voter_that_moves_is_found_at_its_new_address() -> None:
    quorum = Quorum(voters=3)
    quorum.start()
    moved = quorum.others()[0]
    moved.stop()
    moved.port = 19_093
    quorum.start(moved.number)
    quorum.run_for(10)
    for node in quorum.nodes.values():
        voters = node.controller.quorum_client.driver.core.voters
        assert [each.port for each in voters.endpoints_of(moved.number)] == [19_093]
    for other in quorum.nodes.values():
        if other is not moved:
            other.stop()
    quorum.start(*(node.number for node in quorum.nodes.values() if node is not moved))
    assert quorum.active.register(100) == Error.NONE
    quorum.agree_on(100)


def test_a_node_of_another_cluster_is_told_so_and_does_not_start() -> None:
    quorum = Quorum(voters=3)
    quorum.start(1, 2)
    stranger = quorum.nodes[3]
    stranger.cluster_id = "another-cluster-------"
    stranger.launch()
    quorum.run_for(5)
    assert not stranger.is_running
    assert isinstance(stranger.starting.exception(), ForeignClusterError)


def test_a_voter_that_cannot_write_does_not_vote_and_says_so_in_a_line(caplog: pytest.LogCaptureFixture) -> None:
    quorum = Quorum(voters=3)
    quorum.start()
    assert quorum.active.register(100) == Error.NONE
    first = quorum.active
    full, other = quorum.others()
    quorum.agree_on(100)
    full.disk.fail("pwrite", errno.ENOSPC)
    first.kill()
    quorum.run_for(20)
    assert not other.is_active, "nobody can be elected without the vote of the one with the full disk"
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    assert any("cannot write to" in record.getMessage() for record in caplog.records)
    full.disk.heal()
    quorum.until(lambda: full.is_active or other.is_active)
    first.launch()
    assert quorum.active.register(101) == Error.NONE
    quorum.agree_on(100, 101)
    quorum.check()


def test_an_unreachable_quorum_is_named_every_few_seconds(caplog: pytest.LogCaptureFixture) -> None:
    quorum = Quorum(voters=3)
    with caplog.at_level(logging.INFO, "barnabas.raft"):
        quorum.nodes[1].launch()
        quorum.run_for(30)
    lines = [record.getMessage() for record in caplog.records if "no answer from the metadata" in record.getMessage()]
    assert 3 <= len(lines) <= 6
    assert "c2:9093" in lines[-1]
    assert "c3:9093" in lines[-1]
    assert "waiting for the metadata quorum: no leader is known" in caplog.text
    quorum.start(2)
    quorum.until(lambda: quorum.nodes[1].is_running)


def test_describe_quorum_shows_how_far_everybody_is() -> None:
    quorum = Quorum(voters=3, observers=1)
    quorum.start()
    active = quorum.active
    active.register(100)
    quorum.agree_on(100)
    quorum.run_for(2)
    request = m.DescribeQuorumRequest(
        topics=[
            m.DescribeQuorumRequest.TopicData(
                topic_name="__cluster_metadata", partitions=[m.DescribeQuorumRequest.PartitionData(partition_index=0)]
            )
        ]
    )
    response = quorum.send(active.number, request)
    partition = response.topics[0].partitions[0]
    end = active.controller.quorum_client.driver.next_offset
    assert (partition.leader_id, partition.high_watermark) == (active.number, end)
    assert [each.replica_id for each in partition.current_voters] == [1, 2, 3]
    assert [each.replica_directory_id for each in partition.current_voters] == [directory(each) for each in (1, 2, 3)]
    assert [each.replica_id for each in partition.observers] == [4]
    now_ms = partition.current_voters[active.number - 1].last_fetch_timestamp
    for state in [*partition.current_voters, *partition.observers]:
        assert state.log_end_offset == end
        assert abs(state.last_caught_up_timestamp - now_ms) < 2_000
    assert [(node.node_id, node.listeners[0].host) for node in response.nodes] == [(1, "c1"), (2, "c2"), (3, "c3")]
    other = quorum.others()[0].number
    refused = quorum.send(other, request).topics[0].partitions[0]
    assert refused.error_code == Error.NOT_LEADER_OR_FOLLOWER


def fetch(epoch: int, offset: int, *, cluster_id: str | None = None, max_wait_ms: int = 0) -> m.FetchRequest:
    request = m.FetchRequest
    partition = request.FetchPartition(
        partition=0, current_leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=0, high_watermark=0
    )
    return request(
        cluster_id=cluster_id,
        replica_state=request.ReplicaState(replica_id=77),
        max_wait_ms=max_wait_ms,
        max_bytes=1 << 20,
        topics=[request.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def test_fetches_are_refused_as_kafka_refuses_them() -> None:
    quorum = Quorum(voters=3)
    quorum.start()
    active, other = quorum.active, quorum.others()[0]
    epoch = active.controller.quorum_client.driver.epoch
    assert quorum.send(active.number, fetch(epoch, 0, cluster_id="x")).error_code == Error.INCONSISTENT_CLUSTER_ID
    for number, asked_epoch, error in (
        (active.number, epoch - 1, Error.FENCED_LEADER_EPOCH),
        (active.number, epoch + 1, Error.UNKNOWN_LEADER_EPOCH),
        (other.number, epoch, Error.NOT_LEADER_OR_FOLLOWER),
        (active.number, epoch, Error.NONE),
    ):
        response = quorum.send(number, fetch(asked_epoch, 0))
        partition = response.responses[0].partitions[0]
        assert partition.error_code == error
        assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (active.number, epoch)
        assert [(node.node_id, node.host) for node in response.node_endpoints] == [(active.number, active.name)]
    assert partition.records


def asking(request: Any, topic: str, partition: int, partitions: int = 1) -> Any:
    """The request of the quorum, about so many partitions of a topic."""
    if request is m.FetchSnapshotRequest:
        each: Any = request.PartitionSnapshot
        made = [each(partition=partition, snapshot_id=request.SnapshotId()) for _ in range(partitions)]
        return request(topics=[request.TopicSnapshot(name=topic, partitions=made)])
    each = request.PartitionData
    made = [each(partition_index=partition) for _ in range(partitions)]
    return request(topics=[request.TopicData(topic_name=topic, partitions=made)])


QUORUM_REQUESTS = [m.VoteRequest, m.BeginQuorumEpochRequest, m.EndQuorumEpochRequest, m.FetchSnapshotRequest]


@pytest.mark.parametrize("request_type", QUORUM_REQUESTS, ids=lambda each: each.__name__)
def test_requests_of_another_cluster_or_about_something_else_are_refused(request_type: Any) -> None:
    quorum = Quorum(voters=1)
    quorum.start()
    foreign = asking(request_type, "__cluster_metadata", 0)
    foreign.cluster_id = "x"
    assert quorum.send(1, foreign).error_code == Error.INCONSISTENT_CLUSTER_ID
    assert quorum.send(1, asking(request_type, "__cluster_metadata", 0, partitions=2)).error_code == (
        Error.INVALID_REQUEST
    )
    assert quorum.send(1, request_type(topics=[])).error_code == Error.INVALID_REQUEST
    for topic, partition in (("orders", 0), ("__cluster_metadata", 1)):
        response = quorum.send(1, asking(request_type, topic, partition))
        if request_type is m.FetchSnapshotRequest:
            assert response.topics[0].name == topic
            assert response.topics[0].partitions[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        else:
            assert response.error_code == Error.INVALID_REQUEST
    mine = asking(request_type, "__cluster_metadata", 0)
    mine.cluster_id = CLUSTER_ID
    assert quorum.send(1, mine).error_code == Error.NONE


def update_of(node: QuorumNode, epoch: int, **fields: Any) -> m.UpdateRaftVoterRequest:
    """A voter's request to be known at another port."""
    request = m.UpdateRaftVoterRequest
    given = {
        "cluster_id": CLUSTER_ID,
        "current_leader_epoch": epoch,
        "voter_id": node.number,
        "voter_directory_id": directory(node.number),
        "listeners": [request.Listener(name="CONTROLLER", host=node.name, port=19_093)],
        "kraft_version_feature": request.KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
        **fields,
    }
    return request(**given)


_listener = m.UpdateRaftVoterRequest.Listener
_range = m.UpdateRaftVoterRequest.KRaftVersionFeature


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"cluster_id": "x"}, Error.INCONSISTENT_CLUSTER_ID),
        ({"voter_id": -1}, Error.INVALID_REQUEST),
        ({"voter_directory_id": ZERO_UUID}, Error.INVALID_REQUEST),
        ({"listeners": []}, Error.INVALID_REQUEST),
        ({"listeners": [_listener(name="PLAINTEXT", host="c1", port=9092)]}, Error.INVALID_REQUEST),
        (
            {"listeners": [_listener(name=name, host="c1", port=1) for name in ("CONTROLLER", *map(str, range(1000)))]},
            Error.INVALID_REQUEST,
        ),
        (
            {"kraft_version_feature": _range(min_supported_version=-1, max_supported_version=1)},
            Error.INVALID_REQUEST,
        ),
        (
            {"kraft_version_feature": _range(min_supported_version=1, max_supported_version=0)},
            Error.INVALID_REQUEST,
        ),
        ({"current_leader_epoch": 0}, Error.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 1000}, Error.UNKNOWN_LEADER_EPOCH),
        ({"voter_id": 9}, Error.VOTER_NOT_FOUND),
        ({"voter_directory_id": directory(9)}, Error.VOTER_NOT_FOUND),
    ],
)
def test_an_update_of_a_voter_that_makes_no_sense_is_refused_and_changes_nothing(
    fields: dict[str, Any], error: Error
) -> None:
    quorum = Quorum(voters=3)
    quorum.start()
    active, other = quorum.active, quorum.others()[0]
    epoch = active.controller.quorum_client.driver.epoch
    response = quorum.send(active.number, update_of(other, epoch, **fields))
    leader = response.current_leader
    assert response.error_code == error
    assert (leader.leader_id, leader.leader_epoch, leader.host, leader.port) == (
        active.number,
        epoch,
        active.name,
        active.port,
    )
    assert {each.port for node in voters_at(active) for each in node.endpoints} == {9093}
    assert quorum.send(active.number, update_of(other, epoch)).error_code == Error.NONE
    quorum.until(lambda: {each.port for node in voters_at(active) for each in node.endpoints} == {9093, 19_093})


def voters_at(node: QuorumNode) -> VoterSet:
    return node.controller.quorum_client.driver.core.voters


def test_only_the_leader_updates_a_voter_and_others_say_who_that_is() -> None:
    quorum = Quorum(voters=3)
    quorum.start()
    active, other = quorum.active, quorum.others()[0]
    epoch = active.controller.quorum_client.driver.epoch
    response = quorum.send(other.number, update_of(other, epoch))
    assert response.error_code == Error.NOT_LEADER_OR_FOLLOWER
    assert (response.current_leader.leader_id, response.current_leader.host) == (active.number, active.name)


def test_voters_that_are_not_in_the_log_cannot_be_updated() -> None:
    quorum = Quorum(voters=3, kraft_version=0)
    quorum.start()
    active = quorum.active
    epoch = active.controller.quorum_client.driver.epoch
    refused = quorum.send(active.number, update_of(quorum.others()[0], epoch))
    assert refused.error_code == Error.UNSUPPORTED_VERSION


@pytest.mark.parametrize("seed", range(12))
def test_nothing_committed_is_lost_whatever_is_killed_and_cut(seed: int) -> None:
    """Registrations that were acknowledged are there at the end, on every node."""
    chance = random.Random(seed)
    limits = chance.choice((OFTEN, MetadataLogLimits()))
    quorum = Quorum(seed, voters=chance.choice((3, 5)), observers=1, limits=limits)
    quorum.start()
    acknowledged: set[int] = set()
    tried: set[int] = set()
    for broker_id in range(100, 130):
        for node in quorum.nodes.values():
            if node.is_active:
                tried.add(broker_id)
                try:
                    task = node.outside.create_task(node.node.ask(registration(broker_id)))  # type: ignore[union-attr]
                    quorum.scheduler.run_for(chance.choice((0.01, 0.3, 2.0)))
                    if task.done() and task.result().response.error_code == Error.NONE:
                        acknowledged.add(broker_id)
                except WireError:
                    pass
        victim = quorum.nodes[chance.choice(list(quorum.nodes))]
        match chance.choice(("kill", "stop", "start", "cut", "heal", "reset", "none")):
            case "kill" if victim.is_running:
                victim.kill()
            case "stop" if victim.is_running:
                victim.stop()
            case "start":
                for node in quorum.nodes.values():
                    if node.thread.loop.is_dead or node.thread.loop.is_closed():
                        node.launch()
            case "cut":
                quorum.network.isolate(victim.name)
            case "heal":
                quorum.network.heal_all()
            case _:
                pass
        quorum.run_for(chance.choice((0.05, 0.5, 4.0)))
    quorum.network.heal_all()
    for node in quorum.nodes.values():
        if node.thread.loop.is_dead or node.thread.loop.is_closed():
            node.launch()
    quorum.until(lambda: all(node.is_running for node in quorum.nodes.values()))
    assert quorum.active.register(99) == Error.NONE
    quorum.until(lambda: all(99 in node.image.brokers for node in quorum.nodes.values()))
    seen = {frozenset(node.image.brokers) for node in quorum.nodes.values()}
    assert len(seen) == 1
    (brokers,) = seen
    assert acknowledged <= brokers <= tried | {99}
    assert acknowledged
    quorum.check()
