"""What a client learns of the cluster, and how it copes with what a broker does not have."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import kafka
from confluent_kafka.admin import AdminClient

from tests.clients.adapter import Client, consume, values

if TYPE_CHECKING:
    from tests.peers import Peer


def test_the_cluster_is_described(node: Peer) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    described = admin.describe_cluster().result(30)
    meta = dict(
        line.split("=", 1)
        for line in (node.data_dir / "meta.properties").read_text().splitlines()
        if not line.startswith("#")
    )
    assert described.cluster_id == meta["cluster.id"]
    (broker,) = described.nodes
    assert (str(broker.id), broker.host, broker.port) == (meta["node.id"], "127.0.0.1", node.port)
    assert described.controller.id == broker.id


def test_kafka_python_describes_the_cluster(node: Peer) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=node.bootstrap)
    try:
        described = admin.describe_cluster()
    finally:
        admin.close()
    (broker,) = described["brokers"]
    assert broker["port"] == node.port
    assert described["controller_id"] == broker.get("broker_id", broker.get("node_id"))


def test_a_consumer_closes_at_once(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, values(5))
    consume(client, topic, 5)
    with client.consumer(topic, "beginning") as consumer:
        consumer.receive(5)
        started = time.monotonic()
    assert time.monotonic() - started < 5
