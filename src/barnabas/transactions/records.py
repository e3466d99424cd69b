"""The records of `__transaction_state`, in the framing of all coordinators (`coordination/framing`).

A value is written in version 1, as by a Kafka 4.3 broker whose feature `transaction.version` is 1 or 2. Version 0,
which lacks what transactions of version 2 need, is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.coordination.effects import Record
from barnabas.coordination.framing import decode_key, decode_value, encode_key, encode_value, kind_of
from barnabas.protocol import messages as m
from barnabas.protocol.errors import DecodeError, UnknownFormatError
from barnabas.transactions.state import TransactionState

if TYPE_CHECKING:
    from barnabas.protocol.varint import Buffer

VALUE_VERSION: Final = 1

_STATES: Final = frozenset(TransactionState)


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """The key and the value of a record in the log."""
    return encode_key(record.key), encode_value(record.value, VALUE_VERSION)


def decode(key: Buffer | None, value: Buffer | None) -> Record | None:
    """What a record of the log says, or None if it is of a kind or version that nothing here acts on.

    Raises DecodeError for one that is damaged, and for a transaction in a state that nobody knows: to go on without it
    could leave it open for ever.
    """
    kind = kind_of(key)
    assert key is not None
    if kind != m.TransactionLogKey.api_key:
        return None
    try:
        record = Record(decode_key(m.TransactionLogKey, key), decoded := decode_value(m.TransactionLogValue, value))
    except UnknownFormatError:
        return None
    if decoded is not None and decoded.transaction_status not in _STATES:
        raise DecodeError(f"{record.key} is in state {decoded.transaction_status}, which no transaction has")
    return record


def transaction(transactional_id: str, value: m.TransactionLogValue) -> Record:
    """How far a transactional id has come."""
    return Record(m.TransactionLogKey(transactional_id=transactional_id), value)


def tombstone(transactional_id: str) -> Record:
    """A transactional id has expired."""
    return Record(m.TransactionLogKey(transactional_id=transactional_id), None)
