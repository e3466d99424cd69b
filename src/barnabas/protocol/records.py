"""The records of a batch: decompressed, with absolute offsets and the timestamps that count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.batch import HEADER_SIZE, MAGIC, TimestampType, read_header
from barnabas.protocol.compression import DECOMPRESSED_BYTES_MAX, decompress
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.record import Record, decode_section

if TYPE_CHECKING:
    from barnabas.protocol.varint import Buffer

__all__ = ["Record", "decode_records"]


def decode_records(batch: Buffer, pos: int = 0, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """The records of the batch at `pos`, decompressed to at most `max_bytes`.

    The CRC is left to `batch.crc_is_valid`; whatever else is wrong with the batch is a DecodeError.
    """
    header = read_header(batch, pos)
    if header.magic != MAGIC:
        raise DecodeError(f"the batch has magic {header.magic}, only {MAGIC} is supported")
    if header.size < HEADER_SIZE or header.size > len(batch) - pos:
        raise DecodeError(f"the batch claims a length of {header.length} bytes, {len(batch) - pos} are there")
    section = decompress(header.codec, memoryview(batch)[pos + HEADER_SIZE : pos + header.size], max_bytes)
    records = decode_section(section, header.record_count, header.base_offset, header.base_timestamp)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return [record._replace(timestamp=header.max_timestamp) for record in records]
    return records
