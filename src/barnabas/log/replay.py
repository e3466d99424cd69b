"""What a batch that is already in a log says of its producer: used where batches are taken over, not checked.

Followers, recovery and the loading of producer state go through here. Only an end-of-transaction marker has to be
opened for it; every other batch is judged by its header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol import messages
from barnabas.protocol.control_records import ControlRecordType, decode_control_record
from barnabas.protocol.records import decode_records

if TYPE_CHECKING:
    from barnabas.log.aborted_txns import AbortedTxn
    from barnabas.log.producer_state import ProducerState
    from barnabas.protocol.batch import BatchHeader


def replay_batch(producers: ProducerState, header: BatchHeader, batch: memoryview) -> AbortedTxn | None:
    """Brings the producers up to date with a batch. Returns the transaction that it aborts, if it does."""
    if header.producer_id < 0:
        return None
    if header.is_control:
        return _replay_marker(producers, header, batch)
    entry = producers.append(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
    )
    if header.is_transactional:
        producers.begin_txn(header.producer_id, entry, header.base_offset)
    return None


def _replay_marker(producers: ProducerState, header: BatchHeader, batch: memoryview) -> AbortedTxn | None:
    """A marker that compaction has emptied says nothing: its transaction is gone from the log."""
    for record in decode_records(batch):
        kind, marker = decode_control_record(record.key or b"", record.value or b"")
        if not isinstance(marker, messages.EndTxnMarker):
            continue
        producers.forget_verification(header.producer_id)
        completed = producers.end_txn(
            header.producer_id,
            header.producer_epoch,
            marker.coordinator_epoch,
            header.base_offset,
            record.timestamp,
            is_aborted=kind is ControlRecordType.ABORT,
        )
        if completed is not None and completed.is_aborted:
            return producers.aborted_txn(completed)
    return None
