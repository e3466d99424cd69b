"""What a node does and leaves behind while the controller does not know of its present life yet.

The metadata still speaks of the life before. That one may have led partitions and lost records of them, so nothing may
be led or copied by what it was told. And a life that ends without a registration has lost nothing, so a clean stop
before it still counts: the controller takes a broker that did not stop cleanly out of ISR and ELR.
"""

from __future__ import annotations

import json
import os

from barnabas.net.peer import Peer
from barnabas.protocol import messages as m
from barnabas.testing.simulator.cluster import FOLDER, SimulatedCluster

LIMIT_S = 60.0
TOPIC = "led-by-all"


def clean_epoch(cluster: SimulatedCluster, node_id: int) -> int:
    """The broker epoch of the last clean stop, as the folder has it."""
    disk = cluster.nodes[node_id].disk
    fd = disk.open(f"{FOLDER}/.kafka_cleanshutdown", os.O_RDONLY)
    try:
        return int(json.loads(disk.pread(fd, 1000, 0))["brokerEpoch"])
    finally:
        disk.close(fd)


def test_the_epoch_of_a_clean_stop_outlasts_a_life_without_registration() -> None:
    cluster = SimulatedCluster(seed=1, nodes=3)
    cluster.start()
    cluster.run_until(cluster.is_ready, limit_s=LIMIT_S)
    node = cluster.nodes[2]
    image = node.image
    assert image is not None
    epoch = image.brokers[2].epoch
    node.stop()
    cluster.run_until(lambda: not node.is_up, limit_s=LIMIT_S)
    assert clean_epoch(cluster, 2) == epoch
    for other in (1, 3):
        cluster.nodes[other].kill()

    node.start()
    cluster.run_for(5)
    assert not node.is_ready
    node.stop()
    cluster.run_until(lambda: not node.is_up, limit_s=LIMIT_S)

    assert clean_epoch(cluster, 2) == epoch
    cluster.close()


async def create_topic(cluster: SimulatedCluster) -> None:
    peer = Peer("node 1", *cluster.nodes[1].address, cluster.client("admin").environment)
    topic = m.CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=3, replication_factor=3)
    try:
        response: m.CreateTopicsResponse = await peer.send(m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        assert response.topics[0].error_code == 0
    finally:
        await peer.close()


def test_a_node_that_comes_back_leads_and_copies_nothing_by_what_its_former_life_was_told() -> None:
    cluster = SimulatedCluster(seed=1, nodes=3)
    cluster.start()
    cluster.run_until(cluster.is_ready, limit_s=LIMIT_S)
    cluster.client("admin").loop.run(create_topic(cluster), limit_s=LIMIT_S)
    node = cluster.nodes[2]
    cluster.run_until(lambda: any(each.state.is_leader for each in node.partitions), limit_s=LIMIT_S)

    node.lose_power()
    node.start()
    hosted: list[object] = []

    def look() -> bool:
        known = None if node.image is None else node.image.brokers.get(2)
        if known is None or known.epoch == former_epoch:
            hosted.extend(node.partitions)
        return node.is_ready

    image = cluster.nodes[1].image
    assert image is not None
    former_epoch = image.brokers[2].epoch
    cluster.run_until(look, limit_s=LIMIT_S)
    assert hosted == []
    assert list(node.partitions) != []
    cluster.close()
