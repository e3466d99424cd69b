"""The states of a transaction, the numbers that stand for nothing, and the settings that transactions follow.

    Empty ──▶ Ongoing ──▶ PrepareCommit ──▶ CompleteCommit ──┐
                 ▲  │                                        ├──▶ Ongoing, or Empty with a new epoch
                 │  └───▶ PrepareAbort ───▶ CompleteAbort  ──┘
                 └── more partitions

What a transaction comes to is decided when it is prepared, and never again. It is complete when each of its partitions
has a marker that says so.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]


class TransactionState(IntEnum):
    """Under the numbers of the transaction log."""

    EMPTY = 0
    """The producer has its id and epoch, and nothing else yet."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """The transactional id has expired. Nobody writes this: a tombstone says it."""
    PREPARE_EPOCH_FENCE = 7
    """On the way to an abort that fences the producer. Nobody writes this: the abort follows at once."""

    @property
    def title(self) -> str:
        """The name that clients see."""
        return "".join(word.capitalize() for word in self.name.split("_"))


COMES_AFTER: Final = {
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
"""Which states each state may follow. Version 2 may abort where nothing was begun, to have a new epoch."""

PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
SETTLED: Final = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
"""Nothing is open: the transactional id may expire."""

NO_PRODUCER_EPOCH: Final = -1
EPOCH_MAX: Final = 32_767
"""The last epoch belongs to the coordinator: it fences whoever has the one before."""
NEVER_MS: Final = 2_147_483_647
"""The timeout of transactions that somebody else decides about (two-phase commit)."""
NOT_STARTED_MS: Final = -1

TRANSACTION_VERSION_1: Final = 0
"""What Kafka writes for clients before version 2, be the feature of the cluster 0 or 1."""
TRANSACTION_VERSION_2: Final = 2
"""Every end of a transaction raises the producer's epoch, so that nothing late falls into the next one."""


def is_exhausted(epoch: int) -> bool:
    """Whether there is no higher epoch that a producer may have."""
    return epoch >= EPOCH_MAX - 1


class TransactionSettings(NamedTuple):
    """What the broker's configuration says about transactions. Kafka's defaults."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    abort_timed_out_interval_ms: int = 10_000
    """`transaction.abort.timed.out.transaction.cleanup.interval.ms`"""
    remove_expired_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`"""
    two_phase_commit_enable: bool = False
