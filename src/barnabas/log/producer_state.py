"""What a partition remembers of its producers: enough to tell a retried batch from a new one and from a lost one.

An idempotent producer numbers its records per partition. The log keeps, for each producer id, its epoch and its
last five batches: a batch that repeats one of them was acknowledged before and is answered with the same offset;
the next in sequence is appended; anything else means that a batch is missing, or that the producer was replaced by
a newer epoch of itself. A producer of which nothing is known may start at any sequence: retention may have removed
what it wrote.

Of transactions the log keeps where each open one began, as readers of committed data stop at the earliest of them.

The state is a pure consequence of the batches in the log. Snapshots (`producer_snapshot`) spare the replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

BATCHES_REMEMBERED = 5
SEQUENCE_MAX = 2**31 - 1
NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1


class RememberedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class CompletedTxn(NamedTuple):
    """A transaction whose end marker was appended at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerEntry:
    """One producer id. `batches` has the newest last and is empty after an end marker alone."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "txn_first_offset")

    def __init__(self, epoch: int = NO_EPOCH) -> None:
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.txn_first_offset = NO_OFFSET
        self.batches: list[RememberedBatch] = []

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def take_epoch(self, epoch: int) -> None:
        """A new epoch starts its sequence afresh."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()

    def remember(self, batch: RememberedBatch) -> None:
        self.batches.append(batch)
        if len(self.batches) > BATCHES_REMEMBERED:
            del self.batches[0]
        self.last_timestamp = batch.timestamp


class ProducerState:
    """All producers of one partition, up to `end_offset`."""

    __slots__ = ("_open_txns", "_partition_name", "_unreplicated_txns", "end_offset", "producers")

    def __init__(self, partition_name: str) -> None:
        self._partition_name = partition_name
        self.producers: dict[int, ProducerEntry] = {}
        # First offset → producer id, in rising order, as transactions begin at the end of the log.
        self._open_txns: dict[int, int] = {}
        # First offset → last offset of ended transactions whose end marker is not below the high watermark yet.
        self._unreplicated_txns: dict[int, int] = {}
        self.end_offset = 0

    def check(
        self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int, *, is_transactional: bool
    ) -> RememberedBatch | None:
        """May a client append this batch? Returns the earlier batch that it repeats, if it does; raises if not."""
        entry = self.producers.get(producer_id)
        if entry is None or entry.epoch == NO_EPOCH:
            return None
        if epoch == entry.epoch:
            batches = entry.batches
            expected = next_sequence(batches[-1].last_sequence) if batches else 0
            if first_sequence != expected:
                for batch in batches:
                    if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                        return batch
                raise self._refusal(
                    Error.OUT_OF_ORDER_SEQUENCE_NUMBER, producer_id, f"sequence {first_sequence} instead of {expected}"
                )
        elif epoch < entry.epoch:
            raise self._refusal(
                Error.INVALID_PRODUCER_EPOCH, producer_id, f"epoch {epoch}, which {entry.epoch} has replaced"
            )
        elif first_sequence != 0:
            raise self._refusal(
                Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
                producer_id,
                f"sequence {first_sequence} instead of 0 to begin epoch {epoch}",
            )
        if entry.txn_first_offset != NO_OFFSET and not is_transactional:
            raise self._refusal(Error.INVALID_TXN_STATE, producer_id, "a batch outside of its open transaction")
        return None

    def append(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
    ) -> ProducerEntry:
        """The batch is in the log."""
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(epoch)
        elif epoch != entry.epoch:
            entry.take_epoch(epoch)
        entry.remember(RememberedBatch(first_sequence, last_sequence, first_offset, last_offset, timestamp))
        return entry

    def begin_txn(self, producer_id: int, entry: ProducerEntry, first_offset: int) -> None:
        """A transactional batch was appended: the first of its transaction opens it."""
        if entry.txn_first_offset == NO_OFFSET:
            entry.txn_first_offset = first_offset
            self._open_txns[first_offset] = producer_id

    def end_txn(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp: int, *, is_aborted: bool
    ) -> CompletedTxn | None:
        """An end marker was appended. None when the producer had no open transaction here."""
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(epoch)
        entry.take_epoch(epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        first_offset, entry.txn_first_offset = entry.txn_first_offset, NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        del self._open_txns[first_offset]
        self._unreplicated_txns[first_offset] = offset
        return CompletedTxn(producer_id, first_offset, offset, is_aborted)

    def stable_before(self, completed: CompletedTxn) -> int:
        """The last stable offset once `completed` is out of the way: what its index entry records."""
        return next(iter(self._open_txns), completed.last_offset + 1)

    def first_unstable_offset(self) -> int | None:
        """Readers of committed data stop here: the earliest transaction that is open, or ended but not replicated."""
        earliest = [next(iter(txns)) for txns in (self._open_txns, self._unreplicated_txns) if txns]
        return min(earliest, default=None)

    def high_watermark_moved(self, high_watermark: int) -> None:
        if self._unreplicated_txns:
            self._unreplicated_txns = {
                first: last for first, last in self._unreplicated_txns.items() if last >= high_watermark
            }

    def restore(self, entries: Iterable[tuple[int, ProducerEntry]], end_offset: int) -> None:
        """Takes over what a snapshot says, in place of all that was known."""
        self.clear(end_offset)
        self.producers.update(entries)
        open_txns = ((entry.txn_first_offset, producer_id) for producer_id, entry in self.producers.items())
        self._open_txns = dict(sorted(txn for txn in open_txns if txn[0] != NO_OFFSET))

    def clear(self, end_offset: int) -> None:
        self.producers.clear()
        self._open_txns.clear()
        self._unreplicated_txns.clear()
        self.end_offset = end_offset

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers that wrote nothing for long and have no open transaction. Returns how many."""
        expired = [
            producer_id
            for producer_id, entry in self.producers.items()
            if entry.txn_first_offset == NO_OFFSET and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        return len(expired)

    def _refusal(self, error: Error, producer_id: int, what: str) -> KafkaError:
        return KafkaError(error, f"producer {producer_id} sent {self._partition_name} {what}")


def next_sequence(sequence: int) -> int:
    return (sequence + 1) & SEQUENCE_MAX


def last_sequence_of(first_sequence: int, last_offset_delta: int) -> int:
    """Sequences wrap from 2³¹−1 to 0; a batch without them has none at its end either."""
    if first_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (first_sequence + last_offset_delta) & SEQUENCE_MAX
