"""Topics for tests of pipelines, filled by librdkafka's producer and looked at by its consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.peers import Peer, Reachable


LONG_AGO_MS = 1_600_000_000_000


def create_topic(node: Peer, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)


def delete_topic(node: Peer, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, f"{topic} is gone")


def add_partitions(node: Peer, topic: str, total: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(30)


def produce(node: Reachable, topic: str, values: Iterable[object], partition: int = 0, **fields: Any) -> None:
    """Values as text, in order, into one partition."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, str(value).encode(), partition=partition, **fields)
    assert producer.flush(30) == 0


def expire(node: Peer, topic: str, partition: int = 0) -> None:
    """Lets retention take all records that are there; they have to be from LONG_AGO_MS."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    entry = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "looks at offsets only"})
    place = TopicPartition(topic, partition)

    def is_empty() -> bool:
        start, end = consumer.get_watermark_offsets(place, timeout=30)
        return bool(start == end)

    wait_until(is_empty, f"retention takes the records of {topic}")
    consumer.close()


def committed(node: Peer, group: str, topic: str, partitions: int = 1) -> list[int]:
    """How far a group has come in each partition; librdkafka has -1001 for one that it knows nothing of."""
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group})
    try:
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        return [place.offset for place in consumer.committed(places, timeout=30)]
    finally:
        consumer.close()


def commit(node: Peer, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group})
    try:
        places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        consumer.commit(offsets=places, asynchronous=False)
    finally:
        consumer.close()
