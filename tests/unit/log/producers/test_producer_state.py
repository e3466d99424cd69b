"""Idempotent producers: what is new, what is repeated, what is missing. As Apache Kafka 4.3.1 answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.config.topic_config import TopicConfig
from barnabas.log.producers.producer_snapshot import CorruptSnapshotError, decode_snapshot, encode_snapshot
from barnabas.log.producers.producer_state import (
    NOT_NEEDED,
    SEQUENCE_MAX,
    ProducerEntry,
    ProducerState,
    RememberedBatch,
)
from barnabas.protocol.batch import build_batch
from barnabas.protocol.checksum import crc32c
from barnabas.protocol.control_records import ControlRecordType, encode_end_transaction
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.record import Record
from tests.unit.log.logs import batch, create, files_of, idempotent, reopen

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.log.partition_log import PartitionLog
    from barnabas.testing.clock import ManualClock

DAY_MS = 86_400_000


def append(log: PartitionLog, *, epoch: int = 0, sequence: int, count: int = 1, producer_id: int = 100) -> int | Error:
    """The offset that the batch got, now or earlier, or the error."""
    try:
        return log.append_as_leader(idempotent(producer_id, epoch, sequence, count), 0).base_offset
    except KafkaError as refused:
        return refused.error


def test_the_conversation_that_kafka_has_with_a_producer(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    gap = Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, sequence=0) == 0
    assert append(log, sequence=1, count=3) == 1
    assert append(log, sequence=1, count=3) == 1, "repeated"
    assert append(log, sequence=0) == 0, "repeated"
    assert append(log, sequence=1, count=2) is gap, "begins like a batch that was larger"
    assert append(log, sequence=6) is gap
    assert [append(log, sequence=number) for number in (4, 5, 6, 7)] == [4, 5, 6, 7]
    assert append(log, sequence=0) is gap, "repeated, but longer ago than five batches"
    assert append(log, sequence=4) == 4, "repeated"
    assert append(log, epoch=1, sequence=5) is gap, "a new epoch begins with 0"
    assert append(log, epoch=1, sequence=0) == 8
    assert append(log, epoch=0, sequence=8) is Error.INVALID_PRODUCER_EPOCH
    assert append(log, epoch=1, sequence=1) == 9
    assert log.log_end_offset == 10


def test_an_unknown_producer_may_begin_with_any_sequence(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    assert append(log, epoch=3, sequence=77) == 0
    assert append(log, epoch=3, sequence=78) == 1


def test_sequences_wrap_around_to_zero(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    assert append(log, sequence=SEQUENCE_MAX - 2, count=2) == 0
    assert append(log, sequence=SEQUENCE_MAX, count=3) == 2, "its last sequence is 1"
    assert append(log, sequence=2) == 5
    assert append(log, sequence=SEQUENCE_MAX, count=3) == 2, "repeated"


def test_a_repeated_batch_is_answered_with_the_first_ones_offsets_and_timestamp(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = create(tmp_path, clock)
    first = log.append_as_leader(idempotent(1, 0, 0, 2, timestamp=clock.now_ms()), 0)
    assert not first.is_duplicate
    log.append_as_leader(batch(b"another"), 0)
    again = log.append_as_leader(idempotent(1, 0, 0, 2, timestamp=clock.now_ms()), 0)
    assert again == (0, 1, clock.now_ms(), 0, True)
    assert log.log_end_offset == 3


@pytest.mark.parametrize("clean_shutdown", [True, False])
def test_producers_survive_a_restart(tmp_path: Path, clock: ManualClock, clean_shutdown: bool) -> None:
    log = create(tmp_path, clock)
    for sequence in range(8):
        append(log, sequence=sequence)
    append(log, producer_id=200, epoch=4, sequence=17, count=3)
    if clean_shutdown:
        log.close()

    log = reopen(log, clock, clean_shutdown=clean_shutdown)

    assert [append(log, sequence=sequence) for sequence in range(3, 8)] == [3, 4, 5, 6, 7], "repeated"
    assert append(log, sequence=2) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, sequence=9) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, sequence=8) == 11
    assert append(log, producer_id=200, epoch=4, sequence=17, count=3) == 8, "repeated"
    assert append(log, producer_id=200, epoch=3, sequence=20) is Error.INVALID_PRODUCER_EPOCH


def test_a_roll_writes_a_snapshot_and_a_restart_replays_only_what_follows_it(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=400))
    for sequence in range(20):
        append(log, sequence=sequence)
    bases = [segment.base_offset for segment in log.segments.all]
    names = [name for name in files_of(log) if name.endswith(".snapshot")]
    assert names == [f"{base:020d}.snapshot" for base in bases[1:]]

    log = reopen(log, clock, clean_shutdown=False, recovery_point=log.log_end_offset)
    assert append(log, sequence=19) == 19, "repeated"
    assert append(log, sequence=20) == 20


def test_a_broken_snapshot_is_passed_over(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=400))
    for sequence in range(20):
        append(log, sequence=sequence)
    log.close()
    for name in files_of(log):
        if name.endswith(".snapshot"):
            path = tmp_path / "t-0" / name
            path.write_bytes(path.read_bytes()[:-1] + b"\xff")

    log = reopen(log, clock, clean_shutdown=True)

    assert append(log, sequence=19) == 19, "repeated"
    assert append(log, sequence=20) == 20


def test_stray_snapshots_go_and_those_of_segments_stay(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=400))
    for run in range(3):
        for sequence in range(run * 5, run * 5 + 5):
            append(log, sequence=sequence)
        log.close()
        log = reopen(log, clock, clean_shutdown=True)
    kept = {int(name[:20]) for name in files_of(log) if name.endswith(".snapshot")}
    assert kept == {segment.base_offset for segment in log.segments.all[1:]} | {log.log_end_offset}


def test_producers_expire_unless_they_have_a_transaction_open(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    append(log, producer_id=1, sequence=5)
    log.append_as_leader(idempotent(2, 0, 0, is_transactional=True), 0, NOT_NEEDED)
    clock.advance_ms(DAY_MS)
    assert log.expire_producers() == 1
    assert list(log.producers.producers) == [2]
    assert append(log, producer_id=1, sequence=99) == 2


def test_truncation_takes_producers_back(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=400))
    for sequence in range(12):
        append(log, sequence=sequence)
    log.truncate_to(7)
    log.reload_producers()
    assert append(log, sequence=12) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, sequence=7) == 7


def test_a_reload_that_another_truncation_overtakes_counts_for_nothing(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=400))
    for sequence in range(12):
        append(log, sequence=sequence)
    log.truncate_to(9)
    too_early = log.prepare_reload()
    assert too_early is not None
    log.truncate_to(7)
    log.reloaded(too_early, too_early.run())
    log.reload_producers()
    late = too_early.run()
    assert append(log, sequence=7) == 7
    log.reloaded(too_early, late)
    assert append(log, sequence=8) == 8, "what was written since is known"
    assert log.prepare_reload() is None


def test_a_log_that_is_closed_after_a_truncation_knows_what_is_left(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(segment_bytes=400))
    for sequence in range(12):
        append(log, sequence=sequence)
    log.truncate_to(7)
    log.close()
    log = reopen(log, clock, clean_shutdown=True)
    assert append(log, sequence=12) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, sequence=6) == 6, "repeated"
    assert append(log, sequence=7) == 7


def marker(
    offset: int, producer_id: int, kind: ControlRecordType, epoch: int = 0, coordinator_epoch: int = 3
) -> memoryview:
    key, value = encode_end_transaction(kind, coordinator_epoch)
    data = build_batch(
        [Record(key=key, value=value, timestamp=1_700_000_000_000)],
        base_offset=offset,
        leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=epoch,
        is_transactional=True,
        is_control=True,
    )
    return memoryview(data)


def transactional(offset: int, producer_id: int, sequence: int) -> memoryview:
    return idempotent(producer_id, 0, sequence, is_transactional=True, base_offset=offset, leader_epoch=0)


def test_open_transactions_hold_the_last_stable_offset_and_aborted_ones_are_listed(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = create(tmp_path, clock)
    log.append_at(batch(b"x", base_offset=0, leader_epoch=0))
    log.append_at(transactional(1, 10, 0))
    log.append_at(transactional(2, 20, 0))
    assert log.last_stable_position(log.end_position).offset == 1

    log.append_at(marker(3, 10, ControlRecordType.ABORT))
    assert log.last_stable_position(log.end_position).offset == 2
    assert log.aborted_transactions(0, 4) == [(10, 1, 3, 2)]

    log.append_at(marker(4, 20, ControlRecordType.COMMIT))
    assert log.last_stable_position(log.end_position) == log.end_position
    assert log.aborted_transactions(0, 5) == [(10, 1, 3, 2)]
    assert log.aborted_transactions(4, 5) == []
    assert log.producers.producers[10].coordinator_epoch == 3

    again = reopen(log, clock, clean_shutdown=False)
    assert again.aborted_transactions(0, 5) == [(10, 1, 3, 2)]
    assert again.last_stable_position(again.end_position) == again.end_position


def test_an_ended_transaction_is_stable_only_below_the_high_watermark(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    log.append_at(transactional(0, 10, 0))
    log.append_at(marker(1, 10, ControlRecordType.COMMIT))
    below_marker = log.position_of(1)
    assert log.last_stable_position(below_marker).offset == 0
    assert log.last_stable_position(log.end_position).offset == 2


def test_a_producer_with_an_open_transaction_must_not_write_outside_of_it(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    log.append_as_leader(idempotent(2, 0, 0, is_transactional=True), 0, NOT_NEEDED)
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(idempotent(2, 0, 1), 0)
    assert refused.value.error is Error.INVALID_TXN_STATE


def entry(**fields: int) -> ProducerEntry:
    made = ProducerEntry()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


KAFKAS_SNAPSHOT = bytes.fromhex(
    "0001f7aa9d7f00000002"
    "0000000000000000000000001387000000000000138700000062000001a1e167a086ffffffffffffffffffffffff"
    "0000000000000001000000000003000000000000138e00000000000001a1e167a99000000000ffffffffffffffff"
)
"""Written by Apache Kafka 4.3.1: an idempotent producer, and one whose transaction has ended."""


def test_a_snapshot_of_kafkas_reads_and_writes_the_same() -> None:
    producers = dict(decode_snapshot(KAFKAS_SNAPSHOT))
    assert producers[0].batches == [(4901, 4999, 4901, 4999, 1_794_783_027_334)]
    assert producers[1].coordinator_epoch == 0
    assert encode_snapshot(producers) == KAFKAS_SNAPSHOT


def test_a_snapshot_reads_back() -> None:
    wrapped = entry(epoch=0, last_timestamp=50)
    wrapped.batches += [
        RememberedBatch(SEQUENCE_MAX - 4, SEQUENCE_MAX - 4, 3, 3, 20),
        RememberedBatch(SEQUENCE_MAX - 3, SEQUENCE_MAX - 1, 7, 9, 40),
        RememberedBatch(SEQUENCE_MAX, 1, 10, 12, 50),
    ]
    marked = entry(epoch=1, coordinator_epoch=9, last_timestamp=60)
    open_txn = entry(epoch=1, last_timestamp=70, txn_first_offset=33)
    read = dict(decode_snapshot(encode_snapshot({1: wrapped, 2: marked, 3: open_txn})))
    assert read[1].batches == wrapped.batches
    assert (read[2].coordinator_epoch, read[2].batches) == (9, [])
    state = ProducerState("t-0")
    state.restore(read.items(), 40)
    assert state.first_unstable_offset() == 33


def with_checksum(body: bytes) -> bytes:
    return b"\0\1" + crc32c(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    "damage", ["empty", "cut", "flipped", "version", "count", "earlier batch cut", "batch of nobody", "negative count"]
)
def test_a_damaged_snapshot_is_recognised(damage: str) -> None:
    good = encode_snapshot({1: entry(epoch=0)})
    bad = {
        "earlier batch cut": with_checksum(good[6:] + bytes(39)),
        "batch of nobody": with_checksum(good[6:] + bytes(40)),
        "negative count": with_checksum(b"\xff" * 4),
        "empty": b"",
        "cut": good[:-1],
        "flipped": good[:-1] + bytes([good[-1] ^ 1]),
        "version": b"\0\2" + good[2:],
        "count": good[:9] + b"\2" + good[10:],
    }[damage]
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(bad)
