"""Batches that bring their offsets and leader epochs along: what a follower copies, and what a Raft log appends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.log.positions import Appended
from barnabas.log.replay import replay_batch
from barnabas.log.segment import RecentBatches
from barnabas.log.validation import check_assigned_batches

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog
    from barnabas.protocol.batch import BatchHeader


def append_assigned(log: PartitionLog, batches: memoryview) -> Appended | None:
    """Appends whole batches as they are, in one write where they fit into one segment."""
    headers = check_assigned_batches(batches, log.log_end_offset, log.name)
    if not headers:
        return None
    (start, first), (last_start, last) = headers[0], headers[-1]
    size = last_start + last.size - start
    if size > log.config.segment_bytes and len(headers) > 1:
        for position, header in headers:
            append_assigned(log, batches[position : position + header.size])
        return Appended(first.base_offset, last.last_offset, -1, log.log_start_offset, False)
    for _, header in headers:
        if header.partition_leader_epoch >= 0:
            log.epochs.assign(header.partition_leader_epoch, header.base_offset)
    log.save_epochs()
    newest_ms = max(header.max_timestamp for _, header in headers)
    if log.segments.must_roll(size, last.last_offset, newest_ms, log.clock.now_ms()):
        log.roll(first.base_offset)
    log.is_used = True
    written_at = log.segments.write((batches[start : start + size],), size)
    for position, header in headers:
        _take(log, header, written_at + position - start, batches[position : position + header.size])
    return Appended(first.base_offset, last.last_offset, -1, log.log_start_offset, False)


def _take(log: PartitionLog, header: BatchHeader, position: int, batch: memoryview) -> None:
    """A batch was written: everything that follows from it."""
    segments = log.segments
    if header.base_offset != log.log_end_offset:
        # Readers of an offset in the gap must not be led to the batch before it.
        segments.active.recent = RecentBatches()
    segments.index_batch(header.base_offset, header.last_offset, position, header.size, header.max_timestamp)
    log.log_end_offset = header.next_offset
    aborted = replay_batch(log.producers, header, batch)
    if aborted is not None:
        segments.aborted_txns.add(segments.active.base_offset, aborted)
