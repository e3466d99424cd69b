"""What a reader of committed data finds in a topic, from its beginning to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import confluent_kafka

from tests.clients.with_confluent import _received

if TYPE_CHECKING:
    from tests.clients.adapter import Received

TURN_S = 1.0
TURNS_MAX = 60


def read_committed(bootstrap: str, topic: str, partitions: int = 1) -> list[Received]:
    """All records of committed transactions, and those of none, partition by partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads without committing",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(partitions)])
        found: list[Received] = []
        unfinished = set(range(partitions))
        for _ in range(TURNS_MAX):
            for message in consumer.consume(10_000, TURN_S / 10):
                error = message.error()
                if error is None:
                    found.append(_received(message))
                    unfinished.add(found[-1].partition)
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition())
            if not unfinished:
                return sorted(found, key=lambda each: (each.partition, each.offset))
    finally:
        consumer.close()
    raise AssertionError(f"partitions {sorted(unfinished)} of {topic} have not been read to their end in time")
