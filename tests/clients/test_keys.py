"""Keys choose partitions by murmur2, the same in every library; null keys spread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.partitioner.default import murmur2

from tests.clients.adapter import Client, Message, consume
from tests.peers import wait_until

if TYPE_CHECKING:
    from tests.clients.with_confluent import ConfluentClient

KEYS = [f"key-{n}".encode() for n in range(100)]


def partition_of(key: bytes, partitions: int) -> int:
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


def test_the_same_key_goes_to_the_same_partition_in_every_library(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=7)
    deliveries = client.produce(topic, [Message(b"value", key) for key in KEYS])
    assert [d.partition for d in deliveries] == [partition_of(key, 7) for key in KEYS]


def test_records_of_one_key_stay_in_order(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=7)
    client.produce(topic, [Message(b"%d" % n, b"the key") for n in range(100)])
    received = consume(client, topic, 100, partition=partition_of(b"the key", 7))
    assert [r.value for r in received] == [b"%d" % n for n in range(100)]


def test_null_keys_spread_over_all_partitions(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=3)
    used: set[int] = set()

    def all_partitions_used() -> bool:
        used.update(d.partition for d in client.produce(topic, [Message(b"value")] * 20))
        return used == {0, 1, 2}

    wait_until(all_partitions_used, "null keys reached all partitions")


def test_adding_partitions_moves_keys_and_leaves_old_records_where_they_are(
    client: Client, confluent: ConfluentClient, topic: str
) -> None:
    client.create_topic(topic, partitions=2)
    client.produce(topic, [Message(b"before", key) for key in KEYS])
    before = {p: sum(partition_of(key, 2) == p for key in KEYS) for p in range(2)}
    client.add_partitions(topic, 5)
    wait_until(lambda: client.partition_count(topic) == 5, "the new partitions are known")
    deliveries = client.produce(topic, [Message(b"after", key) for key in KEYS])
    assert [d.partition for d in deliveries] == [partition_of(key, 5) for key in KEYS]
    for partition, count in before.items():
        received = consume(confluent, topic, count, partition=partition)
        assert {r.value for r in received} == {b"before"}
