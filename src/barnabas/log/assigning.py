"""What a log writes into a client's batch: its offset, its leader epoch and, where the topic says so, the time.

Offset and epoch lie before what the checksum covers. Log-append time is the one change that needs a new checksum.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from crc32c import crc32c

from barnabas.protocol.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
)

if TYPE_CHECKING:
    from barnabas.log.validation import HeaderFields
    from barnabas.protocol.varint import Buffer

ASSIGNED = Struct(">qii")
"""Base offset, length and leader epoch, which begin a batch."""
_INT16 = Struct(">h")
_INT64 = Struct(">q")
_UINT32 = Struct(">I")


def assigned_batch(
    batch: memoryview, fields: HeaderFields, base_offset: int, leader_epoch: int, stamp_ms: int
) -> tuple[Buffer, Buffer]:
    """The batch in two pieces, of which the second is the client's own. `stamp_ms` is the log-append time, or -1."""
    length, attributes, max_ms = fields[1], fields[5], fields[8]
    size = length + LENGTH_OVERHEAD
    assigned = ASSIGNED.pack(base_offset, length, leader_epoch)
    if stamp_ms >= 0:
        head = _stamped(batch[:size], assigned, attributes | LOG_APPEND_TIME_FLAG, stamp_ms)
    elif attributes & LOG_APPEND_TIME_FLAG:
        head = _stamped(batch[:size], assigned, attributes & ~LOG_APPEND_TIME_FLAG, max_ms)
    else:
        return assigned, batch[MAGIC_AT:size]
    return head, batch[HEADER_SIZE:size]


def _stamped(batch: memoryview, assigned: bytes, attributes: int, max_ms: int) -> bytearray:
    """The header with another timestamp type and largest timestamp, and the checksum that this needs."""
    head = bytearray(batch[:HEADER_SIZE])
    head[:MAGIC_AT] = assigned
    _INT16.pack_into(head, ATTRIBUTES_AT, attributes)
    _INT64.pack_into(head, MAX_TIMESTAMP_AT, max_ms)
    _UINT32.pack_into(head, CRC_AT, crc32c(batch[HEADER_SIZE:], crc32c(memoryview(head)[ATTRIBUTES_AT:])))
    return head
