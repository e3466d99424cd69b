"""The benchmark of clusters does to three nodes what it says, and dates what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bench import case
from bench.case import Context, LifecycleCase, SteadyCase
from bench.clusters import cases, questions
from bench.clusters.nodes import BARNABAS, REPLICAS

from barnabas.testing.cluster_processes import Cluster
from tests.cluster.clusters import DEADLINE_S, QUICK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CASES = {each.name: each for each in cases.every(case.QUICK)}
SESSION_MS = float(QUICK["broker.session.timeout.ms"])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, nodes=3, settings=QUICK) as started:
        yield started


def run(name: str, cluster: Cluster) -> dict[str, float]:
    chosen = CASES[name]
    assert isinstance(chosen, SteadyCase)
    figures = chosen.run(Context(case.QUICK, 1.0), cluster)
    assert {row.figure for row in chosen.rows} <= figures.keys()
    return figures


def test_a_leader_is_killed_and_the_partition_is_writable_after_its_session(cluster: Cluster) -> None:
    figures = run("leader-killed", cluster)
    assert 0 < figures["fenced_to_writable_ms"] < figures["gap_seconds"] * 1e3
    assert figures["gap_seconds"] * 1e3 > SESSION_MS / 2, "a broker is fenced when its session ends"
    assert cluster.running == [1, 2, 3], "and is back afterwards"
    questions.await_in_sync(cluster, 1, REPLICAS, DEADLINE_S)


def test_the_active_controller_is_killed_and_another_one_decides(cluster: Cluster) -> None:
    before = questions.active_controller(cluster)
    figures = run("controller-killed", cluster)
    assert 0 < figures["elected_to_decided_ms"] <= figures["controller_gap_seconds"] * 1e3
    assert cluster.running == [1, 2, 3]
    assert questions.active_controller(cluster) != before


def test_what_is_written_with_three_replicas_is_counted_with_the_cpu_of_all_nodes(cluster: Cluster) -> None:
    figures = run("replicated-100-all", cluster)
    assert figures["cpu_per_million"] > 0
    assert figures["p50_ms"] <= figures["p99_ms"]


@pytest.mark.parametrize("name", ["start", "many-partitions"])
def test_a_cluster_lives_from_nothing(name: str, tmp_path: Path) -> None:
    life = CASES[name]
    assert isinstance(life, LifecycleCase)
    with BARNABAS.make(tmp_path / "cluster") as nodes:
        figures = life.run(case.QUICK, nodes)
    assert all(figures[row.figure] > 0 for row in life.rows)
