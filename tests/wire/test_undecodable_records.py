"""Records in the internal topics that their coordinator cannot decode, written to its log while the node was down."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.groups import group_records
from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_batch, iter_headers
from barnabas.protocol.errors import Error
from barnabas.protocol.record import Record
from barnabas.transactions import transaction_records
from tests.nodes import Node
from tests.peers import wait_until
from tests.wire.connection import Connection
from tests.wire.groups import await_coordinator, commit, commit_request, fetch_offsets, find_coordinator, list_groups
from tests.wire.requests import TRANSACTION_KEY, Topic, create_topic
from tests.wire.transactions import (
    await_transactions,
    describe,
    init,
    init_request,
    list_transactions,
    refused_init,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.peers import Peer, PeerKind

GROUP, ID, LATER_ID = "g", "payments", "refunds"
SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
TIMESTAMP_MS = 1_700_000_000_000
UNKNOWN_TYPE = (struct.pack(">h", 99) + b"of another age", b"\0\0?")
LOADING = {Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR}
"""Kafka answers either while it starts."""


def offset_of(topic: Topic, offset: int) -> tuple[bytes, bytes]:
    committed = m.OffsetCommitValue(offset=offset, commit_timestamp=TIMESTAMP_MS)
    key, value = group_records.encode(group_records.offset_commit(GROUP, topic.name, 0, committed))
    assert value is not None
    return key, value


def transaction_of(transactional_id: str) -> tuple[bytes, bytes]:
    empty = m.TransactionLogValue(
        producer_id=77,
        producer_epoch=3,
        transaction_timeout_ms=60_000,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=TIMESTAMP_MS,
        transaction_start_timestamp_ms=-1,
    )
    key, value = transaction_records.encode(transaction_records.transaction(transactional_id, empty))
    assert value is not None
    return key, value


def of_version(version: int, value: bytes) -> bytes:
    return struct.pack(">h", version) + value[2:]


def append_while_stopped(node: Peer, topic: str, *records: tuple[bytes | None, bytes]) -> int:
    """Stops the node, writes records at the end of the only partition of a topic, and starts the node again. The
    offset of the first of them."""
    node.stop()
    (file,) = (node.data_dir / f"{topic}-0").glob("*.log")
    content = file.read_bytes()
    *_, (_, last) = iter_headers(content)
    written = [Record(key=key, value=value, timestamp=TIMESTAMP_MS) for key, value in records]
    batch = build_batch(written, base_offset=last.next_offset, leader_epoch=last.partition_leader_epoch)
    file.write_bytes(content + batch)
    node.start()
    return last.next_offset


@pytest.fixture
def node_with_group(make_node: Callable[[Mapping[str, str]], Peer], topic: str) -> tuple[Peer, Topic]:
    """In which a group has committed offset 5."""
    node = make_node(SETTINGS)
    with Connection(node.port) as connection:
        made = create_topic(connection, topic)
        await_coordinator(connection, GROUP)
        assert commit(connection, commit_request(GROUP, made, {0: 5})) == {0: Error.NONE}
    return node, made


@pytest.fixture
def node_with_producer(make_node: Callable[[Mapping[str, str]], Peer]) -> Peer:
    node = make_node(SETTINGS)
    with Connection(node.port) as connection:
        await_transactions(connection, ID)
        init(connection, init_request(ID))
    return node


def test_a_record_of_an_unknown_type_is_passed_over(node_with_group: tuple[Peer, Topic]) -> None:
    node, topic = node_with_group
    append_while_stopped(node, OFFSETS_TOPIC, UNKNOWN_TYPE, offset_of(topic, 7))
    with Connection(node.port) as connection:
        await_coordinator(connection, GROUP)
        assert fetch_offsets(connection, GROUP, topic, [0])[0].offset == 7
    if isinstance(node, Node):
        assert f"Unknown record type 99 at offset 1 of {OFFSETS_TOPIC}-0" in node.log_text()


@pytest.mark.parametrize("damage", ["cut short", "of an unknown version", "without a key"])
def test_groups_of_which_a_record_cannot_be_decoded_are_not_served(
    node_with_group: tuple[Peer, Topic], damage: str
) -> None:
    node, topic = node_with_group
    key, value = offset_of(topic, 6)
    damaged: Mapping[str, tuple[bytes | None, bytes]] = {
        "cut short": (key, value[:6]),
        "of an unknown version": (key, of_version(9, value)),
        "without a key": (None, value),
    }
    append_while_stopped(node, OFFSETS_TOPIC, damaged[damage], offset_of(topic, 7))
    with Connection(node.port) as connection:
        request = commit_request("another", topic, {0: 1})
        answers: list[Error] = []

        def has_failed() -> bool:
            answers.extend(commit(connection, request).values())
            assert answers[-1] in LOADING
            return answers[-10:] == [Error.NOT_COORDINATOR] * 10

        wait_until(has_failed, "the groups are not served", poll_s=0.1)
        assert find_coordinator(connection, GROUP)[0] is Error.NONE
        assert list_groups(connection) == {}
    if isinstance(node, Node):
        complaints = [line for line in node.log_text().splitlines() if " ERROR " in line]
        assert len(complaints) == 1
        assert f"the groups of {OFFSETS_TOPIC}-0 are not served: the record at offset 1 of" in complaints[0]


@pytest.mark.parametrize("unknown", ["type", "version"])
def test_a_transaction_of_an_unknown_kind_is_passed_over(node_with_producer: Peer, unknown: str) -> None:
    key, value = transaction_of(ID)
    records = {"type": UNKNOWN_TYPE, "version": (key, of_version(9, value))}
    append_while_stopped(node_with_producer, TRANSACTIONS_TOPIC, records[unknown], transaction_of(LATER_ID))
    with Connection(node_with_producer.port) as connection:
        await_transactions(connection, ID)
        assert describe(connection, ID).producer_id == 0
        assert describe(connection, LATER_ID).producer_id == 77


def test_transactions_of_which_a_record_cannot_be_decoded_are_not_served_where_kafka_forgets_what_follows(
    node_with_producer: Peer, peer_kind: PeerKind
) -> None:
    key, value = transaction_of(ID)
    append_while_stopped(node_with_producer, TRANSACTIONS_TOPIC, (key, value[:6]), transaction_of(LATER_ID))
    with Connection(node_with_producer.port) as connection:
        if peer_kind == "kafka":
            await_transactions(connection, ID)
            assert describe(connection, LATER_ID).error is Error.TRANSACTIONAL_ID_NOT_FOUND
            return
        wait_until(
            lambda: refused_init(connection, init_request(LATER_ID)) is Error.NOT_COORDINATOR,
            "the transactions are not served",
        )
        assert find_coordinator(connection, ID, TRANSACTION_KEY)[0] is Error.NONE
        assert describe(connection, ID).error is Error.NOT_COORDINATOR
        assert list_transactions(connection) == {}
    assert isinstance(node_with_producer, Node)
    complaints = [line for line in node_with_producer.log_text().splitlines() if " ERROR " in line]
    assert len(complaints) == 1
    assert f"the transactions of {TRANSACTIONS_TOPIC}-0 are not served: the record at offset 1 of" in complaints[0]
