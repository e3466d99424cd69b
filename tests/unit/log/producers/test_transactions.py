"""Transactions in a partition: who may begin and end one, where readers stop, and what they are told to leave out."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.config.topic_config import TopicConfig
from barnabas.log.append_batches import EndMarker, build_marker
from barnabas.log.producers.producer_state import BY_COORDINATOR, EPOCH_MAX, NOT_NEEDED
from barnabas.protocol import messages as m
from barnabas.protocol.batch import decode_records, iter_headers
from barnabas.protocol.control_records import ControlRecordType, decode_control_record
from barnabas.protocol.errors import Error, KafkaError
from barnabas.testing.disk import SimulatedDisk
from tests.unit.log.logs import batch, create, files_of, idempotent, put_to_sleep, reopen, stored_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.producers.producer_state import Verification
    from barnabas.testing.clock import ManualClock

KAFKAS = Path(__file__).parent.with_name("kafka_files") / "t-0"
TXN_INDEX = "00000000000000000000.txnindex"
V1, V2 = 1, 2


def write(
    log: PartitionLog, producer_id: int, sequence: int, epoch: int = 0, verification: Verification | None = NOT_NEEDED
) -> int:
    data = idempotent(producer_id, epoch, sequence, is_transactional=True)
    return log.append_as_leader(data, 0, verification).base_offset


def end(
    log: PartitionLog,
    producer_id: int,
    *,
    is_commit: bool = True,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = V1,
) -> int:
    marker = EndMarker(producer_id, epoch, coordinator_epoch, is_commit, version)
    return log.append_marker(marker, 0).base_offset


def abort_one(log: PartitionLog, producer_id: int = 1) -> None:
    """A whole transaction of one record."""
    entry = log.producers.producers.get(producer_id)
    write(log, producer_id, entry.last_sequence + 1 if entry else 0)
    end(log, producer_id, is_commit=False)


def refused(call: Callable[[], object]) -> Error:
    with pytest.raises(KafkaError) as failed:
        call()
    return failed.value.error


def stable_offset(log: PartitionLog) -> int:
    return log.last_stable_position(log.end_position).offset


# ── markers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_marker_is_kafkas_to_the_byte() -> None:
    rebuilt = []
    for file in sorted(KAFKAS.glob("*.log")):
        data = memoryview(file.read_bytes())
        for position, header in iter_headers(data):
            if not header.is_control:
                continue
            kafkas = data[position : position + header.size]
            (record,) = decode_records(kafkas)
            kind, value = decode_control_record(record.key or b"", record.value or b"")
            assert isinstance(value, m.EndTxnMarker)
            marker = EndMarker(
                header.producer_id,
                header.producer_epoch,
                value.coordinator_epoch,
                kind is ControlRecordType.COMMIT,
                V1,
            )
            ours = build_marker(
                marker, header.base_offset, header.partition_leader_epoch, record.timestamp, log_append_time=False
            )
            assert ours == kafkas
            rebuilt.append(kind)
    assert rebuilt == [ControlRecordType.ABORT, ControlRecordType.COMMIT, ControlRecordType.ABORT]


def test_a_marker_ends_the_transaction_and_is_appended_like_any_batch(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    assert write(log, 1, 0, epoch=4) == 0
    assert stable_offset(log) == 0
    assert end(log, 1, epoch=4, coordinator_epoch=9) == 1
    assert stable_offset(log) == 2
    header = stored_header(log, 1)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert (header.producer_id, header.producer_epoch, header.max_timestamp) == (1, 4, clock.now_ms())
    assert log.producers.producers[1].coordinator_epoch == 9
    assert write(log, 1, 1, epoch=4) == 2, "the sequence goes on in the same epoch"


def test_a_topic_with_log_append_time_stamps_markers_as_well(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(message_timestamp_type="LogAppendTime"))
    write(log, 1, 0)
    appended = log.append_marker(EndMarker(1, 0, 0, True, V1), 0)
    assert appended.log_append_time_ms == clock.now_ms()
    assert stored_header(log, 1).timestamp_type == 1


def test_an_old_epoch_is_called_so_also_while_the_new_one_is_verified(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    end(log, 1, epoch=5)
    assert log.producers.begin_verification(1, 5, 0, clock.now_ms(), adds_partition=True) is not None
    assert refused(lambda: log.append_as_leader(idempotent(1, 4, 3), 0)) is Error.INVALID_PRODUCER_EPOCH
    assert refused(lambda: write(log, 1, 3, epoch=4, verification=None)) is Error.INVALID_PRODUCER_EPOCH


def test_a_marker_without_a_transaction_is_written_and_fences_older_epochs(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    assert end(log, 1, epoch=3, is_commit=False) == 0
    assert log.aborted_transactions(0, 1) == []
    assert refused(lambda: write(log, 1, 0, epoch=2)) is Error.INVALID_PRODUCER_EPOCH
    assert write(log, 1, 0, epoch=3) == 1


@pytest.mark.parametrize(
    ("version", "epoch", "error"),
    [
        (V1, 4, Error.INVALID_PRODUCER_EPOCH),
        (V1, 5, None),
        (V1, 6, None),
        (V2, 4, Error.INVALID_PRODUCER_EPOCH),
        (V2, 5, Error.INVALID_PRODUCER_EPOCH),
        (V2, 6, None),
    ],
)
def test_an_open_transaction_is_ended_by_its_epoch_or_with_v2_a_later_one(
    tmp_path: Path, clock: ManualClock, version: int, epoch: int, error: Error | None
) -> None:
    log = create(tmp_path, clock)
    write(log, 1, 0, epoch=5)
    if error is None:
        assert end(log, 1, epoch=epoch, version=version) == 1
    else:
        assert refused(lambda: end(log, 1, epoch=epoch, version=version)) is error
        assert log.log_end_offset == 1


def test_a_marker_of_v2_may_come_again_and_the_last_epoch_ends_itself(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    write(log, 1, 0, epoch=5)
    end(log, 1, epoch=6, version=V2)
    assert end(log, 1, epoch=6, version=V2) == 2
    write(log, 1, 0, epoch=EPOCH_MAX)
    assert end(log, 1, epoch=EPOCH_MAX, version=V2) == 4


def test_a_marker_of_a_coordinator_that_was_replaced_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    end(log, 1, coordinator_epoch=7)
    assert refused(lambda: end(log, 1, coordinator_epoch=6)) is Error.TRANSACTION_COORDINATOR_FENCED
    assert end(log, 1, coordinator_epoch=7) == 1


def test_a_marker_that_cannot_be_written_leaves_the_transaction_open(clock: ManualClock) -> None:
    disk = SimulatedDisk(clock)
    log = create("", clock, disk=disk)
    write(log, 1, 0)
    disk.fail("pwrite", errno.EIO)
    assert refused(lambda: end(log, 1)) is Error.KAFKA_STORAGE_ERROR
    disk.heal()
    assert stable_offset(log) == 0
    assert end(log, 1) == 1


# ── verification ─────────────────────────────────────────────────────────────────────────────────────────────────────


def begin(log: PartitionLog, sequence: int = 0, epoch: int = 0, *, adds_partition: bool = False) -> Verification | None:
    return log.begin_verification(1, epoch, sequence, adds_partition=adds_partition)


def test_only_a_verified_batch_opens_a_transaction_and_later_ones_follow_it(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    assert refused(lambda: write(log, 1, 0, verification=None)) is Error.INVALID_TXN_STATE
    verification = begin(log)
    assert refused(lambda: write(log, 1, 0, verification=None)) is Error.INVALID_TXN_STATE
    assert write(log, 1, 0, verification=verification) == 0
    assert log.producers.has_open_txn(1, 0)
    assert begin(log, 1) is None, "nobody need be asked any more"
    assert write(log, 1, 1, verification=None) == 1


def test_the_end_of_the_transaction_takes_a_verification_away(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    verification = begin(log)
    assert begin(log) is verification
    end(log, 1, is_commit=False)
    assert refused(lambda: write(log, 1, 0, verification=verification)) is Error.INVALID_TXN_STATE
    assert begin(log) is not verification
    assert refused(lambda: write(log, 1, 0, verification=verification)) is Error.INVALID_TXN_STATE, "the old one"
    assert log.log_end_offset == 1


def test_a_late_marker_of_the_transaction_before_leaves_the_next_ones_verification(
    tmp_path: Path, clock: ManualClock
) -> None:
    """With transactions v2 the marker of one and the batches of the next have the same epoch."""
    log = create(tmp_path, clock)
    write(log, 1, 0, epoch=4)
    verification = begin(log, epoch=5, adds_partition=True)
    end(log, 1, epoch=5, version=V2)
    assert write(log, 1, 0, epoch=5, verification=verification) == 2


def test_a_later_batch_does_not_overtake_the_first_that_is_verified(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    begin(log, 1)
    begin(log, 0)
    verification = begin(log, 2)
    assert refused(lambda: write(log, 1, 1, verification=verification)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(log, 1, 0, verification=verification) == 0
    assert write(log, 1, 1, verification=None) == 1


@pytest.mark.parametrize(("adds_partition", "error"), [(False, None), (True, Error.OUT_OF_ORDER_SEQUENCE_NUMBER)])
def test_a_producer_of_which_nothing_is_known_begins_with_sequence_0_in_transactions_v2(
    tmp_path: Path, clock: ManualClock, adds_partition: bool, error: Error | None
) -> None:
    log = create(tmp_path, clock)
    verification = begin(log, 7, adds_partition=adds_partition)
    if error is None:
        assert write(log, 1, 7, verification=verification) == 0
    else:
        assert refused(lambda: write(log, 1, 7, verification=verification)) is error


def test_a_producer_that_was_replaced_is_not_verified(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    end(log, 1, epoch=3)
    assert refused(lambda: begin(log, epoch=2)) is Error.INVALID_PRODUCER_EPOCH


def test_verifications_that_came_to_nothing_are_forgotten_in_time(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    verification = begin(log)
    clock.advance_ms(1000)
    log.expire_producers(1000)
    assert not log.producers.is_verified(1, verification)


def test_a_coordinator_writes_for_a_producer_without_sequences_but_not_for_an_older_epoch(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = create(tmp_path, clock)
    for _ in range(3):
        log.append_as_leader(idempotent(1, 4, 0, is_transactional=True), 0, BY_COORDINATOR)
    assert stable_offset(log) == 0
    older = idempotent(1, 3, 0, is_transactional=True)
    assert refused(lambda: log.append_as_leader(older, 0, BY_COORDINATOR)) is Error.INVALID_PRODUCER_EPOCH
    end(log, 1, epoch=5, version=V2)
    assert stable_offset(log) == 4


# ── what was aborted ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_aborted_transactions_reach_their_file_when_the_log_is_flushed_rolled_put_to_sleep_or_closed(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = create(tmp_path, clock)
    for number, bring_out in enumerate((log.flush, lambda: put_to_sleep(log), log.close), start=1):
        abort_one(log)
        assert len(log.aborted_transactions(0, log.log_end_offset)) == number
        bring_out()
        assert len(files_of(log)[TXN_INDEX]) == 34 * number
        assert len(log.aborted_transactions(0, log.log_end_offset)) == number
    abort_one(log)
    log.roll(log.log_end_offset)
    assert len(files_of(log)[TXN_INDEX]) == 34 * 4
    abort_one(log)
    log.close()
    assert len(files_of(log)["00000000000000000008.txnindex"]) == 34
    assert log.aborted_transactions(0, 100) == [
        (1, first, first + 1, first + 2) for first in range(0, log.log_end_offset, 2)
    ]


def test_a_log_without_aborted_transactions_has_no_index_of_them(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    write(log, 1, 0)
    end(log, 1)
    log.close()
    assert not any(name.endswith(".txnindex") for name in files_of(log))
    assert not log.segments.aborted_txns


@pytest.mark.parametrize("clean_shutdown", [True, False])
def test_open_and_aborted_transactions_survive_a_restart(
    tmp_path: Path, clock: ManualClock, clean_shutdown: bool
) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=300))
    for _ in range(5):
        abort_one(log)
    open_at = write(log, 2, 0)
    abort_one(log)
    expected = log.aborted_transactions(0, log.log_end_offset)
    assert len(expected) == 6
    assert expected[-1].last_stable_offset == open_at
    assert len(log.segments.all) > 2
    if clean_shutdown:
        log.close()

    again = reopen(log, clock, clean_shutdown=clean_shutdown)

    assert again.aborted_transactions(0, again.log_end_offset) == expected
    assert stable_offset(again) == open_at
    assert again.producers.has_open_txn(2, 0)
    assert write(again, 2, 1, verification=None) == log.log_end_offset
    again.close()
    assert list(again.aborted_transactions(0, again.log_end_offset)) == expected


def test_a_damaged_index_of_aborted_transactions_is_made_again(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=300))
    for _ in range(8):
        abort_one(log)
    log.close()
    whole = files_of(log)
    damaged = [name for name in whole if name.endswith(".txnindex")][1]
    Path(log.folder, damaged).write_bytes(whole[damaged][:-5])

    again = reopen(log, clock, clean_shutdown=True)

    assert len(again.aborted_transactions(0, again.log_end_offset)) == 8
    again.close()
    assert {name: data for name, data in files_of(again).items() if name in whole} == whole


def test_an_index_that_cannot_be_read_is_an_error_of_the_storage(clock: ManualClock) -> None:
    disk = SimulatedDisk(clock)
    log = create("", clock, disk=disk)
    abort_one(log)
    put_to_sleep(log)
    disk.fail("pread", errno.EIO)
    assert refused(lambda: log.aborted_transactions(0, 2)) is Error.KAFKA_STORAGE_ERROR
    disk.heal()
    assert log.aborted_transactions(0, 2) == [(1, 0, 1, 2)]


def test_an_index_that_cannot_be_written_does_not_fail_the_abort(clock: ManualClock) -> None:
    disk = SimulatedDisk(clock)
    log = create("", clock, disk=disk)
    for number in range(200):
        if number == 100:
            disk.fail("open", errno.EMFILE)
        abort_one(log)
    assert refused(log.flush) is Error.KAFKA_STORAGE_ERROR
    disk.heal()
    log.flush()
    assert disk.size(f"/t-0/{TXN_INDEX}") == 200 * 34
    assert len(log.aborted_transactions(0, log.log_end_offset)) == 200


def test_truncation_takes_aborted_transactions_back(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=600))
    for _ in range(8):
        abort_one(log)
    for end_offset in (11, 6, 3, 0):
        log.truncate_to(end_offset)
        log.reload_producers()
        assert len(log.aborted_transactions(0, 100)) == end_offset // 2
        assert stable_offset(log) == end_offset - end_offset % 2
    abort_one(log)
    assert log.aborted_transactions(0, 100) == [(1, 0, 1, 2)]


def test_a_range_comes_with_what_was_aborted_in_it_as_far_as_the_index_tells(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=4000, index_interval_bytes=300))
    for _ in range(60):
        abort_one(log)
    for is_asleep in (False, True):
        if is_asleep:
            put_to_sleep(log)
        for offset in range(0, log.log_end_offset, 7):
            found = log.read(offset, 500, log.end_position, whole_first_batch=True)
            assert found is not None
            batches = log.segments.disk.pread(found.file.fd, found.length, found.position)
            last_offset = max(header.last_offset for _, header in iter_headers(batches))
            told = log.aborted_in(found, offset)
            needed = [txn for txn in log.aborted_transactions(0, 1000) if offset <= txn.last_offset]
            assert told == needed[: len(told)]
            assert len(told) < 12
            assert told[-1].last_stable_offset > last_offset or told == needed


def test_retention_forgets_what_was_aborted_in_the_segments_that_go(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=300, retention_bytes=300))
    for _ in range(10):
        abort_one(log)
    log.apply_retention(log.log_end_offset)
    start = log.log_start_offset
    assert start > 10
    assert [txn.last_offset for txn in log.aborted_transactions(start, 100)] == list(range(start | 1, 20, 2))


def test_ended_transactions_are_forgotten_once_the_high_watermark_has_passed(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = create(tmp_path, clock)
    log.append_as_leader(batch(b"x"), 0)
    write(log, 1, 0)
    end(log, 1)
    assert log.last_stable_offset(1) == 1
    assert log.last_stable_offset(2) == 1
    assert log.last_stable_offset(3) == 3
    assert log.producers.first_unstable_offset() is None


def test_readers_stop_at_the_earliest_of_the_ended_transactions_whichever_ended_first(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = create(tmp_path, clock)
    write(log, 1, 0)
    write(log, 2, 0)
    end(log, 2)
    end(log, 1)
    assert log.last_stable_offset(2) == 0
    assert log.last_stable_offset(3) == 0, "the marker of the first is not replicated yet"
    assert log.last_stable_offset(4) == 4


def test_an_ended_transaction_that_a_truncation_leaves_is_held_back_as_before(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = create(tmp_path, clock)
    write(log, 1, 0)
    end(log, 1)
    log.roll(2)
    for sequence in (1, 2):
        write(log, 1, sequence)
    log.truncate_to(3)
    log.reload_producers()
    assert log.last_stable_offset(1) == 0, "the snapshot of the second segment does not know of it"
    assert log.last_stable_offset(2) == 2


def test_the_first_open_transaction_is_found_in_old_segments_too(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=300))
    log.append_as_leader(batch(b"x"), 0)
    write(log, 1, 0)
    for _ in range(10):
        log.append_as_leader(batch(b"more"), 0)
    position = log.last_stable_position(log.end_position)
    assert position == log.position_of(1)
    found = log.read(0, 10_000, position, whole_first_batch=True)
    assert found is not None
    assert (found.position, found.length) == (0, position.position)
    assert log.read(1, 10_000, position, whole_first_batch=True) is None
