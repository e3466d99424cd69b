"""kafka-transactions on transactions that are open, ended by force, and hanging, and the log of transactions."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from tests.clients.adapter import values
from tests.clients.with_confluent import ConfluentClient
from tests.peers import wait_until
from tests.wire import requests
from tests.wire.batches import TRANSACTIONAL, batch
from tests.wire.connection import Connection

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from interop.kafka_tools import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.clients.with_confluent import ConfluentTransactionalProducer
    from tests.peers import Peer

    from interop.kafka_tools import KafkaTools

ONGOING, COMPLETE_ABORT = 1, 5
"""States in the log of transactions."""
VERIFICATION = "transaction.partition.verification.enable"
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def client(peer: Peer) -> ConfluentClient:
    return ConfluentClient(peer.bootstrap)


@pytest.fixture
def open_transaction(client: ConfluentClient, topic: str) -> Iterator[ConfluentTransactionalProducer]:
    """Two records in a transaction whose transactional id is the name of its topic."""
    client.create_topic(topic)
    producer = client.transactional_producer(topic)
    producer.begin()
    producer.send(topic, values(2))
    yield producer
    # One that was fenced says so again when it is closed.
    with contextlib.suppress(confluent_kafka.KafkaException):
        producer.close()


def states(tools: KafkaTools) -> dict[str, str]:
    rows = table(tools.run("kafka-transactions", "list"), "TransactionalId")
    return {row["TransactionalId"]: row["TransactionState"] for row in rows}


def test_an_open_transaction_is_listed_described_and_found_in_its_partition(
    tools: KafkaTools, open_transaction: ConfluentTransactionalProducer, topic: str
) -> None:
    assert states(tools)[topic] == "Ongoing"
    (described,) = table(tools.run("kafka-transactions", "describe", "--transactional-id", topic), "CoordinatorId")
    assert (described["TransactionalId"], described["TransactionState"]) == (topic, "Ongoing")
    assert described["TopicPartitions"] == f"{topic}-0"
    of_partition = ("--topic", topic, "--partition", "0")
    (producer,) = table(tools.run("kafka-transactions", "describe-producers", *of_partition), "ProducerId")
    assert producer["ProducerId"] == described["ProducerId"]
    assert (producer["LastSequence"], producer["CurrentTransactionStartOffset"]) == ("1", "0")
    # It is open, but its coordinator knows of it: it does not hang.
    assert table(tools.run("kafka-transactions", "find-hanging", "--topic", topic), "Topic") == []


def test_an_open_transaction_is_ended_by_force(
    tools: KafkaTools, open_transaction: ConfluentTransactionalProducer, topic: str
) -> None:
    tools.run("kafka-transactions", "forceTerminateTransaction", "--transactionalId", topic)
    wait_until(lambda: states(tools)[topic] != "Ongoing", "the transaction has ended")
    of_partition = ("--topic", topic, "--partition", "0")
    (producer,) = table(tools.run("kafka-transactions", "describe-producers", *of_partition), "ProducerId")
    assert producer["CurrentTransactionStartOffset"] == "None"


def test_the_formatter_of_the_console_consumer_reads_the_log_of_transactions(
    tools: KafkaTools, open_transaction: ConfluentTransactionalProducer, topic: str
) -> None:
    open_transaction.abort()
    shown = ("--formatter", "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter")
    read = ("--from-beginning", "--timeout-ms", "5000")
    text = tools.run("kafka-console-consumer", "--topic", "__transaction_state", *shown, *read)
    records: list[dict[str, Any]] = json.loads(f"[{text.strip().replace('}{', '},{')}]")
    written = [each["value"]["data"] for each in records if each["key"]["data"]["transactionalId"] == topic]
    ongoing = next(each for each in written if each["transactionStatus"] == ONGOING)
    assert ongoing["transactionPartitions"] == [{"topic": topic, "partitionIds": [0]}]
    assert abs(ongoing["transactionStartTimestampMs"] - time.time() * 1000) < 300_000
    assert written[-1]["transactionStatus"] == COMPLETE_ABORT


def test_a_hanging_transaction_is_found_and_aborted(
    tools: KafkaTools, peer: Peer, client: ConfluentClient, topic: str, unverified: None
) -> None:
    """A late write of a producer whose coordinator knows of no transaction, let in as brokers of old did."""
    with Connection(peer.port) as connection:
        made = requests.create_topic(connection, topic)
        written_ms = int(time.time() * 1000) - HOUR_MS
        records = batch(
            attributes=TRANSACTIONAL,
            producer_id=init_producer(connection, topic),
            producer_epoch=0,
            base_sequence=0,
            timestamp_ms=written_ms,
        )
        request = requests.produce_request(made, records, 11)
        request.transactional_id = topic
        ((answer,),) = (each.partition_responses for each in connection.call(request, 11, m.ProduceResponse).responses)
        assert Error(answer.error_code) == Error.NONE
    (found,) = table(tools.run("kafka-transactions", "find-hanging", "--topic", topic), "Topic")
    assert (found["Topic"], found["Partition"], found["StartOffset"]) == (topic, "0", "0")
    of_partition = ("--topic", topic, "--partition", "0")
    tools.run("kafka-transactions", "abort", *of_partition, "--start-offset", "0")
    assert table(tools.run("kafka-transactions", "find-hanging", "--topic", topic), "Topic") == []
    assert client.offset_range(topic) == (0, 2)


@pytest.fixture
def unverified(tools: KafkaTools) -> Iterator[None]:
    """The broker lets in transactional records without asking their coordinator."""
    everywhere = ("--entity-type", "brokers", "--entity-default", "--alter")
    tools.run("kafka-configs", *everywhere, "--add-config", f"{VERIFICATION}=false")
    yield
    tools.run("kafka-configs", *everywhere, "--delete-config", VERIFICATION)


def init_producer(connection: Connection, transactional_id: str) -> int:
    """A producer id, in epoch 0, from a coordinator that is there."""
    request = m.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    answers: list[m.InitProducerIdResponse] = []

    def is_given() -> bool:
        answers.append(connection.call(request, 4, m.InitProducerIdResponse))
        return answers[-1].error_code == Error.NONE

    find = m.FindCoordinatorRequest(coordinator_keys=[transactional_id], key_type=1)
    connection.call(find, 6, m.FindCoordinatorResponse)
    wait_until(is_given, f"{transactional_id} has a producer id")
    assert answers[-1].producer_epoch == 0
    return answers[-1].producer_id
