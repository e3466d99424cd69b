"""A quorum under every fault that its network and its disks can have: nothing that was committed is ever lost."""

from __future__ import annotations

import pytest

from barnabas.raft.consensus.messages import Role
from tests.unit.raft.cores import SimulatedCluster

FAULTS = (
    "crash",
    "power failure",
    "restart",
    "restart all",
    "cut",
    "one way",
    "heal",
    "loss",
    "snapshot",
    "propose",
    "propose",
    "pause",
)


def run(seed: int, voters: int, observers: int) -> SimulatedCluster:
    cluster = SimulatedCluster(seed, voters, observers)
    cluster.start_all()
    numbers = list(cluster.nodes)
    for _ in range(40):
        number = cluster.random.choice(numbers)
        node = cluster.nodes[number]
        match cluster.random.choice(FAULTS):
            case "crash":
                if node.core is not None:
                    node.crash()
            case "power failure":
                for each in cluster.nodes.values():
                    if each.core is not None and cluster.random.random() < 0.8:
                        each.crash()
            case "restart all":
                cluster.start_all()
            case "restart":
                if node.core is None:
                    node.start()
            case "cut":
                cluster.isolate(number)
            case "one way":
                cluster.cuts.add((number, cluster.random.choice(numbers)))
            case "heal":
                cluster.cuts.clear()
            case "loss":
                cluster.loss = cluster.random.choice((0.0, 0.0, 0.1, 0.4))
            case "snapshot":
                node.take_snapshot()
            case "propose":
                for _ in range(cluster.random.randint(1, 20)):
                    cluster.propose()
                    cluster.run_for(cluster.random.randint(0, 20))
        cluster.run_for(cluster.random.choice((5, 50, 400, 3_000)))
    cluster.cuts.clear()
    cluster.loss = 0.0
    cluster.start_all()
    cluster.run_until(cluster.is_settled)
    return cluster


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_one_leads_an_epoch_and_nothing_committed_is_lost(seed: int) -> None:
    voters, observers = ((3, 1), (5, 1), (2, 0), (1, 1))[seed % 4]
    cluster = run(seed, voters, observers)
    assert cluster.committed
    ends = {node.core.log_end_offset for node in cluster.nodes.values() if node.core is not None}
    assert ends == {cluster.committed[-1].end_offset}


def test_the_same_seed_gives_the_same_run() -> None:
    one, two = run(3, 3, 1), run(3, 3, 1)
    assert (one.committed, one.leaders, one.now_ms) == (two.committed, two.leaders, two.now_ms)


def test_three_voters_elect_one_of_them_soon_after_they_start() -> None:
    cluster = SimulatedCluster(seed=1)
    cluster.start_all()
    cluster.run_until(cluster.is_settled, limit_ms=2_000)
    assert sorted(node.core.role.value for node in cluster.nodes.values() if node.core) == [
        "follower",
        "follower",
        "leader",
    ]


def test_a_leader_that_dies_is_replaced_long_before_the_fetch_timeout_if_its_port_is_closed() -> None:
    cluster = SimulatedCluster(seed=2)
    cluster.start_all()
    cluster.run_until(cluster.is_settled)
    leader = cluster.active
    assert leader is not None
    leader.crash()
    began = cluster.now_ms
    cluster.run_until(lambda: cluster.active is not None, limit_ms=1_500)
    assert cluster.now_ms - began < 1_500


def test_a_leader_that_is_cut_off_resigns_and_its_successor_drops_what_only_it_had() -> None:
    cluster = SimulatedCluster(seed=4)
    cluster.start_all()
    cluster.run_until(cluster.is_settled)
    old = cluster.active
    assert old is not None
    assert old.core is not None
    cluster.isolate(old.number)
    cluster.propose()
    lost = old.log[-1]
    cluster.run_until(lambda: cluster.active is not None and cluster.active is not old, limit_ms=10_000)
    cluster.run_for(3_000)
    assert old.core.role is not Role.LEADER
    cluster.cuts.clear()
    cluster.run_until(cluster.is_settled)
    assert lost not in old.log
    assert lost not in cluster.committed
    assert cluster.truncations


def test_a_node_that_is_cut_off_does_not_disturb_the_others_when_it_is_back() -> None:
    cluster = SimulatedCluster(seed=5)
    cluster.start_all()
    cluster.run_until(cluster.is_settled)
    leader = cluster.active
    assert leader is not None
    assert leader.core is not None
    epoch = leader.core.epoch
    away = next(number for number in cluster.nodes if number != leader.number)
    cluster.isolate(away)
    cluster.run_for(20_000)
    cluster.cuts.clear()
    cluster.run_until(cluster.is_settled)
    assert leader.core.epoch == epoch


def test_a_new_node_starts_from_a_snapshot() -> None:
    cluster = SimulatedCluster(seed=6, voters=3, observers=1)
    for number in (1, 2, 3):
        cluster.nodes[number].start()
    cluster.run_until(lambda: cluster.active is not None)
    for _ in range(50):
        cluster.propose()
        cluster.run_for(20)
    for node in cluster.nodes.values():
        node.take_snapshot()
    observer = cluster.nodes[4]
    observer.start()
    cluster.run_until(cluster.is_settled)
    assert observer.snapshot in cluster.snapshots
    assert observer.core is not None
    assert observer.core.role is Role.FOLLOWER


def test_a_voter_that_moves_tells_the_leader_and_everybody_learns_it() -> None:
    cluster = SimulatedCluster(seed=7)
    cluster.start_all()
    cluster.run_until(cluster.is_settled)
    leader = cluster.active
    assert leader is not None
    moved = next(node for node in cluster.nodes.values() if node is not leader)
    moved.crash()
    moved.port = 19093
    moved.start()
    cluster.run_until(cluster.is_settled)
    cluster.run_for(10_000)
    for node in cluster.nodes.values():
        assert node.core is not None
        assert [end.port for end in node.core.voters.endpoints_of(moved.number)] == [19093]
