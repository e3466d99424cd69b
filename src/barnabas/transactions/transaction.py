"""One transactional id: the producer that has it now, and how far its transaction has come.

The methods here are the steps from one state to the next. Who may ask for which is decided elsewhere: in `producers`
for a producer that begins, in `endings` for one that commits or aborts, in `shard` for everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordination.effects import NO_PRODUCER_ID, Producer, ProducerId
from barnabas.protocol import messages as m
from barnabas.transactions import records
from barnabas.transactions.orders import WriteMarkers
from barnabas.transactions.state import (
    COMES_AFTER,
    EPOCH_MAX,
    NEVER_MS,
    NO_PRODUCER_EPOCH,
    NOT_STARTED_MS,
    PREPARED,
    SETTLED,
    TRANSACTION_VERSION_1,
    TRANSACTION_VERSION_2,
    TransactionState,
    is_exhausted,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.coordination.effects import Record
    from barnabas.transactions.state import TopicPartition


class Transaction:
    """Invariants: a settled transaction has no partitions; one that is ongoing or prepared has a start."""

    __slots__ = (
        "client_version",
        "epoch",
        "last_epoch",
        "next_producer_id",
        "partitions",
        "previous_producer_id",
        "producer_id",
        "started_ms",
        "state",
        "timeout_ms",
        "transactional_id",
        "updated_ms",
    )

    def __init__(self, transactional_id: str, producer_id: ProducerId, now_ms: int) -> None:
        """Not yet the producer's: it gets its first epoch with `begin_epoch`."""
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.previous_producer_id = NO_PRODUCER_ID
        """What the producer id was before the latest step."""
        self.next_producer_id = NO_PRODUCER_ID
        """What it becomes when the transaction is complete, because there are no epochs left."""
        self.epoch = NO_PRODUCER_EPOCH
        self.last_epoch = NO_PRODUCER_EPOCH
        """The epoch before, if its owner is the one who raised it and may therefore ask again. Not in the log."""
        self.timeout_ms = 0
        self.state = TransactionState.EMPTY
        self.partitions: dict[TopicPartition, None] = {}
        """In the order in which they were added."""
        self.started_ms = NOT_STARTED_MS
        self.updated_ms = now_ms
        self.client_version = TRANSACTION_VERSION_1

    @property
    def producer(self) -> Producer:
        return Producer(self.producer_id, self.epoch)

    @property
    def producer_when_complete(self) -> Producer:
        """Under which id and epoch a producer of version 2 goes on."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return Producer(self.next_producer_id, 0)
        return self.producer

    @property
    def is_prepared(self) -> bool:
        """Decided, but not yet known to all partitions: nothing else happens until it is."""
        return self.state in PREPARED

    @property
    def is_settled(self) -> bool:
        return self.state in SETTLED

    @property
    def is_exhausted(self) -> bool:
        return is_exhausted(self.epoch)

    @property
    def times_out_ms(self) -> int | None:
        """From when on the transaction may be aborted because it takes too long."""
        if self.state is not TransactionState.ONGOING or self.timeout_ms == NEVER_MS:
            return None
        return self.started_ms + self.timeout_ms + 1

    # Steps

    def begin_epoch(self, producer: Producer, last_epoch: int, timeout_ms: int, now_ms: int) -> None:
        """A producer has begun, or goes on after an error."""
        self._step_to(TransactionState.EMPTY, now_ms)
        self.producer_id, self.epoch = producer
        self.last_epoch = last_epoch
        self.timeout_ms = timeout_ms
        self.started_ms = NOT_STARTED_MS

    def add_partitions(self, partitions: Iterable[TopicPartition], transaction_version: int, now_ms: int) -> None:
        begins = self.state is not TransactionState.ONGOING
        self._step_to(TransactionState.ONGOING, now_ms)
        if begins:
            self.started_ms = now_ms
        self.partitions.update(dict.fromkeys(partitions))
        self.client_version = transaction_version

    def prepare(self, state: TransactionState, now_ms: int) -> None:
        """The producer's decision, as before version 2."""
        self._step_to(state, now_ms)
        self.client_version = TRANSACTION_VERSION_1

    def prepare_with_new_epoch(self, state: TransactionState, new_producer_id: ProducerId | None, now_ms: int) -> None:
        """The producer's decision in version 2, or that of the coordinator: the markers have the new epoch already.

        The new producer id is for when there is no epoch left, and not taken otherwise.
        """
        if self.is_settled:
            self.started_ms = now_ms
        self._step_to(state, now_ms)
        if self.is_exhausted:
            assert new_producer_id is not None, f"{self} has no epoch left"
            self.next_producer_id = new_producer_id
        self.last_epoch = self.epoch
        self.epoch = min(self.epoch + 1, EPOCH_MAX)
        self.client_version = TRANSACTION_VERSION_2

    def prepare_abort_of_fenced(self, now_ms: int) -> None:
        """The coordinator's decision before version 2: the producer does not learn the epoch that fences it."""
        self.prepare(TransactionState.PREPARE_ABORT, now_ms)
        self.epoch = min(self.epoch + 1, EPOCH_MAX)
        self.last_epoch = NO_PRODUCER_EPOCH

    def complete(self, now_ms: int) -> None:
        """Every partition knows."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        self._step_to(TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT, now_ms)
        self.producer_id, self.epoch = self.producer_when_complete
        self.next_producer_id = NO_PRODUCER_ID
        self.partitions = {}

    def _step_to(self, state: TransactionState, now_ms: int) -> None:
        assert self.state in COMES_AFTER[state], f"{self} cannot come to {state.title}"
        self.previous_producer_id = self.producer_id
        self.state = state
        self.updated_ms = now_ms

    # What others get to see

    def order(self, coordinator_epoch: int) -> WriteMarkers:
        assert self.is_prepared, self
        return WriteMarkers(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            coordinator_epoch=coordinator_epoch,
            is_commit=self.state is TransactionState.PREPARE_COMMIT,
            partitions=tuple(self.partitions),
            transaction_version=self.client_version,
        )

    def by_topic(self) -> Iterator[tuple[str, list[int]]]:
        topics: dict[str, list[int]] = {}
        for topic, partition in self.partitions:
            topics.setdefault(topic, []).append(partition)
        yield from topics.items()

    def record(self) -> Record:
        value = m.TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=self._partitions_record(),
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.started_ms,
            client_transaction_version=self.client_version,
        )
        return records.transaction(self.transactional_id, value)

    def _partitions_record(self) -> list[m.TransactionLogValue.PartitionsSchema] | None:
        if self.state is TransactionState.EMPTY:
            return None
        schema = m.TransactionLogValue.PartitionsSchema
        return [schema(topic=topic, partition_ids=partitions) for topic, partitions in self.by_topic()]

    @classmethod
    def from_record(cls, transactional_id: str, value: m.TransactionLogValue) -> Transaction:
        found = cls(transactional_id, ProducerId(value.producer_id), value.transaction_last_update_timestamp_ms)
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

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"Transaction({fields})"
