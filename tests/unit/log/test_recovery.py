"""Opening a log after a crash, or after somebody tampered with its files."""

from __future__ import annotations

import os
import random
import shutil
from typing import TYPE_CHECKING

import pytest

from barnabas.config.topic_config import TopicConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments.segment import CorruptSegmentError
from barnabas.ports import SystemDisk
from barnabas.testing.disk import SimulatedDisk

from .logs import batch, create, files_of, put_to_sleep, read_records, reopen

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.testing.clock import ManualClock

SMALL_SEGMENTS = TopicConfig(segment_bytes=2000, index_interval_bytes=200)


def fill(log: PartitionLog, count: int, start_ms: int) -> None:
    for number in range(count):
        log.append_as_leader(batch(b"%06d" % number * 5, b"second", timestamp=start_ms + number), 0)


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in read_records(log)]


def test_the_last_segment_cut_at_each_byte_of_its_last_batch_recovers_to_the_batch_before(
    tmp_path: Path, clock: ManualClock
) -> None:
    (tmp_path / "a").mkdir()
    log = create(tmp_path / "a", clock)
    fill(log, 3, clock.now_ms())
    before = log.end_position
    log.append_as_leader(batch(b"last", b"one"), 0)
    after = log.end_position
    put_to_sleep(log)
    for cut in range(before.position, after.position):
        copy = tmp_path / "b"
        shutil.copytree(tmp_path / "a", copy)
        os.truncate(copy / "t-0/00000000000000000000.log", cut)
        recovered = open_in(copy, clock, log.config)
        assert recovered.end_position == before
        assert offsets(recovered) == list(range(6))
        recovered.append_as_leader(batch(b"again"), 1)
        assert offsets(recovered) == list(range(7))
        put_to_sleep(recovered)
        shutil.rmtree(copy)


def test_the_last_batch_overwritten_with_garbage_at_any_byte_recovers_to_the_batch_before(
    tmp_path: Path, clock: ManualClock
) -> None:
    (tmp_path / "a").mkdir()
    log = create(tmp_path / "a", clock)
    fill(log, 3, clock.now_ms())
    before = log.end_position
    log.append_as_leader(batch(b"last", b"one"), 0)
    after = log.end_position
    put_to_sleep(log)
    path = tmp_path / "a/t-0/00000000000000000000.log"
    good = path.read_bytes()
    chance = random.Random(5)
    # What the checksum does not cover, offset and leader epoch, is the log's own: only an impossible offset shows.
    unprotected = range(before.position + 8, before.position + 12 + 4)
    for at in range(before.position, after.position):
        length = min(after.position - at, 9)
        garbage = chance.randbytes(length)
        if at in unprotected or at < before.position + 8:
            garbage = b"\xff" * max(length, before.position + 20 - at)
        path.write_bytes(good[:at] + garbage + good[at + len(garbage) :])
        recovered = open_in(tmp_path / "a", clock, log.config)
        assert recovered.end_position == before, at
        assert offsets(recovered) == list(range(6))
        put_to_sleep(recovered)


def test_random_garbage_after_the_last_batch_is_cut_away(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    fill(log, 3, clock.now_ms())
    end = log.end_position
    for garbage in (b"\0", bytes(61), bytes(5000), b"\xff" * 61, random.Random(1).randbytes(3000)):
        with open(log.segments.active.log_path, "ab") as file:
            file.write(garbage)
        log = reopen(log, clock, clean_shutdown=False)
        assert log.end_position == end
        assert os.path.getsize(log.segments.active.log_path) == end.position


def test_recovery_makes_the_same_indexes_as_appending(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, SMALL_SEGMENTS)
    fill(log, 100, clock.now_ms())
    log.close()
    expected = files_of(log)
    assert sum(name.endswith(".index") for name in expected) > 3
    for name in expected:
        if not name.endswith((".log", ".metadata")):
            os.unlink(f"{log.folder}/{name}")

    reopen(log, clock, clean_shutdown=False).close()

    assert files_of(log) == expected


def test_only_segments_from_the_recovery_point_on_are_read(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, SMALL_SEGMENTS)
    fill(log, 100, clock.now_ms())
    third = log.segments.all[2]
    put_to_sleep(log)
    first_path = log.segments.all[0].log_path
    with open(first_path, "r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 10)

    unread = reopen(log, clock, clean_shutdown=False, recovery_point=third.base_offset)
    assert unread.log_end_offset == 200

    read = reopen(log, clock, clean_shutdown=False, recovery_point=0)
    assert read.log_end_offset < log.segments.all[1].base_offset


def test_a_broken_batch_in_the_middle_ends_the_log_there(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, SMALL_SEGMENTS)
    fill(log, 100, clock.now_ms())
    second = log.segments.all[1]
    put_to_sleep(log)
    with open(second.log_path, "r+b") as file:
        file.seek(second.size - 1)
        file.write(b"\xff")

    recovered = reopen(log, clock, clean_shutdown=False)

    assert [segment.base_offset for segment in recovered.segments.all] == [0, second.base_offset]
    assert offsets(recovered) == list(range(recovered.log_end_offset))
    assert recovered.log_end_offset == log.segments.all[2].base_offset - 2
    recovered.append_as_leader(batch(b"next"), 1)
    assert offsets(recovered) == list(range(recovered.log_end_offset))


def test_a_clean_log_is_opened_without_reading_more_than_its_tail(tmp_path: Path, clock: ManualClock) -> None:
    disk = SimulatedDisk(clock)
    disk.make_folder("/data")
    log = create("/data", clock, TopicConfig(segment_bytes=20_000), disk)
    fill(log, 2_000, clock.now_ms())
    log.close()
    segments = len(log.segments.all)
    disk.calls.clear()

    again = reopen(log, clock, clean_shutdown=True, disk=disk)

    assert again.end_position == log.end_position
    assert segments > 10
    assert disk.calls["pread"] <= 6
    assert "preadv" not in disk.calls
    assert "pwrite" not in disk.calls


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_index_is_made_again(tmp_path: Path, clock: ManualClock, suffix: str) -> None:
    log = create(tmp_path, clock, SMALL_SEGMENTS)
    fill(log, 100, clock.now_ms())
    log.close()
    expected = files_of(log)
    for segment in log.segments.all:
        os.unlink(f"{log.folder}/{segment.base_offset:020d}{suffix}")
    again = reopen(log, clock, clean_shutdown=True)
    assert files_of(again) == expected
    assert offsets(again) == list(range(200))


def damage_second_batch(path: str) -> int:
    """Flips a byte; returns where the batch begins."""
    with open(path, "r+b") as file:
        second = 12 + int.from_bytes(file.read(12)[8:])
        file.seek(second + 70)
        before = file.read(1)
        file.seek(second + 70)
        file.write(bytes([before[0] ^ 0xFF]))
    return second


def test_an_index_that_is_made_again_from_a_damaged_segment_leaves_that_as_it_is_and_names_the_place(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    log = create(tmp_path, clock, SMALL_SEGMENTS)
    fill(log, 100, clock.now_ms())
    log.close()
    damaged = log.segments.all[1]
    position = damage_second_batch(damaged.log_path)
    os.unlink(damaged.log_path.replace(".log", ".index"))
    logs = {name: data for name, data in files_of(log).items() if name.endswith(".log")}
    again = reopen(log, clock, clean_shutdown=True)
    assert f"{damaged.log_path} is damaged at position {position}, where offset" in caplog.text
    assert {name: data for name, data in files_of(again).items() if name.endswith(".log")} == logs
    assert again.log_end_offset == log.log_end_offset


@pytest.mark.parametrize("clean_shutdown", [True, False])
def test_damage_that_recovery_meets_before_the_recovery_point_is_not_taken_for_the_end_of_the_log(
    tmp_path: Path, clock: ManualClock, clean_shutdown: bool
) -> None:
    """It goes there only because an index of aborted transactions has to be made again."""
    log = create(tmp_path, clock, SMALL_SEGMENTS)
    fill(log, 100, clock.now_ms())
    log.close()
    damaged = log.segments.all[1]
    position = damage_second_batch(damaged.log_path)
    with open(log.segments.all[0].log_path.replace(".log", ".txnindex"), "wb") as index:
        index.write(b"cut")
    before = files_of(log)
    with pytest.raises(CorruptSegmentError, match=f"{damaged.log_path} is damaged at position {position}"):
        reopen(log, clock, clean_shutdown=clean_shutdown, recovery_point=log.log_end_offset)
    assert files_of(log) == before


@pytest.mark.parametrize("damage", [b"\x7f" * 7, b"\x7f" * 8, b"\0\0\0\0\0\0\0\5", b"\0\0\0\0\x7f\0\0\0"])
def test_an_index_that_misleads_is_made_again_when_it_is_used(
    tmp_path: Path, clock: ManualClock, damage: bytes
) -> None:
    log = create(tmp_path, clock, SMALL_SEGMENTS)
    fill(log, 100, clock.now_ms())
    log.close()
    expected = files_of(log)
    name = "00000000000000000000.index"
    (tmp_path / "t-0" / name).write_bytes(damage)
    again = reopen(log, clock, clean_shutdown=True)
    assert offsets(again) == list(range(200))
    if damage[0] == 0 or len(damage) % 8:
        assert files_of(again)[name] == expected[name]


def test_a_time_index_that_misleads_is_made_again_when_it_is_used(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, SMALL_SEGMENTS)
    fill(log, 100, clock.now_ms())
    log.close()
    (tmp_path / "t-0/00000000000000000000.timeindex").write_bytes(b"\1" * 13)
    again = reopen(log, clock, clean_shutdown=True)
    assert again.offset_by_timestamp(clock.now_ms() + 3) == (clock.now_ms() + 3, 6, 0)


def test_a_tail_that_contradicts_the_clean_shutdown_is_recovered(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    fill(log, 10, clock.now_ms())
    log.close()
    os.truncate(log.segments.active.log_path, log.segments.active.size - 1)
    again = reopen(log, clock, clean_shutdown=True)
    assert again.log_end_offset == 18
    assert offsets(again) == list(range(18))


def test_a_broken_epoch_checkpoint_is_read_from_the_log(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, SMALL_SEGMENTS)
    for epoch in (2, 5, 9):
        log.append_as_leader(batch(b"x" * 1500), epoch)
    log.close()
    (tmp_path / "t-0/leader-epoch-checkpoint").write_text("0\n7\n")
    again = reopen(log, clock, clean_shutdown=True)
    assert again.epochs.entries == [(2, 0), (5, 1), (9, 2)]


def test_a_log_that_ends_before_its_checkpointed_start_begins_anew_there(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    fill(log, 5, clock.now_ms())
    log.close()
    again = reopen(log, clock, clean_shutdown=True, log_start_offset=50)
    assert (again.log_start_offset, again.log_end_offset) == (50, 50)
    assert again.append_as_leader(batch(b"x"), 0).base_offset == 50


def test_an_empty_folder_is_an_empty_log(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "t-0").mkdir()
    log = open_in(tmp_path, clock, TopicConfig())
    assert log.end_position == (0, 0, 0)
    assert log.topic_id is None


def test_leftovers_of_deletion_and_cleaning_are_removed_and_orphaned_indexes_too(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = create(tmp_path, clock)
    fill(log, 5, clock.now_ms())
    log.close()
    expected = files_of(log)
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000000.snapshot.deleted",
        "00000000000000000000.log.cleaned",
        "00000000000000000007.index",
        "00000000000000000007.timeindex",
    ):
        (tmp_path / "t-0" / name).write_bytes(b"")
    reopen(log, clock, clean_shutdown=True)
    assert files_of(log) == expected


def test_an_exchange_of_segments_that_was_decided_is_completed(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, SMALL_SEGMENTS)
    fill(log, 60, clock.now_ms())
    log.close()
    folder = tmp_path / "t-0"
    bases = [segment.base_offset for segment in log.segments.all]
    # A cleaned segment that stands for the first two: here simply both of them in one.
    merged = b"".join((folder / f"{base:020d}.log").read_bytes() for base in bases[:2])
    (folder / "00000000000000000000.log.swap").write_bytes(merged)
    for suffix in ("index", "timeindex"):
        (folder / f"00000000000000000000.{suffix}.swap").write_bytes(b"")

    again = reopen(log, clock, clean_shutdown=True)

    assert [segment.base_offset for segment in again.segments.all] == [bases[0], *bases[2:]]
    assert offsets(again) == list(range(120))


def test_power_loss_keeps_what_was_flushed_and_cuts_what_was_torn(clock: ManualClock) -> None:
    chance = random.Random(11)
    for _ in range(30):
        disk = SimulatedDisk(clock)
        disk.make_folder("/data")
        disk.sync_dir("/")
        log = create("/data", clock, SMALL_SEGMENTS, disk)
        fill(log, chance.randrange(40), clock.now_ms())
        log.flush()
        flushed = log.recovery_point
        assert flushed == log.log_end_offset
        fill(log, chance.randrange(20), clock.now_ms())

        disk.crash(lambda unsynced: chance.randint(0, unsynced))
        again = reopen(log, clock, clean_shutdown=False, recovery_point=flushed, disk=disk)

        assert again.log_end_offset >= flushed
        assert offsets(again) == list(range(again.log_end_offset))
        assert again.topic_id == log.topic_id
        if flushed:
            assert again.epochs.entries == [(0, 0)]


def open_in(folder: Path, clock: ManualClock, config: TopicConfig) -> PartitionLog:
    return PartitionLog.open(
        f"{folder}/t-0",
        "t",
        0,
        config,
        disk=SystemDisk(),
        clock=clock,
        recovery_point=0,
        log_start_offset=0,
        clean_shutdown=False,
    )
