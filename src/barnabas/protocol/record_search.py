"""Finding one record of a batch by its time, without decoding the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.batch import HEADER_SIZE, TimestampType, checked_header
from barnabas.protocol.compression import DECOMPRESSED_BYTES_MAX, decompressed_beginnings
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.record import read_place

if TYPE_CHECKING:
    from barnabas.protocol.varint import Buffer


def first_at_or_after(
    batch: Buffer, timestamp: int, start_offset: int, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> tuple[int, int] | None:
    """Timestamp and offset of a batch's first record that is not before either of these; None if there is none.

    A batch is opened no further than to that record, and no object is made for the others. It still takes long if there
    are many: bytes go in and numbers come out, so that it can be done wherever that disturbs nobody. DecodeError if the
    batch is damaged before the record.
    """
    header = checked_header(batch, 0)
    has_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    compressed = memoryview(batch)[HEADER_SIZE : header.size]
    number = position = 0
    for section, is_all in decompressed_beginnings(header.codec, compressed, max_bytes):
        while number < header.record_count:
            found = read_place(section, position)
            if found is None:
                break
            timestamp_delta, offset_delta, position = found
            number += 1
            record_timestamp = header.max_timestamp if has_append_time else header.base_timestamp + timestamp_delta
            if record_timestamp >= timestamp and header.base_offset + offset_delta >= start_offset:
                return record_timestamp, header.base_offset + offset_delta
        if is_all and number < header.record_count:
            raise DecodeError(f"record {number} of {header.record_count} is cut short")
    return None
