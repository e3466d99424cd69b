"""What compaction keeps of batches.

- Of records with the same key the newest stays, as far as the map of offsets reaches; behind it, everything stays.
- A record without a value (a tombstone) stays, too, for `delete.retention.ms` after the first cleaning that found it:
  until then, readers must learn that the key is gone. When that is, the batch itself says (its delete horizon, KIP-534:
  bit 6 of the attributes, the time in place of the base timestamp). So does the marker of a transaction of which
  nothing is left.
- A record without a key has no place in such a log, and goes.
- Data of aborted transactions goes.
- A batch from which everything is gone goes, too, unless it is the last of a producer, whose epoch and sequence it
  holds, or the last of what is cleaned, which says where that ends. Then its header stays.

The first and the last offset of a batch remain as they are, and so do the bytes of the records that stay; those of a
batch that loses nothing are not touched at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from barnabas.log.cleaning.opened_batches import open_batches
from barnabas.protocol.batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    assemble_batch,
)
from barnabas.protocol.compression import compress
from barnabas.protocol.record import NO_TIMESTAMP
from barnabas.protocol.varint import read_varint, read_varlong, write_varint, write_varlong

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from barnabas.log.cleaning.cleaned_transactions import CleanedTransactions
    from barnabas.log.cleaning.key_hashes import KeyHashes
    from barnabas.log.cleaning.offset_map import OffsetMap
    from barnabas.log.cleaning.opened_batches import OpenedBatches
    from barnabas.log.producers.producer_state import LastOfProducer
    from barnabas.log.segments.segment_scan import Chunk
    from barnabas.protocol.batch import BatchHeader
    from barnabas.protocol.record_bounds import Ints
    from barnabas.protocol.varint import Buffer

_BEFORE_ALL = np.iinfo(np.int64).min
_KEPT_IN_EMPTY = LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG


class KeptBatch(NamedTuple):
    header: BatchHeader
    """As it is now, but for length and checksum."""
    data: Buffer


class _Kept(NamedTuple):
    """The records that stay of some batches. Where they lie side by side in a batch, they are a run."""

    opened: OpenedBatches
    counts: list[int]
    """For each batch, how many stay."""
    have_tombstones: list[bool]
    latest_deltas: list[int]
    """For each batch, the largest timestamp delta of those that stay."""
    first_runs: list[int]
    """For each batch, the number of its first run; and then the number of all runs."""
    firsts: Ints
    """For each run, the number of its first record."""
    lasts: Ints


class BatchFilter:
    """To be asked of every batch, in the order of the log."""

    def __init__(
        self,
        offset_map: OffsetMap,
        hashes: KeyHashes,
        transactions: CleanedTransactions,
        last_of_producers: Mapping[int, LastOfProducer],
        *,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        """`end_offset` is where the cleaned part of the log ends at most."""
        self._map = offset_map
        self._hashes = hashes
        self._transactions = transactions
        self._last_of_producers = last_of_producers
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self.records_read = 0
        self.records_kept = 0
        self.keyless_records = 0
        """Those that went because they have no key."""

    def keep(self, chunk: Chunk) -> list[KeptBatch]:
        """What stays of some batches. Raises DecodeError."""
        kept: dict[int, KeptBatch | None] = {}
        """By where the batch was in the chunk, in their order. None is for one that goes as a whole."""
        to_open = []
        for at, header in chunk.batches:
            self.records_read += header.record_count
            if header.is_control:
                kept[at] = self._kept_marker(header, chunk.data[at : at + header.size])
            elif self._transactions.is_aborted(header) or not header.record_count:
                kept[at] = self._emptied(header)
            else:
                kept[at] = None
                to_open.append((at, header))
        for opened in open_batches(chunk.data, to_open):
            for (at, _), batch in zip(opened.batches, self._kept_of(opened, chunk.data), strict=True):
                kept[at] = batch
        return [batch for batch in kept.values() if batch is not None]

    def _kept_marker(self, header: BatchHeader, batch: memoryview) -> KeptBatch | None:
        ends_nothing = self._transactions.ends_nothing(header, batch)
        if not header.record_count or (ends_nothing and self._is_past_horizon(header)):
            return self._emptied(header)
        self.records_kept += header.record_count
        if not ends_nothing or header.delete_horizon_ms is not None:
            return KeptBatch(header, batch)
        (opened,) = open_batches(batch, [(0, header)])
        return self._assembled(_kept_records(opened, np.ones(len(opened.starts), np.bool_)), 0, is_horizon_new=True)

    def _kept_of(self, opened: OpenedBatches, data: memoryview) -> Iterator[KeptBatch | None]:
        """What stays of each batch of data."""
        kept = _kept_records(opened, self._records_that_stay(opened))
        self.records_kept += sum(kept.counts)
        for number, (at, header) in enumerate(opened.batches):
            is_horizon_new = kept.have_tombstones[number] and header.delete_horizon_ms is None
            if not kept.counts[number]:
                yield self._emptied(header)
            elif kept.counts[number] == header.record_count and not is_horizon_new:
                yield KeptBatch(header, data[at : at + header.size])
            else:
                yield self._assembled(kept, number, is_horizon_new=is_horizon_new)

    def _records_that_stay(self, opened: OpenedBatches) -> NDArray[np.bool_]:
        is_unknown = opened.offsets > self._map.latest_offset
        has_key = opened.key_sizes >= 0
        if has_key.all():
            newest = self._map.find_all(self._hashes.hash_all(opened.records, opened.key_starts, opened.key_sizes))
            stays = opened.offsets >= newest
        else:
            keyed = np.flatnonzero(has_key)
            hashes = self._hashes.hash_all(opened.records, opened.key_starts[keyed], opened.key_sizes[keyed])
            stays = has_key.copy()
            stays[keyed] = opened.offsets[keyed] >= self._map.find_all(hashes)
            self.keyless_records += int((~has_key & ~is_unknown).sum())
        if opened.are_tombstones.any():
            are_past = [self._is_past_horizon(header) for _, header in opened.batches]
            counts = np.diff(opened.firsts, append=len(stays))
            stays &= ~(opened.are_tombstones & np.repeat(are_past, counts))
        return stays | is_unknown

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        horizon_ms = header.delete_horizon_ms
        return horizon_ms is not None and horizon_ms <= self._now_ms

    def _emptied(self, header: BatchHeader) -> KeptBatch | None:
        """The header alone, if it must stay."""
        if header.next_offset != self._end_offset and not self._is_last_of_producer(header):
            return None
        attributes = header.attributes & _KEPT_IN_EMPTY
        emptied = header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0)
        return KeptBatch(emptied, assemble_batch(emptied, b""))

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._last_of_producers.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.offset is None:
            return header.is_control and header.producer_epoch == last.epoch
        return header.last_offset == last.offset

    def _assembled(self, kept: _Kept, number: int, *, is_horizon_new: bool) -> KeptBatch:
        """A batch of the records that stay, with the header of the one that they come from."""
        _, header = kept.opened.batches[number]
        base_ms, max_ms, attributes = header.base_timestamp, header.max_timestamp, header.attributes
        if not attributes & LOG_APPEND_TIME_FLAG:
            max_ms = base_ms + kept.latest_deltas[number]
        runs = slice(kept.first_runs[number], kept.first_runs[number + 1])
        if is_horizon_new:
            base_ms, attributes = self._horizon_ms, attributes | DELETE_HORIZON_FLAG
            body = _with_timestamps_moved(kept, runs, header.base_timestamp - base_ms)
        else:
            body = _bytes_of_runs(kept, runs)
        changed = header._replace(
            attributes=attributes, base_timestamp=base_ms, max_timestamp=max_ms, record_count=kept.counts[number]
        )
        return KeptBatch(changed, assemble_batch(changed, compress(header.codec, body)))


def _kept_records(opened: OpenedBatches, stays: NDArray[np.bool_]) -> _Kept:
    firsts = opened.firsts
    stays_before, stays_after = np.roll(stays, 1), np.roll(stays, -1)
    stays_before[firsts] = stays_after[firsts - 1] = False
    run_firsts = np.flatnonzero(stays & ~stays_before)
    return _Kept(
        opened,
        np.add.reduceat(stays, firsts, dtype=np.int64).tolist(),
        np.logical_or.reduceat(stays & opened.are_tombstones, firsts).tolist(),
        np.maximum.reduceat(np.where(stays, opened.timestamp_deltas, _BEFORE_ALL), firsts).tolist(),
        [*np.searchsorted(run_firsts, firsts).tolist(), len(run_firsts)],
        run_firsts,
        np.flatnonzero(stays & ~stays_after),
    )


def _bytes_of_runs(kept: _Kept, runs: slice) -> bytes:
    data = kept.opened.records.data
    starts, ends = kept.opened.starts[kept.firsts[runs]], kept.opened.ends[kept.lasts[runs]]
    return b"".join([data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)])


def _with_timestamps_moved(kept: _Kept, runs: slice, shift: int) -> bytes:
    """The records of these runs, with their timestamp deltas moved by `shift`."""
    data, starts, ends = kept.opened.records.data, kept.opened.starts, kept.opened.ends
    moved = bytearray()
    for first, last in zip(kept.firsts[runs].tolist(), kept.lasts[runs].tolist(), strict=True):
        for start, end in zip(starts[first : last + 1].tolist(), ends[first : last + 1].tolist(), strict=True):
            _, at = read_varint(data, start)
            delta, rest = read_varlong(data, at + 1)
            body = bytearray(data[at : at + 1])
            write_varlong(body, delta + shift)
            body += data[rest:end]
            write_varint(moved, len(body))
            moved += body
    return bytes(moved)
