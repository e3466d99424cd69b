"""A broker whose connection was closed is fenced before its session ends, where `barnabas.broker.disconnect.grace.ms`
says so; and one that only lost its connection is not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.cimpl import NewTopic

from tests.cluster.clusters import DEADLINE_S, admin, consume, produce, running, status
from tests.nodes import Cluster

if TYPE_CHECKING:
    from pathlib import Path


GRACE = {"barnabas.broker.disconnect.grace.ms": "500"}
SESSION_S = 9.0
"""`broker.session.timeout.ms` by default."""


def create_topic_led_by(cluster: Cluster, name: str, leader: int) -> None:
    followers = [node_id for node_id in cluster.nodes if node_id != leader]
    new = NewTopic(name, 1, replica_assignment=[[leader, *followers]], config={"min.insync.replicas": "2"})
    client = admin(cluster, leader)
    client.create_topics([new])[name].result(DEADLINE_S)


@pytest.mark.parametrize("is_active", [False, True], ids=["another node", "the active controller"])
def test_a_killed_leader_is_replaced_long_before_its_session_ends(tmp_path: Path, is_active: bool) -> None:
    with Cluster(tmp_path, settings=GRACE) as cluster:
        active = status(cluster)["quorum"]["leader"]
        victim = active if is_active else next(each for each in cluster.nodes if each != active)
        create_topic_led_by(cluster, "t", victim)
        produce(cluster.bootstrap, "t", [b"before"])
        cluster.kill(victim)
        killed = time.monotonic()
        produce(running(cluster), "t", [b"after"])
        assert time.monotonic() - killed < SESSION_S - 2
        assert consume(running(cluster), "t", 2) == [b"before", b"after"]
        reason = f"fencing broker {victim}: its connection was closed, and it did not come back within 500 ms"
        assert any(reason in cluster.log_text(each) for each in cluster.running)
        cluster.start_node(victim)
        assert [node["fenced"] for node in status(cluster)["nodes"]] == [False] * 3


def test_nobody_is_fenced_when_the_active_controller_stops_and_comes_back(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings=GRACE) as cluster:
        for _ in range(2):
            active = status(cluster)["quorum"]["leader"]
            cluster.stop_node(active)
            assert status(cluster)["quorum"]["leader"] != active
            cluster.start_node(active)
            assert [node["fenced"] for node in status(cluster)["nodes"]] == [False] * 3
        assert not any("it did not come back" in cluster.log_text(each) for each in cluster.nodes)
