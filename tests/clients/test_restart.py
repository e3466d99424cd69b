"""A node that stops, or is killed, and comes back has everything, and its clients go on by themselves."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from tests.clients.adapter import CODECS, CONSUMER, Client, ProducerOptions, consume, values
from tests.clients.with_confluent import ConfluentClient, consumer_config, producer_config
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peers import Peer


def leader_epochs(bootstrap: str, topic: str, count: int) -> list[int]:
    """The leader epoch with which each record was stored."""
    consumer = confluent_kafka.Consumer(consumer_config(bootstrap, CONSUMER))
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        records = consumer.consume(count, 30)
    finally:
        consumer.close()
    assert len(records) == count
    return [-1 if (epoch := record.leader_epoch()) is None else epoch for record in records]


def noting(failures: list[confluent_kafka.KafkaError]) -> Callable[[confluent_kafka.KafkaError | None, Any], None]:
    """A delivery callback that keeps what went wrong."""

    def note(error: confluent_kafka.KafkaError | None, _: Any) -> None:
        if error is not None:
            failures.append(error)

    return note


@pytest.fixture(params=["stop", "kill"])
def end(request: pytest.FixtureRequest, fresh_node: Peer) -> Callable[[], None]:
    """The two ways in which a node ends."""
    return fresh_node.stop if request.param == "stop" else fresh_node.kill


def test_topics_settings_and_records_are_there_after_a_restart(
    fresh_node: Peer, end: Callable[[], None], topic: str
) -> None:
    client = ConfluentClient(fresh_node.bootstrap)
    client.create_topic(topic, partitions=3, config={"retention.ms": "-1", "segment.bytes": "2000000"})
    client.create_topic(f"{topic}-deleted")
    client.delete_topic(f"{topic}-deleted")
    for partition, codec in enumerate(CODECS[:3]):
        client.produce(topic, values(100, prefix=codec), partition=partition, options=ProducerOptions(codec=codec))
    config = client.topic_config(topic)
    for _ in range(2):
        end()
        fresh_node.start()
        client = ConfluentClient(fresh_node.bootstrap)
        assert {name for name in client.topic_names() if not name.startswith("__")} == {topic}
        assert client.partition_count(topic) == 3
        assert client.topic_config(topic) == config
        for partition, codec in enumerate(CODECS[:3]):
            received = consume(client, topic, 100, partition=partition)
            assert [r.value for r in received] == [m.value for m in values(100, prefix=codec)]
            assert client.offset_range(topic, partition) == (0, 100)


def test_leader_epochs_rise_with_every_restart(fresh_node: Peer, end: Callable[[], None], topic: str) -> None:
    client = ConfluentClient(fresh_node.bootstrap)
    client.create_topic(topic)
    client.produce(topic, values(1))
    for _ in range(2):
        end()
        fresh_node.start()
        client = ConfluentClient(fresh_node.bootstrap)
        client.produce(topic, values(1))
    epochs = leader_epochs(fresh_node.bootstrap, topic, 3)
    assert epochs[0] < epochs[1] < epochs[2]


def test_the_beginning_that_retention_moved_stays_moved(fresh_node: Peer, end: Callable[[], None], topic: str) -> None:
    client = ConfluentClient(fresh_node.bootstrap)
    client.create_topic(topic, config={"retention.ms": "300"})
    client.produce(topic, values(10))
    wait_until(lambda: client.offset_range(topic) == (10, 10), "all records have expired")
    end()
    fresh_node.start()
    client = ConfluentClient(fresh_node.bootstrap)
    client.alter_topic_config(topic, {"retention.ms": "-1"})
    client.produce(topic, values(1))
    assert client.offset_range(topic) == (10, 11)


def test_a_producer_and_a_consumer_live_through_a_restart(
    fresh_node: Peer, end: Callable[[], None], topic: str
) -> None:
    """One producer and one consumer are open all the time; nothing is lost, repeated or reordered."""
    ConfluentClient(fresh_node.bootstrap).create_topic(topic)
    producer = confluent_kafka.Producer(producer_config(fresh_node.bootstrap, ProducerOptions(idempotent=True)))
    consumer = confluent_kafka.Consumer(consumer_config(fresh_node.bootstrap, CONSUMER))
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    received: list[bytes | None] = []
    failures: list[confluent_kafka.KafkaError] = []

    def poll_until(count: int) -> bool:
        received.extend(message.value() for message in consumer.consume(1_000, 0.05) if not message.error())
        return len(received) >= count

    def send(first: int, last: int) -> None:
        for n in range(first, last):
            producer.produce(topic, b"%d" % n, on_delivery=noting(failures))
        assert producer.flush(60) == 0

    try:
        send(0, 1_000)
        wait_until(lambda: poll_until(1_000), "the first thousand arrived")
        end()
        during = threading.Thread(target=send, args=(1_000, 2_000))
        during.start()
        fresh_node.start()
        during.join(60)
        wait_until(lambda: poll_until(2_000), "the second thousand arrived")
    finally:
        consumer.close()
    assert failures == []
    assert received == [b"%d" % n for n in range(2_000)]


def test_an_idempotent_producer_goes_on_where_it_was(fresh_node: Peer, end: Callable[[], None], topic: str) -> None:
    """The sequence numbers that the node knew before are known afterwards: the producer is not told of a gap."""
    ConfluentClient(fresh_node.bootstrap).create_topic(topic)
    producer = confluent_kafka.Producer(producer_config(fresh_node.bootstrap, ProducerOptions(idempotent=True)))
    failures: list[confluent_kafka.KafkaError] = []
    for round_number in range(3):
        for n in range(100):
            value = b"%d-%d" % (round_number, n)
            producer.produce(topic, value, on_delivery=noting(failures))
        assert producer.flush(60) == 0
        end()
        fresh_node.start()
    assert failures == []
    received = consume(ConfluentClient(fresh_node.bootstrap), topic, 300)
    assert [r.value for r in received] == [b"%d-%d" % (r, n) for r in range(3) for n in range(100)]


def test_every_library_reads_what_was_there_before(library: type[Client], fresh_node: Peer, topic: str) -> None:
    client = library(fresh_node.bootstrap)
    client.create_topic(topic)
    client.produce(topic, values(50))
    fresh_node.stop()
    fresh_node.start()
    client = library(fresh_node.bootstrap)
    assert [r.value for r in consume(client, topic, 50)] == [m.value for m in values(50)]
    assert client.produce(topic, values(1))[0].offset == 50
