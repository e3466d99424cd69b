"""The load of `barnabas bench`: one thread sends records as quickly as it may, another reads them.

A record begins with the moment at which it was sent, by a clock that both threads share: so how long each took from
the one to the other is known without a question to the cluster.
"""

from __future__ import annotations

import threading
import time
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaException, Producer, TopicPartition

from barnabas.cli.rdkafka import base_settings, reason

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

SENT_AT: Final = Struct(">q")
_FLUSH_S: Final = 10.0
_QUEUE_FULL_WAIT_S: Final = 0.02
_PACE_S: Final = 0.01
"""How often a load of a given rate catches up with the clock."""
_MESSAGES_AT_ONCE: Final = 1_000
_TIMED_OF_A_BATCH: Final = 20
_SETTLE_S: Final = 15.0


class Plan(NamedTuple):
    bootstrap_server: str
    topic: str
    partitions: int
    record_bytes: int
    rate: int | None
    """Records a second; None for as many as there can be."""
    acks: str
    compression: str
    reads: bool


class Load:
    """Counters that both threads write, and the main thread looks at. Each has one writer."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._producer = Producer(
            base_settings(plan.bootstrap_server)
            | {
                "acks": plan.acks,
                "compression.type": plan.compression,
                "linger.ms": 5,
                "queue.buffering.max.messages": 200_000,
                "delivery.report.only.error": True,
            }
        )
        self._is_over = threading.Event()
        self._reads_from_now = threading.Event()
        self._sent = 0
        self.read = 0
        self.delays_ms: list[float] = []
        """Of some of the records that were read since somebody took them."""
        self.failures: list[str] = []
        self.failed = 0
        self._threads = [threading.Thread(target=self._send, name="bench-send", daemon=True)]
        if plan.reads:
            self._threads.append(threading.Thread(target=self._read, name="bench-read", daemon=True))

    @property
    def acknowledged(self) -> int:
        """What was sent, less what librdkafka still has and what came back."""
        return max(0, self._sent - self.unacknowledged)

    @property
    def unacknowledged(self) -> int:
        return len(self._producer) + self.failed

    def start(self) -> None:
        """Begin to read, and then to send: returns when both do."""
        sending, *reading = self._threads
        for thread in reading:
            thread.start()
            self._reads_from_now.wait(_SETTLE_S)
        sending.start()

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(_FLUSH_S + 1)

    def taken_delays_ms(self) -> list[float]:
        taken, self.delays_ms = self.delays_ms, []
        return taken

    def _send(self) -> None:
        filler = bytes(ord("a") + i % 26 for i in range(max(0, self._plan.record_bytes - SENT_AT.size)))
        produce, topic, clock = self._producer.produce, self._plan.topic, time.monotonic_ns
        started = time.monotonic()
        try:
            while not self._is_over.is_set():
                if self._plan.rate is not None and self._sent >= self._plan.rate * (time.monotonic() - started):
                    self._producer.poll(0)
                    self._is_over.wait(_PACE_S)
                    continue
                try:
                    produce(topic, SENT_AT.pack(clock()) + filler, on_delivery=self._on_failure)
                    self._sent += 1
                except BufferError:
                    self._producer.poll(_QUEUE_FULL_WAIT_S)
        except KafkaException as failure:
            self._fail(reason(failure))
        self._producer.flush(_FLUSH_S)

    def _read(self) -> None:
        consumer = Consumer(
            base_settings(self._plan.bootstrap_server)
            | {"group.id": "barnabas-bench", "enable.auto.commit": False, "fetch.queue.backoff.ms": 10}
        )
        try:
            ends = [
                TopicPartition(
                    self._plan.topic,
                    each,
                    consumer.get_watermark_offsets(TopicPartition(self._plan.topic, each), timeout=_SETTLE_S)[1],
                )
                for each in range(self._plan.partitions)
            ]
            consumer.assign(ends or [TopicPartition(self._plan.topic, 0, OFFSET_END)])
            self._reads_from_now.set()
            while not self._is_over.is_set():
                self._count(consumer.consume(_MESSAGES_AT_ONCE, 0.1))
        except KafkaException as failure:
            self._fail(reason(failure))
        finally:
            self._reads_from_now.set()
            consumer.close()

    def _count(self, messages: list[Message]) -> None:
        now = time.monotonic_ns()
        values = [
            value for message in messages if message.error() is None and isinstance(value := message.value(), bytes)
        ]
        self.read += len(values)
        for value in values[:: max(1, len(values) // _TIMED_OF_A_BATCH)]:
            if len(value) >= SENT_AT.size:
                self.delays_ms.append((now - SENT_AT.unpack_from(value)[0]) / 1e6)

    def _on_failure(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.failed += 1
            self._fail(error.str())

    def _fail(self, text: str) -> None:
        if text not in self.failures:
            self.failures.append(text)
