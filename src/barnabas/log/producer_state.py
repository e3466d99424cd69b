"""What a partition remembers of its producers: enough to tell a retried batch from a new one and from a lost one.

An idempotent producer numbers its records per partition. The log keeps, for each producer id, its epoch and its
last five batches: a batch that repeats one of them was acknowledged before and is answered with the same offset;
the next in sequence is appended; anything else means that a batch is missing, or that the producer was replaced by
a newer epoch of itself. A producer of which nothing is known may start at any sequence: retention may have removed
what it wrote.

Of transactions the log keeps where each open one began, as readers of committed data stop at the earliest of them. The
first batch of a transaction is appended only with a `Verification` from the time before the coordinator was asked
whether the partition belongs to the transaction; an end marker takes it away, so that no late batch opens a
transaction that nobody will end.

The state is a pure consequence of the batches in the log, except for verifications, which a restart forgets. Snapshots
(`producer_snapshot`) spare the replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.aborted_txns import AbortedTxn
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

BATCHES_REMEMBERED = 5
SEQUENCE_MAX = 2**31 - 1
NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
EPOCH_MAX = 2**15 - 1
FIRST_VERSION_WITH_EPOCH_PER_TXN = 2
"""Of transactions: from this one on an end marker has an epoch that no batch of its transaction had."""


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


class Verification:
    """Somebody asks the coordinator whether a partition belongs to a producer's transaction. Whoever holds the object
    that the partition has when the answer has come may append the first batch."""

    __slots__ = ("adds_partition", "begun_ms", "epoch", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, begun_ms: int, *, adds_partition: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        """The least that was seen in this epoch: a later batch must not overtake the first."""
        self.begun_ms = begun_ms
        self.adds_partition = adds_partition
        """Whether the partition joins the transaction by this, in which case each transaction has its own epoch."""

    def see(self, epoch: int, sequence: int) -> None:
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


NOT_NEEDED = Verification(NO_EPOCH, NO_SEQUENCE, 0, adds_partition=False)
"""Stands for a verification where none is asked for."""
BY_COORDINATOR = Verification(NO_EPOCH, NO_SEQUENCE, 0, adds_partition=False)
"""Stands for the word of a coordinator on this node about a batch of its own: the transaction is open, and nothing is
numbered."""


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

    __slots__ = ("_open_txns", "_partition_name", "_unreplicated_txns", "_verifications", "end_offset", "producers")

    def __init__(self, partition_name: str) -> None:
        self._partition_name = partition_name
        self.producers: dict[int, ProducerEntry] = {}
        # First offset → producer id, in rising order, as transactions begin at the end of the log.
        self._open_txns: dict[int, int] = {}
        # First offset → last offset of ended transactions whose end marker is not below the high watermark yet.
        self._unreplicated_txns: dict[int, int] = {}
        self._verifications: dict[int, Verification] = {}
        self.end_offset = 0

    def check(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        verification: Verification | None,
        *,
        is_transactional: bool,
    ) -> RememberedBatch | None:
        """May this batch be appended? Returns the earlier batch that it repeats, if it does; raises if not."""
        if verification is BY_COORDINATOR:
            self.check_coordinator(producer_id, epoch)
            return None
        entry = self.producers.get(producer_id)
        expected = -1
        if entry is not None and epoch == entry.epoch:
            batches = entry.batches
            expected = next_sequence(batches[-1].last_sequence) if batches else 0
            if first_sequence != expected:
                for batch in batches:
                    if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                        return batch
        if entry is not None and epoch < entry.epoch:
            raise self._fenced(producer_id, epoch, entry)
        if (
            is_transactional
            and not self.has_open_txn(producer_id, epoch)
            and not self.is_verified(producer_id, verification)
        ):
            # It would open a transaction that its coordinator may not know of, and that nobody would end.
            raise self._refusal(Error.INVALID_TXN_STATE, producer_id, "a batch of no open transaction")
        if self._verifications:
            self._check_overtaking(producer_id, first_sequence, entry)
        if entry is None or entry.epoch == NO_EPOCH:
            return None
        if epoch == entry.epoch:
            if first_sequence != expected:
                raise self._refusal(
                    Error.OUT_OF_ORDER_SEQUENCE_NUMBER, producer_id, f"sequence {first_sequence} instead of {expected}"
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

    def check_coordinator(self, producer_id: int, epoch: int) -> None:
        """May a coordinator append a batch on behalf of this producer? It numbers nothing."""
        entry = self.producers.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise self._fenced(producer_id, epoch, entry)

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int) -> None:
        """May a coordinator append this end marker? Where each transaction has its own epoch, the marker's is larger
        than that of the batches, unless it was written already or there is no larger one."""
        entry = self.producers.get(producer_id)
        if entry is None:
            return
        ends_nothing_new = entry.txn_first_offset == NO_OFFSET or epoch == EPOCH_MAX
        is_larger_needed = transaction_version >= FIRST_VERSION_WITH_EPOCH_PER_TXN and not ends_nothing_new
        if epoch < entry.epoch or (is_larger_needed and epoch == entry.epoch):
            raise self._fenced(producer_id, epoch, entry)
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                Error.TRANSACTION_COORDINATOR_FENCED,
                f"an end marker of producer {producer_id} for {self._partition_name} comes from coordinator epoch"
                f" {coordinator_epoch}, which {entry.coordinator_epoch} has replaced",
            )

    # ── transactions that begin ──────────────────────────────────────────────────────────────────────────────

    def has_open_txn(self, producer_id: int, epoch: int) -> bool:
        entry = self.producers.get(producer_id)
        return entry is not None and entry.txn_first_offset != NO_OFFSET and entry.epoch == epoch

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, adds_partition: bool
    ) -> Verification | None:
        """To be called before the coordinator is asked. None when it need not be: the transaction is open here."""
        entry = self.producers.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise self._fenced(producer_id, epoch, entry)
        if self.has_open_txn(producer_id, epoch):
            return None
        verification = self._verifications.get(producer_id)
        if verification is None:
            verification = Verification(epoch, sequence, now_ms, adds_partition=adds_partition)
            self._verifications[producer_id] = verification
        verification.see(epoch, sequence)
        return verification

    def is_verified(self, producer_id: int, verification: Verification | None) -> bool:
        """Whether nothing has ended the transaction since the coordinator was asked."""
        return verification is not None and (
            verification is NOT_NEEDED or self._verifications.get(producer_id) is verification
        )

    def _check_overtaking(self, producer_id: int, sequence: int, entry: ProducerEntry | None) -> None:
        """While the first batch of a transaction waits for its verification, no later one may take its place."""
        verification = self._verifications.get(producer_id)
        if verification is None:
            return
        if sequence > verification.lowest_sequence:
            raise self._refusal(
                Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
                producer_id,
                f"sequence {sequence} before {verification.lowest_sequence}",
            )
        if verification.adds_partition and sequence != 0 and (entry is None or not entry.batches):
            raise self._refusal(
                Error.OUT_OF_ORDER_SEQUENCE_NUMBER, producer_id, f"sequence {sequence} instead of 0 at first"
            )

    # ── what was appended ────────────────────────────────────────────────────────────────────────────────────

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
        self._verifications.pop(producer_id, None)
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

    def end_verification(self, producer_id: int, epoch: int, transaction_version: int) -> None:
        """What the coordinator says of a transaction whose end marker was appended counts no more. Where each has its
        own epoch, the marker of one and the batches of the next have the same: that next one's verification stays."""
        verification = self._verifications.get(producer_id)
        if verification is not None and (
            transaction_version < FIRST_VERSION_WITH_EPOCH_PER_TXN
            or not verification.adds_partition
            or verification.epoch != epoch
        ):
            del self._verifications[producer_id]

    def forget_verification(self, producer_id: int) -> None:
        """The partition took over a marker of another leader: nothing is known of when it was written."""
        self._verifications.pop(producer_id, None)

    def aborted_txn(self, completed: CompletedTxn) -> AbortedTxn:
        """What the index says of a transaction that was just aborted, with the last stable offset that this leaves."""
        stable = next(iter(self._open_txns), completed.last_offset + 1)
        return AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable)

    @property
    def has_unstable(self) -> bool:
        """Whether there may be a `first_unstable_offset`."""
        return bool(self._open_txns or self._unreplicated_txns)

    def last_stable_offset(self, high_watermark: int) -> int:
        """How far a reader of committed data may see, with this high watermark."""
        self.high_watermark_moved(high_watermark)
        unstable = self.first_unstable_offset()
        return high_watermark if unstable is None else min(unstable, high_watermark)

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
        self._verifications.clear()
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
        for producer_id, verification in list(self._verifications.items()):
            if now_ms - verification.begun_ms >= expiration_ms:
                del self._verifications[producer_id]
        return len(expired)

    def _fenced(self, producer_id: int, epoch: int, entry: ProducerEntry) -> KafkaError:
        what = f"epoch {epoch}, which {entry.epoch} has replaced"
        return self._refusal(Error.INVALID_PRODUCER_EPOCH, producer_id, what)

    def _refusal(self, error: Error, producer_id: int, what: str) -> KafkaError:
        return KafkaError(error, f"producer {producer_id} sent {self._partition_name} {what}")


def next_sequence(sequence: int) -> int:
    return (sequence + 1) & SEQUENCE_MAX


def last_sequence_of(first_sequence: int, last_offset_delta: int) -> int:
    """Sequences wrap from 2³¹−1 to 0; a batch without them has none at its end either."""
    if first_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (first_sequence + last_offset_delta) & SEQUENCE_MAX
