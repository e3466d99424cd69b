"""One transactional id: the producer that has it now, and how far its transaction has come.

    Empty ──▶ Ongoing ──▶ PrepareCommit ──▶ CompleteCommit ──┐
                 ▲  │                                        ├──▶ Ongoing, or Empty with a new epoch
                 │  └───▶ PrepareAbort ───▶ CompleteAbort  ──┘
                 └── more partitions

The outcome is decided when the transaction is prepared, and never changes after that. The transaction is complete when
each of its partitions has a marker with the outcome.

The methods of `Transaction` are the transitions. Which request may ask for which is decided elsewhere: in
`producer_epochs` for InitProducerId, in `transaction_partitions` for AddPartitionsToTxn, in `end_transaction` for
everything that ends a transaction.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.coordination.effects import NO_PRODUCER_ID, Producer, ProducerId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TopicPartition: TypeAlias = tuple[str, int]


class TransactionState(IntEnum):
    """The numbers are those of the transaction log."""

    EMPTY = 0
    """The producer has its id and epoch, and nothing else yet."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """The transactional id has expired. Never written: a tombstone takes its place."""
    PREPARE_EPOCH_FENCE = 7
    """On the way to an abort that fences the producer. Never written: the abort follows at once."""

    @property
    def title(self) -> str:
        """The name as clients see it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


VALID_PREVIOUS_STATES: Final = {
    TransactionState.EMPTY: {
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    },
    TransactionState.ONGOING: {
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    },
    TransactionState.PREPARE_COMMIT: {TransactionState.ONGOING},
    TransactionState.PREPARE_ABORT: {
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
        TransactionState.PREPARE_EPOCH_FENCE,
    },
    TransactionState.COMPLETE_COMMIT: {TransactionState.PREPARE_COMMIT},
    TransactionState.COMPLETE_ABORT: {TransactionState.PREPARE_ABORT},
}
"""By state. In version 2 a producer may abort without having begun anything, to get a new epoch."""

PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
SETTLED: Final = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
"""Nothing is open: the transactional id may expire."""

NO_PRODUCER_EPOCH: Final = -1
EPOCH_MAX: Final = 32_767
"""The last epoch is the coordinator's, to fence the producer that has the one before it."""
NEVER_MS: Final = 2_147_483_647
"""The timeout of transactions whose outcome is decided outside of Kafka (two-phase commit)."""
NOT_STARTED_MS: Final = -1

TRANSACTION_VERSION_1: Final = 0
"""What Kafka writes for clients before version 2, whether the feature level of the cluster is 0 or 1."""
TRANSACTION_VERSION_2: Final = 2
"""Every end of a transaction bumps the producer's epoch, so that no late write ends up in the next one."""


def is_exhausted(epoch: int) -> bool:
    """Whether a producer in this epoch cannot get a higher one."""
    return epoch >= EPOCH_MAX - 1


class Transaction:
    """Invariants: a settled transaction has no partitions; an ongoing or prepared one has a start time."""

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
        """The producer gets its first epoch with `begin_epoch`."""
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.previous_producer_id = NO_PRODUCER_ID
        """The producer id before the latest transition."""
        self.next_producer_id = NO_PRODUCER_ID
        """The producer id from completion on, if the current one has no epochs left."""
        self.epoch = NO_PRODUCER_EPOCH
        self.last_epoch = NO_PRODUCER_EPOCH
        """The previous epoch, if the producer that had it bumped it itself and may retry that request. Not in the
        log."""
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
        """The id and epoch with which a producer of version 2 continues."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return Producer(self.next_producer_id, 0)
        return self.producer

    @property
    def is_prepared(self) -> bool:
        """Decided, but some partitions have no marker yet: until they do, nothing else can happen."""
        return self.state in PREPARED

    @property
    def is_settled(self) -> bool:
        return self.state in SETTLED

    @property
    def is_exhausted(self) -> bool:
        return is_exhausted(self.epoch)

    @property
    def times_out_ms(self) -> int | None:
        """When the transaction may be aborted because it takes too long."""
        if self.state is not TransactionState.ONGOING or self.timeout_ms == NEVER_MS:
            return None
        return self.started_ms + self.timeout_ms + 1

    # Transitions

    def begin_epoch(self, producer: Producer, last_epoch: int, timeout_ms: int, now_ms: int) -> None:
        """A producer starts, or recovers from an error."""
        self._transition_to(TransactionState.EMPTY, now_ms)
        self.producer_id, self.epoch = producer
        self.last_epoch = last_epoch
        self.timeout_ms = timeout_ms
        self.started_ms = NOT_STARTED_MS

    def add_partitions(self, partitions: Iterable[TopicPartition], transaction_version: int, now_ms: int) -> None:
        is_first = self.state is not TransactionState.ONGOING
        self._transition_to(TransactionState.ONGOING, now_ms)
        if is_first:
            self.started_ms = now_ms
        self.partitions.update(dict.fromkeys(partitions))
        self.client_version = transaction_version

    def prepare(self, state: TransactionState, now_ms: int) -> None:
        """The producer's decision before version 2."""
        self._transition_to(state, now_ms)
        self.client_version = TRANSACTION_VERSION_1

    def prepare_with_new_epoch(self, state: TransactionState, new_producer_id: ProducerId | None, now_ms: int) -> None:
        """The producer's decision in version 2, or the coordinator's: the markers already carry the new epoch.

        The new producer id is used only if no epoch is left.
        """
        if self.is_settled:
            self.started_ms = now_ms
        self._transition_to(state, now_ms)
        if self.is_exhausted:
            assert new_producer_id is not None, f"{self} has no epoch left"
            self.next_producer_id = new_producer_id
        self.last_epoch = self.epoch
        self.epoch = min(self.epoch + 1, EPOCH_MAX)
        self.client_version = TRANSACTION_VERSION_2

    def prepare_abort_of_fenced(self, now_ms: int) -> None:
        """The coordinator's decision before version 2: the producer never learns the epoch that fences it."""
        self.prepare(TransactionState.PREPARE_ABORT, now_ms)
        self.epoch = min(self.epoch + 1, EPOCH_MAX)
        self.last_epoch = NO_PRODUCER_EPOCH

    def complete(self, now_ms: int) -> None:
        """Every partition has its marker."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        self._transition_to(TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT, now_ms)
        self.producer_id, self.epoch = self.producer_when_complete
        self.next_producer_id = NO_PRODUCER_ID
        self.partitions = {}

    def _transition_to(self, state: TransactionState, now_ms: int) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self} cannot become {state.title}"
        self.previous_producer_id = self.producer_id
        self.state = state
        self.updated_ms = now_ms

    def by_topic(self) -> Iterator[tuple[str, list[int]]]:
        topics: dict[str, list[int]] = {}
        for topic, partition in self.partitions:
            topics.setdefault(topic, []).append(partition)
        yield from topics.items()

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"Transaction({fields})"
