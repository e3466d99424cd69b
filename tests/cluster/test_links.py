"""Nodes that do not hear from each other, or from which nothing is heard, and consumers that read where it is near."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.adapter import ConsumerOptions, Message, consume
from tests.clients.conftest import LIBRARIES
from tests.cluster.clusters import (
    QUICK,
    create_replicated,
    described,
    make_whole,
    running,
    status,
    wait_until,
)
from tests.cluster.links import LinkedCluster, linked_cluster
from tests.cluster.writers import require_each_once, wait_until_on, writing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.clients.adapter import Client
    from tests.nodes import Cluster

PARTITIONS = 3
SETTINGS = {
    **QUICK,
    "replica.lag.time.max.ms": "2000",
    "replica.socket.timeout.ms": "1500",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
RECORDS, RECORD_BYTES = 20, 10_000


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedCluster]:
    racks = {node_id: {"broker.rack": f"az-{node_id}"} for node_id in (1, 2, 3)}
    with linked_cluster(tmp_path_factory.mktemp("links"), SETTINGS, racks) as started:
        yield started


@pytest.fixture
def cluster(linked: LinkedCluster) -> Iterator[Cluster]:
    """What a test has cut is healed after it."""
    yield linked.cluster
    linked.heal()
    make_whole(linked.cluster)


@pytest.fixture
def clients(cluster: Cluster) -> list[Client]:
    return [library(running(cluster)) for library in LIBRARIES]


@pytest.fixture
def topics(cluster: Cluster, clients: list[Client], topic: str) -> list[str]:
    """A topic for each library, with a partition that each node leads."""
    names = [f"{topic}-{client.name}" for client in clients]
    for name in names:
        create_replicated(cluster, name, assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]], min_insync_replicas="2")
    return names


def test_consumers_that_name_their_rack_read_from_the_replica_there(
    linked: LinkedCluster, cluster: Cluster, clients: list[Client], topic: str
) -> None:
    create_replicated(cluster, topic, assignment=[[1, 2, 3]])
    clients[0].produce(topic, [Message(bytes(RECORD_BYTES)) for _ in range(RECORDS)])
    for client in clients:
        for rack, nearest in (("az-1", 1), ("az-2", 2), ("az-3", 3), ("elsewhere", 1), ("", 1)):
            before = {node_id: proxy.client_bytes for node_id, proxy in linked.brokers.items()}
            consume(client, topic, RECORDS, options=ConsumerOptions(rack=rack))
            sent = {node_id: proxy.client_bytes - before[node_id] for node_id, proxy in linked.brokers.items()}
            assert sent[nearest] > RECORDS * RECORD_BYTES, f"{client.name} in {rack!r}: {sent}"
            assert sum(sent.values()) - sent[nearest] < RECORDS * RECORD_BYTES / 2, f"{client.name} in {rack!r}: {sent}"


def test_two_nodes_that_do_not_hear_from_each_other_lose_and_double_nothing(
    linked: LinkedCluster, cluster: Cluster, clients: list[Client], topics: list[str]
) -> None:
    """The third, which leads the quorum, hears from both: each leaves the other out, and goes on with the third."""
    third = status(cluster)["quorum"]["leader"]
    one, other = sorted({1, 2, 3} - {third})
    with writing(clients, topics, PARTITIONS) as writers:
        linked.cut(one, other)
        wait_until(
            lambda: all(other not in described(cluster, topic)[one - 1].isrs for topic in topics),
            "the leader has left out whom it does not hear from",
        )
        wait_until_on(writers)
        linked.heal()
        wait_until_on(writers)
    make_whole(cluster)
    require_each_once(clients, topics, writers)
    assert f"removing brokers [{other}] from the ISR: not caught up for more than 2000 ms" in cluster.log_text(one)
    assert f"removing brokers [{one}] from the ISR: not caught up for more than 2000 ms" in cluster.log_text(other)
    assert f"replica fetcher 0 for broker {one} failed, retrying: " in cluster.log_text(other)


def test_a_node_that_does_not_hear_from_the_active_controller_is_fenced_and_comes_back(
    linked: LinkedCluster, cluster: Cluster, clients: list[Client], topics: list[str]
) -> None:
    controller = status(cluster)["quorum"]["leader"]
    epoch = status(cluster)["quorum"]["leader_epoch"]
    lonely = next(node_id for node_id in cluster.nodes if node_id != controller)
    with writing(clients, topics, PARTITIONS) as writers:
        linked.cut(controller, lonely)
        wait_until(
            lambda: f"fencing broker {lonely}: no heartbeat for" in cluster.log_text(controller), "the node is fenced"
        )
        linked.heal()
        wait_until_on(writers)
    make_whole(cluster)
    require_each_once(clients, topics, writers)
    assert status(cluster)["quorum"]["leader_epoch"] == epoch, "a node that is cut off unseats nobody"
    assert "is waiting for an active controller: " in cluster.log_text(lonely)


def test_a_leader_from_which_nothing_is_heard_is_replaced_and_what_it_had_alone_is_cut(
    cluster: Cluster, clients: list[Client], topics: list[str]
) -> None:
    """Its connections stay open. What it finds in them when it wakes up changes nothing."""
    victim = next(node_id for node_id in cluster.nodes if node_id != status(cluster)["quorum"]["leader"])
    with writing(clients, topics, PARTITIONS) as writers:
        cluster.pause(victim)
        wait_until_on(writers)
        cluster.resume(victim)
        wait_until_on(writers)
    make_whole(cluster)
    require_each_once(clients, topics, writers)
    survivors = [cluster.log_text(node_id) for node_id in cluster.nodes if node_id != victim]
    assert any(f"fencing broker {victim}: no heartbeat for" in log for log in survivors)
