"""Producers that know what was acknowledged and when, and readers that remember what they were shown."""

from __future__ import annotations

import threading
import time
from array import array
from typing import TYPE_CHECKING, Any, Literal

import confluent_kafka

from tests.clients.adapter import ProducerOptions
from tests.clients.with_confluent import producer_config

if TYPE_CHECKING:
    from collections.abc import Callable

ACKNOWLEDGED_S_MAX = 180.0
POLL_S = 0.1
READ_AT_ONCE = 1_000
CLOSE_S_MAX = 60.0


class Acknowledgements:
    """The delivery reports of one partition: when each came, and what it was about."""

    def __init__(self) -> None:
        self.at = array("d")
        self.producer = array("q")
        self.number = array("q")
        self.offset = array("q")

    def add(self, at: float, producer: int, number: int, offset: int) -> None:
        self.at.append(at)
        self.producer.append(producer)
        self.number.append(number)
        self.offset.append(offset)


def value_of(producer: int, number: int) -> bytes:
    return b"%d-%d" % (producer, number)


class VerifiableProducer:
    """Writes the numbers 0, 1, 2, … to every partition at a steady pace, with an idempotent producer and acks=all.

    It never gives up on a record: whatever fails is tried until it is acknowledged, in order.
    """

    def __init__(self, bootstrap: str, topic: str, producer: int, acknowledged: list[Acknowledgements], every_s: float):
        options = ProducerOptions(idempotent=True, linger_ms=2)
        self._client = confluent_kafka.Producer(producer_config(bootstrap, options) | {"message.timeout.ms": 0})
        self._topic = topic
        self._producer = producer
        self._acknowledged = acknowledged
        self._every_s = every_s
        self._is_over = threading.Event()
        self.count = 0
        """How many records each partition gets."""
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._run, name=f"producer-{producer}")
        self._thread.start()

    def finish(self) -> None:
        """Stop, and wait until everything is acknowledged."""
        self.stop()
        left = self._client.flush(ACKNOWLEDGED_S_MAX)
        assert left == 0, f"{left} records of producer {self._producer} were never acknowledged"
        assert self.failures == []

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._is_over.is_set():
            number = self.count
            for partition in range(len(self._acknowledged)):
                self._client.produce(
                    self._topic,
                    value_of(self._producer, number),
                    partition=partition,
                    on_delivery=self._reported(partition, number),
                )
            self.count += 1
            due += self._every_s
            # Reports are taken as they come, so that their times are true.
            while (left_s := due - time.monotonic()) > 0 and not self._is_over.is_set():
                self._client.poll(left_s)

    def _reported(self, partition: int, number: int) -> Callable[[Any, confluent_kafka.Message], None]:
        def report(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            if error is not None:
                self.failures.append(f"{self._topic}-{partition}, {number}: {error.str()}")
                return
            offset = message.offset()
            assert offset is not None
            self._acknowledged[partition].add(time.monotonic(), self._producer, number, offset)

        return report


class Reader:
    """Reads a topic from its beginning through everything that happens, and keeps (offset, value) of each partition."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, isolation: Literal["read_committed", "read_uncommitted"]
    ) -> None:
        self.topic = topic
        self.isolation = isolation
        self.seen: list[list[tuple[int, bytes]]] = [[] for _ in range(partitions)]
        self.failures: list[str] = []
        self._is_over = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "assigned-by-hand",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                # What was shown must not be taken back: a reader that finds itself behind the end says so.
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
            }
        )
        self._consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)])
        self._thread = threading.Thread(target=self._run, name=f"reader of {topic}")
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(CLOSE_S_MAX)
        assert not self._thread.is_alive(), "a reader did not close in time"

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                for message in self._consumer.consume(READ_AT_ONCE, POLL_S):
                    self._take(message)
        finally:
            self._consumer.close()

    def _take(self, message: confluent_kafka.Message) -> None:
        error = message.error()
        if error is not None:
            # Brokers come and go; only what would have the reader begin elsewhere matters.
            if error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET or error.fatal():
                self.failures.append(f"a {self.isolation} reader of {self.topic}: {error.str()}")
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        seen = self.seen[partition]
        if seen and offset <= seen[-1][0]:
            self.failures.append(
                f"a {self.isolation} reader of {self.topic}-{partition} was shown offset {offset} after {seen[-1][0]}"
            )
        seen.append((offset, value))
