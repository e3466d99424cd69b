"""What compaction leaves of a log, case by case."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from barnabas.log.cleaning import new_segment
from barnabas.log.cleaning.grouping import GROUP_SEGMENTS_MAX
from barnabas.log.cleaning.log_cleaning import CleanedSegment, UncleanableLogError, clean_log
from barnabas.log.cleaning.swap import CleaningLimits
from barnabas.ports import SystemDisk
from barnabas.protocol.batch import decode_records
from barnabas.protocol.compression import Codec
from barnabas.testing.disk import SimulatedDisk
from tests.unit.log.cleaning.cleanings import (
    COMPACTED,
    LIMITS,
    batches,
    clean,
    committed,
    contents,
    end_transaction,
    put,
    roll,
)
from tests.unit.log.logs import create, read_bytes, reopen

if TYPE_CHECKING:
    from pathlib import Path

    from _typeshed import ReadableBuffer

    from barnabas.log.partition_log import PartitionLog
    from barnabas.testing.clock import ManualClock


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> PartitionLog:
    return create(tmp_path, clock, COMPACTED)


def test_the_newest_record_of_each_key_stays_where_it_was(log: PartitionLog) -> None:
    put(log, (b"A", b"1000"), (b"B", b"1000"), (b"C", b"1000"))
    put(log, (b"A", b"2000"), (b"B", b"2000"), (b"b", b"3000"))
    roll(log)
    put(log, (b"D", b"1"))
    done = clean(log)
    assert contents(log) == [
        (2, b"C", b"1000"),
        (3, b"A", b"2000"),
        (4, b"B", b"2000"),
        (5, b"b", b"3000"),
        (6, b"D", b"1"),
    ]
    assert (done.end_offset, done.records_read, done.records_kept) == (6, 6, 4)


def test_first_and_last_offset_of_a_batch_and_all_but_its_records_stay(log: PartitionLog, clock: ManualClock) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), producer_id=7, epoch=3)
    put(log, (b"a", b"2"), (b"c", b"2"))
    (before, _), *_ = batches(log)
    roll(log)
    clean(log)
    (after, batch), _ = batches(log)
    unchanged = ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "base_timestamp")
    assert {name: getattr(after, name) for name in unchanged} == {name: getattr(before, name) for name in unchanged}
    assert [(each.offset, each.timestamp) for each in decode_records(batch)] == [(1, clock.now_ms() + 1)]
    assert after.max_timestamp == clock.now_ms() + 1


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_keeps_its_codec(log: PartitionLog, codec: Codec) -> None:
    put(log, *((b"%d" % number, b"x" * 50) for number in range(20)), codec=codec)
    put(log, *((b"%d" % number, b"y" * 50) for number in range(0, 20, 2)), codec=codec)
    roll(log)
    clean(log)
    assert [header.codec for header, _ in batches(log)] == [codec, codec]
    assert [offset for offset, _, _ in contents(log)] == [*range(1, 20, 2), *range(20, 30)]


def test_a_tombstone_stays_for_its_time_after_it_was_first_cleaned(log: PartitionLog, clock: ManualClock) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", None), (b"b", b"1"))
    put(log, (b"c", b"1"))
    roll(log)
    clean(log)
    assert contents(log) == [(1, b"a", None), (2, b"b", b"1"), (3, b"c", b"1")]
    (header, batch), _ = batches(log)
    assert header.delete_horizon_ms == clock.now_ms() + 1_000
    assert [each.timestamp for each in decode_records(batch)] == [clock.now_ms(), clock.now_ms() + 1]
    first_seen_ms = clock.now_ms()
    clock.advance_ms(999)
    clean(log)
    (header, _), _ = batches(log)
    assert header.delete_horizon_ms == first_seen_ms + 1_000
    assert contents(log)[0] == (1, b"a", None)
    clock.advance_ms(1)
    clean(log)
    assert contents(log) == [(2, b"b", b"1"), (3, b"c", b"1")]


def test_records_without_keys_go(log: PartitionLog) -> None:
    put(log, (None, b"1"), (b"", b"2"), (b"a", b"3"))
    put(log, (None, b"4"))
    roll(log)
    put(log, (None, b"5"))
    assert clean(log).keyless_records == 2
    assert contents(log) == [(1, b"", b"2"), (2, b"a", b"3"), (4, None, b"5")]


def test_the_last_batch_of_a_producer_stays_without_its_records(log: PartitionLog) -> None:
    put(log, (b"a", b"1"), producer_id=7, epoch=0)
    put(log, (b"a", b"2"), (b"a", b"3"), producer_id=7, epoch=0)
    put(log, (b"a", b"4"))
    roll(log)
    clean(log)
    assert [(header.base_offset, header.last_offset, header.record_count) for header, _ in batches(log)] == [
        (1, 2, 0),
        (3, 3, 1),
    ]
    log.close()
    found = reopen(log, log.clock, clean_shutdown=False)  # type: ignore[arg-type]
    assert found.active_producers[7].last_sequence == 2


def test_the_end_of_what_was_cleaned_stays_even_if_nothing_else_does(log: PartitionLog, clock: ManualClock) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", None))
    roll(log)
    clean(log)
    clock.advance_ms(2_000)
    clean(log)
    assert [(header.base_offset, header.record_count) for header, _ in batches(log)] == [(1, 0)]
    assert reopen(log, clock, clean_shutdown=False).log_end_offset == 2


def test_aborted_data_goes_and_its_marker_follows_in_time(log: PartitionLog, clock: ManualClock) -> None:
    put(log, (b"a", b"0"))
    put(log, (b"a", b"1"), (b"b", b"1"), producer_id=7, epoch=0, is_transactional=True)
    end_transaction(log, 7, is_commit=False)
    put(log, (b"c", b"1"), producer_id=7, epoch=0, is_transactional=True)
    end_transaction(log, 7, is_commit=True)
    put(log, (b"d", b"1"), producer_id=7, epoch=1, is_transactional=True)
    end_transaction(log, 7, epoch=1, is_commit=True)
    roll(log)
    expected = [(0, b"a", b"0"), (4, b"c", b"1"), (6, b"d", b"1")]
    assert committed(log) == expected
    clean(log)
    assert committed(log) == expected
    assert [header.base_offset for header, _ in batches(log)] == [0, 3, 4, 5, 6, 7]
    assert log.aborted_transactions(0, 8) != []
    clean(log)  # no batch of the aborted transaction is left, so that its marker gets a horizon
    assert log.aborted_transactions(0, 8) == []
    clock.advance_ms(1_000)
    clean(log)
    assert [header.base_offset for header, _ in batches(log)] == [0, 4, 5, 6, 7]
    assert committed(log) == expected


def test_a_transaction_whose_end_is_in_the_active_segment_is_known(log: PartitionLog) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"), producer_id=7, epoch=0, is_transactional=True)
    put(log, (b"z", b"1"))
    roll(log)
    end_transaction(log, 7, is_commit=False)
    clean(log)
    assert contents(log)[:2] == [(0, b"a", b"1"), (2, b"z", b"1")]
    assert committed(log) == [(0, b"a", b"1"), (2, b"z", b"1")]


def test_nothing_is_cleaned_from_the_first_open_transaction_on(log: PartitionLog) -> None:
    for number in range(3):
        put(log, (b"a", b"%d" % number))
        roll(log)
    put(log, (b"b", b"1"), producer_id=7, epoch=0, is_transactional=True)
    for number in range(3):
        put(log, (b"a", b"%d" % number))
        roll(log)
    assert log.dirt(log.log_end_offset).end_offset == 3
    assert log.dirt(2).end_offset == 2
    clean(log)
    assert [offset for offset, _, _ in contents(log)] == [2, 3, 4, 5, 6]


def test_small_segments_become_one_and_their_producer_snapshots_go(log: PartitionLog) -> None:
    for number in range(10):
        put(log, (b"%d" % number, b"v" * 100))
        roll(log)
    clean(log)
    assert [segment.base_offset for segment in log.segments.all] == [0, 10]
    names = os.listdir(log.folder)
    assert sorted(name for name in names if name.endswith(".snapshot")) == ["00000000000000000010.snapshot"]
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    assert [offset for offset, _, _ in contents(log)] == list(range(10))
    for deletion in log.segments.deletions:
        deletion.run(log.segments.disk)
    assert not [name for name in os.listdir(log.folder) if name.endswith(".deleted")]


def test_very_many_small_segments_become_few_and_no_swap_holds_up_the_event_loop(log: PartitionLog) -> None:
    """The limit for one turn of the event loop is 50 ms of processor time."""
    for number in range(2 * GROUP_SEGMENTS_MAX):
        put(log, (b"%d" % number, b"v"))
        roll(log)
    log.high_watermark_moved(log.log_end_offset)
    cleaning = log.begin_cleaning(log.dirt(log.log_end_offset), LIMITS)
    took_s = []
    for step in clean_log(log.segments.disk, cleaning.order):
        if isinstance(step, CleanedSegment):
            started = time.thread_time()
            cleaning = log.swap_in(cleaning, step)
            took_s.append(time.thread_time() - started)
    assert len(took_s) == 2
    assert max(took_s) < 0.05
    assert [segment.base_offset for segment in log.segments.all] == [0, GROUP_SEGMENTS_MAX, 2 * GROUP_SEGMENTS_MAX]
    assert [offset for offset, _, _ in contents(log)] == list(range(2 * GROUP_SEGMENTS_MAX))


class CountingDisk(SystemDisk):
    """Knows how much was written to a file since it was brought to the device."""

    def __init__(self) -> None:
        self.unsynced: dict[int, int] = {}
        self.synced_at_once: list[int] = []

    def pwrite(self, fd: int, data: ReadableBuffer, offset: int, /) -> int:
        written = super().pwrite(fd, data, offset)
        self.unsynced[fd] = self.unsynced.get(fd, 0) + written
        return written

    def fsync(self, fd: int, /) -> None:  # type: ignore[override]
        super().fsync(fd)
        self.synced_at_once.append(self.unsynced.pop(fd, 0))


def test_a_large_new_segment_is_brought_to_the_device_piece_by_piece(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow disk, one sync of a whole segment would take longer than the worker may take for a step."""
    monkeypatch.setattr(new_segment, "WRITTEN_TOGETHER_BYTES", 1_000)
    monkeypatch.setattr(new_segment, "SYNCED_TOGETHER_BYTES", 10_000)
    log = create(tmp_path, clock, COMPACTED)
    for number in range(100):
        put(log, (b"%d" % number, b"v" * 500))
    roll(log)
    log.high_watermark_moved(log.log_end_offset)
    disk = CountingDisk()
    order = log.begin_cleaning(log.dirt(log.log_end_offset), LIMITS).order
    (cleaned,) = [step for step in clean_log(disk, order) if isinstance(step, CleanedSegment)]
    assert sum(disk.synced_at_once) >= cleaned.size > 50_000
    assert max(disk.synced_at_once) < 12_000
    assert not any(disk.unsynced.values())


def test_indexes_lead_to_what_is_left(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, COMPACTED._replace(index_interval_bytes=200))
    for number in range(300):
        clock.advance_ms(10)
        put(log, (b"%d" % (number % 100), b"v" * 50))
    roll(log)
    clean(log)
    for offset in range(300):
        assert contents_from(log, offset) == max(offset, 200)
    found = log.offset_by_timestamp(clock.now_ms() - 500)
    assert found is not None
    assert found.offset == 249
    assert log.segments.all[0].max_timestamp == clock.now_ms()


def contents_from(log: PartitionLog, offset: int) -> int | None:
    data = read_bytes(log, offset)
    return decode_records(data)[0].offset if data else None


def test_a_map_that_does_not_hold_all_keys_takes_several_passes(log: PartitionLog) -> None:
    for round_number in range(2):
        for number in range(0, 200, 10):
            put(log, *((b"%d" % n, b"%d" % round_number) for n in range(number, number + 10)))
    roll(log)
    small = CleaningLimits(map_bytes=24 * 60, map_load_factor=0.9, step_bytes=1 << 20)
    ends = [clean(log, small).end_offset]
    while ends[-1] < 400:
        ends.append(clean(log, small).end_offset)
    assert len(ends) > 5
    assert ends == sorted(set(ends))
    assert contents(log) == [(200 + n, b"%d" % n, b"1") for n in range(200)]


def test_a_reader_in_the_middle_of_an_old_segment_goes_on(log: PartitionLog) -> None:
    for number in range(50):
        put(log, (b"%d" % (number % 5), b"%d" % number))
    roll(log)
    found = log.read(10, 1 << 20, log.end_position, whole_first_batch=True)
    assert found is not None
    clean(log)
    for deletion in log.segments.deletions:
        deletion.run(log.segments.disk)
    old = log.segments.disk.pread(found.file.fd, found.length, found.position)
    assert decode_records(old)[0].offset == 10
    assert contents_from(log, 10) == 45


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:65] + b"?" + data[66:], "wrong checksum at position 0"),
        (lambda data: data[:70] + b"?" * 8 + data[78:], "a batch with offsets .* at position 70"),
        (lambda data: data[:86] + b"?" + data[87:], "no batch at position 70"),
        (lambda data: data[:-5] + bytes(5), "wrong checksum"),
    ],
)
def test_what_cannot_be_read_is_named_and_nothing_is_changed(log: PartitionLog, damage: object, reason: str) -> None:
    for number in range(5):
        put(log, (b"a", b"%d" % number))
    roll(log)
    path = f"{log.folder}/{0:020}.log"
    with open(path, "rb") as file:
        damaged = damage(file.read())  # type: ignore[operator]
    with open(path, "wb") as file:
        file.write(damaged)
    with pytest.raises(UncleanableLogError, match=f"{path}.*{reason}"):
        clean(log)
    with open(path, "rb") as file:
        assert file.read() == damaged
    assert [segment.base_offset for segment in log.segments.all] == [0, 5]


def test_what_a_cleaning_left_behind_is_gone_before_the_next_begins(log: PartitionLog) -> None:
    put(log, (b"a", b"1"))
    roll(log)
    put(log, (b"a", b"2"))
    roll(log)
    steps = clean_log(log.segments.disk, log.begin_cleaning(log.dirt(2), LIMITS).order)
    while "00000000000000000000.log.cleaned" not in os.listdir(log.folder):
        next(steps)
    steps.close()  # type: ignore[attr-defined]
    clean(log)
    assert not [name for name in os.listdir(log.folder) if name.endswith((".cleaned", ".swap"))]
    assert contents(log) == [(1, b"a", b"2")]


def test_a_cleaning_that_finds_no_space_leaves_none_of_it_taken(clock: ManualClock) -> None:
    disk = SimulatedDisk(clock)
    log = create("", clock, COMPACTED, disk)
    for number in range(20):
        put(log, (b"%d" % number, b"v" * 500))
    roll(log)
    log.high_watermark_moved(log.log_end_offset)
    used = disk.used_bytes
    disk.capacity_bytes = used + 5_000
    with pytest.raises(OSError, match="No space left"):
        for _ in clean_log(disk, log.begin_cleaning(log.dirt(log.log_end_offset), LIMITS).order):
            pass
    assert disk.used_bytes == used
    assert not [name for name in disk.list_folder(log.folder) if name.endswith(".cleaned")]


def test_a_cleaning_is_void_once_the_log_has_lost_what_is_cleaned(log: PartitionLog) -> None:
    for number in range(4):
        put(log, (b"a", b"%d" % number))
        roll(log)
    cleaning = log.begin_cleaning(log.dirt(4), LIMITS)
    assert not log.is_void(cleaning)
    put(log, (b"a", b"4"))
    assert not log.is_void(cleaning)
    log.advance_log_start(1)
    assert log.apply_retention(5) == 1
    assert log.is_void(cleaning)
    cleaning = log.begin_cleaning(log.dirt(4), LIMITS)
    log.truncate_to(4)
    assert log.is_void(cleaning)


def test_a_log_that_was_cut_is_dirty_from_there_on(log: PartitionLog) -> None:
    for number in range(4):
        put(log, (b"%d" % number, b"v"))
        roll(log)
    clean(log)
    assert log.first_dirty_offset == 4
    log.truncate_to(2)
    assert log.first_dirty_offset == log.log_end_offset <= 2
    log.truncate_fully(100)
    assert log.dirt(100).first_dirty_offset == 100
