"""A node that finds no quorum, and is stopped cleanly again, still counts as stopped cleanly.

The controller takes a broker that did not stop cleanly out of ISR and ELR, for it may have lost records. A life that
began and ended without a registration has lost none.
"""

from __future__ import annotations

import json
import os

from barnabas.testing.simulator.cluster import FOLDER, SimulatedCluster

LIMIT_S = 60.0


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
