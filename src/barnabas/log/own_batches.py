"""Batches that a coordinator of this node has made: there is nothing to judge in them that their maker has not."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from barnabas.log.assigning import ASSIGNED
from barnabas.log.producer_state import BY_COORDINATOR
from barnabas.log.validation import LOG_APPEND_TIME
from barnabas.protocol.batch import ATTRIBUTES_AT, LENGTH_OVERHEAD, MAGIC_AT

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog

_FIELDS = Struct(">2xi8xqq")
"""From the attributes on: these, last offset delta, base timestamp, largest timestamp, producer id."""


def append_own(log: PartitionLog, batch: bytes, leader_epoch: int) -> int:
    """Writes the batch to the end of the log; its last offset. Raises KafkaError with nothing written.

    A batch of a transaction, one that is too large and one that the log has to stamp go the way of a client's.
    """
    size = len(batch)
    last_delta, max_ms, producer_id = _FIELDS.unpack_from(batch, ATTRIBUTES_AT)
    config = log.segments.config
    if producer_id >= 0 or size > config.max_message_bytes or config.message_timestamp_type == LOG_APPEND_TIME:
        return log.append_as_leader(memoryview(batch), leader_epoch, BY_COORDINATOR).last_offset
    base_offset = log.log_end_offset
    last_offset: int = base_offset + last_delta
    assigned = ASSIGNED.pack(base_offset, size - LENGTH_OVERHEAD, leader_epoch)
    log.write((assigned, memoryview(batch)[MAGIC_AT:]), size, last_offset, max_ms, max_ms, leader_epoch)
    return last_offset
