"""Produce with librdkafka as fast as the broker takes it.

`produce_batch` hands over a chunk of records per call, as one Python call per record would make the client the
bottleneck. A chunk goes to one partition and the next to the next: with few partitions chunks fill up to librdkafka's
usual batches of 1 MB, with a thousand each becomes a batch, and so a request, of its own.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from bench.loads import payload
from bench.loads.meter import Meter

CHUNK_RECORDS = 500
DISTINCT_BYTES = 2 * 1024 * 1024
"""Twice the largest batch: a codec finds no record of a batch again in it."""
QUEUE_RECORDS_MAX = 1_000_000
FLUSH_SECONDS_MAX = 60.0
POLL_SECONDS = 0.005


class DeliveryError(RuntimeError):
    """The broker did not take every record."""


@dataclass(frozen=True, slots=True)
class ProduceLoad:
    """Ends when `seconds` have passed or `records_max` have been handed over, then waits for every acknowledgement.

    Figures are of what came after a first chunk to every partition; `records_total` counts that too.
    """

    bootstrap: str
    broker_pid: int
    topic: str
    partitions: int
    record_bytes: int
    acks: str
    codec: str
    seconds: float
    records_max: int


def run(load: ProduceLoad) -> dict[str, float]:
    failures: list[str] = []
    producer = _producer(load, failures)
    sources = zip(itertools.cycle(_chunks(load.record_bytes)), itertools.cycle(range(load.partitions)))
    # A chunk to every partition before the clock starts: connections, metadata and the broker's files are there then.
    for chunk, partition in itertools.islice(sources, load.partitions):
        _hand_over(producer, load.topic, chunk, partition)
    left = producer.flush(FLUSH_SECONDS_MAX)

    meter = Meter(load.broker_pid)
    records = 0
    while records < load.records_max and meter.elapsed_seconds() < load.seconds and not failures:
        chunk, partition = next(sources)
        records += _hand_over(producer, load.topic, chunk, partition)
    left += producer.flush(FLUSH_SECONDS_MAX)
    figures = meter.figures(records)
    if left or failures:
        raise DeliveryError(f"{left} records of {load.topic} not acknowledged; first error: {failures[:1]}")
    return figures | {"records_total": records + CHUNK_RECORDS * load.partitions}


def _chunks(record_bytes: int) -> list[list[dict[str, Any]]]:
    # An odd number, so that no partition out of an even number of them always gets the same chunk.
    count = DISTINCT_BYTES // (CHUNK_RECORDS * record_bytes) | 1
    values = payload.values(CHUNK_RECORDS * count, record_bytes)
    return [[{"value": value} for value in values[at::count]] for at in range(count)]


def _producer(load: ProduceLoad, failures: list[str]) -> Producer:
    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(f"{message.topic()}-{message.partition()}: {error}")

    return Producer(
        {
            "bootstrap.servers": load.bootstrap,
            "acks": load.acks,
            "compression.type": load.codec,
            "queue.buffering.max.messages": QUEUE_RECORDS_MAX,
            "delivery.report.only.error": True,
            "on_delivery": on_delivery,
            "log_level": 2,
        }
    )


def _hand_over(producer: Producer, topic: str, chunk: list[dict[str, Any]], partition: int) -> int:
    """Hands a whole chunk over, waiting while librdkafka's queue is full; returns how many records that were.

    Records that did not fit come back marked with an `_error`: the mark is taken off and they are offered again.
    """
    left = chunk
    while producer.produce_batch(topic, left, partition=partition) < len(left):
        left = [record for record in left if record.pop("_error", None) is not None]
        producer.poll(POLL_SECONDS)
    return len(chunk)
