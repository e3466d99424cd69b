"""EndTxn: whether a producer may commit or abort.

Before version 2 the epoch stays: a request with the present epoch that finds its wish fulfilled is a repeated one. From
version 2 on the end raises the epoch: the epoch before tells a repeated request from one about the next transaction,
which may be aborted before anything was added to it, as the client cannot know whether something was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import Error
from barnabas.transactions.state import EPOCH_MAX, TransactionState

if TYPE_CHECKING:
    from barnabas.coordination.effects import Producer
    from barnabas.transactions.transaction import Transaction


def refusal_before_v2(transaction: Transaction, producer: Producer, decision: TransactionState) -> Error | None:
    """What to answer at once, NONE if all is done already, or None: the transaction is to be ended."""
    if producer.producer_id != transaction.producer_id:
        return Error.INVALID_PRODUCER_ID_MAPPING
    if producer.epoch != transaction.epoch:
        return Error.PRODUCER_FENCED
    if transaction.is_prepared:
        return Error.CONCURRENT_TRANSACTIONS
    if transaction.state is TransactionState.ONGOING:
        return None
    return Error.NONE if transaction.state is _completed(decision) else Error.INVALID_TXN_STATE


def refusal(transaction: Transaction, producer: Producer, decision: TransactionState) -> Error | None:
    """The same in version 2."""
    if transaction.is_prepared:
        return Error.CONCURRENT_TRANSACTIONS
    got_new_id = _got_new_id(transaction, producer)
    if producer.producer_id != transaction.producer_id and not got_new_id:
        return Error.INVALID_PRODUCER_ID_MAPPING
    is_complete = transaction.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    is_repeated = is_complete and (got_new_id or producer.epoch + 1 == transaction.epoch)
    if producer.epoch != transaction.epoch and not is_repeated:
        return Error.PRODUCER_FENCED
    if transaction.state is TransactionState.ONGOING:
        return None
    if is_repeated:
        return Error.NONE if transaction.state is _completed(decision) else Error.INVALID_TXN_STATE
    return Error.INVALID_TXN_STATE if decision is TransactionState.PREPARE_COMMIT else None


def _got_new_id(transaction: Transaction, producer: Producer) -> bool:
    """Whether the end of the last transaction gave this producer a new id, of which it may not know."""
    last = (transaction.previous_producer_id, EPOCH_MAX - 1)
    return transaction.epoch == 0 and producer == last


def _completed(decision: TransactionState) -> TransactionState:
    is_commit = decision is TransactionState.PREPARE_COMMIT
    return TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
