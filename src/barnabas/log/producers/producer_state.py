"""What a partition remembers of its producers: enough to tell a retried batch from a new one and from a lost one.

An idempotent producer numbers its records per partition. The log keeps, for each producer id, its epoch and its last
five batches. A batch that repeats one of them was acknowledged before and is answered with the same offset; the next in
sequence is appended; anything else means that a batch is missing, or that the producer was replaced by a newer epoch of
itself. A producer of which nothing is known may start at any sequence: retention may have removed what it wrote.

Of transactions the log keeps where each open one began, because readers of committed data stop at the earliest of them.
The first batch of a transaction is appended only with a `Verification` that was begun before the coordinator was asked
whether the partition is in the transaction. An end marker revokes it, so that no late batch opens a transaction that
nothing will end.

The state follows from the batches in the log alone (`ProducerState.replay`), except for verifications, which do not
survive a restart. Snapshots (`producer_snapshot`) save most of the replay.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.producers.aborted_txns import AbortedTxn
from barnabas.protocol import messages
from barnabas.protocol.batch import decode_records
from barnabas.protocol.control_records import ControlRecordType, decode_control_record
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.protocol.batch import BatchHeader

BATCHES_REMEMBERED = 5
SEQUENCE_MAX = 2**31 - 1
NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
EPOCH_MAX = 2**15 - 1
FIRST_VERSION_WITH_EPOCH_PER_TXN = 2
"""The transaction version from which on an end marker has an epoch that no batch of its transaction had."""


class RememberedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class LastOfProducer(NamedTuple):
    """The last that a producer wrote to the log."""

    epoch: int
    offset: int | None
    """The last offset of its last batch; None if it was an end marker."""


class CompletedTxn(NamedTuple):
    """A transaction whose end marker was appended at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class Verification:
    """The coordinator is being asked whether a partition is in a producer's transaction. A batch may open the
    transaction if it comes with the object that the partition still has once the answer is there."""

    __slots__ = ("adds_partition", "begun_ms", "epoch", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, begun_ms: int, *, adds_partition: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        """The lowest that was seen in this epoch: a later batch must not overtake the first."""
        self.begun_ms = begun_ms
        self.adds_partition = adds_partition
        """Whether asking also adds the partition to the transaction; then each transaction has its own epoch."""

    def see(self, epoch: int, sequence: int) -> None:
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


NOT_NEEDED = Verification(NO_EPOCH, NO_SEQUENCE, 0, adds_partition=False)
"""Stands for a verification where none is required."""
BY_COORDINATOR = Verification(NO_EPOCH, NO_SEQUENCE, 0, adds_partition=False)
"""Stands for a verification when a coordinator on this node appends a batch of its own: it knows that the transaction
is open, and its batches have no sequence numbers."""


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
        # First offset → producer id, in ascending order, as transactions begin at the end of the log.
        self._open_txns: dict[int, int] = {}
        # First offset → last offset of ended transactions whose end marker is not below the high watermark yet, in the
        # order in which they ended.
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
        """May this batch be appended? Returns the earlier batch that it repeats, if any; raises KafkaError if not."""
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
            # It would open a transaction that its coordinator may not know of, and that nothing would end.
            raise KafkaError(
                Error.INVALID_TXN_STATE,
                f"Record was not part of an ongoing transaction of producer {producer_id}"
                f" in partition {self._partition_name}",
            )
        if self._verifications:
            self._check_overtaking(producer_id, first_sequence, entry)
        if entry is None or entry.epoch == NO_EPOCH:
            return None
        if epoch == entry.epoch:
            if first_sequence != expected:
                raise self._out_of_order(
                    producer_id,
                    f"{first_sequence} (incoming seq. number), {entry.last_sequence} (current end sequence number)",
                )
        elif first_sequence != 0:
            raise KafkaError(
                Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for new epoch of producer {producer_id} in partition {self._partition_name}:"
                f" {epoch} (request epoch), {first_sequence} (seq. number), {entry.epoch} (current producer epoch)",
            )
        if entry.txn_first_offset != NO_OFFSET and not is_transactional:
            raise KafkaError(
                Error.INVALID_TXN_STATE,
                f"Expected transactional write from producer {producer_id} in partition {self._partition_name}",
            )
        return None

    def check_coordinator(self, producer_id: int, epoch: int) -> None:
        """May a coordinator append a batch on behalf of this producer? Such batches have no sequence numbers."""
        entry = self.producers.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise self._fenced(producer_id, epoch, entry)

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int) -> None:
        """May a coordinator append this end marker? Where each transaction has its own epoch, the marker's must be
        larger than that of the batches, unless the marker was written already or there is no larger epoch."""
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
                f"Invalid coordinator epoch for producerId {producer_id} in partition {self._partition_name}:"
                f" {coordinator_epoch} (zombie), {entry.coordinator_epoch} (current)",
            )

    @property
    def open_transactions(self) -> int:
        """How many have begun and not ended."""
        return len(self._open_txns)

    def has_open_txn(self, producer_id: int, epoch: int) -> bool:
        entry = self.producers.get(producer_id)
        return entry is not None and entry.txn_first_offset != NO_OFFSET and entry.epoch == epoch

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, adds_partition: bool
    ) -> Verification | None:
        """To be called before the coordinator is asked. None if there is no need: the transaction is open here."""
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

    def end_verification(self, producer_id: int, epoch: int, transaction_version: int) -> None:
        """An end marker was appended: what the coordinator says of that transaction no longer counts. Where each
        transaction has its own epoch, the marker of one and the batches of the next share it: the verification of that
        next one stays."""
        verification = self._verifications.get(producer_id)
        if verification is not None and (
            transaction_version < FIRST_VERSION_WITH_EPOCH_PER_TXN
            or not verification.adds_partition
            or verification.epoch != epoch
        ):
            del self._verifications[producer_id]

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
        """An end marker was appended. None if the producer had no open transaction here."""
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

    def aborted_txn(self, completed: CompletedTxn) -> AbortedTxn:
        """The index entry of a transaction that was just aborted, with the last stable offset that results."""
        stable = next(iter(self._open_txns), completed.last_offset + 1)
        return AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable)

    def replay(self, header: BatchHeader, batch: memoryview) -> AbortedTxn | None:
        """Brings the state up to date with a batch that is in the log already and is not checked: one that a follower
        copied, or that recovery reads. Returns the transaction that it aborts, if any. Only an end-of-transaction
        marker has to be opened for this; of every other batch the header suffices."""
        if header.producer_id < 0:
            return None
        if header.is_control:
            return self._replay_marker(header, batch)
        entry = self.append(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
        )
        if header.is_transactional:
            self.begin_txn(header.producer_id, entry, header.base_offset)
        return None

    def last_before(self, end_offset: int) -> dict[int, LastOfProducer]:
        """What each producer wrote last, of those whose last batch may be before an offset, by producer id."""
        last = {
            producer_id: LastOfProducer(entry.epoch, entry.batches[-1].last_offset if entry.batches else None)
            for producer_id, entry in self.producers.items()
        }
        return {
            producer_id: each for producer_id, each in last.items() if each.offset is None or each.offset < end_offset
        }

    def last_stable_offset(self, high_watermark: int) -> int:
        """How far a reader of committed data may see, with this high watermark."""
        if not self._open_txns and not self._unreplicated_txns:
            return high_watermark
        self.high_watermark_moved(high_watermark)
        unstable = self.first_unstable_offset()
        return high_watermark if unstable is None else min(unstable, high_watermark)

    def first_unstable_offset(self) -> int | None:
        """Readers of committed data stop here: the earliest transaction that is open, or ended but not replicated."""
        return min((*self._unreplicated_txns, *islice(self._open_txns, 1)), default=None)

    def high_watermark_moved(self, high_watermark: int) -> None:
        if self._unreplicated_txns:
            self._unreplicated_txns = {
                first: last for first, last in self._unreplicated_txns.items() if last >= high_watermark
            }

    def first_unreplicated_offset(self, high_watermark: int) -> int | None:
        """Where the earliest transaction begins that has ended, but not below the high watermark."""
        self.high_watermark_moved(high_watermark)
        return min(self._unreplicated_txns, default=None)

    def hold_back(self, first_offset: int, last_offset: int) -> None:
        """Transactions that began at `first_offset` or after it have ended, at `last_offset` or before it. A snapshot
        does not say so, and whether all replicas have their ends is not known."""
        self._unreplicated_txns[first_offset] = last_offset

    def ended_before(self, end_offset: int) -> dict[int, int]:
        """What the log's end at `end_offset` leaves of transactions that have ended, but not below the high watermark,
        to be held back again after the producers were read from a snapshot."""
        return {
            first: min(last, end_offset - 1) for first, last in self._unreplicated_txns.items() if first < end_offset
        }

    def restore(self, entries: Iterable[tuple[int, ProducerEntry]], end_offset: int) -> None:
        """Replaces everything by the content of a snapshot. It knows nothing of transactions that have ended."""
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
        """Forgets producers that wrote nothing for so long and have no open transaction. Returns how many."""
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

    def _check_overtaking(self, producer_id: int, sequence: int, entry: ProducerEntry | None) -> None:
        """While the first batch of a transaction waits for its verification, no later one may take its place."""
        verification = self._verifications.get(producer_id)
        if verification is None:
            return
        if sequence > verification.lowest_sequence:
            raise self._out_of_order(
                producer_id,
                f"{sequence} (incoming seq. number), {verification.lowest_sequence} (earliest seen sequence)",
            )
        if verification.adds_partition and sequence != 0 and (entry is None or not entry.batches):
            raise KafkaError(
                Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for producer {producer_id} in partition {self._partition_name}: {sequence}"
                " (incoming seq. number). Expected sequence 0 for transactions v2 idempotent producer with no existing"
                " state.",
            )

    def _replay_marker(self, header: BatchHeader, batch: memoryview) -> AbortedTxn | None:
        """A marker that compaction has emptied says nothing: its transaction is gone from the log."""
        for record in decode_records(batch):
            kind, marker = decode_control_record(record.key or b"", record.value or b"")
            if not isinstance(marker, messages.EndTxnMarker):
                continue
            # Another leader wrote the marker, and when is not known: no verification outlives it.
            self._verifications.pop(header.producer_id, None)
            completed = self.end_txn(
                header.producer_id,
                header.producer_epoch,
                marker.coordinator_epoch,
                header.base_offset,
                record.timestamp,
                is_aborted=kind is ControlRecordType.ABORT,
            )
            if completed is not None and completed.is_aborted:
                return self.aborted_txn(completed)
        return None

    def _fenced(self, producer_id: int, epoch: int, entry: ProducerEntry) -> KafkaError:
        return KafkaError(
            Error.INVALID_PRODUCER_EPOCH,
            f"Epoch of producer {producer_id} in {self._partition_name} is {epoch}, which is smaller than the last seen"
            f" epoch {entry.epoch}",
        )

    def _out_of_order(self, producer_id: int, sequences: str) -> KafkaError:
        return KafkaError(
            Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {producer_id} in partition {self._partition_name}: {sequences}",
        )


def next_sequence(sequence: int) -> int:
    return (sequence + 1) & SEQUENCE_MAX


def last_sequence_of(first_sequence: int, last_offset_delta: int) -> int:
    """Sequences wrap from 2³¹−1 to 0; a batch without them has none at its end either."""
    if first_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (first_sequence + last_offset_delta) & SEQUENCE_MAX
