"""InitProducerId: which client becomes the producer of a transactional id, and in which epoch.

A producer that starts names no producer id: it gets the next epoch, which fences its predecessor. A producer that
recovers from an error names its id and epoch. It gets the next epoch if these are still current, the current epoch if
it retries because the response was lost, and PRODUCER_FENCED if another producer has started meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.coordination.effects import NO_PRODUCER_ID, Producer, ProducerId
from barnabas.protocol.errors import Error
from barnabas.transactions.transaction import NEVER_MS, NO_PRODUCER_EPOCH, TRANSACTION_VERSION_2, is_exhausted

if TYPE_CHECKING:
    from barnabas.protocol import messages as m
    from barnabas.transactions.transaction import Transaction
    from barnabas.transactions.transaction_shard import TransactionSettings

NOBODY: Final = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def check_request(request: m.InitProducerIdRequest, settings: TransactionSettings) -> Error:
    """What is wrong with a request, independent of any state."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return Error.INVALID_REQUEST
    if not request.transactional_id:
        return Error.INVALID_REQUEST
    if request.enable_2pc and not settings.two_phase_commit_enable:
        return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.keep_prepared_txn:
        return Error.UNSUPPORTED_VERSION
    if not request.enable_2pc and not 0 < request.transaction_timeout_ms <= settings.transaction_max_timeout_ms:
        return Error.INVALID_TRANSACTION_TIMEOUT
    return Error.NONE


def expected_producer(request: m.InitProducerIdRequest) -> Producer | None:
    """The id and epoch that a recovering producer names; None for one that starts."""
    expected = Producer(ProducerId(request.producer_id), request.producer_epoch)
    return None if expected == NOBODY else expected


def timeout_of(request: m.InitProducerIdRequest) -> int:
    return NEVER_MS if request.enable_2pc else request.transaction_timeout_ms


def check_producer(transaction: Transaction, expected: Producer | None) -> Error:
    """Whether the client may take the transactional id now. Its epoch is checked when it gets the next one."""
    if transaction.is_prepared:
        return Error.CONCURRENT_TRANSACTIONS
    if expected is None or transaction.epoch == NO_PRODUCER_EPOCH or expected.producer_id == transaction.producer_id:
        return Error.NONE
    missed_new_id = expected.producer_id == transaction.previous_producer_id and is_exhausted(expected.epoch)
    return Error.NONE if missed_new_id else Error.PRODUCER_FENCED


def needs_producer_id(transaction: Transaction, expected: Producer | None, transaction_version: int) -> bool:
    """Whether the request takes a new producer id, because the current one has no epoch left."""
    if check_producer(transaction, expected) is not Error.NONE:
        return False
    if transaction.is_settled:
        return _gets_new_id(transaction, expected)
    return transaction.is_exhausted and transaction_version >= TRANSACTION_VERSION_2


def begin(
    transaction: Transaction,
    expected: Producer | None,
    timeout_ms: int,
    new_producer_id: ProducerId | None,
    now_ms: int,
) -> Error:
    """Gives the client its epoch. The transaction must be settled."""
    if _gets_new_id(transaction, expected):
        if new_producer_id is None:
            return Error.CONCURRENT_TRANSACTIONS
        last_epoch = NO_PRODUCER_EPOCH if expected is None else transaction.epoch
        transaction.begin_epoch(Producer(new_producer_id, 0), last_epoch, timeout_ms, now_ms)
        return Error.NONE
    if expected is None:
        epoch, last_epoch = transaction.epoch + 1, NO_PRODUCER_EPOCH
    elif expected.epoch == transaction.epoch or transaction.epoch == NO_PRODUCER_EPOCH:
        epoch, last_epoch = transaction.epoch + 1, transaction.epoch
    elif expected.epoch == transaction.last_epoch:
        epoch, last_epoch = transaction.epoch, transaction.last_epoch
    else:
        return Error.PRODUCER_FENCED
    transaction.begin_epoch(Producer(transaction.producer_id, epoch), last_epoch, timeout_ms, now_ms)
    return Error.NONE


def _gets_new_id(transaction: Transaction, expected: Producer | None) -> bool:
    return transaction.is_exhausted and (expected is None or expected.epoch == transaction.epoch)
