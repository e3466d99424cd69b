"""SIGKILL under load, at random points: every acknowledged record is there once, in order, after each restart."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from tests.clients.adapter import ClientError, ProducerOptions
from tests.clients.with_confluent import ConfluentClient, producer_config
from tests.peers import wait_until

if TYPE_CHECKING:
    from barnabas.testing.node_process import Node

PARTITIONS = 3
KILLS_SHORT, KILLS_FULL = 8, 200
RUN_S_MIN, RUN_S_MAX = 0.02, 0.6
PENDING_MAX = 2_000
READ_AT_ONCE = 50_000


class Load:
    """An idempotent producer that sends numbered records to every partition until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        config = producer_config(bootstrap, ProducerOptions(idempotent=True, linger_ms=1))
        self._producer = confluent_kafka.Producer(config | {"message.timeout.ms": 0})
        self._topic = topic
        self._is_over = threading.Event()
        self.sent = [0] * PARTITIONS
        self.acknowledged = [0] * PARTITIONS
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def await_progress(self) -> None:
        """Wait until something more is acknowledged."""
        before = sum(self.acknowledged)
        wait_until(lambda: sum(self.acknowledged) > before, "records are acknowledged")

    def finish(self, deadline_s: float) -> None:
        """Stop sending and wait until everything is acknowledged."""
        self._is_over.set()
        self._thread.join()
        left = self._producer.flush(deadline_s)
        assert left == 0, f"{left} records were never acknowledged"

    def _run(self) -> None:
        while not self._is_over.is_set():
            if len(self._producer) >= PENDING_MAX:
                self._producer.poll(0.01)
                continue
            for partition in range(PARTITIONS):
                value = b"%d:%d" % (partition, self.sent[partition])
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._note)
                self.sent[partition] += 1
            self._producer.poll(0.0005)

    def _note(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failures.append(error.str())
            return
        partition = message.partition()
        assert partition is not None
        self.acknowledged[partition] += 1


@pytest.mark.timeout(3_600)
def test_no_acknowledged_record_is_lost_repeated_or_reordered_by_kills(
    victim: Node, topic: str, is_chaos_full: bool
) -> None:
    ConfluentClient(victim.bootstrap).create_topic(
        topic, partitions=PARTITIONS, config={"segment.bytes": "1048576", "retention.ms": "-1"}
    )
    chance = random.Random(200)
    load = Load(victim.bootstrap, topic)
    for _ in range(KILLS_FULL if is_chaos_full else KILLS_SHORT):
        load.await_progress()
        time.sleep(chance.uniform(RUN_S_MIN, RUN_S_MAX))  # the random point of the kill
        victim.kill()
        victim.start()
    load.finish(60)
    assert load.failures == []

    client = ConfluentClient(victim.bootstrap)
    for partition in range(PARTITIONS):
        count = load.sent[partition]
        assert load.acknowledged[partition] == count
        assert client.offset_range(topic, partition) == (0, count)
        check_all(client, topic, partition, count)


def check_all(client: ConfluentClient, topic: str, partition: int, count: int) -> None:
    """Read the partition bit by bit, as there may be millions, and find every number once and in order."""
    with client.consumer(topic, "beginning", partition=partition) as consumer:
        for start in range(0, count, READ_AT_ONCE):
            wanted = range(start, min(start + READ_AT_ONCE, count))
            received = consumer.receive(len(wanted))
            assert [r.value for r in received] == [b"%d:%d" % (partition, n) for n in wanted]


@pytest.mark.timeout(1_800)
def test_no_acknowledged_change_of_the_cluster_is_lost_by_kills(victim: Node, topic: str, is_chaos_full: bool) -> None:
    """Topics are made and deleted while the node is killed; what was not answered may have happened or not."""
    chance = random.Random(201)
    made: set[str] = set()
    doubtful: set[str] = set()
    for round_number in range(40 if is_chaos_full else 4):
        killing = threading.Timer(chance.uniform(0.05, 0.4), victim.kill)
        killing.start()
        _make_and_delete_until_killed(victim, f"{topic}-{round_number}", made, doubtful)
        killing.join()
        victim.start()
        client = ConfluentClient(victim.bootstrap)
        present = client.topic_names()
        assert made - doubtful <= present, "an acknowledged topic is missing"
        assert present <= made | doubtful, "a deleted topic is back"
        made, doubtful = present, set()
        for name in chance.sample(sorted(present), min(5, len(present))):
            assert client.topic_config(name)["retention.ms"] == _retention_of(name)


def _make_and_delete_until_killed(node: Node, prefix: str, made: set[str], doubtful: set[str]) -> None:
    client = ConfluentClient(node.bootstrap)
    try:
        for n in range(10_000):
            name = f"{prefix}-{n}"
            doubtful.add(name)
            client.create_topic(name, config={"retention.ms": _retention_of(name)})
            made.add(name)
            doubtful.discard(name)
            if n % 3 == 2:
                doubtful.add(name)
                client.delete_topic(name)
                made.discard(name)
                doubtful.discard(name)
    except ClientError:
        return  # the node is gone, and what it was asked for last is in doubt
    raise AssertionError("the node was to be killed long before")


def _retention_of(name: str) -> str:
    return str(1_000_000 + int(name.rpartition("-")[2]))
