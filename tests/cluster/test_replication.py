"""Partitions with three replicas: what was acknowledged survives the loss of a leader, once and in order."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from barnabas.testing.cluster_processes import Cluster
from tests.cluster.clusters import DEADLINE_S, QUICK, admin, running, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "replicated"
PARTITIONS = 3
PAUSE_S = 0.002


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, settings=QUICK) as started:
        new = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        client = admin(started, 1)
        client.create_topics([new])[TOPIC].result(DEADLINE_S)
        wait_until(lambda: in_sync(started) == [3] * PARTITIONS, "every partition has three replicas in sync")
        yield started


def in_sync(cluster: Cluster) -> list[int]:
    """How many replicas of each partition are in sync."""
    client = admin(cluster, cluster.running[0])
    partitions = client.list_topics(TOPIC, timeout=DEADLINE_S).topics[TOPIC].partitions
    return [len(partitions[index].isrs) for index in sorted(partitions)]


def leader_of(cluster: Cluster, partition: int) -> int:
    client = admin(cluster, cluster.running[0])
    leader: int = client.list_topics(TOPIC, timeout=DEADLINE_S).topics[TOPIC].partitions[partition].leader
    return leader


class Writer:
    """An idempotent producer that writes numbers, one after the other, to all partitions in turn, until it is told to
    stop."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.failures: list[Any] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0}
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writer")
        self._thread.start()

    def count(self) -> int:
        return sum(map(len, self.acknowledged))

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(DEADLINE_S) == 0

    def _write(self) -> None:
        number = 0
        while not self._is_over.wait(PAUSE_S):
            self._producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[message.partition()].append(int(message.value()))
        else:
            self.failures.append(error)


def written(cluster: Cluster, partition: int) -> list[int]:
    """Everything that a consumer can read of a partition."""
    consumer = Consumer({"bootstrap.servers": running(cluster), "group.id": "unused", "log_level": 0})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=DEADLINE_S)
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        return [int(message.value() or b"") for message in consumer.consume(end, DEADLINE_S)]
    finally:
        consumer.close()


@pytest.mark.parametrize("ending", ["kill", "stop_node"])
def test_what_was_acknowledged_outlives_its_leader_once_and_in_order(cluster: Cluster, ending: str) -> None:
    writer = Writer(running(cluster))
    try:
        wait_until(lambda: writer.count() > 100, "records were acknowledged")
        victim = leader_of(cluster, 0)
        getattr(cluster, ending)(victim)
        before = writer.count()
        wait_until(lambda: writer.count() > before + 300, "producers go on")
        assert leader_of(cluster, 0) != victim
        cluster.start_node(victim)
        wait_until(lambda: in_sync(cluster) == [3] * PARTITIONS, "the node that came back has caught up")
    finally:
        writer.stop()
    assert writer.failures == []
    for partition in range(PARTITIONS):
        assert written(cluster, partition) == writer.acknowledged[partition]
