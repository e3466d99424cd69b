"""Log-append time: the one change to a batch that needs a new checksum."""

from __future__ import annotations

from struct import Struct

from crc32c import crc32c

from barnabas.protocol.batch import ATTRIBUTES_AT, CRC_AT, HEADER_SIZE, MAGIC_AT, MAX_TIMESTAMP_AT

_INT16 = Struct(">h")
_INT64 = Struct(">q")
_UINT32 = Struct(">I")


def stamped_head(batch: memoryview, assigned: bytes, attributes: int, max_ms: int) -> bytearray:
    """The header with another timestamp type and largest timestamp, and the checksum that this needs."""
    head = bytearray(batch[:HEADER_SIZE])
    head[:MAGIC_AT] = assigned
    _INT16.pack_into(head, ATTRIBUTES_AT, attributes)
    _INT64.pack_into(head, MAX_TIMESTAMP_AT, max_ms)
    _UINT32.pack_into(head, CRC_AT, crc32c(batch[HEADER_SIZE:], crc32c(memoryview(head)[ATTRIBUTES_AT:])))
    return head
