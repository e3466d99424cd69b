"""All transactional ids of one partition of `__transaction_state`: its log, replayed, and the steps that add to it.

A shard first replays the records of its log (`replay`), and then learns that it has `loaded` them all. From then on
every request is a step that changes the state at once and returns the records, answers and actions that it asks for
(see `coordination/effects`).

No transaction hangs. An ongoing one has a deadline, unless its outcome is decided outside of Kafka (two-phase commit).
For one that is decided, an action is under way that never gives up (`WriteMarkers`); `loaded` asks for it again. All
others are settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.coordination.effects import NO_PRODUCER_ID, Alarms, Effects, ProducerId
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.transactions import producer_epochs, transaction_partitions, transaction_records, transaction_views
from barnabas.transactions.end_transaction import (
    END_BUMPS_EPOCH_FROM,
    NEW_PRODUCER,
    TIMED_OUT,
    AllocateProducerId,
    TransactionEnds,
)
from barnabas.transactions.transaction import TRANSACTION_VERSION_2, Transaction, TransactionState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from barnabas.coordination.effects import Producer, Record, ReplyTo
    from barnabas.transactions.end_transaction import WriteMarkers
    from barnabas.transactions.transaction import TopicPartition

FENCED_HAS_ITS_OWN_ERROR_FROM: Final = {m.InitProducerIdRequest: 4, m.EndTxnRequest: 2}
"""The first version that answers PRODUCER_FENCED; earlier ones answer INVALID_PRODUCER_EPOCH."""

SWEPT_MAX: Final = 500
"""Transactional ids that one step checks for expiry; the rest wait for the next step, behind other work."""


class TransactionSettings(NamedTuple):
    """The broker's configuration of transactions. Kafka's defaults."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    abort_timed_out_interval_ms: int = 10_000
    """`transaction.abort.timed.out.transaction.cleanup.interval.ms`"""
    remove_expired_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`"""
    two_phase_commit_enable: bool = False


def _latest_version() -> int:
    return TRANSACTION_VERSION_2


class TransactionShard:
    """Invariant of a loaded shard: a transaction that can time out has an alarm at that time or earlier."""

    __slots__ = (
        "_alarms",
        "_ends",
        "_loaded_ms",
        "_settings",
        "_sweep_at_ms",
        "_to_sweep",
        "_transaction_version",
        "_transactions",
    )

    def __init__(
        self,
        settings: TransactionSettings,
        coordinator_epoch: int,
        transaction_version: Callable[[], int] = _latest_version,
    ) -> None:
        """The coordinator epoch is the leader epoch of the partition; the transaction version is that of the
        cluster."""
        self._settings = settings
        self._transaction_version = transaction_version
        self._ends = TransactionEnds(coordinator_epoch, transaction_version)
        self._transactions: dict[str, Transaction] = {}
        self._alarms = Alarms()
        self._loaded_ms = 0
        self._sweep_at_ms: int | None = None
        self._to_sweep: list[str] = []

    # Loading

    def replay(self, record: Record, producer_id: ProducerId = NO_PRODUCER_ID) -> None:  # noqa: ARG002 - as all shards
        """Applies a record of the log. Only before `loaded`."""
        key, value = record
        assert isinstance(key, m.TransactionLogKey), key
        if value is None:
            self._transactions.pop(key.transactional_id, None)
        else:
            assert isinstance(value, m.TransactionLogValue), value
            self._transactions[key.transactional_id] = transaction_records.transaction_of(key.transactional_id, value)

    def commit_transaction(self, producer_id: ProducerId) -> None:
        """Markers mean nothing in this log: its records are not written in transactions."""

    def abort_transaction(self, producer_id: ProducerId) -> None:
        """See `commit_transaction`."""

    def loaded(self, now_ms: int) -> Effects:
        """All of the log is replayed: decided transactions are completed, ongoing ones have their deadline."""
        self._loaded_ms = now_ms
        self._sweep_at_ms = now_ms + self._settings.remove_expired_interval_ms
        effects = Effects()
        for transaction in list(self._transactions.values()):
            if transaction.state is TransactionState.DEAD:
                self._remove(transaction.transactional_id, effects)
            elif transaction.is_prepared or transaction.state is TransactionState.PREPARE_EPOCH_FENCE:
                self._ends.resume(transaction, now_ms, effects)
            else:
                self._watch(transaction)
        return effects

    # Producers

    def needs_producer_id(self, request: m.InitProducerIdRequest | m.EndTxnRequest, version: int) -> bool:
        """Whether a request takes a new producer id, which is then to be allocated before the step.

        A step that turns out to need one after all answers CONCURRENT_TRANSACTIONS, and the client retries.
        """
        transaction = self._transactions.get(request.transactional_id or "")
        if isinstance(request, m.EndTxnRequest):
            bumps_epoch = version >= END_BUMPS_EPOCH_FROM
            return bumps_epoch and transaction is not None and transaction.is_exhausted and not transaction.is_prepared
        if producer_epochs.check_request(request, self._settings) is not Error.NONE:
            return False
        if transaction is None:
            return True
        expected = producer_epochs.expected_producer(request)
        return producer_epochs.needs_producer_id(transaction, expected, self._transaction_version())

    def init_producer_id(
        self,
        request: m.InitProducerIdRequest,
        version: int,
        new_producer_id: ProducerId | None,
        reply_to: ReplyTo,
        now_ms: int,
    ) -> Effects:
        """Answers with InitProducerIdResponse. Only for producers with a transactional id."""
        effects = Effects()
        error = producer_epochs.check_request(request, self._settings)
        producer = producer_epochs.NOBODY
        if error is Error.NONE:
            error, producer = self._begin(request, new_producer_id, now_ms, effects)
        response = m.InitProducerIdResponse(
            error_code=_for_version(error, request, version),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
        )
        effects.answer(reply_to, response)
        return effects

    def _begin(
        self, request: m.InitProducerIdRequest, new_producer_id: ProducerId | None, now_ms: int, effects: Effects
    ) -> tuple[Error, Producer]:
        assert request.transactional_id, "checked before"
        expected = producer_epochs.expected_producer(request)
        transaction = self._transactions.get(request.transactional_id)
        if transaction is None:
            if new_producer_id is None:
                return Error.CONCURRENT_TRANSACTIONS, producer_epochs.NOBODY
            transaction = Transaction(request.transactional_id, new_producer_id, now_ms)
        error = producer_epochs.check_producer(transaction, expected)
        if error is Error.NONE and transaction.state is TransactionState.ONGOING:
            # The client retries until the transaction of its predecessor is aborted.
            self._ends.abort_and_fence(transaction, new_producer_id, now_ms, effects, NEW_PRODUCER)
            return Error.CONCURRENT_TRANSACTIONS, producer_epochs.NOBODY
        if error is Error.NONE:
            error = producer_epochs.begin(
                transaction, expected, producer_epochs.timeout_of(request), new_producer_id, now_ms
            )
        if error is not Error.NONE:
            return error, producer_epochs.NOBODY
        self._transactions[transaction.transactional_id] = transaction
        effects.write(transaction_records.record_of(transaction))
        return Error.NONE, transaction.producer

    # Partitions

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        transaction_version: int,
        reply_to: ReplyTo,
        now_ms: int,
    ) -> Effects:
        """Adds partitions to the transaction, all or none. Answers with AddPartitionsToTxnResponse, which has the
        result in the form of version 4.

        The transaction version is the client's: 2 if a broker adds the partition, because it was produced to or by
        AddPartitionsToTxn from version 4 on, else 0.
        """
        effects = Effects()
        transaction = self._transactions.get(transactional_id)
        error = transaction_partitions.check_adding(transactional_id, transaction, producer)
        if error is Error.NONE:
            assert transaction is not None
            if transaction.state is not TransactionState.ONGOING or not transaction.partitions.keys() >= set(
                partitions
            ):
                transaction.add_partitions(partitions, transaction_version, now_ms)
                effects.write(transaction_records.record_of(transaction))
                self._watch(transaction)
        effects.answer(reply_to, transaction_partitions.answer(transactional_id, dict.fromkeys(partitions, error)))
        return effects

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Error]:
        """Whether each partition is part of the producer's transaction: NONE, or why it must not be written to."""
        return transaction_partitions.verify(
            transactional_id, self._transactions.get(transactional_id), producer, partitions
        )

    # Ends

    def end(
        self,
        request: m.EndTxnRequest,
        version: int,
        new_producer_id: ProducerId | None,
        reply_to: ReplyTo,
        now_ms: int,
    ) -> Effects:
        """Commits or aborts. Answers with EndTxnResponse when the decision is committed, before the markers are
        written."""
        effects = Effects()
        transaction = self._transactions.get(request.transactional_id)
        if transaction is None:
            error = Error.INVALID_PRODUCER_ID_MAPPING if request.transactional_id else Error.INVALID_REQUEST
            producer = producer_epochs.NOBODY
        else:
            error, producer = self._ends.end(transaction, request, version, new_producer_id, now_ms, effects)
        response = m.EndTxnResponse(
            error_code=_for_version(error, request, version),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
        )
        effects.answer(reply_to, response)
        return effects

    def markers_written(self, written: WriteMarkers, now_ms: int) -> Effects:
        """All partitions have their marker."""
        effects = Effects()
        if (transaction := self._transactions.get(written.transactional_id)) is not None:
            self._ends.markers_written(transaction, written, now_ms, effects)
        return effects

    def abort_timed_out(self, action: AllocateProducerId, new_producer_id: ProducerId, now_ms: int) -> Effects:
        """Resumes an abort that needed a new producer id, if the transaction is still to be aborted."""
        effects = Effects()
        transaction = self._transactions.get(action.transactional_id)
        if transaction is not None and _is_timed_out(transaction, now_ms):
            self._ends.abort_and_fence(transaction, new_producer_id, now_ms, effects, TIMED_OUT)
        return effects

    # Administration

    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> list[m.DescribeTransactionsResponse.TransactionState]:
        return [transaction_views.described(each, self._transactions.get(each)) for each in transactional_ids]

    def transaction_states(self) -> list[TransactionState]:
        """Of all transactional ids, for figures about them. Another thread may ask."""
        return [transaction.state for transaction in list(self._transactions.values())]

    def list_transactions(
        self, filters: transaction_views.Filters, now_ms: int
    ) -> list[m.ListTransactionsResponse.TransactionState]:
        return [transaction_views.listed(each) for each in self._transactions.values() if filters.match(each, now_ms)]

    # Time

    @property
    def next_deadline_ms(self) -> int | None:
        """When to call `expire` next. It may be too early, but never too late."""
        deadlines = (self._next_aborts_ms(), self._sweep_at_ms)
        return min((each for each in deadlines if each is not None), default=None)

    def expire(self, now_ms: int) -> Effects:
        effects = Effects()
        aborts_ms = self._next_aborts_ms()
        if aborts_ms is not None and now_ms >= aborts_ms:
            for transactional_id in self._alarms.take_due(now_ms):
                self._look_at(transactional_id, now_ms, effects)
        if self._sweep_at_ms is not None and now_ms >= self._sweep_at_ms:
            self._sweep(now_ms, effects)
        return effects

    def unload(self) -> Effects:
        """This node no longer coordinates the partition. The shard must not be used after this."""
        self._transactions.clear()
        self._alarms = Alarms()
        self._sweep_at_ms = None
        return Effects()

    def _next_aborts_ms(self) -> int | None:
        """The next time to check for transactions that have timed out, if there may be one by then."""
        alarm_ms = self._alarms.next_ms
        if alarm_ms is None:
            return None
        interval_ms = self._settings.abort_timed_out_interval_ms
        intervals = max(1, -(-(alarm_ms - self._loaded_ms) // interval_ms))
        return self._loaded_ms + intervals * interval_ms

    def _look_at(self, transactional_id: str, now_ms: int, effects: Effects) -> None:
        """An alarm has gone off, which may have been set for an earlier transaction."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return
        if _is_timed_out(transaction, now_ms):
            self._ends.abort_and_fence(transaction, None, now_ms, effects, TIMED_OUT)
            if transaction.state is TransactionState.ONGOING:
                effects.schedule(AllocateProducerId(transactional_id))
                self._alarms.set(transactional_id, now_ms + 1)
        else:
            self._watch(transaction)

    def _watch(self, transaction: Transaction) -> None:
        if (times_out_ms := transaction.times_out_ms) is not None:
            self._alarms.set(transaction.transactional_id, times_out_ms)

    def _sweep(self, now_ms: int, effects: Effects) -> None:
        """Removes transactional ids that have not been used for `transactional.id.expiration.ms`."""
        if not self._to_sweep:
            self._to_sweep = list(self._transactions)
        expired_ms = now_ms - self._settings.transactional_id_expiration_ms
        for transactional_id in self._to_sweep[-SWEPT_MAX:]:
            transaction = self._transactions.get(transactional_id)
            if transaction is not None and transaction.is_settled and transaction.updated_ms <= expired_ms:
                self._remove(transactional_id, effects)
        del self._to_sweep[-SWEPT_MAX:]
        self._sweep_at_ms = now_ms + (0 if self._to_sweep else self._settings.remove_expired_interval_ms)

    def _remove(self, transactional_id: str, effects: Effects) -> None:
        del self._transactions[transactional_id]
        effects.write(transaction_records.tombstone(transactional_id))


def _is_timed_out(transaction: Transaction, now_ms: int) -> bool:
    return transaction.times_out_ms is not None and transaction.times_out_ms <= now_ms


def _for_version(error: Error, request: m.InitProducerIdRequest | m.EndTxnRequest, version: int) -> Error:
    if error is Error.PRODUCER_FENCED and version < FENCED_HAS_ITS_OWN_ERROR_FROM[type(request)]:
        return Error.INVALID_PRODUCER_EPOCH
    return error
