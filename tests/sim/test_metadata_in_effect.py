"""A broker counts on others, and others on it, when it acts on the metadata, not when it has merely received it.

The broker that is looked at takes seconds to create the logs of a topic, so that there is a while in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.net.peer import Peer
from barnabas.protocol import messages as m
from barnabas.testing.simulator.cluster import SimulatedCluster
from barnabas.testing.simulator.nodes import DISK_LATENCY_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.metadata.image import BrokerImage, MetadataImage
    from barnabas.testing.simulator.nodes import SimulatedNode

LIMIT_S = 120.0
PARTITIONS = 60
SLOW_S, VERY_SLOW_S = (1.0, 1.0), (5.0, 5.0)
"""What a function in a thread takes on the broker that is looked at."""


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    cluster = SimulatedCluster(seed=1, nodes=3)
    cluster.start()
    cluster.run_until(cluster.is_ready, limit_s=LIMIT_S)
    yield cluster
    cluster.close()


def image_at(node: SimulatedNode) -> MetadataImage:
    assert node.image is not None
    return node.image


def by_role(cluster: SimulatedCluster) -> tuple[SimulatedNode, SimulatedNode, SimulatedNode]:
    """The node that has the active controller, and the two others."""
    leader_id = image_at(cluster.nodes[1]).controller_id
    one, other = (node for node in cluster.nodes.values() if node.id != leader_id)
    return cluster.nodes[leader_id], one, other


def create_topic(cluster: SimulatedCluster, at: SimulatedNode, name: str, partitions: int) -> None:
    async def create() -> None:
        peer = Peer(at.name, *at.address, cluster.client("admin").environment)
        topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=3)
        try:
            response: m.CreateTopicsResponse = await peer.send(m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
            assert response.topics[0].error_code == 0
        finally:
            await peer.close()

    cluster.client("admin").loop.run(create(), limit_s=LIMIT_S)


def test_a_broker_is_unfenced_when_it_has_put_the_metadata_into_effect(cluster: SimulatedCluster) -> None:
    controller, node, _ = by_role(cluster)
    node.pause()
    create_topic(cluster, controller, "orders", PARTITIONS)
    former = image_at(controller).brokers[node.id]
    assert not former.fenced, "it has replicas of a topic of which it knows nothing yet"
    node.kill()
    node.disk_latency_s = SLOW_S
    node.start()
    hosted: list[int] = []

    def known() -> BrokerImage:
        return image_at(controller).brokers[node.id]

    def is_unfenced() -> bool:
        if known().epoch != former.epoch:
            hosted.append(len(list(node.partitions)))
            return not known().fenced
        return False

    cluster.run_until(is_unfenced, limit_s=LIMIT_S)
    assert min(hosted) < PARTITIONS, "there was a while in which it had yet to create its logs"
    assert hosted[-1] >= PARTITIONS
    epoch = known().epoch
    cluster.run_until(lambda: node.is_ready, limit_s=LIMIT_S)
    assert known().epoch == epoch


def test_a_broker_is_let_go_when_those_lead_that_take_its_place(cluster: SimulatedCluster) -> None:
    controller, leaving, slow = by_role(cluster)
    create_topic(cluster, controller, "led", 6)
    cluster.run_until(lambda: sum(each.topic == "led" for each in slow.partitions) == 6, limit_s=LIMIT_S)
    slow.pause()
    create_topic(cluster, controller, "orders", PARTITIONS)
    slow.resume()
    cluster.run_until(lambda: "orders" in image_at(slow).topics, limit_s=LIMIT_S)
    # Its logs take long to create, and nothing else does: it has soon received what is decided next.
    slow.disk_latency_s = VERY_SLOW_S
    cluster.run_for(0.01)
    slow.disk_latency_s = DISK_LATENCY_S
    leaving.stop()
    cluster.run_for(1)
    leaders = [partition.leader for partition in image_at(slow).topics.names["led"].partitions]
    assert leaving.id not in leaders
    cluster.run_until(lambda: not leaving.is_up, limit_s=LIMIT_S)
    leads = {each.index: each.state.is_leader for each in slow.partitions if each.topic == "led"}
    assert leads == {index: leader == slow.id for index, leader in enumerate(leaders)}
