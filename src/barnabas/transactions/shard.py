"""All transactional ids of one partition of `__transaction_state`: what its log adds up to, and how steps add to it.

A shard is first fed with the records of its log, `replay` by `replay`, and then told that it is `loaded`. From then on
every request is a step that changes the state at once and returns the records, answers and orders it asks for (see
`coordination/effects`).

No transaction hangs. One that is ongoing has a deadline, unless its producer decides with somebody else's help
(two-phase commit). One that is decided has an order outstanding that its driver does not give up (`WriteMarkers`); a
new driver gets the order again from `loaded`. All others are settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.coordination.alarms import Alarms
from barnabas.coordination.effects import NO_PRODUCER_ID, Effects, Producer, ProducerId
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.transactions import endings, listing, membership, producers, records
from barnabas.transactions.orders import NeedProducerId
from barnabas.transactions.state import TRANSACTION_VERSION_2, TransactionState
from barnabas.transactions.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from barnabas.coordination.effects import Record, ReplyTo
    from barnabas.transactions.orders import WriteMarkers
    from barnabas.transactions.state import TopicPartition, TransactionSettings

FENCED_HAS_ITS_OWN_ERROR_FROM: Final = {m.InitProducerIdRequest: 4, m.EndTxnRequest: 2}
"""The first version that says PRODUCER_FENCED; before, the epoch is called invalid."""

END_RAISES_EPOCH_FROM: Final = 5
"""The version of EndTxn that clients speak when the transaction is of version 2."""

BEGUN_ANEW: Final = "a producer has begun anew with its transactional id"
TOOK_TOO_LONG: Final = "it took longer than its timeout"

SWEPT_MAX: Final = 500
"""Transactional ids that one step looks at for expiry; those left wait for the next step, behind other work."""


def _latest_version() -> int:
    return TRANSACTION_VERSION_2


class TransactionShard:
    """Invariant of a loaded shard: a transaction that can time out has an alarm no later than that."""

    __slots__ = (
        "_alarms",
        "_coordinator_epoch",
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
        """The coordinator epoch is the leader epoch of the partition; the transaction version, that of the cluster."""
        self._settings = settings
        self._coordinator_epoch = coordinator_epoch
        self._transaction_version = transaction_version
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
            self._transactions[key.transactional_id] = Transaction.from_record(key.transactional_id, value)

    def commit_transaction(self, producer_id: ProducerId) -> None:
        """Nothing follows from a marker in this log: what it says of transactions is written in none."""

    def abort_transaction(self, producer_id: ProducerId) -> None:
        """As for a commit."""

    def loaded(self, now_ms: int) -> Effects:
        """The log is read: what was decided is carried out, and what is ongoing has its deadline."""
        self._loaded_ms = now_ms
        self._sweep_at_ms = now_ms + self._settings.remove_expired_interval_ms
        effects = Effects()
        for transaction in list(self._transactions.values()):
            if transaction.state is TransactionState.DEAD:
                self._remove(transaction.transactional_id, effects)
            elif transaction.state is TransactionState.PREPARE_EPOCH_FENCE:
                transaction.prepare_abort_of_fenced(now_ms)
                self._write_decision(transaction, now_ms, effects)
            elif transaction.is_prepared:
                self._carry_out(transaction, now_ms, effects)
            else:
                self._watch(transaction)
        return effects

    # Producers

    def needs_producer_id(self, request: m.InitProducerIdRequest | m.EndTxnRequest, version: int) -> bool:
        """Whether a request takes a new producer id, so that the driver has one at hand.

        When a step turns out to need one after all, it answers CONCURRENT_TRANSACTIONS, and the client asks again.
        """
        transaction = self._transactions.get(request.transactional_id or "")
        if isinstance(request, m.EndTxnRequest):
            raises_epoch = version >= END_RAISES_EPOCH_FROM
            return raises_epoch and transaction is not None and transaction.is_exhausted and not transaction.is_prepared
        if producers.check_request(request, self._settings) is not Error.NONE:
            return False
        if transaction is None:
            return True
        expected = producers.expected_producer(request)
        return producers.needs_producer_id(transaction, expected, self._transaction_version())

    def init_producer_id(
        self,
        request: m.InitProducerIdRequest,
        version: int,
        new_producer_id: ProducerId | None,
        reply_to: ReplyTo,
        now_ms: int,
    ) -> Effects:
        """Answers with InitProducerIdResponse. For producers with a transactional id."""
        effects = Effects()
        error = producers.check_request(request, self._settings)
        producer = producers.NOBODY
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
        expected = producers.expected_producer(request)
        transaction = self._transactions.get(request.transactional_id)
        if transaction is None:
            if new_producer_id is None:
                return Error.CONCURRENT_TRANSACTIONS, producers.NOBODY
            transaction = Transaction(request.transactional_id, new_producer_id, now_ms)
        error = producers.check_producer(transaction, expected)
        if error is Error.NONE and transaction.state is TransactionState.ONGOING:
            # The client comes again until the transaction of the one before it is aborted.
            self._abort_of_fenced(transaction, new_producer_id, now_ms, effects, BEGUN_ANEW)
            return Error.CONCURRENT_TRANSACTIONS, producers.NOBODY
        if error is Error.NONE:
            error = producers.begin(transaction, expected, producers.timeout_of(request), new_producer_id, now_ms)
        if error is not Error.NONE:
            return error, producers.NOBODY
        self._transactions[transaction.transactional_id] = transaction
        effects.write(transaction.record())
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
        """Makes partitions part of the transaction, all or none. Answers with AddPartitionsToTxnResponse, which has the
        result of this transaction in the form of version 4.

        The transaction version is the client's: 2 if the partition joins by being produced to, or by the request of a
        broker (AddPartitionsToTxn from version 4 on), else 0.
        """
        effects = Effects()
        transaction = self._transactions.get(transactional_id)
        error = membership.check_adding(transactional_id, transaction, producer)
        if error is Error.NONE:
            assert transaction is not None
            if transaction.state is not TransactionState.ONGOING or not transaction.partitions.keys() >= set(
                partitions
            ):
                transaction.add_partitions(partitions, transaction_version, now_ms)
                effects.write(transaction.record())
                self._watch(transaction)
        effects.answer(reply_to, membership.answer(transactional_id, dict.fromkeys(partitions, error)))
        return effects

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Error]:
        """Whether each partition is part of the producer's transaction: NONE, or why nothing may be written there."""
        return membership.verify(transactional_id, self._transactions.get(transactional_id), producer, partitions)

    # Ends

    def end(
        self,
        request: m.EndTxnRequest,
        version: int,
        new_producer_id: ProducerId | None,
        reply_to: ReplyTo,
        now_ms: int,
    ) -> Effects:
        """Commits or aborts. Answers with EndTxnResponse when the decision is written, before all partitions know."""
        effects = Effects()
        error, producer = self._end(request, version, new_producer_id, now_ms, effects)
        response = m.EndTxnResponse(
            error_code=_for_version(error, request, version),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
        )
        effects.answer(reply_to, response)
        return effects

    def _end(
        self,
        request: m.EndTxnRequest,
        version: int,
        new_producer_id: ProducerId | None,
        now_ms: int,
        effects: Effects,
    ) -> tuple[Error, Producer]:
        """The error, and under which id and epoch the producer goes on if this is of version 2."""
        transaction = self._transactions.get(request.transactional_id)
        if transaction is None:
            unknown = Error.INVALID_PRODUCER_ID_MAPPING if request.transactional_id else Error.INVALID_REQUEST
            return unknown, producers.NOBODY
        producer = Producer(ProducerId(request.producer_id), request.producer_epoch)
        decision = TransactionState.PREPARE_COMMIT if request.committed else TransactionState.PREPARE_ABORT
        if version < END_RAISES_EPOCH_FROM:
            error = endings.refusal_before_v2(transaction, producer, decision)
            if error is None:
                transaction.prepare(decision, now_ms)
                self._write_decision(transaction, now_ms, effects)
            return error or Error.NONE, producers.NOBODY
        error = endings.refusal(transaction, producer, decision)
        if error is None:
            if transaction.is_exhausted and new_producer_id is None:
                return Error.CONCURRENT_TRANSACTIONS, producers.NOBODY
            transaction.prepare_with_new_epoch(decision, new_producer_id, now_ms)
            self._write_decision(transaction, now_ms, effects)
        return (error, producers.NOBODY) if error else (Error.NONE, transaction.producer_when_complete)

    def markers_written(self, written: WriteMarkers, now_ms: int) -> Effects:
        """An order is carried out. One that the state has left behind meanwhile changes nothing."""
        effects = Effects()
        transaction = self._transactions.get(written.transactional_id)
        if (
            transaction is not None
            and transaction.is_prepared
            and transaction.order(self._coordinator_epoch) == written
        ):
            self._complete(transaction, now_ms, effects)
        return effects

    def abort_timed_out(self, order: NeedProducerId, new_producer_id: ProducerId, now_ms: int) -> Effects:
        """Goes on with the abort that needed a new producer id, if the transaction is still the one to be aborted."""
        effects = Effects()
        transaction = self._transactions.get(order.transactional_id)
        if transaction is not None and _is_timed_out(transaction, now_ms):
            self._abort_of_fenced(transaction, new_producer_id, now_ms, effects, TOOK_TOO_LONG)
        return effects

    def _abort_of_fenced(
        self, transaction: Transaction, new_producer_id: ProducerId | None, now_ms: int, effects: Effects, why: str
    ) -> None:
        """The coordinator's decision, with an epoch that the producer does not have. Nothing if an id is lacking."""
        if self._transaction_version() < TRANSACTION_VERSION_2:
            transaction.prepare_abort_of_fenced(now_ms)
        elif transaction.is_exhausted and new_producer_id is None:
            return
        else:
            transaction.prepare_with_new_epoch(TransactionState.PREPARE_ABORT, new_producer_id, now_ms)
        self._write_decision(transaction, now_ms, effects)
        effects.note(f"the transaction of {transaction.transactional_id} is aborted and its producer fenced: {why}")

    def _write_decision(self, transaction: Transaction, now_ms: int, effects: Effects) -> None:
        effects.write(transaction.record())
        self._carry_out(transaction, now_ms, effects)

    def _carry_out(self, transaction: Transaction, now_ms: int, effects: Effects) -> None:
        if transaction.partitions:
            effects.order(transaction.order(self._coordinator_epoch))
        else:
            self._complete(transaction, now_ms, effects)

    def _complete(self, transaction: Transaction, now_ms: int, effects: Effects) -> None:
        transaction.complete(now_ms)
        effects.write(transaction.record())

    # Administration

    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> list[m.DescribeTransactionsResponse.TransactionState]:
        return [listing.described(each, self._transactions.get(each)) for each in transactional_ids]

    def list_transactions(
        self, filters: listing.Filters, now_ms: int
    ) -> list[m.ListTransactionsResponse.TransactionState]:
        return [listing.listed(each) for each in self._transactions.values() if filters.match(each, now_ms)]

    # Time

    @property
    def next_deadline_ms(self) -> int | None:
        """When `expire` may next have something to do; never later than that."""
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

    def resign(self) -> Effects:
        """Another node leads the partition now, and gets the orders. The shard is of no use any more."""
        self._transactions.clear()
        self._alarms = Alarms()
        self._sweep_at_ms = None
        return Effects()

    def _next_aborts_ms(self) -> int | None:
        """The next time to search for transactions that have timed out, if one may have until then."""
        alarm_ms = self._alarms.next_ms
        if alarm_ms is None:
            return None
        interval_ms = self._settings.abort_timed_out_interval_ms
        intervals = max(1, -(-(alarm_ms - self._loaded_ms) // interval_ms))
        return self._loaded_ms + intervals * interval_ms

    def _look_at(self, transactional_id: str, now_ms: int, effects: Effects) -> None:
        """An alarm went off, perhaps that of an earlier transaction."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return
        if _is_timed_out(transaction, now_ms):
            self._abort_of_fenced(transaction, None, now_ms, effects, TOOK_TOO_LONG)
            if transaction.state is TransactionState.ONGOING:
                effects.order(NeedProducerId(transactional_id))
                self._alarms.set(transactional_id, now_ms + 1)
        else:
            self._watch(transaction)

    def _watch(self, transaction: Transaction) -> None:
        if (times_out_ms := transaction.times_out_ms) is not None:
            self._alarms.set(transaction.transactional_id, times_out_ms)

    def _sweep(self, now_ms: int, effects: Effects) -> None:
        """Removes transactional ids that nobody has used for long."""
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
        effects.write(records.tombstone(transactional_id))


def _is_timed_out(transaction: Transaction, now_ms: int) -> bool:
    return transaction.times_out_ms is not None and transaction.times_out_ms <= now_ms


def _for_version(error: Error, request: m.InitProducerIdRequest | m.EndTxnRequest, version: int) -> Error:
    if error is Error.PRODUCER_FENCED and version < FENCED_HAS_ITS_OWN_ERROR_FROM[type(request)]:
        return Error.INVALID_PRODUCER_EPOCH
    return error
