"""The record batch of magic 2: the unit that producers send, logs store and consumers fetch.

A broker reads only its 61-byte header. The CRC covers everything from the attributes on, so the offset and the leader
epoch can be written into a batch without recomputing it.

    0  base offset            int64
    8  length                 int32, of what follows
    12 partition leader epoch int32
    16 magic                  int8
    17 CRC-32C                uint32
    21 attributes             int16: codec (bits 0-2), log-append time (3), transactional (4), control (5),
                                     delete horizon (6)
    23 last offset delta      int32
    27 base timestamp         int64, or the delete horizon
    35 max timestamp          int64
    43 producer id            int64
    51 producer epoch         int16
    53 base sequence          int32
    57 record count           int32
    61 records
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.checksum import crc32c
from barnabas.protocol.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress
from barnabas.protocol.errors import DecodeError, EncodeError
from barnabas.protocol.record import (
    NO_TIMESTAMP,
    Record,
    decode_section,
    encode_records,
    offset_deltas,
    plain_record,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.protocol.varint import Buffer

HEADER_SIZE = 61
MAGIC = 2

LENGTH_AT = 8
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35

LENGTH_OVERHEAD = 12
"""The base offset and the length field itself, which the length does not include."""

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40
KNOWN_ATTRIBUTES = 0x7F

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

HEADER = struct.Struct(">qiibIhiqqqhii")
_UNCOVERED = struct.Struct(">qiibI")
_COVERED = struct.Struct(">hiqqqhii")
"""The two halves of the header: what the checksum does not cover, and what it does."""
_CRC = struct.Struct(">I")
assert HEADER.size == HEADER_SIZE
assert _UNCOVERED.size == ATTRIBUTES_AT
assert ATTRIBUTES_AT + _COVERED.size == HEADER_SIZE


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes."""
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """Raises DecodeError if the attributes name a codec that does not exist."""
        number = self.attributes & CODEC_MASK
        if number > Codec.ZSTD:
            raise DecodeError(f"unknown compression codec {number}")
        return Codec(number)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType(bool(self.attributes & LOG_APPEND_TIME_FLAG))

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the tombstones of this batch may be removed, once the cleaner has decided."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap around to 0 after 2^31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def read_header(data: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`. Nothing is validated except that there are enough bytes."""
    try:
        return BatchHeader._make(HEADER.unpack_from(data, pos))
    except struct.error:
        raise DecodeError(f"a batch header needs {HEADER_SIZE} bytes, but {max(0, len(data) - pos)} are left") from None


def iter_headers(data: Buffer, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """The position and header of each complete batch. A batch cut off at the end, as in a fetch, is left out."""
    end = len(data)
    while end - pos >= HEADER_SIZE:
        header = read_header(data, pos)
        if header.magic != MAGIC:
            raise DecodeError(f"the batch at byte {pos} has magic {header.magic}, but only {MAGIC} is supported")
        if header.size < HEADER_SIZE:
            raise DecodeError(f"the batch at byte {pos} claims a length of {header.length} bytes")
        if header.size > end - pos:
            return
        yield pos, header
        pos += header.size


def crc_is_valid(data: Buffer, pos: int, size: int) -> bool:
    """Whether the complete batch of `size` bytes at `pos` matches the CRC in its header."""
    (expected,) = _CRC.unpack_from(data, pos + CRC_AT)
    computed: int = crc32c(memoryview(data)[pos + ATTRIBUTES_AT : pos + size])
    return bool(expected == computed)


def checked_header(batch: Buffer, pos: int) -> BatchHeader:
    """The header of a batch that is there as a whole; DecodeError if it is not, or is of another magic."""
    header = read_header(batch, pos)
    if header.magic != MAGIC:
        raise DecodeError(f"the batch has magic {header.magic}, but only {MAGIC} is supported")
    if header.size < HEADER_SIZE or header.size > len(batch) - pos:
        raise DecodeError(f"the batch claims a length of {header.length} bytes, but {len(batch) - pos} are left")
    return header


def decode_records(batch: Buffer, pos: int = 0, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """The records of the batch at `pos`, decompressed to at most `max_bytes`.

    Offsets are absolute, and timestamps are those that consumers see. Does not check the CRC (see `crc_is_valid`);
    raises DecodeError if anything else is wrong with the batch.
    """
    header = checked_header(batch, pos)
    section = decompress(header.codec, memoryview(batch)[pos + HEADER_SIZE : pos + header.size], max_bytes)
    records = decode_section(section, header.record_count, header.base_offset, header.base_timestamp)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return [record._replace(timestamp=header.max_timestamp) for record in records]
    return records


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    codec: Codec = Codec.NONE,
    compression_level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time: bool = False,
    last_offset_delta: int | None = None,
) -> bytes:
    """A batch of these records.

    With `log_append_time`, the largest timestamp of the records becomes that of all of them. Pass `last_offset_delta`
    if records at the end have been compacted away; it is required for a batch without records.
    """
    deltas = offset_deltas(records, base_offset)
    last_delta = deltas[-1] if deltas else -1
    if last_offset_delta is None:
        last_offset_delta = last_delta
    if last_offset_delta < max(0, last_delta):
        raise EncodeError(
            f"a last offset delta of {last_offset_delta} does not cover the batch's {len(records)} records"
        )
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    attributes = (
        codec
        | LOG_APPEND_TIME_FLAG * log_append_time
        | TRANSACTIONAL_FLAG * is_transactional
        | CONTROL_FLAG * is_control
    )
    body = compress(codec, encode_records(records, deltas, base_timestamp), compression_level)
    covered = _COVERED.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max((record.timestamp for record in records), default=NO_TIMESTAMP),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return _with_checksum(base_offset, leader_epoch, covered + body)


def build_plain_batch(
    pairs: Sequence[tuple[bytes | None, bytes | None]],
    timestamp: int,
    *,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> bytearray:
    """A batch of keys and values with a single timestamp, without headers or compression. This is what coordinators
    write, at a third of the cost of `build_batch`; the log changes it (`append_as_coordinator`)."""
    count = len(pairs)
    header = _COVERED.pack(
        TRANSACTIONAL_FLAG * is_transactional,
        count - 1,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    records = [plain_record(delta, key, value) for delta, (key, value) in enumerate(pairs)]
    return bytearray(_with_checksum(0, NO_LEADER_EPOCH, b"".join((header, *records))))


def assemble_batch(header: BatchHeader, records: Buffer) -> bytes:
    """A batch of records that are encoded, and compressed, already. Length and checksum are put in."""
    _, _, leader_epoch, _, _, *covered = header
    return _with_checksum(header.base_offset, leader_epoch, _COVERED.pack(*covered) + bytes(records))


def _with_checksum(base_offset: int, leader_epoch: int, covered: bytes | bytearray) -> bytes:
    """Prepends the first half of the header to `covered`, which is everything from the attributes on."""
    length = ATTRIBUTES_AT - LENGTH_OVERHEAD + len(covered)
    return _UNCOVERED.pack(base_offset, length, leader_epoch, MAGIC, crc32c(covered)) + covered
