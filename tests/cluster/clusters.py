"""What tests of several real nodes have in common: settings that notice failures early, and questions to a cluster."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.cli.cluster_command import fetch_status, status_facts
from barnabas.cli.cluster_connection import connect
from barnabas.testing.kit.cluster import QUICK as QUICK
from barnabas.testing.kit.forks import run_forked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from confluent_kafka.admin._metadata import PartitionMetadata

    from tests.nodes import Cluster

DEADLINE_S = 15.0
WHOLE_S = 60.0


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {deadline_s} s: {what}"
        time.sleep(0.05)


def status(cluster: Cluster) -> Any:
    """What `barnabas cluster status --json` prints."""
    with connect(running(cluster)) as connection:
        found = fetch_status(connection)
    assert found.has_controller
    return json.loads(json.dumps(status_facts(found)))


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


def create_replicated(
    cluster: Cluster,
    name: str,
    partitions: int = 3,
    *,
    assignment: Sequence[Sequence[int]] | None = None,
    **config: str,
) -> None:
    """A topic of three replicas, in sync everywhere; with an assignment, on these brokers, of which the first leads.
    Settings are named with underscores."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    placed: dict[str, Any] = {"replication_factor": 3}
    if assignment is not None:
        partitions, placed = len(assignment), {"replica_assignment": [list(brokers) for brokers in assignment]}
    new = NewTopic(name, partitions, config=settings, **placed)
    client = AdminClient({"bootstrap.servers": running(cluster), "log_level": 0})
    client.create_topics([new])[name].result(DEADLINE_S)
    wait_until(lambda: in_sync(cluster, name) == [3] * partitions, f"all replicas of {name} are in sync")


def described(cluster: Cluster, topic: str, at: int | None = None) -> list[PartitionMetadata]:
    """The partitions of a topic, as this broker, or one of those that run, knows them; none while it does not know the
    topic."""
    bootstrap = running(cluster) if at is None else cluster[at].bootstrap
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    partitions = client.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
    return [partitions[index] for index in sorted(partitions)]


def in_sync(cluster: Cluster, topic: str) -> list[int]:
    """How many replicas of each partition are in sync."""
    return [len(partition.isrs) for partition in described(cluster, topic)]


def leader_of(cluster: Cluster, topic: str, partition: int = 0) -> int:
    """The id of the broker that leads the partition, -1 if there is none."""
    leader: int = described(cluster, topic)[partition].leader
    return leader


def is_whole(cluster: Cluster) -> bool:
    """Whether every replica of every partition is in sync, as every broker sees it."""
    return all(is_whole_at(cluster[node_id].bootstrap) for node_id in serving(cluster))


def is_whole_at(bootstrap: str) -> bool:
    found = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=DEADLINE_S)
    partitions = [partition for topic in found.topics.values() for partition in topic.partitions.values()]
    return all(
        partition.leader in partition.isrs and set(partition.isrs) == set(partition.replicas)
        for partition in partitions
    )


def make_whole(cluster: Cluster) -> None:
    """Starts the nodes that do not run, and waits until no replica lags: the next test finds what this one found."""
    cluster.start()
    wait_until(lambda: is_whole(cluster), "all replicas are in sync", WHOLE_S)


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


def format_folder(config: Path, cluster_id: str, *options: str) -> None:
    words = ["format", f"--cluster-id={cluster_id}", "--config", str(config), *options]
    code, output = run_forked(words, DEADLINE_S)
    assert code == 0, output
