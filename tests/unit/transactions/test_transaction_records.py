"""The bytes of `__transaction_state`. Those of Kafka were read from the log of a 4.3.1 broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools import apache_kafka

from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_batch
from barnabas.protocol.codec import encode
from barnabas.protocol.errors import DecodeError, UnknownFormatError
from barnabas.protocol.record import Record as LogRecord
from barnabas.transactions import transaction_records
from barnabas.transactions.transaction import TransactionState

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.coordination.effects import Record

KEY = b"\0\0\0\x01t"


@st.composite
def values(draw: st.DrawFn) -> m.TransactionLogValue:
    state = draw(st.sampled_from(TransactionState))
    topic = st.builds(
        m.TransactionLogValue.PartitionsSchema,
        topic=st.text(max_size=20),
        partition_ids=st.lists(st.integers(0, 2**31 - 1), max_size=3),
    )
    return m.TransactionLogValue(
        producer_id=draw(st.integers(0, 2**63 - 1)),
        previous_producer_id=draw(st.integers(-1, 2**63 - 1)),
        next_producer_id=draw(st.integers(-1, 2**63 - 1)),
        producer_epoch=draw(st.integers(0, 2**15 - 1)),
        transaction_timeout_ms=draw(st.integers(0, 2**31 - 1)),
        transaction_status=state,
        transaction_partitions=None if state is TransactionState.EMPTY else draw(st.lists(topic, max_size=3)),
        transaction_last_update_timestamp_ms=draw(st.integers(0, 2**62)),
        transaction_start_timestamp_ms=draw(st.integers(-1, 2**62)),
        client_transaction_version=draw(st.integers(0, 2)),
    )


@given(st.text(max_size=20), values())
def test_whatever_is_written_is_read_again(transactional_id: str, value: m.TransactionLogValue) -> None:
    record = transaction_records.transaction(transactional_id, value)
    assert transaction_records.decode(*transaction_records.encode(record)) == record


def test_a_tombstone_has_no_value() -> None:
    assert transaction_records.encode(transaction_records.tombstone("t")) == (KEY, None)
    assert transaction_records.decode(KEY, None) == transaction_records.tombstone("t")


def test_values_are_written_in_version_1_and_read_in_both() -> None:
    value = m.TransactionLogValue(producer_id=5, producer_epoch=3, transaction_status=TransactionState.ONGOING)
    value.transaction_partitions = [m.TransactionLogValue.PartitionsSchema(topic="foo", partition_ids=[2])]
    _, written = transaction_records.encode(transaction_records.transaction("t", value))
    assert written is not None
    assert written[:2] == b"\0\x01"
    old = transaction_records.decode(KEY, b"\0\0" + encode(value, 0))
    assert old == transaction_records.transaction("t", value)


def test_a_transaction_is_what_its_record_says() -> None:
    value = m.TransactionLogValue(
        producer_id=5,
        previous_producer_id=4,
        next_producer_id=6,
        producer_epoch=3,
        transaction_timeout_ms=7,
        transaction_status=TransactionState.PREPARE_ABORT,
        transaction_partitions=[m.TransactionLogValue.PartitionsSchema(topic="foo", partition_ids=[2, 1])],
        transaction_last_update_timestamp_ms=8,
        transaction_start_timestamp_ms=9,
        client_transaction_version=2,
    )
    transaction = transaction_records.transaction_of("t", value)
    assert transaction_records.record_of(transaction) == transaction_records.transaction("t", value)


def test_records_of_another_kind_or_version_are_told_from_damaged_ones() -> None:
    with pytest.raises(UnknownFormatError, match="Unknown record type 1"):
        transaction_records.decode(b"\0\x01\0\x01t", b"\0\0 what transactions will have one day")
    with pytest.raises(UnknownFormatError, match="not 99"):
        transaction_records.decode(KEY, b"\0\x63 a version yet to come")


def test_what_follows_a_message_is_left_unread_as_by_kafka() -> None:
    assert transaction_records.decode(KEY + b" and more", None) == transaction_records.tombstone("t")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0"),
        (b"", None),
        (b"\0\0\0\x05t", None),
        (KEY, b""),
        (KEY, b"\0\x01\0"),
    ],
)
def test_damaged_records_are_told_from_unknown_ones(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        transaction_records.decode(key, value)


def test_a_transaction_in_a_state_that_nobody_knows_is_not_passed_over() -> None:
    key, value = transaction_records.encode(
        transaction_records.transaction("t", m.TransactionLogValue(transaction_status=8))
    )
    with pytest.raises(DecodeError, match="state 8"):
        transaction_records.decode(key, value)


@pytest.mark.kafka
@pytest.mark.usefixtures("apache_kafka_runs")
def test_kafkas_own_tool_decodes_what_is_written_here(tmp_path: Path) -> None:
    ongoing = m.TransactionLogValue(
        producer_id=5,
        previous_producer_id=4,
        next_producer_id=6,
        producer_epoch=3,
        transaction_timeout_ms=60_000,
        transaction_status=TransactionState.ONGOING,
        transaction_partitions=[m.TransactionLogValue.PartitionsSchema(topic="foo", partition_ids=[2, 1])],
        transaction_last_update_timestamp_ms=1_794_798_883_180,
        transaction_start_timestamp_ms=1_794_798_883_179,
        client_transaction_version=2,
    )
    empty = m.TransactionLogValue(producer_id=7, transaction_partitions=None, transaction_start_timestamp_ms=-1)
    written: list[Record] = [
        transaction_records.transaction("métier", ongoing),
        transaction_records.transaction("empty", empty),
        transaction_records.tombstone("gone"),
    ]
    file = tmp_path / "00000000000000000000.log"
    pairs = [transaction_records.encode(record) for record in written]
    file.write_bytes(build_batch([LogRecord(key=key, value=value, timestamp=1) for key, value in pairs]))

    done = apache_kafka.run_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", str(file), timeout=100.0
    )

    assert done.returncode == 0, done.stderr
    first, second, third = (line for line in done.stdout.splitlines() if line.startswith("| offset"))
    assert '"type":"0","data":{"transactionalId":"m' in first
    assert '"version":"1","data":{"producerId":5,"previousProducerId":4,"nextProducerId":6,"producerEpoch":3' in first
    assert '"transactionPartitions":[{"topic":"foo","partitionIds":[2,1]}]' in first
    assert '"clientTransactionVersion":2' in first
    assert '"producerId":7' in second
    assert '"transactionPartitions":null' in second
    assert '"transactionalId":"gone"}} payload: <DELETE>' in third
