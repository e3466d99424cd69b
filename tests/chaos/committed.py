"""What a reader of committed records finds in a topic, from the beginning of every partition to its very end."""

from __future__ import annotations

import time

import confluent_kafka

SILENCE_S_MAX = 30.0
AT_ONCE = 10_000
POLL_S = 0.1


def read_committed(bootstrap: str, topic: str, partitions: int) -> list[list[bytes]]:
    """The values of each partition. Fails where an open transaction keeps the reader from the end."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    try:
        wanted = [confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(partitions)]
        consumer.assign(wanted)
        values = _read(consumer, partitions)
        for at in consumer.position(wanted):
            _, end = consumer.get_watermark_offsets(at, cached=True)
            assert at.offset == end, f"{topic}-{at.partition} can be read up to {at.offset} only, and ends at {end}"
    finally:
        consumer.close()
    return values


def _read(consumer: confluent_kafka.Consumer, partitions: int) -> list[list[bytes]]:
    values: list[list[bytes]] = [[] for _ in range(partitions)]
    at_end: set[int | None] = set()
    deadline = time.monotonic() + SILENCE_S_MAX
    while len(at_end) < partitions:
        assert time.monotonic() < deadline, f"{partitions - len(at_end)} partitions have not been read to their ends"
        # It returns early only when all that it may return is there: so a short wait, and the deadline is ours.
        for message in consumer.consume(AT_ONCE, POLL_S):
            partition, value, error = message.partition(), message.value(), message.error()
            if error is None:
                assert partition is not None
                assert value is not None
                values[partition].append(value)
                deadline = time.monotonic() + SILENCE_S_MAX
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                at_end.add(partition)
            else:
                raise confluent_kafka.KafkaException(error)
    return values
