"""Partitions with three replicas: what was acknowledged survives the loss of a leader, once and in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.conftest import LIBRARIES
from tests.cluster.clusters import QUICK, create_replicated, leader_of, make_whole, running
from tests.cluster.writers import reading, require_each_once, wait_until_on, wait_until_read, writing
from tests.nodes import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.clients.adapter import Client

PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("replication"), settings=QUICK) as started:
        yield started


@pytest.fixture
def clients(cluster: Cluster) -> Iterator[list[Client]]:
    """The three libraries. What a test has ended runs again after it."""
    yield [library(running(cluster)) for library in LIBRARIES]
    make_whole(cluster)


@pytest.fixture
def topics(cluster: Cluster, clients: list[Client], topic: str) -> list[str]:
    """A topic for each library."""
    names = [f"{topic}-{client.name}" for client in clients]
    for name in names:
        create_replicated(cluster, name, PARTITIONS, min_insync_replicas="2")
    return names


def test_what_was_acknowledged_outlives_the_kill_of_its_leader_once_and_in_order(
    cluster: Cluster, clients: list[Client], topics: list[str]
) -> None:
    with writing(clients, topics, PARTITIONS) as writers:
        victim = leader_of(cluster, topics[0])
        cluster.kill(victim)
        wait_until_on(writers)
        assert leader_of(cluster, topics[0]) not in (victim, -1)
        cluster.start_node(victim)
        wait_until_on(writers)
    make_whole(cluster)
    require_each_once(clients, topics, writers)


def test_nodes_are_stopped_and_started_one_after_the_other_and_no_client_notices(
    cluster: Cluster, clients: list[Client], topics: list[str]
) -> None:
    with writing(clients, topics, PARTITIONS) as writers, reading(clients, topics, 0) as readers:
        for node_id in cluster.nodes:
            cluster.stop_node(node_id)
            wait_until_on(writers)
            make_whole(cluster)
        wait_until_on(writers)
        for writer in writers:
            writer.stop()
        wait_until_read(readers, writers, 0)
    assert [reader.numbers for reader in readers] == [writer.acknowledged[0] for writer in writers]
    require_each_once(clients, topics, writers)
    for node_id in cluster.nodes:
        assert "without the controller's consent" not in cluster.log_text(node_id)
