"""Consume with librdkafka from the page cache: the same records again and again, from the start of every partition."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.loads.meter import Meter

RECORDS_PER_CALL = 10_000
SILENCE_SECONDS_MAX = 30.0


class ShortReadError(RuntimeError):
    """The broker stopped delivering before the records ended."""


@dataclass(frozen=True, slots=True)
class ConsumeLoad:
    """Reads the `records` of the topic in whole passes until `seconds` have passed."""

    bootstrap: str
    broker_pid: int
    topic: str
    partitions: int
    records: int
    seconds: float


def run(load: ConsumeLoad) -> dict[str, float]:
    consumer = Consumer(
        {
            "bootstrap.servers": load.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            # The fetch that finds the end of the log is parked, and the next pass cannot begin before it returns.
            "fetch.wait.max.ms": 5,
            # A full queue makes librdkafka wait for a second before it fetches again, and that would be all we see.
            "fetch.queue.backoff.ms": 1,
            "log_level": 2,
        }
    )
    consumer.list_topics(load.topic, timeout=SILENCE_SECONDS_MAX)
    meter = Meter(load.broker_pid)
    consumed = 0
    while meter.elapsed_seconds() < load.seconds:
        consumer.assign([TopicPartition(load.topic, partition, 0) for partition in range(load.partitions)])
        consumed += _one_pass(consumer, load)
    figures = meter.figures(consumed)
    consumer.close()
    return figures


def _one_pass(consumer: Consumer, load: ConsumeLoad) -> int:
    left = load.records
    while left > 0:
        messages = consumer.consume(min(left, RECORDS_PER_CALL), timeout=SILENCE_SECONDS_MAX)
        if not messages:
            raise ShortReadError(f"{left} of {load.records} records of {load.topic} did not come")
        # An error is a message without an offset of its own, always the last one that a call returns.
        if (error := messages[-1].error()) is not None:
            raise KafkaException(error)
        left -= len(messages)
    return load.records
