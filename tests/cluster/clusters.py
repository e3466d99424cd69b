"""What tests of several real nodes have in common: settings that notice failures early, and questions to a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.testing.cluster_processes import Cluster

DEADLINE_S = 15.0
QUICK = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "num.recovery.threads.per.data.dir": "1",
}


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {deadline_s} s: {what}"
        time.sleep(0.05)


def status(cluster: Cluster) -> Any:
    """What `barnabas cluster status` says."""
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "cluster", "status", "--json", "--bootstrap-server", running(cluster)],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def running(cluster: Cluster) -> str:
    """Where clients connect to the brokers that run."""
    brokers = [node_id for node_id in cluster.running if node_id in serving(cluster)]
    return ",".join(cluster[node_id].bootstrap for node_id in brokers)


def serving(cluster: Cluster) -> list[int]:
    """The nodes that have the broker's role."""
    return [
        node_id
        for node_id in cluster.nodes
        if "broker" in cluster.config_file(node_id).read_text().partition("process.roles=")[2].partition("\n")[0]
    ]


def admin(cluster: Cluster, node_id: int) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster[node_id].bootstrap, "log_level": 0})


def create_topic(client: AdminClient, name: str, partitions: int = 3, *, deadline_s: float = DEADLINE_S) -> None:
    """Raises if the topic was not created; one that exists already was created by an attempt before."""
    new = NewTopic(name, partitions, 1)
    client.create_topics([new], operation_timeout=deadline_s, request_timeout=deadline_s)[name].result(deadline_s + 1)


def topics(client: AdminClient) -> dict[str, int]:
    """The number of partitions of each topic."""
    found = client.list_topics(timeout=DEADLINE_S).topics
    return {name: len(topic.partitions) for name, topic in found.items() if not name.startswith("__")}


def produce(bootstrap: str, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "message.timeout.ms": int(DEADLINE_S * 1000)})
    errors: list[Any] = []
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert errors == [None] * len(values)


def consume(bootstrap: str, topic: str, count: int, partition: int = 0) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        return [message.value() or b"" for message in consumer.consume(count, DEADLINE_S)]
    finally:
        consumer.close()


def format_as_broker(cluster: Cluster, config: Path, cluster_id: str | None = None) -> None:
    """Formats the folders of a node that is to join as a broker only."""
    format_folder(config, cluster_id or cluster.layout.cluster_id, "--no-initial-controllers")


def format_folder(config: Path, cluster_id: str, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "format", f"--cluster-id={cluster_id}", "--config", str(config), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
