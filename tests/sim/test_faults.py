"""Faults are drawn from the seed, happen, end, and stay within what records are promised to survive."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from barnabas.net.peer import Peer
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.testing.simulator.cluster import SimulatedCluster
from barnabas.testing.simulator.faults import FAULTS_MIN, KINDS, Faults, Planned, plan
from barnabas.testing.simulator.load.mixed_load import MixedLoad
from barnabas.testing.simulator.run import Scenario, simulate
from tests.sim.planted_bugs import PRODUCERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.testing.simulator.protocols import Violation

SECONDS = 54.0


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    cluster = SimulatedCluster(seed=1, nodes=3, is_traced=True)
    cluster.start()
    cluster.run_until(cluster.is_ready, limit_s=30)
    yield cluster
    cluster.close()


def begin(cluster: SimulatedCluster, *planned: Planned) -> Faults:
    violations: list[Violation] = []
    faults = Faults(cluster, planned, lambda: None, violations.append)
    faults.start()
    return faults


def noted(cluster: SimulatedCluster) -> list[str]:
    return [line.split(None, 2)[2] for line in cluster.trace.lines if line.split()[1] == "FAULT"]


def test_a_seed_always_draws_the_same_faults_and_another_seed_others() -> None:
    assert plan(1, SECONDS) == plan(1, SECONDS)
    assert plan(1, SECONDS) != plan(2, SECONDS)


def test_there_are_at_least_five_and_all_end_in_time() -> None:
    for seed in range(300):
        faults = plan(seed, SECONDS)
        assert len(faults) >= FAULTS_MIN
        assert all(fault.at_s >= 0 and fault.at_s + fault.lasts_s <= SECONDS for fault in faults)


def test_every_kind_happens() -> None:
    drawn = Counter(fault.kind for seed in range(200) for fault in plan(seed, SECONDS))
    assert set(drawn) == set(KINDS)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_cluster_without_load_recovers_from_each_kind(cluster: SimulatedCluster, kind: str) -> None:
    faults = begin(cluster, *(Planned(kind, number, 3.0, number) for number in range(3)))
    cluster.run_until(lambda: faults.is_over, limit_s=60)
    assert faults.injected == {kind: 3}
    cluster.run_until(cluster.is_ready, limit_s=60)
    assert not cluster.network.loss
    assert not any(node.disk.is_failing or node.disk.capacity_bytes for node in cluster.nodes.values())


def test_power_fails_nowhere_else_until_a_node_that_lost_it_is_back(cluster: SimulatedCluster) -> None:
    begin(cluster, Planned("power loss", 0, 20, 1), Planned("power loss", 1, 5, 2), Planned("kill", 2, 5, 3))
    cluster.run_for(4)
    power, *others = noted(cluster)
    assert power.startswith("power fails at ")
    assert len(others) == 2
    assert all(text.startswith("clean stop of ") for text in others)


def test_power_does_not_fail_while_a_killed_node_is_away(cluster: SimulatedCluster) -> None:
    begin(cluster, Planned("kill", 0, 20, 1), Planned("power loss", 1, 5, 2))
    cluster.run_for(2)
    assert [text.split()[0] for text in noted(cluster)] == ["kill", "clean"]


def create_topic(cluster: SimulatedCluster, replicas: list[int], configs: Mapping[str, str]) -> None:
    """The topic `t`, with one partition on these nodes."""
    request, client = m.CreateTopicsRequest, cluster.client("organiser")
    topic = request.CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[request.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)],
        configs=[request.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )

    async def create() -> None:
        peer = Peer("node 1", *cluster.nodes[1].address, client.environment)
        made = await peer.send(request(topics=[topic], timeout_ms=10_000))
        assert made.topics[0].error_code == Error.NONE
        await peer.close()

    client.loop.run(create(), limit_s=30)


@pytest.mark.parametrize(
    ("replicas", "configs", "spared"),
    [
        ([2], {}, {2}),
        ([1, 2], {"min.insync.replicas": "1"}, {1, 2}),
        ([1, 2], {"min.insync.replicas": "2"}, set()),
        ([1, 2], {}, set()),
    ],
)
def test_power_does_not_fail_where_records_may_be_on_one_node_only(
    cluster: SimulatedCluster, replicas: list[int], configs: dict[str, str], spared: set[int]
) -> None:
    create_topic(cluster, replicas, configs)
    faults = Faults(cluster, [], lambda: None, lambda _violation: None)
    assert {node.id for node in cluster.nodes.values() if not faults.may_lose_bytes(node)} == spared


def test_power_does_not_fail_before_it_is_known_which_node_gets_a_topic_with_one_replica() -> None:
    settings = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    cluster = SimulatedCluster(seed=1, nodes=3, settings=settings)
    try:
        cluster.start()
        cluster.run_until(cluster.is_ready, limit_s=30)
        faults = Faults(cluster, [], lambda: None, lambda _violation: None)
        assert not any(map(faults.may_lose_bytes, cluster.nodes.values()))
    finally:
        cluster.close()


def test_a_direction_stays_cut_while_any_fault_wants_it_so(cluster: SimulatedCluster) -> None:
    faults = Faults(cluster, [], lambda: None, lambda _violation: None)
    one, two = cluster.network.host("node-1"), cluster.network.host("node-2")
    end_first = faults.cut([("node-1", "node-2"), ("node-2", "node-1")])
    faults._token += 1
    end_second = faults.cut([("node-1", "node-2")])
    end_first()
    assert (cluster.network.is_open(one, two), cluster.network.is_open(two, one)) == (False, True)
    end_second()
    assert cluster.network.is_open(one, two)


def test_a_leader_is_cut_off_when_a_replica_joins_and_nothing_is_lost() -> None:
    scenario = Scenario(2, nodes=5, records=0, kinds=("clean stop", "cut at a join"))
    outcome = simulate(scenario, make_load=lambda cluster: MixedLoad(cluster, PRODUCERS), is_traced=True)
    assert outcome.violations == ()
    assert any(" joins records-" in line and ": cut node-" in line for line in outcome.trace)


def test_a_node_that_fails_though_its_disk_is_well_is_reported(cluster: SimulatedCluster) -> None:
    violations: list[Violation] = []
    Faults(cluster, [], lambda: None, violations.append)
    node = cluster.nodes[2]
    assert node.node is not None
    node.node._fail(RuntimeError("no reason"))
    cluster.run_until(lambda: bool(violations), limit_s=30)
    assert "no reason" in violations[0].text
    cluster.run_until(lambda: node.is_ready, limit_s=60)


def test_a_disk_fails_until_the_last_of_its_faults_has_ended(cluster: SimulatedCluster) -> None:
    violations: list[Violation] = []
    both = (Planned("full disk", 0.0, 3.0, 7), Planned("failed sync", 1.0, 15.0, 7))
    faults = Faults(cluster, both, lambda: None, violations.append)
    faults.start()
    cluster.run_until(lambda: faults.is_over, limit_s=60)
    full, failing, *_ = noted(cluster)
    assert full.split()[-1] == failing.split()[-1], "both are of one node"
    assert "has failed: [Errno 5]" in "\n".join(cluster.trace.lines)
    assert violations == []
