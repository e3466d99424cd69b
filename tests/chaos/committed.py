"""What is committed: the records of a topic, from the beginning of every partition to its very end, and offsets."""

from __future__ import annotations

import time

import confluent_kafka

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.wire.connection import ClosedError, Connection

SILENCE_S_MAX = 30.0
AT_ONCE = 10_000
POLL_S = 0.1
UNDER_WAY = ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"]


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


def committed_offsets(bootstrap: str, group: str, topic: str, partitions: int) -> list[int] | None:
    """What a group has committed for good, by partition, −1 where that is nothing.

    None while no coordinator answers, it is loading, or a transaction may still change it.
    """
    request = m.OffsetFetchRequest
    wanted = request.OffsetFetchRequestTopics(name=topic, partition_indexes=list(range(partitions)))
    asked = request(groups=[request.OffsetFetchRequestGroup(group_id=group, topics=[wanted])], require_stable=True)
    try:
        port = coordinator_port(bootstrap, group)
        if port is None:
            return None
        with Connection(port) as connection:
            (answered,) = connection.call(asked, 9, m.OffsetFetchResponse).groups
    except (OSError, ClosedError):
        return None
    found = [each for of_topic in answered.topics for each in of_topic.partitions]
    if answered.error_code != Error.NONE or any(each.error_code != Error.NONE for each in found):
        return None
    return [each.committed_offset for each in found]


def coordinator_port(bootstrap: str, group: str) -> int | None:
    """Where the coordinator of a group listens, as the first broker says that can be asked; None if it knows none."""
    for address in bootstrap.split(","):
        try:
            with Connection(int(address.rpartition(":")[2])) as connection:
                asked = m.FindCoordinatorRequest(coordinator_keys=[group])
                (found,) = connection.call(asked, 4, m.FindCoordinatorResponse).coordinators
        except (OSError, ClosedError):
            continue
        return found.port if found.error_code == Error.NONE else None
    return None


def transactions_under_way(port: int) -> list[str]:
    """The transactional ids that this broker coordinates whose transaction has begun and is not complete."""
    with Connection(port) as connection:
        asked = m.ListTransactionsRequest(state_filters=UNDER_WAY)
        answer = connection.call(asked, 1, m.ListTransactionsResponse)
    assert Error(answer.error_code) == Error.NONE
    return [each.transactional_id for each in answer.transaction_states]
