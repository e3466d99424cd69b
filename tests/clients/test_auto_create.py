"""Topics that come into being when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from barnabas.protocol.errors import Error
from tests.clients.adapter import CONSUMER, Client, consume, values
from tests.clients.with_aiokafka import AiokafkaClient
from tests.clients.with_confluent import ConfluentClient, consumer_config
from tests.clients.with_kafka_python import KafkaPythonClient
from tests.peers import wait_until

if TYPE_CHECKING:
    from tests.conftest import MakeNode
    from tests.peers import Peer


def test_producing_creates_a_topic_of_one_partition(client: Client, topic: str) -> None:
    client.produce(topic, values(10))
    assert client.partition_count(topic) == 1
    assert [r.value for r in consume(client, topic, 10)] == [m.value for m in values(10)]


def test_num_partitions_sets_how_many_partitions_a_new_topic_gets(make_node: MakeNode, topic: str) -> None:
    peer = make_node({"num.partitions": "3"})
    for library in (ConfluentClient, AiokafkaClient, KafkaPythonClient):
        name = f"{topic}-{library.name}"
        client: Client = library(peer.bootstrap)
        client.produce(name, values(3))
        assert client.partition_count(name) == 3


def test_a_consumer_creates_a_topic_only_if_it_is_allowed_to(
    node: Peer, confluent: ConfluentClient, topic: str
) -> None:
    names = {True: f"{topic}-allowed", False: f"{topic}-forbidden"}
    consumers = []
    for is_allowed, name in names.items():
        config = consumer_config(node.bootstrap, CONSUMER) | {"allow.auto.create.topics": is_allowed}
        consumer = confluent_kafka.Consumer(config)
        consumer.assign([confluent_kafka.TopicPartition(name, 0, 0)])
        consumers.append(consumer)
    try:

        def poll_until_created() -> bool:
            for consumer in consumers:
                consumer.poll(0.05)
            return names[True] in confluent.topic_names()

        wait_until(poll_until_created, "the consumer's topic was created")
    finally:
        for consumer in consumers:
            consumer.close()
    assert names[False] not in confluent.topic_names()


def test_no_topic_comes_into_being_where_that_is_switched_off(make_node: MakeNode, topic: str) -> None:
    peer = make_node({"auto.create.topics.enable": "false"})
    client = ConfluentClient(peer.bootstrap)
    outcomes: list[confluent_kafka.KafkaError | None] = []
    producer = client.bare_producer({"message.timeout.ms": 2_000})
    try:
        producer.produce(topic, b"x", on_delivery=lambda error, _: outcomes.append(error))
    except confluent_kafka.KafkaException as refused:
        outcomes.append(refused.args[0])
    producer.flush(30)
    (error,) = outcomes
    assert error is not None
    local_codes = {confluent_kafka.KafkaError._UNKNOWN_TOPIC, confluent_kafka.KafkaError._MSG_TIMED_OUT}
    assert error.code() in {Error.UNKNOWN_TOPIC_OR_PARTITION, *local_codes}
    assert topic not in client.topic_names()


@pytest.mark.parametrize("name", ["not legal", "a" * 250])
def test_an_illegal_name_creates_nothing(confluent: ConfluentClient, name: str) -> None:
    before = confluent.topic_names()
    described = confluent.metadata_error(name)
    assert described == Error.INVALID_TOPIC_EXCEPTION
    assert confluent.topic_names() == before
