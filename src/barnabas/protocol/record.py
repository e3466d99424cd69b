"""One record inside a batch of magic 2.

    length          varint, of what follows
    attributes      int8, unused
    timestamp delta varlong, to the batch's base timestamp
    offset delta    varint, to the batch's base offset
    key             varint length (-1: null), bytes
    value           varint length (-1: null), bytes
    headers         varint count, then each: varint length and UTF-8 of the key, varint length (-1: null) and bytes

A broker passes batches on without looking inside. Individual records are read and written for the metadata log and
the coordinators' topics, and by tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from barnabas.protocol.errors import DecodeError, EncodeError
from barnabas.protocol.varint import Buffer, read_varint, read_varlong, varint, write_varint, write_varlong

NO_TIMESTAMP = -1
NO_OFFSET = -1

_ATTRIBUTES_AND_TIMESTAMP_DELTA = bytes(2)
_NULL = varint(-1)
_NO_HEADERS = varint(0)
RECORD_BYTES_MIN = 7
"""Length, attributes, both deltas, key, value and headers take at least one byte each."""

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
"""Names and values in order; a name may occur more than once."""


class Record(NamedTuple):
    """A record with its absolute offset and timestamp. A record that has not been appended yet has no offset."""

    value: bytes | None = None
    key: bytes | None = None
    timestamp: int = NO_TIMESTAMP
    headers: Headers = ()
    offset: int = NO_OFFSET


def offset_deltas(records: Sequence[Record], base_offset: int) -> list[int]:
    """The offset deltas of the records. A record without an offset takes the one after its predecessor's."""
    deltas: list[int] = []
    previous = -1
    for record in records:
        delta = previous + 1 if record.offset == NO_OFFSET else record.offset - base_offset
        if delta <= previous:
            raise EncodeError(f"offset {base_offset + delta} does not follow {base_offset + previous} in its batch")
        deltas.append(delta)
        previous = delta
    return deltas


def encode_records(records: Sequence[Record], deltas: Sequence[int], base_timestamp: int) -> bytes:
    """The bytes of the records in a batch, before compression."""
    out = bytearray()
    body = bytearray()
    for record, delta in zip(records, deltas, strict=True):
        body.clear()
        body.append(0)
        write_varlong(body, record.timestamp - base_timestamp)
        write_varint(body, delta)
        _write_bytes(body, record.key)
        _write_bytes(body, record.value)
        write_varint(body, len(record.headers))
        for name, value in record.headers:
            # A client may have written a name that is not valid UTF-8, which must come out unchanged.
            _write_bytes(body, name.encode("utf-8", "surrogateescape"))
            _write_bytes(body, value)
        write_varint(out, len(body))
        out += body
    return bytes(out)


def plain_record(offset_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    """A record with the batch's base timestamp and no headers, as `encode_records` writes it."""
    key_length = _NULL if key is None else varint(len(key))
    value_length = _NULL if value is None else varint(len(value))
    body = b"".join(
        (
            _ATTRIBUTES_AND_TIMESTAMP_DELTA,
            varint(offset_delta),
            key_length,
            key or b"",
            value_length,
            value or b"",
            _NO_HEADERS,
        )
    )
    return varint(len(body)) + body


def decode_section(data: bytes, count: int, base_offset: int, base_timestamp: int) -> list[Record]:
    """The `count` records that fill `data`, the uncompressed content of a batch after its header."""
    if count < 0 or count * RECORD_BYTES_MIN > len(data):
        raise DecodeError(f"a batch claims {count} records in {len(data)} bytes")
    records: list[Record] = []
    pos = 0
    try:
        for _ in range(count):
            record, pos = _read_record(data, pos, base_offset, base_timestamp)
            records.append(record)
    except IndexError:
        raise DecodeError(f"record {len(records)} of {count} is truncated") from None
    if pos != len(data):
        raise DecodeError(f"{len(data) - pos} bytes are left after the last of {count} records")
    return records


def read_place(data: Buffer, pos: int) -> tuple[int, int, int] | None:
    """Timestamp delta and offset delta of the record at `pos`, and the position behind it; None if the data ends
    before that. The rest of the record is not looked at."""
    try:
        length, pos = _read_varint(data, pos)
        end = pos + length
        if end > len(data):
            return None
        timestamp_delta, pos = _read_varlong(data, pos + 1)
        offset_delta, pos = _read_varint(data, pos)
    except IndexError:
        return None
    if pos > end:
        raise DecodeError(f"a record of {length} bytes has {pos - end} bytes beyond its end")
    return timestamp_delta, offset_delta, end


def _read_record(data: bytes, pos: int, base_offset: int, base_timestamp: int) -> tuple[Record, int]:
    length, pos = _read_varint(data, pos)
    end = pos + length
    if length < 0 or end > len(data):
        raise DecodeError(f"a record claims {length} bytes, but {len(data) - pos} are left")
    timestamp_delta, pos = _read_varlong(data, pos + 1)
    offset_delta, pos = _read_varint(data, pos)
    key, pos = _read_bytes(data, pos, end)
    value, pos = _read_bytes(data, pos, end)
    header_count, pos = _read_varint(data, pos)
    headers: Headers = ()
    if header_count:
        headers, pos = _read_headers(data, pos, end, header_count)
    if pos != end:
        raise DecodeError(f"the fields of a record of {length} bytes end {pos - end} bytes after its end")
    return Record(value, key, base_timestamp + timestamp_delta, headers, base_offset + offset_delta), pos


def _read_headers(data: bytes, pos: int, end: int, count: int) -> tuple[Headers, int]:
    if count < 0 or count * 2 > end - pos:
        raise DecodeError(f"a record claims {count} headers, but {end - pos} bytes are left")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, pos = _read_bytes(data, pos, end)
        value, pos = _read_bytes(data, pos, end)
        if name is None:
            raise DecodeError("a record has a header without a name")
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), pos


def _read_bytes(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    raw = data[pos]
    if raw < 0x80:
        length, pos = (raw >> 1) ^ -(raw & 1), pos + 1
    else:
        length, pos = _read_varint(data, pos)
    if length < 0:
        return None, pos
    stop = pos + length
    if stop > end:
        raise DecodeError(f"a record's key, value or header claims {length} bytes, but {end - pos} are left")
    return data[pos:stop], stop


def _read_varint(data: Buffer, pos: int) -> tuple[int, int]:
    """Like `varint.read_varint`, with the common one and two bytes first: this runs six times per record."""
    raw = data[pos]
    if raw < 0x80:
        return (raw >> 1) ^ -(raw & 1), pos + 1
    second = data[pos + 1]
    if second < 0x80:
        raw += (second - 1) << 7
        return (raw >> 1) ^ -(raw & 1), pos + 2
    return read_varint(data, pos)


def _read_varlong(data: Buffer, pos: int) -> tuple[int, int]:
    raw = data[pos]
    if raw < 0x80:
        return (raw >> 1) ^ -(raw & 1), pos + 1
    return read_varlong(data, pos)


def _write_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out.append(1)
    else:
        write_varint(out, len(value))
        out += value
