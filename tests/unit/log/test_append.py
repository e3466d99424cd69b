"""What appending does to a batch, to the log's end, and to the indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.config.topic_config import TopicConfig
from barnabas.log.batch_validation import UnexpectedOffsetError
from barnabas.log.segments.segment_list import LogPosition
from barnabas.protocol.batch import HEADER_SIZE, MAGIC_AT, TimestampType, crc_is_valid
from barnabas.protocol.errors import Error, KafkaError
from barnabas.testing.disk import SimulatedDisk

from .logs import altered, batch, create, files_of, read_bytes, read_records, stored_header

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.testing.clock import ManualClock


def test_batches_get_consecutive_offsets_and_the_leader_epoch_and_are_otherwise_stored_as_sent(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = create(tmp_path, clock)
    first, second = batch(b"a", b"b"), batch(b"c")

    assert log.append_as_leader(first, 3) == (0, 1, -1, 0, False)
    assert log.append_as_leader(second, 3) == (2, 2, -1, 0, False)

    assert log.log_end_offset == 3
    assert log.end_position == LogPosition(3, 0, len(first) + len(second))
    assert read_bytes(log, 0)[MAGIC_AT : len(first)] == first[MAGIC_AT:]
    assert read_bytes(log, 2)[MAGIC_AT:] == second[MAGIC_AT:]
    header = stored_header(log, 2)
    assert (header.base_offset, header.partition_leader_epoch) == (2, 3)


def test_log_append_time_stamps_the_batch_and_keeps_its_checksum_right(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(message_timestamp_type="LogAppendTime"))
    clock.advance_ms(777)

    appended = log.append_as_leader(batch(b"a", b"b", timestamp=5), 0)

    assert appended.log_append_time_ms == clock.now_ms()
    stored = read_bytes(log, 0)
    header = stored_header(log, 0)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == clock.now_ms()
    assert header.base_timestamp == 5
    assert crc_is_valid(stored, 0, len(stored))
    assert [record.timestamp for record in read_records(log)] == [clock.now_ms()] * 2


def test_a_create_time_topic_takes_the_mark_of_log_append_time_off_a_clients_batch(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = create(tmp_path, clock)
    log.append_as_leader(altered(batch(b"a"), attributes=0x08), 0)
    stored = read_bytes(log, 0)
    assert stored_header(log, 0).timestamp_type is TimestampType.CREATE_TIME
    assert crc_is_valid(stored, 0, len(stored))


def test_followers_append_batches_as_they_come(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    fetched = bytes(batch(b"a", b"b", base_offset=0, leader_epoch=1)) + bytes(
        batch(b"c", base_offset=2, leader_epoch=2)
    )
    cut_off = bytes(batch(b"d", base_offset=3, leader_epoch=2))[:-1]

    appended = log.append_at(memoryview(fetched + cut_off))

    assert appended is not None
    assert (appended.base_offset, appended.last_offset) == (0, 2)
    assert read_bytes(log, 0) == fetched
    assert log.epochs.entries == [(1, 0), (2, 2)]
    assert log.append_at(memoryview(cut_off)) is None


def test_followers_may_skip_offsets_and_readers_in_the_gap_get_what_follows(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    log.append_at(batch(b"a", base_offset=0, leader_epoch=0))
    log.append_at(batch(b"b", base_offset=10, leader_epoch=0))
    assert [record.offset for record in read_records(log, 5)] == [10]


def test_what_followers_append_must_continue_the_log(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    log.append_at(batch(b"a", b"b", base_offset=0, leader_epoch=0))
    with pytest.raises(UnexpectedOffsetError):
        log.append_at(batch(b"c", base_offset=1, leader_epoch=0))
    with pytest.raises(KafkaError) as refused:
        log.append_at(altered(batch(b"c", base_offset=2, leader_epoch=0), crc=1))
    assert refused.value.error is Error.CORRUPT_MESSAGE
    assert log.log_end_offset == 2


def test_more_than_a_segment_of_fetched_batches_is_split(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=400))
    fetched = b"".join(bytes(batch(b"x" * 100, base_offset=offset, leader_epoch=0)) for offset in range(9))
    log.append_at(memoryview(fetched))
    assert [record.offset for record in read_records(log)] == list(range(9))
    assert len(log.segments.all) > 3


def test_index_entries_name_the_last_offset_and_the_position_of_the_first_batch_after_the_interval(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = create(tmp_path, clock, TopicConfig(index_interval_bytes=300))
    start = clock.now_ms()
    sizes = []
    for number in range(8):
        data = batch(b"x" * 60, b"y", timestamp=start + number)
        sizes.append(len(data))
        log.append_as_leader(data, 0)
    log.close()
    size = sizes[0]
    assert 2 * size < 300 < 3 * size, "an entry for every third batch"
    expected = [(2 * number + 1, number * size, start + number) for number in (3, 6)]
    files = files_of(log)
    offsets = b"".join(last.to_bytes(4, "big") + at.to_bytes(4, "big") for last, at, _ in expected)
    times = b"".join(at.to_bytes(8, "big") + last.to_bytes(4, "big") for last, _, at in expected)
    assert files["00000000000000000000.index"] == offsets
    assert files["00000000000000000000.timeindex"] == times + (start + 7).to_bytes(8, "big") + (15).to_bytes(4, "big")


def test_an_append_makes_one_write_and_opens_nothing_once_the_log_is_in_use(tmp_path: Path, clock: ManualClock) -> None:
    disk = SimulatedDisk(clock)
    disk.make_folder("/data")
    log = create("/data", clock, disk=disk)
    log.append_as_leader(batch(b"x"), 0)
    disk.calls.clear()
    for _ in range(50):
        log.append_as_leader(batch(b"x" * HEADER_SIZE), 0)
    assert disk.calls == {"pwrite": 50}
