"""End-of-transaction markers: control batches of one record, which commit or abort what a producer wrote before them.

A marker has the producer's id and epoch, no sequence, and no offset of a client's: readers are given it, and pass it
over once they know what it says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.positions import Appended
from barnabas.log.validation import LOG_APPEND_TIME
from barnabas.protocol.batch import build_batch
from barnabas.protocol.control_records import ControlRecordType, encode_end_transaction
from barnabas.protocol.record import Record

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog


class EndMarker(NamedTuple):
    """What a transaction coordinator wants written to a partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int


def append_marker(log: PartitionLog, marker: EndMarker, leader_epoch: int) -> Appended:
    """Writes the marker to the end of the log, and all that follows from it. A marker of a transaction that wrote
    nothing here is written too: it fences older epochs of the producer."""
    log.producers.check_marker(
        marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_version
    )
    now_ms = log.clock.now_ms()
    offset = log.log_end_offset
    is_stamped = log.config.message_timestamp_type == LOG_APPEND_TIME
    batch = build_marker(marker, offset, leader_epoch, now_ms, log_append_time=is_stamped)
    log.write((batch,), len(batch), offset, now_ms, now_ms, leader_epoch)
    log.producers.end_verification(marker.producer_id, marker.producer_epoch, marker.transaction_version)
    completed = log.producers.end_txn(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        offset,
        now_ms,
        is_aborted=not marker.is_commit,
    )
    if completed is not None and completed.is_aborted:
        segments = log.segments
        segments.aborted_txns.add(segments.active.base_offset, log.producers.aborted_txn(completed))
    return Appended(offset, offset, now_ms if is_stamped else -1, log.log_start_offset, False)


def build_marker(
    marker: EndMarker, base_offset: int, leader_epoch: int, now_ms: int, *, log_append_time: bool
) -> bytes:
    """The batch as it is written to the log."""
    kind = ControlRecordType.COMMIT if marker.is_commit else ControlRecordType.ABORT
    key, value = encode_end_transaction(kind, marker.coordinator_epoch)
    return build_batch(
        [Record(key=key, value=value, timestamp=now_ms, offset=base_offset)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_transactional=True,
        is_control=True,
        log_append_time=log_append_time,
    )
