"""What a cluster does when a node of it is killed: the quorum elects, the controller fences, and clients go on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException

from tests.cluster.clusters import DEADLINE_S, QUICK, admin, create_topic, status, topics, wait_until
from tests.nodes import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, settings=QUICK) as running:
        yield running


def create_through_failures(cluster: Cluster, node_id: int, name: str) -> None:
    """As a client does: what failed is tried again, and what exists already was created by an attempt before."""
    client, deadline = admin(cluster, node_id), time.monotonic() + DEADLINE_S
    while True:
        try:
            create_topic(client, name)
        except KafkaException as error:
            if error.args[0].name() == "TOPIC_ALREADY_EXISTS":
                return
            if time.monotonic() > deadline:
                raise
        else:
            return


def test_topics_are_created_again_soon_after_the_active_controller_was_killed(cluster: Cluster) -> None:
    create_topic(admin(cluster, 1), "before")
    first = status(cluster)["quorum"]["leader"]
    cluster.kill(first)
    killed = time.monotonic()
    survivor = cluster.running[0]
    create_through_failures(cluster, survivor, "after")
    assert time.monotonic() - killed < 8
    assert {"before", "after"} <= set(topics(admin(cluster, survivor)))
    quorum = status(cluster)["quorum"]
    assert quorum["leader"] in cluster.running
    assert quorum["voters"] == [1, 2, 3]
    cluster.start_node(first)
    wait_until(lambda: "after" in topics(admin(cluster, first)), "the killed node has caught up")
    assert [node["fenced"] for node in status(cluster)["nodes"]] == [False] * 3


def test_a_broker_that_was_killed_is_fenced_and_comes_back(cluster: Cluster) -> None:
    victim = next(node_id for node_id in cluster.nodes if node_id != status(cluster)["quorum"]["leader"])
    epochs = [line for line in cluster.log_text(victim).splitlines() if "is unfenced with epoch" in line]
    assert len(epochs) == 1
    cluster.kill(victim)

    def is_fenced() -> bool:
        return [node["fenced"] for node in status(cluster)["nodes"] if node["id"] == victim] == [True]

    wait_until(is_fenced, "the killed broker is fenced")
    cluster.start_node(victim)
    assert not is_fenced()


def test_a_paused_active_controller_is_replaced_and_follows_when_it_wakes(cluster: Cluster) -> None:
    first = status(cluster)["quorum"]["leader"]
    survivor = next(node_id for node_id in cluster.nodes if node_id != first)
    cluster.pause(first)
    create_through_failures(cluster, survivor, "meanwhile")
    cluster.resume(first)
    wait_until(lambda: "meanwhile" in topics(admin(cluster, first)), "the paused node has caught up")
    create_through_failures(cluster, first, "through-the-woken")
    wait_until(lambda: not any(node["fenced"] for node in status(cluster)["nodes"]), "all brokers are unfenced")


def test_a_stopped_active_controller_hands_over_at_once(cluster: Cluster) -> None:
    first = status(cluster)["quorum"]["leader"]
    epoch = status(cluster)["quorum"]["leader_epoch"]
    cluster.stop_node(first)
    stopped = time.monotonic()
    create_through_failures(cluster, cluster.running[0], "after")
    assert time.monotonic() - stopped < 2
    assert status(cluster)["quorum"]["leader_epoch"] == epoch + 1
