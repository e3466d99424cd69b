"""Record batches made by hand, so that every field of the header can also be wrong.

Written apart from the product's own builder: what the two agree on is not one mistake made twice.
"""

from __future__ import annotations

import gzip
import struct
import time
import zlib
from typing import TYPE_CHECKING, NamedTuple

import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADER = struct.Struct(">qiibIhiqqqhii")
LENGTH_POSITION = 8
CRC_POSITION = 17
CRC_START = 21

GZIP, ZSTD = 1, 4
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20


def batch(
    values: Sequence[bytes | None] = (b"value",),
    *,
    key: bytes | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    magic: int = 2,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    timestamp_ms: int | None = None,
    max_timestamp_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    count: int | None = None,
    length: int | None = None,
    crc: int | None = None,
    records: bytes | None = None,
    offset_deltas: Sequence[int] | None = None,
) -> bytes:
    """A batch of these values; whatever else is given replaces what would be right."""
    if timestamp_ms is None:
        timestamp_ms = int(time.time() * 1000)
    if records is None:
        deltas = range(len(values)) if offset_deltas is None else offset_deltas
        records = b"".join(record(delta, key, value) for delta, value in zip(deltas, values, strict=True))
    if attributes & 7 == GZIP:
        records = gzip.compress(records)
    head = HEADER.pack(
        base_offset,
        HEADER.size - 12 + len(records) if length is None else length,
        leader_epoch,
        magic,
        0,
        attributes,
        len(values) - 1 if last_offset_delta is None else last_offset_delta,
        timestamp_ms,
        timestamp_ms if max_timestamp_ms is None else max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        len(values) if count is None else count,
    )
    whole = bytearray(head + records)
    struct.pack_into(">I", whole, CRC_POSITION, crc32c.crc32c(whole[CRC_START:]) if crc is None else crc)
    return bytes(whole)


def with_body(data: bytes, body: bytes) -> bytes:
    """The batch with other bytes in place of its records, under a checksum that fits."""
    whole = bytearray(data[: HEADER.size] + body)
    struct.pack_into(">i", whole, LENGTH_POSITION, len(whole) - 12)
    struct.pack_into(">I", whole, CRC_POSITION, crc32c.crc32c(whole[CRC_START:]))
    return bytes(whole)


def legacy_message(magic: int, value: bytes = b"value") -> bytes:
    """A message of the formats before record batches (magic 0 and 1)."""
    body = struct.pack(">bb", magic, 0)
    if magic == 1:
        body += struct.pack(">q", int(time.time() * 1000))
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


class Batch(NamedTuple):
    """A batch as it was received."""

    base_offset: int
    attributes: int
    data: bytes

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


def split(records: bytes | bytearray | memoryview | None) -> list[Batch]:
    """Each whole batch."""
    data, found, position = bytes(records or b""), [], 0
    while position + HEADER.size <= len(data):
        base_offset, length, _, _, _, attributes = HEADER.unpack_from(data, position)[:6]
        if position + 12 + length > len(data):
            break
        found.append(Batch(base_offset, attributes, data[position : position + 12 + length]))
        position += 12 + length
    return found


def base_offsets(records: bytes | bytearray | memoryview | None) -> list[int]:
    """The base offset of each whole batch."""
    return [each.base_offset for each in split(records)]


def record(
    offset_delta: int = 0,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    *,
    timestamp_delta: int = 0,
    headers: Sequence[tuple[bytes | None, bytes | None]] = (),
    length: int | None = None,
) -> bytes:
    """A record, with another length than it has if one is given."""
    body = b"\x00" + _varint(timestamp_delta) + _varint(offset_delta) + _sized(key) + _sized(value)
    body += _varint(len(headers)) + b"".join(_sized(name) + _sized(data) for name, data in headers)
    return _varint(len(body) if length is None else length) + body


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)
