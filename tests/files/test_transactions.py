"""Transactions and a group of the newer protocol in the folder of a node: Kafka's tool decodes both topics, and Apache
Kafka goes on where the node stopped, also with a transaction that was open then."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tools import apache_kafka

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID
from tests.clients.adapter import ConsumerOptions, MemberOptions, Message
from tests.clients.members import Members, receive
from tests.clients.with_confluent import ConfluentClient
from tests.nodes import Node
from tests.peers import wait_until
from tests.wire import transactions
from tests.wire.connection import Connection
from tests.wire.requests import Topic

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.kafka

TOPIC, GROUP = "kept", "kept-group"
SETTINGS = {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"}
READ_COMMITTED = ConsumerOptions(isolation="read_committed")
CONSUMER = MemberOptions(protocol="consumer")
PRODUCE_THAT_ADDS, END_WITH_EPOCH = 12, 5
"""The versions in which a partition joins a transaction by being written to, and an end raises the epoch."""
OFFSET_FETCH = 9
DUMP = "org.apache.kafka.tools.DumpLogSegments"

_TRANSACTION = re.compile(r" key: (\{.*?\}) payload: (\{.*\})$", re.MULTILINE)
_MARKER = re.compile(r"endTxnMarker: (\w+)")
_KEY_TYPE = re.compile(r' key: \{"type":"(\d+)"')
CONSUMER_GROUP_KEYS = {"3", "5", "6", "7", "8"}
"""Group, member, epoch of the target, target of a member, what a member has."""


class TransactionFolder(NamedTuple):
    path: Path
    offsets: dict[tuple[str, int], int]


@pytest.fixture(scope="module")
def transaction_folder(apache_kafka_runs: None, tmp_path_factory: pytest.TempPathFactory) -> TransactionFolder:
    """One transaction committed, with offsets, one aborted, and one that the node left open when it stopped."""
    path = tmp_path_factory.mktemp("transactions") / "data"
    with Node(path, settings=SETTINGS) as node:
        client = ConfluentClient(node.bootstrap)
        client.create_topic(TOPIC, partitions=1)
        wait_until(lambda: TOPIC in client.topic_names(), "the topic is there")
        client.produce(TOPIC, [Message(b"before")])
        with contextlib.closing(Members()) as members, contextlib.ExitStack() as producers:
            member = members.join(client, GROUP, [TOPIC], CONSUMER)
            receive([member], 1)
            ender = producers.enter_context(contextlib.closing(client.transactional_producer("ends")))
            ender.begin()
            ender.send(TOPIC, [Message(b"committed")])
            ender.send_offsets({(TOPIC, 0): 1}, member.do(lambda consumer: consumer.group_metadata()))
            ender.commit()
            ender.begin()
            ender.send(TOPIC, [Message(b"aborted")])
            ender.abort()
            write_in_transaction(node.port, b"open")
            offsets = committed_offsets(node.port)
    return TransactionFolder(path, offsets)


def dumped(*arguments: str) -> str:
    done = apache_kafka.run_tool(DUMP, *arguments)
    assert done.returncode == 0, done.stderr
    assert "isvalid: false" not in done.stdout
    return done.stdout


def with_content(path: Path, pattern: str) -> str:
    files = [file for file in sorted(path.glob(pattern)) if file.stat().st_size]
    assert files, f"nothing in {pattern}"
    return ",".join(map(str, files))


def states(path: Path) -> dict[str, Any]:
    """What the transaction log says last of each transactional id."""
    text = dumped("--transaction-log-decoder", "--files", with_content(path, "__transaction_state-*/*.log"))
    found = _TRANSACTION.findall(text)
    return {json.loads(key)["data"]["transactionalId"]: json.loads(value)["data"] for key, value in found}


def test_kafkas_tool_decodes_the_transaction_log(transaction_folder: TransactionFolder) -> None:
    found = states(transaction_folder.path)
    ongoing, complete_abort = 1, 5
    assert {name: value["transactionStatus"] for name, value in found.items()} == {
        "ends": complete_abort,
        "left-open": ongoing,
    }
    (open_in,) = found["left-open"]["transactionPartitions"]
    assert (open_in["topic"], open_in["partitionIds"]) == (TOPIC, [0])


def test_kafkas_tool_decodes_a_group_of_the_newer_protocol(transaction_folder: TransactionFolder) -> None:
    text = dumped("--offsets-decoder", "--files", with_content(transaction_folder.path, "__consumer_offsets-*/*.log"))
    assert set(_KEY_TYPE.findall(text)) >= CONSUMER_GROUP_KEYS
    assert _MARKER.findall(text) == ["COMMIT"]


def test_kafkas_tool_reads_markers_and_the_index_of_aborted_transactions(transaction_folder: TransactionFolder) -> None:
    folder = transaction_folder.path / f"{TOPIC}-0"
    assert _MARKER.findall(dumped("--print-data-log", "--files", with_content(folder, "*.log"))) == ["COMMIT", "ABORT"]
    index = dumped("--files", with_content(folder, "*.txnindex"))
    assert "firstOffset: 3 lastOffset: 4" in index, index


@pytest.mark.timeout(240)
def test_kafka_goes_on_with_the_transactions_of_a_folder_and_barnabas_after_it(
    transaction_folder: TransactionFolder, tmp_path: Path
) -> None:
    path = tmp_path / "data"
    shutil.copytree(transaction_folder.path, path)
    with apache_kafka.KafkaNode(path, properties=SETTINGS) as kafka:
        client = ConfluentClient(kafka.bootstrap)
        wait_until(lambda: committed_offsets(kafka.port) == transaction_folder.offsets, "Kafka has loaded the group")
        end_and_write(kafka.port, b"from Kafka")
        assert committed(client, 3) == [b"before", b"committed", b"from Kafka"]
    with Node(path, settings=SETTINGS) as node:
        client = ConfluentClient(node.bootstrap)
        wait_until(lambda: committed_offsets(node.port) == transaction_folder.offsets, "the node has loaded the group")
        end_and_write(node.port, b"from Barnabas")
        assert committed(client, 4) == [b"before", b"committed", b"from Kafka", b"from Barnabas"]


def committed_offsets(port: int) -> dict[tuple[str, int], int]:
    """None while the group is being loaded. (librdkafka's admin client may crash when it is told so.)"""
    asked = m.OffsetFetchRequest(groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    with Connection(port) as connection:
        (group,) = connection.call(asked, OFFSET_FETCH, m.OffsetFetchResponse).groups
    return {
        (topic.name, each.partition_index): each.committed_offset for topic in group.topics for each in topic.partitions
    }


def write_in_transaction(port: int, text: bytes) -> transactions.Producer:
    """A producer without a client library, whose transaction can be left as it is. What its predecessor left open is
    aborted."""
    with Connection(port) as connection:
        transactions.await_transactions(connection, "left-open")
        producer = transactions.init(connection, transactions.init_request("left-open"))
        answer = transactions.write(connection, producer, Topic(TOPIC, ZERO_UUID), [text], version=PRODUCE_THAT_ADDS)
        assert answer.error_code == Error.NONE
    return producer


def end_and_write(port: int, text: bytes) -> None:
    producer = write_in_transaction(port, text)
    with Connection(port) as connection:
        assert transactions.commit(connection, producer, END_WITH_EPOCH) is Error.NONE
        transactions.await_end(connection, producer.transactional_id)


def committed(client: ConfluentClient, count: int) -> list[bytes | None]:
    with client.consumer(TOPIC, "beginning", options=READ_COMMITTED) as reader:
        return [record.value for record in reader.receive(count)]
