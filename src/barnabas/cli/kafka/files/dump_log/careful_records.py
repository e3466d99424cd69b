"""The records of a batch one by one, with a look at everything that can be wrong with them, in Kafka's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

from barnabas.cli.kafka.tool import ToolError
from barnabas.protocol.batch import HEADER_SIZE, LOG_APPEND_TIME_FLAG
from barnabas.protocol.compression import Codec, decompress
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.varint import read_varint, read_varlong

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.cli.kafka.files.dump_log.log_file import FoundBatch
    from barnabas.protocol.batch import BatchHeader

_SEQUENCE_MASK = 0x7FFF_FFFF
_STRUCTURE = "Found invalid record structure"
_ENDS_EARLY = "Incorrect declared batch size, premature EOF reached"
_GOES_ON = "Incorrect declared batch size, records still remaining in file"
_UNREADABLE = {
    Codec.GZIP: "java.util.zip.ZipException: Not in GZIP format",
    Codec.SNAPPY: "java.io.IOException: FAILED_TO_UNCOMPRESS(5)",
    Codec.LZ4: "java.io.IOException: Stream unsupported (invalid magic bytes)",
    Codec.ZSTD: "Failed to decompress record stream",
}


class RawRecord(NamedTuple):
    offset: int
    timestamp: int
    sequence: int
    key: bytes | None
    value: bytes | None
    header_keys: tuple[bytes, ...]


def careful_records(batch: FoundBatch, header: BatchHeader) -> Iterator[RawRecord]:
    """ToolError at the first that is broken. Of a compressed batch, none comes then."""
    if header.size < HEADER_SIZE:
        raise ToolError("java.lang.IndexOutOfBoundsException")
    if header.record_count < 0:
        raise ToolError(f"Found invalid record count {header.record_count} in magic v{header.magic} batch")
    section = batch.data[HEADER_SIZE : header.size]
    if header.codec is Codec.NONE:
        return _records(bytes(section), header)
    try:
        whole = decompress(header.codec, section)
    except DecodeError:
        raise ToolError(_UNREADABLE[header.codec]) from None
    return iter(list(_records(whole, header)))


def _records(section: bytes, header: BatchHeader) -> Iterator[RawRecord]:
    position = 0
    for number in range(1, header.record_count + 1):
        record, position = _record(section, position, header)
        if number == header.record_count and position != len(section):
            raise ToolError(_GOES_ON)
        yield record


def _record(section: bytes, position: int, header: BatchHeader) -> tuple[RawRecord, int]:
    is_compressed = header.codec is not Codec.NONE
    try:
        size, position = read_varint(section, position)
    except DecodeError:
        raise ToolError(_ENDS_EARLY) from None
    left = len(section) - position
    if is_compressed and size < 0:
        raise ToolError(_ENDS_EARLY)
    if size > left:
        if is_compressed:
            reason = "the record payload reached EOF."
        else:
            reason = f"instead the buffer has only {left} remaining bytes."
        raise ToolError(f"Invalid record size: expected {size} bytes in record payload, but {reason}")
    start = position
    # What is read of an uncompressed record may go on into the next one, before that is noticed.
    limit = start + size if is_compressed else len(section)
    try:
        timestamp_delta, position = read_varlong(section, position + 1)
        offset_delta, position = read_varint(section, position)
        key, position = _field(section, position, limit)
        value, position = _field(section, position, limit)
        header_keys, position = _header_keys(section, position, limit)
    except DecodeError:
        _fail(_STRUCTURE)
    if position - start != size:
        raise ToolError(
            f"Invalid record size: expected to read {size} bytes in record payload, but instead read {position - start}"
        )
    has_append_time = header.attributes & LOG_APPEND_TIME_FLAG
    record = RawRecord(
        header.base_offset + offset_delta,
        header.max_timestamp if has_append_time else header.base_timestamp + timestamp_delta,
        header.base_sequence + offset_delta & _SEQUENCE_MASK if header.base_sequence >= 0 else -1,
        key,
        value,
        header_keys,
    )
    return record, position


def _field(section: bytes, position: int, limit: int) -> tuple[bytes | None, int]:
    size, position = read_varint(section, position)
    if size < 0:
        return None, position
    if position + size > limit:
        _fail(_STRUCTURE)
    return section[position : position + size], position + size


def _header_keys(section: bytes, position: int, limit: int) -> tuple[tuple[bytes, ...], int]:
    count, position = read_varint(section, position)
    if count < 0:
        _fail(f"Found invalid number of record headers {count}")
    if count > limit - position:
        _fail(f"Found invalid number of record headers. {count} is larger than the remaining size of the buffer")
    keys = []
    for _ in range(count):
        key, position = _field(section, position, limit)
        if key is None:
            _fail("Invalid negative header key size -1")
        keys.append(key)
        _, position = _field(section, position, limit)
    return tuple(keys), position


def _fail(message: str) -> NoReturn:
    raise ToolError(message) from None
