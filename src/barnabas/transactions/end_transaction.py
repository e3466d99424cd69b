"""The end of a transaction: which producer may commit or abort it, the decision, and when it is complete.

A transaction is ended by its producer (EndTxn); or by the coordinator, when the transaction has timed out or a new
producer takes over the transactional id. The decision is written first. Once it is committed, a marker goes to each
partition of the transaction (`WriteMarkers`, which `broker/coordinators/transaction_markers` carries out). When all
partitions have theirs, the transaction is complete.

Before version 2 EndTxn leaves the epoch as it is: a request with the current epoch that finds its transaction ended as
it asks is a retry. From version 2 on the end bumps the epoch: the previous epoch tells a retry from a request about the
next transaction. That one may be aborted before anything was added to it, as the client cannot know whether anything
was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.coordination.effects import Producer, ProducerId
from barnabas.protocol.errors import Error
from barnabas.transactions import transaction_records
from barnabas.transactions.producer_epochs import NOBODY
from barnabas.transactions.transaction import EPOCH_MAX, TRANSACTION_VERSION_2, TransactionState

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordination.effects import Effects
    from barnabas.protocol import messages as m
    from barnabas.transactions.transaction import TopicPartition, Transaction

END_BUMPS_EPOCH_FROM: Final = 5
"""The version of EndTxn that clients use for transactions of version 2."""

NEW_PRODUCER: Final = "a new producer has started with its transactional id"
TIMED_OUT: Final = "it did not end within its timeout"


class WriteMarkers(NamedTuple):
    """The action that brings a decision to each partition of the transaction.

    It never gives up: each partition is retried until its leader has the marker on all in-sync replicas, or until the
    partition needs none, because it was deleted with its topic or has seen a newer epoch of the producer. Then
    `markers_written` is called with the action. Only when the shard is unloaded, or loaded again from its log, is the
    action void: the next shard finds the decision in the log and starts over. So a partition may get the same marker
    twice.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    """At least one."""
    transaction_version: int
    """From version 2 on, the epoch is one above that of the records that the marker ends."""


class AllocateProducerId(NamedTuple):
    """The action that gets a producer id for the abort of a transaction that has timed out, and whose producer has used
    up its epochs.

    With the id, `abort_timed_out` is called. If none can be had, nothing is lost: the action is asked for again at the
    next check for such transactions.
    """

    transactional_id: str


class TransactionEnds:
    """Ends the transactions of one partition of `__transaction_state`, led in one epoch."""

    __slots__ = ("_coordinator_epoch", "_transaction_version")

    def __init__(self, coordinator_epoch: int, transaction_version: Callable[[], int]) -> None:
        self._coordinator_epoch = coordinator_epoch
        self._transaction_version = transaction_version

    def end(
        self,
        transaction: Transaction,
        request: m.EndTxnRequest,
        version: int,
        new_producer_id: ProducerId | None,
        now_ms: int,
        effects: Effects,
    ) -> tuple[Error, Producer]:
        """EndTxn. Returns the error, and the id and epoch with which a producer of version 2 continues."""
        producer = Producer(ProducerId(request.producer_id), request.producer_epoch)
        decision = TransactionState.PREPARE_COMMIT if request.committed else TransactionState.PREPARE_ABORT
        if version < END_BUMPS_EPOCH_FROM:
            error = _check_end_before_v2(transaction, producer, decision)
            if error is None:
                transaction.prepare(decision, now_ms)
                self._write_decision(transaction, now_ms, effects)
            return error or Error.NONE, NOBODY
        error = _check_end(transaction, producer, decision)
        if error is None:
            if transaction.is_exhausted and new_producer_id is None:
                return Error.CONCURRENT_TRANSACTIONS, NOBODY
            transaction.prepare_with_new_epoch(decision, new_producer_id, now_ms)
            self._write_decision(transaction, now_ms, effects)
        return (error, NOBODY) if error else (Error.NONE, transaction.producer_when_complete)

    def abort_and_fence(
        self, transaction: Transaction, new_producer_id: ProducerId | None, now_ms: int, effects: Effects, why: str
    ) -> None:
        """The coordinator's decision, in an epoch that the producer does not have. Does nothing if that takes a new
        producer id and there is none."""
        if self._transaction_version() < TRANSACTION_VERSION_2:
            transaction.prepare_abort_of_fenced(now_ms)
        elif transaction.is_exhausted and new_producer_id is None:
            return
        else:
            transaction.prepare_with_new_epoch(TransactionState.PREPARE_ABORT, new_producer_id, now_ms)
        self._write_decision(transaction, now_ms, effects)
        effects.note(f"transaction of {transaction.transactional_id} aborted and its producer fenced: {why}")

    def resume(self, transaction: Transaction, now_ms: int, effects: Effects) -> None:
        """The log has a decision that was not carried through."""
        if transaction.state is TransactionState.PREPARE_EPOCH_FENCE:
            transaction.prepare_abort_of_fenced(now_ms)
            self._write_decision(transaction, now_ms, effects)
        else:
            self._write_markers(transaction, now_ms, effects)

    def markers_written(self, transaction: Transaction, written: WriteMarkers, now_ms: int, effects: Effects) -> None:
        """All partitions have their marker. Nothing happens if the transaction has moved on meanwhile."""
        if transaction.is_prepared and self._markers_of(transaction) == written:
            self._complete(transaction, now_ms, effects)

    def _write_decision(self, transaction: Transaction, now_ms: int, effects: Effects) -> None:
        effects.write(transaction_records.record_of(transaction))
        self._write_markers(transaction, now_ms, effects)

    def _write_markers(self, transaction: Transaction, now_ms: int, effects: Effects) -> None:
        if transaction.partitions:
            effects.schedule(self._markers_of(transaction))
        else:
            self._complete(transaction, now_ms, effects)

    def _complete(self, transaction: Transaction, now_ms: int, effects: Effects) -> None:
        transaction.complete(now_ms)
        effects.write(transaction_records.record_of(transaction))

    def _markers_of(self, transaction: Transaction) -> WriteMarkers:
        assert transaction.is_prepared, transaction
        return WriteMarkers(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            coordinator_epoch=self._coordinator_epoch,
            is_commit=transaction.state is TransactionState.PREPARE_COMMIT,
            partitions=tuple(transaction.partitions),
            transaction_version=transaction.client_version,
        )


def _check_end_before_v2(transaction: Transaction, producer: Producer, decision: TransactionState) -> Error | None:
    """What to answer at once (NONE to a retry whose work is done), or None if the transaction is to be ended now."""
    if producer.producer_id != transaction.producer_id:
        return Error.INVALID_PRODUCER_ID_MAPPING
    if producer.epoch != transaction.epoch:
        return Error.PRODUCER_FENCED
    if transaction.is_prepared:
        return Error.CONCURRENT_TRANSACTIONS
    if transaction.state is TransactionState.ONGOING:
        return None
    return Error.NONE if transaction.state is _completed(decision) else Error.INVALID_TXN_STATE


def _check_end(transaction: Transaction, producer: Producer, decision: TransactionState) -> Error | None:
    """The same from version 2 on."""
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
    """Whether the end of the last transaction gave this producer a new id, which it may not have learned."""
    last = (transaction.previous_producer_id, EPOCH_MAX - 1)
    return transaction.epoch == 0 and producer == last


def _completed(decision: TransactionState) -> TransactionState:
    is_commit = decision is TransactionState.PREPARE_COMMIT
    return TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
