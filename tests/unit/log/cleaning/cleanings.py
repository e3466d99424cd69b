"""Compacted logs for tests, and a cleaner without a worker process: the same steps, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.config.topic_config import TopicConfig
from barnabas.log.append_batches import EndMarker
from barnabas.log.cleaning.log_cleaning import CleanedSegment, CleaningDone, clean_log
from barnabas.log.cleaning.swap import CleaningLimits
from barnabas.log.producers.producer_state import NOT_NEEDED, next_sequence
from barnabas.protocol.batch import build_batch, decode_records, iter_headers
from barnabas.protocol.compression import Codec
from barnabas.protocol.control_records import ControlRecordType, decode_key
from barnabas.protocol.record import Record
from tests.unit.log.logs import read_bytes, read_records

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog
    from barnabas.protocol.batch import BatchHeader

COMPACTED = TopicConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0, delete_retention_ms=1_000)
LIMITS = CleaningLimits(map_bytes=1 << 20, map_load_factor=0.9, step_bytes=1 << 20)

Pair = tuple[bytes | None, bytes | None]


def put(
    log: PartitionLog,
    *pairs: Pair,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    epoch: int = -1,
    is_transactional: bool = False,
) -> int:
    """Appends a batch of keys and values, with the next sequence of its producer; returns its base offset."""
    now_ms = log.clock.now_ms()
    known = log.active_producers.get(producer_id)
    sequence = -1 if producer_id < 0 else 0
    if known is not None and known.batches and known.epoch == epoch:
        sequence = next_sequence(known.last_sequence)
    records = [Record(value, key, now_ms + number) for number, (key, value) in enumerate(pairs)]
    batch = build_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    verification = NOT_NEEDED if is_transactional else None
    return log.append_as_leader(memoryview(bytearray(batch)), 0, verification).base_offset


def end_transaction(log: PartitionLog, producer_id: int, epoch: int = 0, *, is_commit: bool) -> int:
    marker = EndMarker(producer_id, epoch, 0, is_commit, 1)
    return log.append_marker(marker, 0).base_offset


def roll(log: PartitionLog) -> None:
    log.roll(log.log_end_offset)


def clean(log: PartitionLog, limits: CleaningLimits = LIMITS) -> CleaningDone:
    """Cleans everything that may be cleaned, with the high watermark at the end of the log."""
    log.high_watermark_moved(log.log_end_offset)
    cleaning = log.begin_cleaning(log.dirt(log.log_end_offset), limits)
    for step in clean_log(log.segments.disk, cleaning.order):
        if isinstance(step, CleanedSegment):
            cleaning = log.swap_in(cleaning, step)
        elif isinstance(step, CleaningDone):
            log.first_dirty_offset = step.end_offset
            return step
    raise AssertionError("the cleaning did not come to its end")


def contents(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record."""
    return [(record.offset, record.key, record.value) for record in read_records(log)]


def batches(log: PartitionLog) -> list[tuple[BatchHeader, bytes]]:
    """Every batch of the log, fetched as a consumer does."""
    found: list[tuple[BatchHeader, bytes]] = []
    offset = log.log_start_offset
    while data := read_bytes(log, offset):
        for position, header in iter_headers(data):
            found.append((header, data[position : position + header.size]))
            offset = header.next_offset
    return found


def committed(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record that a reader of committed data sees, who goes by the list of aborted
    transactions, as clients do."""
    ahead = sorted(log.aborted_transactions(log.log_start_offset, log.log_end_offset), key=lambda txn: txn.first_offset)
    aborted: set[int] = set()
    seen = []
    for header, batch in batches(log):
        while ahead and ahead[0].first_offset <= header.last_offset:
            aborted.add(ahead.pop(0).producer_id)
        if header.is_control:
            for record in decode_records(batch):
                if decode_key(record.key or b"") is ControlRecordType.ABORT:
                    aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            seen += [(record.offset, record.key, record.value) for record in decode_records(batch)]
    return seen
