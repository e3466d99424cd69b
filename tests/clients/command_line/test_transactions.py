"""`kafka-transactions` and `kafka-groups` on a real node, as Kafka's print."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from tests.clients.adapter import Message
from tests.clients.command_line.kafka_tool import KafkaTool
from tests.clients.with_confluent import ConfluentClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import Peer


@pytest.fixture
def transactions(node: Peer, capsys: pytest.CaptureFixture[str]) -> KafkaTool:
    return KafkaTool("kafka-transactions", node, capsys)


@pytest.fixture
def open_transaction(node: Peer, topic: str) -> Iterator[str]:
    """A transactional id that is called as the topic in which it has written two records."""
    client = ConfluentClient(node.bootstrap)
    client.create_topic(topic)
    producer = client.transactional_producer(topic)
    producer.begin()
    producer.send(topic, [Message(b"one"), Message(b"two")])
    yield topic
    # One that was fenced says so again when it is closed.
    with contextlib.suppress(confluent_kafka.KafkaException):
        producer.close()


def rows(printed: str) -> list[dict[str, str]]:
    heading, *lines = ([cell.strip() for cell in line.split("\t")] for line in printed.splitlines())
    return [dict(zip(heading, line, strict=True)) for line in lines]


def test_an_open_transaction_is_listed_described_and_ended_by_force(
    transactions: KafkaTool, open_transaction: str
) -> None:
    pattern = ("--transactional-id-pattern", re.escape(open_transaction))
    (listed,) = rows(transactions.printed("list", *pattern))
    assert (listed["TransactionalId"], listed["TransactionState"]) == (open_transaction, "Ongoing")
    (described,) = rows(transactions.printed("describe", "--transactional-id", open_transaction))
    assert described["TopicPartitions"] == f"{open_transaction}-0"
    assert int(described["TransactionDurationMs"]) >= 0
    of_partition = ("--topic", open_transaction, "--partition", "0")
    (producer,) = rows(transactions.printed("describe-producers", *of_partition))
    assert (producer["LastSequence"], producer["CurrentTransactionStartOffset"]) == ("1", "0")
    # Its coordinator knows of it: it does not hang.
    assert rows(transactions.printed("find-hanging", "--topic", open_transaction)) == []

    assert transactions.printed("forceTerminateTransaction", "--transactionalId", open_transaction) == ""
    (ended,) = rows(transactions.printed("describe-producers", *of_partition))
    assert ended["CurrentTransactionStartOffset"] == "None"


def test_a_transaction_is_aborted_in_a_partition_by_where_it_begins(
    transactions: KafkaTool, open_transaction: str
) -> None:
    of_partition = ("--topic", open_transaction, "--partition", "0")
    missing = transactions("abort", *of_partition, "--start-offset", "7")
    assert (missing.code, missing.err) == (
        1,
        f"Could not find any open transactions starting at offset 7 on partition {open_transaction}-0\n",
    )
    assert transactions("abort", *of_partition, "--start-offset", "0") == (0, "", "")
    (producer,) = rows(transactions.printed("describe-producers", *of_partition))
    assert producer["CurrentTransactionStartOffset"] == "None"


def test_what_is_not_there_or_makes_no_sense_is_a_failure(transactions: KafkaTool) -> None:
    unknown = transactions("describe", "--transactional-id", "nobody")
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err == (
        "Failed to describe transaction state of transactional-id `nobody`: DescribeTransactions request for "
        "transactionalId `nobody` failed because the ID could not be found. "
        "Enable debug logging for additional detail.\n"
    )
    assert transactions("find-hanging").err == (
        "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search\n"
    )
    assert transactions("describe").complaint == "kafka-transactions.sh: error: argument --transactional-id is required"
    assert transactions("--version").out.startswith("4.3.1 ")


def test_groups_are_listed_by_their_types(
    node: Peer, topic: str, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ConfluentClient(node.bootstrap).create_topic(topic)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": node.bootstrap, "group.id": group})
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()

    groups = KafkaTool("kafka-groups", node, capsys)
    heading, *listed = groups.printed("--list", "--group-type", "classic").splitlines()
    assert heading.split() == ["GROUP", "TYPE", "PROTOCOL"]
    assert [group, "Classic"] in [line.split() for line in listed]
    assert group not in groups.printed("--list", "--protocol", "consumer")

    assert groups("--list", "--group-type", "x").err == "--group-type must be a valid group type.\n"
    assert groups("--list", "--consumer", "--share").complaint == (
        'Option "[consumer]" can\'t be used with option "[share]"'
    )
