"""The records of `__transaction_state`: transactions as records, and records as bytes (`coordination/framing`).

Values are written in version 1, as a Kafka 4.3 broker does whose feature `transaction.version` is 1 or 2. Version 0,
which lacks what transactions of version 2 need, can be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.coordination.effects import ProducerId, Record
from barnabas.coordination.framing import decode_key, decode_value, encode_key, encode_value, kind_of
from barnabas.protocol import messages as m
from barnabas.protocol.errors import DecodeError, UnknownFormatError
from barnabas.transactions.transaction import Transaction, TransactionState

if TYPE_CHECKING:
    from barnabas.protocol.varint import Buffer

VALUE_VERSION: Final = 1

_STATES: Final = frozenset(TransactionState)


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """The key and the value of a record in the log."""
    return encode_key(record.key), encode_value(record.value, VALUE_VERSION)


def decode(key: Buffer | None, value: Buffer | None) -> Record:
    """What a record of the log says.

    Raises UnknownFormatError for one of a kind or version that nobody knows, as an upgrade that was taken back leaves
    them; and DecodeError for one that is damaged, or of a transaction in a state that does not exist: to go on without
    it could leave the transaction open for ever.
    """
    kind = kind_of(key)
    assert key is not None
    if kind != m.TransactionLogKey.api_key:
        raise UnknownFormatError(f"Unknown record type {kind}")
    record = Record(decode_key(m.TransactionLogKey, key), decoded := decode_value(m.TransactionLogValue, value))
    if decoded is not None and decoded.transaction_status not in _STATES:
        raise DecodeError(f"{record.key} is in state {decoded.transaction_status}, which no transaction has")
    return record


def transaction(transactional_id: str, value: m.TransactionLogValue) -> Record:
    """The state of a transactional id."""
    return Record(m.TransactionLogKey(transactional_id=transactional_id), value)


def tombstone(transactional_id: str) -> Record:
    """A transactional id has expired."""
    return Record(m.TransactionLogKey(transactional_id=transactional_id), None)


def record_of(transaction: Transaction) -> Record:
    """A transaction as it is written to the log."""
    value = m.TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=_written_partitions(transaction),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )
    return Record(m.TransactionLogKey(transactional_id=transaction.transactional_id), value)


def _written_partitions(transaction: Transaction) -> list[m.TransactionLogValue.PartitionsSchema] | None:
    if transaction.state is TransactionState.EMPTY:
        return None
    schema = m.TransactionLogValue.PartitionsSchema
    return [schema(topic=topic, partition_ids=partitions) for topic, partitions in transaction.by_topic()]


def transaction_of(transactional_id: str, value: m.TransactionLogValue) -> Transaction:
    """A transaction as it was written to the log."""
    found = Transaction(transactional_id, ProducerId(value.producer_id), value.transaction_last_update_timestamp_ms)
    found.previous_producer_id = ProducerId(value.previous_producer_id)
    found.next_producer_id = ProducerId(value.next_producer_id)
    found.epoch = value.producer_epoch
    found.timeout_ms = value.transaction_timeout_ms
    found.state = TransactionState(value.transaction_status)
    found.partitions = {
        (topic.topic, partition): None
        for topic in value.transaction_partitions or ()
        for partition in topic.partition_ids
    }
    found.started_ms = value.transaction_start_timestamp_ms
    found.client_version = value.client_transaction_version
    return found
