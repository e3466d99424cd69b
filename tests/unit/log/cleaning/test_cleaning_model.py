"""A compacted log against a dictionary: whatever is written, committed, aborted, cleaned, killed and opened again, the
last committed value of each key is there, and nothing is there that was not written at its offset. What says that a key
is gone, or that a transaction has ended, stays for as long as readers may need it; and indexes are complete."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.log import recovery
from barnabas.log.cleaning.log_cleaning import CleanedSegment, clean_log
from barnabas.log.cleaning.swap import CleaningLimits
from barnabas.log.segments.file_names import OFFSET_INDEX, TIME_INDEX, offset_file
from barnabas.log.segments.segment_index import read_all
from barnabas.protocol.compression import Codec
from barnabas.testing.clock import ManualClock
from barnabas.testing.disk import SimulatedDisk
from tests.unit.log.cleaning.cleanings import (
    COMPACTED,
    Pair,
    batches,
    clean,
    committed,
    contents,
    end_transaction,
    put,
    roll,
)
from tests.unit.log.logs import create, reopen

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.segments.segment import Segment
    from barnabas.protocol.batch import BatchHeader

START_MS = 1_700_000_000_000
CONFIG = COMPACTED._replace(
    segment_bytes=600, index_interval_bytes=100, retention_ms=-1, delete_retention_ms=100, file_delete_delay_ms=10
)
KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"", b"k" * 70])
PAIRS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=20)), min_size=1, max_size=4)
PRODUCERS = st.sampled_from([-1, 7, 8])
TRANSACTIONAL = st.sampled_from([21, 22])
MAPS = st.sampled_from([24 * 5, 24 * 11, 1 << 14])


class EndedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    marker_offset: int
    is_commit: bool

    def left_of(self, headers: list[BatchHeader]) -> list[int]:
        """Where the batches of it begin that are left, even if they are empty."""
        return [
            header.base_offset
            for header in headers
            if header.producer_id == self.producer_id
            and header.is_transactional
            and not header.is_control
            and self.first_offset <= header.base_offset < self.marker_offset
        ]


class CompactedLog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(START_MS)
        self.disk = SimulatedDisk(self.clock)
        self.log: PartitionLog = create("", self.clock, CONFIG, self.disk)
        self.log.flush()
        self.written: dict[int, Pair] = {}
        self.latest: dict[bytes, tuple[int, bytes | None]] = {}
        """What was committed last for each key, where, in the order of the offsets."""
        self.open: dict[int, list[tuple[int, Pair]]] = {}
        """What the producers of open transactions have written."""
        self.aborted: set[int] = set()
        """Offsets of records that were aborted."""
        self.ended: list[EndedTransaction] = []
        self.sequences: dict[int, int] = {}
        """The last sequence of each producer."""
        self.first_cleaned_ms: dict[int, int] = {}
        """When a cleaning first came to an offset, or may have; for a marker, one that found nothing of its
        transaction."""

    def _note(self, base_offset: int, pairs: list[Pair]) -> list[tuple[int, Pair]]:
        placed = list(enumerate(pairs, start=base_offset))
        self.written.update(placed)
        return placed

    def _count(self, producer_id: int, records: int) -> None:
        if producer_id >= 0:
            self.sequences[producer_id] = self.sequences.get(producer_id, -1) + records

    def _commit(self, placed: list[tuple[int, Pair]]) -> None:
        for offset, (key, value) in placed:
            assert key is not None
            # Readers of committed data see records in the order of the log, whenever they were committed.
            if offset > self.latest.get(key, (-1, None))[0]:
                self.latest[key] = (offset, value)

    @rule(pairs=PAIRS, producer_id=PRODUCERS, codec=st.sampled_from([Codec.NONE, Codec.LZ4]))
    def append(self, pairs: list[Pair], producer_id: int, codec: Codec) -> None:
        epoch = -1 if producer_id < 0 else 0
        base = put(self.log, *pairs, producer_id=producer_id, epoch=epoch, codec=codec)
        self._count(producer_id, len(pairs))
        self._commit(self._note(base, pairs))

    @rule(pairs=PAIRS, producer_id=TRANSACTIONAL)
    def append_in_transaction(self, pairs: list[Pair], producer_id: int) -> None:
        base = put(self.log, *pairs, producer_id=producer_id, epoch=0, is_transactional=True)
        self._count(producer_id, len(pairs))
        self.open.setdefault(producer_id, []).extend(self._note(base, pairs))

    @rule(pairs=PAIRS, producer_id=TRANSACTIONAL, is_commit=st.booleans())
    def append_and_end_transaction(self, pairs: list[Pair], producer_id: int, is_commit: bool) -> None:
        self.append_in_transaction(pairs, producer_id)
        self._end(producer_id, is_commit)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), is_commit=st.booleans())
    def end(self, data: st.DataObject, is_commit: bool) -> None:
        self._end(data.draw(st.sampled_from(sorted(self.open))), is_commit)

    def _end(self, producer_id: int, is_commit: bool) -> None:
        placed = self.open.pop(producer_id)
        marker_offset = end_transaction(self.log, producer_id, is_commit=is_commit)
        self.ended.append(EndedTransaction(producer_id, placed[0][0], marker_offset, is_commit))
        if is_commit:
            self._commit(placed)
        else:
            self.aborted.update(offset for offset, _ in placed)

    @rule()
    def roll(self) -> None:
        roll(self.log)

    def _note_cleaning(self) -> None:
        """To be called before a cleaning begins."""
        end_offset, now_ms = self.log.dirt(self.log.log_end_offset).end_offset, self.clock.now_ms()
        headers = [header for header, _ in batches(self.log)]
        emptied = {txn.marker_offset for txn in self.ended if not txn.left_of(headers)}
        for offset in emptied | self.written.keys():
            if offset < end_offset:
                self.first_cleaned_ms.setdefault(offset, now_ms)

    def _is_needed(self, offset: int) -> bool:
        """Whether a tombstone or marker that no other has replaced may not be gone yet."""
        first_ms = self.first_cleaned_ms.get(offset)
        return first_ms is None or self.clock.now_ms() < first_ms + CONFIG.delete_retention_ms

    def _clean(self, map_bytes: int) -> None:
        self._note_cleaning()
        done = clean(self.log, CleaningLimits(map_bytes, 0.9, 1 << 20))
        for segment in self.log.segments.all:
            if segment.base_offset < done.end_offset:
                found = self._indexes_of(segment)
                recovery.rebuild_indexes(self.disk, segment, CONFIG)
                assert self._indexes_of(segment) == found, "they are what the log would make them"

    def _indexes_of(self, segment: Segment) -> list[bytes]:
        return [
            read_all(self.disk, offset_file(segment.folder, segment.base_offset, suffix))
            for suffix in (OFFSET_INDEX, TIME_INDEX)
        ]

    @rule(map_bytes=MAPS)
    def clean(self, map_bytes: int) -> None:
        self._clean(map_bytes)

    @rule(map_bytes=MAPS)
    def clean_all(self, map_bytes: int) -> None:
        """In as many passes as it takes; then each key is there once, and nothing aborted."""
        end_offset = self.log.dirt(self.log.log_end_offset).end_offset
        while (self.log.first_dirty_offset or 0) < end_offset:
            self._clean(map_bytes)
        cleaned = [(offset, key) for offset, key, _ in contents(self.log) if offset < end_offset]
        keys = [key for offset, key in cleaned if offset in self.written]
        assert len(keys) == len(set(keys))
        assert not self.aborted.intersection(offset for offset, _ in cleaned)

    @rule(steps=st.integers(0, 4), map_bytes=MAPS)
    def begin_cleaning_and_be_killed(self, steps: int, map_bytes: int) -> None:
        """Some groups are swapped, and others are not."""
        log = self.log
        log.high_watermark_moved(log.log_end_offset)
        self._note_cleaning()
        cleaning = log.begin_cleaning(log.dirt(log.log_end_offset), CleaningLimits(map_bytes, 0.9, 1))
        for step in clean_log(self.disk, cleaning.order):
            if not steps:
                break
            if isinstance(step, CleanedSegment):
                cleaning = log.swap_in(cleaning, step)
                steps -= 1
        self.kill()

    @rule()
    def kill(self) -> None:
        first_dirty = self.log.first_dirty_offset
        self.disk.release()
        self.log = reopen(self.log, self.clock, clean_shutdown=False, disk=self.disk)
        self.log.first_dirty_offset = first_dirty

    @rule()
    def stop_and_start(self) -> None:
        first_dirty = self.log.first_dirty_offset
        self.log.close()
        self.log = reopen(
            self.log, self.clock, clean_shutdown=True, recovery_point=self.log.log_end_offset, disk=self.disk
        )
        self.log.first_dirty_offset = first_dirty

    @rule(ms=st.integers(1, 200))
    def wait(self, ms: int) -> None:
        self.clock.advance_ms(ms)
        for deletion in self.log.take_due_deletions():
            deletion.run(self.disk)

    @invariant()
    def what_is_there_was_written_there(self) -> None:
        found = contents(self.log)
        assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
        for offset, key, value in found:
            if offset in self.written:
                assert self.written[offset] == (key, value)

    @invariant()
    def the_last_committed_value_of_each_key_is_there(self) -> None:
        in_open = {offset for placed in self.open.values() for offset, _ in placed}
        seen: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, key, value in committed(self.log):
            assert offset not in self.aborted
            if offset not in in_open:
                assert key is not None
                seen[key] = (offset, value)
        for key, (offset, value) in self.latest.items():
            if value is not None or self._is_needed(offset):
                assert seen[key] == (offset, value)
            else:
                assert seen.get(key, (offset, None)) == (offset, None)

    @invariant()
    def where_a_transaction_ended_is_known(self) -> None:
        """As long as a batch of it is left, even an empty one; and for some time after that."""
        headers = [header for header, _ in batches(self.log)]
        markers = {header.base_offset for header in headers if header.is_control and header.record_count}
        aborted = {
            (txn.producer_id, txn.last_offset): txn.first_offset
            for txn in self.log.aborted_transactions(self.log.log_start_offset, self.log.log_end_offset)
        }
        for txn in self.ended:
            left = txn.left_of(headers)
            if left or self._is_needed(txn.marker_offset):
                assert txn.marker_offset in markers
            if left and not txn.is_commit:
                # A log that was recovered after its first batches were removed begins it later.
                assert txn.first_offset <= aborted[txn.producer_id, txn.marker_offset] <= left[0]

    @invariant()
    def producers_are_known_by_their_last_batch(self) -> None:
        known = {producer_id: entry.last_sequence for producer_id, entry in self.log.active_producers.items()}
        assert known == self.sequences


TestCompactedLog = CompactedLog.TestCase
TestCompactedLog.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
