"""A topic deleted and made again while clients use it: they recover by themselves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiokafka
import confluent_kafka
import kafka
import kafka.errors
import pytest
from aiokafka.errors import KafkaError as AiokafkaError

from tests.clients.adapter import ConsumerOptions, ProducerOptions
from tests.clients.with_confluent import ConfluentClient, consumer_config, producer_config
from tests.peers import wait_until

if TYPE_CHECKING:
    from tests.conftest import MakeNode
    from tests.peers import Peer

FROM_THE_START = ConsumerOptions(out_of_range="earliest")


def recreate(confluent: ConfluentClient, topic: str) -> None:
    confluent.delete_topic(topic)
    wait_until(lambda: topic not in confluent.topic_names(), f"{topic} is gone")
    confluent.create_topic(topic)


@pytest.fixture
def strict_node(make_node: MakeNode) -> Peer:
    """Otherwise a client that asks for the topic while it is away would make it again itself."""
    return make_node({"auto.create.topics.enable": "false"})


@pytest.fixture
def confluent(strict_node: Peer) -> ConfluentClient:
    return ConfluentClient(strict_node.bootstrap)


def test_librdkafka_recovers(strict_node: Peer, confluent: ConfluentClient, topic: str) -> None:
    confluent.create_topic(topic)
    producer = confluent_kafka.Producer(producer_config(strict_node.bootstrap, ProducerOptions()))
    consumer = confluent_kafka.Consumer(consumer_config(strict_node.bootstrap, FROM_THE_START))
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    delivered: set[bytes | None] = set()
    received: set[bytes | None] = set()

    def note(error: confluent_kafka.KafkaError | None, message: Any) -> None:
        if error is None:
            delivered.add(message.value())

    def exchange(value: bytes) -> bool:
        """Send once more what may have been lost with the old topic, until the consumer has seen it."""
        producer.produce(topic, value, on_delivery=note)
        producer.flush(5)
        received.update(m.value() for m in consumer.consume(1_000, 0.2) if not m.error())
        return value in received and value in delivered

    try:
        wait_until(lambda: exchange(b"before"), "records flow before")
        recreate(confluent, topic)
        wait_until(lambda: exchange(b"after"), "records flow again", deadline_s=60)
    finally:
        consumer.close()


def test_aiokafka_recovers(strict_node: Peer, confluent: ConfluentClient, topic: str) -> None:
    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=strict_node.bootstrap, metadata_max_age_ms=500)
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=strict_node.bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            metadata_max_age_ms=500,
        )
        await producer.start()
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            async with asyncio.timeout(60):
                await exchange(producer, consumer, b"before")
                await asyncio.to_thread(recreate, confluent, topic)
                await exchange(producer, consumer, b"after")
        finally:
            await consumer.stop()
            await producer.stop()

    async def exchange(producer: Any, consumer: Any, value: bytes) -> None:
        received: set[bytes] = set()
        while value not in received:
            try:
                await producer.send_and_wait(topic, value)
                polled = await consumer.getmany(timeout_ms=200)
            except AiokafkaError:
                continue  # what a client may see while the topic is away
            received |= {record.value for records in polled.values() for record in records}

    confluent.create_topic(topic)
    asyncio.run(run())


def test_kafka_python_recovers(strict_node: Peer, confluent: ConfluentClient, topic: str) -> None:
    confluent.create_topic(topic)
    producer = kafka.KafkaProducer(bootstrap_servers=strict_node.bootstrap, metadata_max_age_ms=500)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=strict_node.bootstrap, auto_offset_reset="earliest", metadata_max_age_ms=500
    )
    consumer.assign([kafka.TopicPartition(topic, 0)])
    received: set[bytes] = set()

    def exchange(value: bytes) -> bool:
        try:
            producer.send(topic, value).get(5)
            polled = consumer.poll(200)
        except kafka.errors.KafkaError:
            return False  # what a client may see while the topic is away
        received.update(record.value for records in polled.values() for record in records)
        return value in received

    try:
        wait_until(lambda: exchange(b"before"), "records flow before")
        recreate(confluent, topic)
        wait_until(lambda: exchange(b"after"), "records flow again", deadline_s=60)
    finally:
        consumer.close()
        producer.close()
