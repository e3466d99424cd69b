"""The lives of a simulated node: what a kill, a power failure, a pause and a clean stop leave behind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from barnabas.testing.simulator.cluster import FOLDER, SimulatedCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.metadata.image import BrokerImage
    from barnabas.testing.simulator.nodes import SimulatedNode

NOTE = f"{FOLDER}/note"
CLEAN_SHUTDOWN = f"{FOLDER}/.kafka_cleanshutdown"


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    cluster = SimulatedCluster(seed=1, nodes=3)
    cluster.start()
    cluster.run_until(cluster.is_ready, limit_s=30)
    yield cluster
    cluster.close()


def write(node: SimulatedNode, data: bytes) -> int:
    fd = node.disk.open(NOTE, os.O_RDWR | os.O_CREAT)
    assert node.disk.pwrite(fd, data, 0) == len(data)
    return fd


def content(node: SimulatedNode) -> bytes:
    fd = node.disk.open(NOTE, os.O_RDONLY)
    try:
        return node.disk.pread(fd, 100, 0)
    finally:
        node.disk.close(fd)


def broker_2_at(node: SimulatedNode) -> BrokerImage:
    assert node.image is not None
    return node.image.brokers[2]


def test_all_nodes_become_ready_and_agree_on_who_leads_the_quorum(cluster: SimulatedCluster) -> None:
    leaders = {node.quorum.leader.id for node in cluster.nodes.values() if node.quorum is not None}
    assert len(leaders) == 1
    assert leaders <= {1, 2, 3}
    assert cluster.bootstrap == [("node-1", 9092), ("node-2", 9092), ("node-3", 9092)]


def test_a_killed_node_finds_what_it_wrote_and_never_synced(cluster: SimulatedCluster) -> None:
    node = cluster.nodes[2]
    write(node, b"written")
    node.kill()
    assert (node.is_up, node.image, list(node.partitions), node.quorum) == (False, None, [], None)
    node.start()
    cluster.run_until(cluster.is_ready, limit_s=30)
    assert node.life == 2
    assert content(node) == b"written"


def test_a_node_that_loses_power_finds_what_it_synced_and_nothing_else(cluster: SimulatedCluster) -> None:
    node = cluster.nodes[2]
    fd = write(node, b"synced")
    node.disk.fsync(fd)
    node.disk.sync_dir(FOLDER)
    node.disk.pwrite(fd, b"SYNCED", 0)
    node.disk.open(f"{FOLDER}/name", os.O_RDWR | os.O_CREAT)
    node.lose_power()
    node.start()
    cluster.run_until(cluster.is_ready, limit_s=30)
    assert content(node) == b"synced"
    assert not node.disk.exists(f"{FOLDER}/name")


def test_a_node_that_is_killed_is_missed_at_once_and_one_without_power_only_after_its_session(
    cluster: SimulatedCluster,
) -> None:
    peers = [cluster.nodes[1], cluster.nodes[3]]
    cluster.nodes[2].lose_power()
    cluster.run_for(3)
    assert not any(broker_2_at(node).fenced for node in peers)
    cluster.run_until(lambda: all(broker_2_at(node).fenced for node in peers), limit_s=10)


def test_a_paused_node_does_nothing_and_goes_on_where_it_was(cluster: SimulatedCluster) -> None:
    node = cluster.nodes[2]
    node.pause()
    before = node.image
    cluster.run_until(lambda: broker_2_at(cluster.nodes[1]).fenced, limit_s=30)
    assert node.image is before
    assert not node.is_serving
    node.resume()
    cluster.run_until(lambda: not broker_2_at(cluster.nodes[1]).fenced, limit_s=30)
    assert node.life == 1
    assert node.errors == []


def test_a_clean_stop_ends_without_a_failure_and_leaves_its_mark(cluster: SimulatedCluster) -> None:
    node = cluster.nodes[2]
    ended: list[SimulatedNode] = []
    node.on_ended = ended.append
    node.stop()
    cluster.run_until(lambda: not node.is_up, limit_s=30)
    assert ended == [node]
    assert node.failure is None
    assert node.disk.exists(CLEAN_SHUTDOWN)
    # Word of it may still be on its way to the others, but nobody has to wait for the end of a session.
    cluster.run_until(lambda: broker_2_at(cluster.nodes[1]).fenced, limit_s=1)


def test_a_node_that_is_killed_leaves_no_mark_of_a_clean_stop(cluster: SimulatedCluster) -> None:
    cluster.nodes[2].kill()
    assert not cluster.nodes[2].disk.exists(CLEAN_SHUTDOWN)


def test_a_node_whose_disk_does_not_sync_fails_and_says_why(cluster: SimulatedCluster) -> None:
    node = cluster.nodes[2]
    node.disk.fail("fsync", 5)
    cluster.nodes[1].kill()  # so that there is something to write down
    cluster.run_until(lambda: not node.is_up, limit_s=60)
    assert isinstance(node.failure, OSError)


def test_clients_have_machines_of_their_own(cluster: SimulatedCluster) -> None:
    one, other = cluster.client("one"), cluster.client("other")
    assert cluster.client("one") is one
    assert one.loop is not other.loop
    assert one.environment.network is cluster.network.host("one")
