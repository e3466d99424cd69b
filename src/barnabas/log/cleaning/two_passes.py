"""How a log is cleaned, in two passes.

The first reads the dirty part and fills the map of offsets, as far as that has room. The second reads the log from its
beginning to where the map ends, group by group, and writes what stays of each group to one new segment. Its files are
on the device when the log's owner is told of them, and it puts them in place of the old ones (`swap`) before the next
group is begun: at any time, there is one new segment at most that is not part of the log.

Batches are read and looked at a few megabytes at a time: nothing is done for each record alone.

Every checksum is looked at. What cannot be read stays as it is: the cleaning ends with `UncleanableLogError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from barnabas.log.cleaning.batch_filter import BatchFilter
from barnabas.log.cleaning.cleaned_transactions import CleanedTransactions
from barnabas.log.cleaning.grouping import SegmentSizes, group_segments
from barnabas.log.cleaning.key_hashes import KeyHashes
from barnabas.log.cleaning.log_cleaning import CleaningDone, Progress, UncleanableLogError
from barnabas.log.cleaning.new_segment import NewSegment
from barnabas.log.cleaning.offset_map import OffsetMap
from barnabas.log.cleaning.opened_batches import open_batches
from barnabas.log.folder.deletion import unlink_if_there
from barnabas.log.producers.aborted_txns import AbortedTxns, read_outline
from barnabas.log.segments import segment_index
from barnabas.log.segments.file_names import CLEANED, LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, offset_file, offset_name
from barnabas.log.segments.segment_scan import scan_chunks
from barnabas.ports import SystemRandom
from barnabas.protocol.batch import crc_is_valid
from barnabas.protocol.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.log.cleaning.log_cleaning import CleaningOrder, SegmentToClean, Step
    from barnabas.log.producers.aborted_txns import AbortedTxn
    from barnabas.log.segments.segment_scan import Chunk
    from barnabas.ports import Disk

READ_TOGETHER_BYTES: Final = 4 * 1024 * 1024


class TwoPasses:
    def __init__(self, disk: Disk, order: CleaningOrder) -> None:
        self._disk = disk
        self._order = order
        self._map = OffsetMap(order.map_bytes, order.map_load_factor)
        self._hashes = KeyHashes(SystemRandom())
        self._transactions = CleanedTransactions()
        self._filter = BatchFilter(
            self._map,
            self._hashes,
            self._transactions,
            order.last_of_producers,
            end_offset=order.end_offset,
            now_ms=order.now_ms,
            delete_retention_ms=order.delete_retention_ms,
        )
        self._bytes_read = 0
        self._bytes_written = 0
        self._bytes_reported = 0

    def run(self) -> Iterator[Step]:
        self._remove_leftovers()
        self._aborted = self._read_aborted()
        yield from self._fill_map()
        end_offset = self._map.latest_offset + 1
        self._bytes_read = self._bytes_written = self._bytes_reported = 0
        for group in self._groups(end_offset):
            yield from self._clean_group(group)
        found = self._filter
        yield CleaningDone(
            end_offset,
            self._bytes_read,
            self._bytes_written,
            found.records_read,
            found.records_kept,
            found.keyless_records,
        )

    def _remove_leftovers(self) -> None:
        """What a cleaning left that did not come to its end. It must be gone before the next swap, of which it would
        say that it was not decided (`recovery`)."""
        for name in self._disk.list_folder(self._order.folder):
            if name.endswith(CLEANED):
                unlink_if_there(self._disk, f"{self._order.folder}/{name}")

    def _read_aborted(self) -> AbortedTxns:
        folder, outlines = self._order.folder, {}
        names = set(self._disk.list_folder(folder))
        for base in (*(segment.base_offset for segment in self._order.segments), *self._order.later_segments):
            if offset_name(base, TXN_INDEX) in names:
                try:
                    outlines[base] = read_outline(self._disk, folder, base)
                except segment_index.CorruptIndexError as error:
                    raise UncleanableLogError(str(error)) from error
        return AbortedTxns(self._disk, folder, outlines)

    def _aborted_in(self, offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that have records in the segment between these offsets."""
        try:
            found = self._aborted.between(offset, offset, end_offset)
        except segment_index.CorruptIndexError as error:
            raise UncleanableLogError(str(error)) from error
        later = self._order.aborted_later
        return found + [txn for txn in later if txn.first_offset < end_offset and txn.last_offset >= offset]

    # ── the first pass ───────────────────────────────────────────────────────────────────────────────────────

    def _fill_map(self) -> Iterator[Step]:
        start = self._order.first_dirty_offset
        transactions = CleanedTransactions()
        self._map.latest_offset = start - 1
        for segment in self._order.segments:
            if segment.end_offset <= start:
                continue
            transactions.expect(self._aborted_in(segment.base_offset, segment.end_offset))
            position = 0
            if segment.base_offset < start:
                position = self._position_of(segment.base_offset, start)
            for chunk in self._chunks(segment, position):
                try:
                    has_room = self._put_records(chunk, transactions)
                except DecodeError as error:
                    raise self._unreadable(segment.base_offset, error) from error
                if not has_room:
                    return
                if self._is_step_due():
                    yield self._progress()
            self._map.latest_offset = segment.end_offset - 1

    def _position_of(self, segment: int, offset: int) -> int:
        try:
            return segment_index.lookup_offset(self._disk, self._order.folder, segment, offset).position
        except segment_index.CorruptIndexError:
            return 0  # The log itself is the truth, and is read from the beginning of the segment.

    def _put_records(self, chunk: Chunk, transactions: CleanedTransactions) -> bool:
        """False if the map is full."""
        start, to_open = self._order.first_dirty_offset, []
        for at, header in chunk.batches:
            if header.is_control:
                transactions.ends_nothing(header, chunk.data[at : at + header.size])
            elif not transactions.is_aborted(header) and header.record_count and header.last_offset >= start:
                to_open.append((at, header))
        for opened in open_batches(chunk.data, to_open):
            which = np.flatnonzero((opened.key_sizes >= 0) & (opened.offsets >= start))
            hashes = self._hashes.hash_all(opened.records, opened.key_starts[which], opened.key_sizes[which])
            offsets = opened.offsets[which]
            taken = self._map.put_all(hashes, offsets)
            if taken < len(offsets):
                self._map.latest_offset = int(offsets[taken]) - 1
                return False
        _, last = chunk.batches[-1]
        self._map.latest_offset = max(self._map.latest_offset, last.last_offset)
        return True

    # ── the second pass ──────────────────────────────────────────────────────────────────────────────────────

    def _groups(self, end_offset: int) -> list[list[SegmentSizes]]:
        sizes = [
            SegmentSizes(
                segment.base_offset,
                segment.end_offset,
                segment.bytes,
                self._size_of(segment.base_offset, OFFSET_INDEX),
                self._size_of(segment.base_offset, TIME_INDEX),
            )
            for segment in self._order.segments
            if segment.base_offset < end_offset
        ]
        return group_segments(
            sizes, segment_bytes_max=self._order.segment_bytes, index_bytes_max=self._order.segment_index_bytes
        )

    def _size_of(self, segment: int, suffix: str) -> int:
        try:
            return self._disk.size(offset_file(self._order.folder, segment, suffix))
        except FileNotFoundError:
            return 0  # It is made anew from the batches.

    def _clean_group(self, group: list[SegmentSizes]) -> Iterator[Step]:
        base = group[0].base_offset
        self._transactions.kept.clear()
        new = NewSegment(self._disk, self._order.folder, base, self._order.index_interval_bytes)
        try:
            for segment in group:
                self._transactions.expect(self._aborted_in(segment.base_offset, segment.end_offset))
                for chunk in self._chunks(segment, 0):
                    try:
                        kept = self._filter.keep(chunk)
                    except DecodeError as error:
                        raise self._unreadable(segment.base_offset, error) from error
                    for batch in kept:
                        self._bytes_written += len(batch.data)
                        new.append(batch)
                    if self._is_step_due():
                        yield self._progress()
            cleaned = new.finish(tuple(each.base_offset for each in group), self._transactions.kept)
        except Exception:
            new.discard()
            raise
        finally:
            new.close()
        last = offset_file(self._order.folder, group[-1].base_offset, LOG)
        self._disk.set_modified_ms(new.log_path, self._disk.modified_ms(last))
        yield self._progress()
        yield cleaned

    # ── both ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _chunks(self, segment: SegmentToClean | SegmentSizes, position: int) -> Iterator[Chunk]:
        """The batches of a segment, all of which are whole."""
        path = offset_file(self._order.folder, segment.base_offset, LOG)
        end, next_offset = position, segment.base_offset
        together = min(READ_TOGETHER_BYTES, self._order.step_bytes)
        for chunk in scan_chunks(self._disk, path, position, segment.bytes, together):
            for at, header in chunk.batches:
                if not crc_is_valid(chunk.data, at, header.size):
                    raise UncleanableLogError(
                        f"{path} has a batch with a wrong checksum at position {chunk.position + at}"
                    )
                if not next_offset <= header.base_offset < header.next_offset <= segment.end_offset:
                    raise UncleanableLogError(
                        f"{path} has a batch with offsets {header.base_offset}–{header.last_offset} at position"
                        f" {chunk.position + at}, where they must be between {next_offset} and {segment.end_offset}"
                    )
                next_offset = header.next_offset
            size = at + header.size
            end = chunk.position + size
            self._bytes_read += size
            yield chunk
        if end != segment.bytes:
            raise UncleanableLogError(f"{path} has no batch at position {end}, before its end at {segment.bytes}")

    def _unreadable(self, segment: int, error: DecodeError) -> UncleanableLogError:
        return UncleanableLogError(f"{offset_file(self._order.folder, segment, LOG)}: {error}")

    def _is_step_due(self) -> bool:
        return self._bytes_read + self._bytes_written - self._bytes_reported >= self._order.step_bytes

    def _progress(self) -> Progress:
        done = self._bytes_read + self._bytes_written
        since, self._bytes_reported = done - self._bytes_reported, done
        return Progress(since)
