"""One probe after the other: a record is written with acks=all, and read back from the partition that it went to.

Writer and reader are librdkafka's, so that what they see is what applications see, retries included. A probe has failed
when its record is not acknowledged, or not read back, in time. The topic has as many partitions as the cluster has
brokers, and probes go to them in turn, so that each broker that leads is asked. Records of the past are of no use to
anybody: retention removes them after an hour.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.cli.command_line import CommandError
from barnabas.cli.watch.outcome import Result

if TYPE_CHECKING:
    from typing import Self

REPLICAS_MAX: Final = 3
RETENTION_MS: Final = 3_600_000
POLL_S: Final = 0.1


class Prober:
    """Use it as a context manager. Raises CommandError if there is no cluster, or the topic cannot be made."""

    def __init__(self, bootstrap: str, topic: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._topic = topic
        common: dict[str, Any] = {"bootstrap.servers": bootstrap, "client.id": "barnabas-watch", "log_level": 0}
        self._partitions = ensure_topic(AdminClient(common), topic, timeout_s)
        self._producer = Producer(
            common | {"acks": "all", "linger.ms": 0, "message.timeout.ms": max(int(timeout_s * 1000), 1)}
        )
        self._consumer = Consumer(
            common
            | {
                "group.id": f"barnabas-watch-{uuid.uuid4()}",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "allow.auto.create.topics": False,
            }
        )
        self._next = 0
        self._consumer.assign([TopicPartition(topic, each, self._end_of(each)) for each in range(self._partitions)])

    def _end_of(self, partition: int) -> int:
        """Where reading begins. From a partition that does not say now, whatever comes once it is there again."""
        try:
            _, end = self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, partition), timeout=self._timeout_s, cached=False
            )
        except KafkaException:
            return OFFSET_END
        return int(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.purge()
        self._consumer.close()

    def probe(self) -> Result:
        partition = self._next
        self._next = (self._next + 1) % self._partitions
        value = uuid.uuid4().bytes
        outcome: list[str | None] = []
        acknowledged_ms: list[float] = []
        begun_s = time.perf_counter()
        ends_s = begun_s + self._timeout_s

        def delivered(error: KafkaError | None, _message: object) -> None:
            acknowledged_ms.append((time.perf_counter() - begun_s) * 1000)
            outcome.append(None if error is None else error.str())

        self._producer.produce(self._topic, value, partition=partition, on_delivery=delivered)
        while not outcome and time.perf_counter() < ends_s:
            self._producer.poll(min(POLL_S, max(ends_s - time.perf_counter(), 0)))
        if not outcome:
            return Result(partition, None, None, f"not acknowledged within {self._timeout_s:g} s")
        if outcome[0] is not None:
            return Result(partition, None, None, f"not acknowledged: {outcome[0]}")
        while time.perf_counter() < ends_s:
            message = self._consumer.poll(min(POLL_S, max(ends_s - time.perf_counter(), 0)))
            if message is not None and message.error() is None and message.value() == value:
                return Result(partition, acknowledged_ms[0], (time.perf_counter() - begun_s) * 1000)
        return Result(partition, acknowledged_ms[0], None, f"not read back within {self._timeout_s:g} s")


def ensure_topic(admin: AdminClient, topic: str, timeout_s: float) -> int:
    """How many partitions the topic has, which is made if it is not there."""
    try:
        cluster = admin.list_topics(timeout=timeout_s)
    except KafkaException as error:
        raise CommandError(f"no broker answers within {timeout_s:g} s: {error.args[0].str()}") from None
    if topic in cluster.topics:
        return len(cluster.topics[topic].partitions)
    brokers = max(len(cluster.brokers), 1)
    wanted = NewTopic(topic, brokers, min(brokers, REPLICAS_MAX), config={"retention.ms": str(RETENTION_MS)})
    try:
        admin.create_topics([wanted])[topic].result(timeout_s)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise CommandError(f"cannot create topic {topic!r}: {error.args[0].str()}") from None
    return brokers
