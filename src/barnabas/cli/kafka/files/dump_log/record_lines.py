"""The lines of the records of a batch.

Nearly all of a dump's time goes into them. So records are taken apart and formatted in one loop, and the section that
they are in is made a string whose characters stand for its bytes: cutting keys and values out of it costs nothing more
to print them. A batch at which this fails is gone through again by `careful_records`, which says what is wrong with it
in Kafka's words, after the records before it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from barnabas.cli.kafka.files.dump_log.careful_records import RawRecord, careful_records
from barnabas.cli.kafka.files.dump_log.control_lines import control_text
from barnabas.cli.kafka.files.dump_log.decoders import as_text
from barnabas.cli.kafka.files.dump_log.page import text_of
from barnabas.protocol.batch import HEADER_SIZE, LOG_APPEND_TIME_FLAG
from barnabas.protocol.compression import decompress
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.varint import read_varint, read_varlong

if TYPE_CHECKING:
    from barnabas.cli.kafka.files.dump_log.complaints import Complaints
    from barnabas.cli.kafka.files.dump_log.log_dump import Depth
    from barnabas.cli.kafka.files.dump_log.log_file import FoundBatch
    from barnabas.cli.kafka.files.dump_log.page import Page
    from barnabas.protocol.batch import BatchHeader

_SEQUENCE_MASK = 0x7FFF_FFFF


def put_records(
    batch: FoundBatch,
    header: BatchHeader,
    depth: Depth,
    last_offset: int,
    page: Page,
    complaints: Complaints,
    path: str,
) -> int:
    """Returns the offset of the last record, or `last_offset` if there is none."""
    if not header.record_count:
        return last_offset
    is_plain = not header.is_control and depth.decoder in (None, as_text) and header.record_count > 0
    if is_plain:
        try:
            lines, offsets = _plain_lines(batch, header, depth)
        except (DecodeError, IndexError):
            is_plain = False
        else:
            page.put_lines_of_records(lines)
            first = header.base_offset + offsets[0]
            last = header.base_offset + offsets[-1]
            if first != last_offset + 1:
                complaints.offset_does_not_follow(path, last_offset, first)
            if last - first != len(offsets) - 1 or len(offsets) != len(set(offsets)):
                for before, after in pairwise(offsets):
                    if after != before + 1:
                        complaints.offset_does_not_follow(path, header.base_offset + before, header.base_offset + after)
            return last
    for record in careful_records(batch, header):
        if record.offset != last_offset + 1:
            complaints.offset_does_not_follow(path, last_offset, record.offset)
        last_offset = record.offset
        _put_record(record, header, depth, page)
    return last_offset


def _plain_lines(batch: FoundBatch, header: BatchHeader, depth: Depth) -> tuple[bytes, list[int]]:
    """The lines of all records, and their offsets less that of the batch; DecodeError or IndexError if not all of them
    are as they have to be."""
    section = decompress(header.codec, batch.data[HEADER_SIZE : header.size])
    text = section.decode("latin-1")
    shows_metadata = depth.shows_metadata
    shows_contents = depth.decoder is not None
    base_offset, base_timestamp, base_sequence = header.base_offset, header.base_timestamp, header.base_sequence
    fixed_timestamp = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    time_name = "CreateTime" if fixed_timestamp is None else "LogAppendTime"
    lines: list[str] = []
    offsets: list[int] = []
    position, section_end = 0, len(section)
    for _ in range(header.record_count):
        # A varint of one or two bytes, which nearly all are, is read here: a call would double the time.
        raw = section[position]
        if raw < 0x80:
            position += 1
        elif section[position + 1] < 0x80:
            raw += (section[position + 1] - 1) << 7
            position += 2
        else:
            raw, position = _raw_varint(section, position)
        end = position + (raw >> 1)
        if raw & 1 or end > section_end:
            raise DecodeError("a record is longer than what is left")
        raw = section[position + 1]
        if raw < 0x80:
            position += 2
            timestamp = base_timestamp + ((raw >> 1) ^ -(raw & 1))
        else:
            following = section[position + 2]
            if following < 0x80:
                raw += (following - 1) << 7
                position += 3
                timestamp = base_timestamp + ((raw >> 1) ^ -(raw & 1))
            else:
                delta, position = read_varlong(section, position + 1)
                timestamp = base_timestamp + delta
        raw = section[position]
        if raw < 0x80:
            position += 1
        elif section[position + 1] < 0x80:
            raw += (section[position + 1] - 1) << 7
            position += 2
        else:
            raw, position = _raw_varint(section, position)
        offset_delta = (raw >> 1) ^ -(raw & 1)
        offsets.append(offset_delta)
        raw = section[position]
        if raw < 0x80:
            position += 1
        elif section[position + 1] < 0x80:
            raw += (section[position + 1] - 1) << 7
            position += 2
        else:
            raw, position = _raw_varint(section, position)
        if raw & 1:
            key_size, key = -1, ""
        else:
            key_size = raw >> 1
            key = f" key: {text[position : position + key_size]}"
            position += key_size
        raw = section[position]
        if raw < 0x80:
            position += 1
        elif section[position + 1] < 0x80:
            raw += (section[position + 1] - 1) << 7
            position += 2
        else:
            raw, position = _raw_varint(section, position)
        if raw & 1:
            value_size, value = -1, ""
        else:
            value_size = raw >> 1
            value = f" payload: {text[position : position + value_size]}"
            position += value_size
        if section[position]:
            header_keys, position = _header_keys(section, text, position, end)
        else:
            header_keys = ""
            position += 1
        if position != end:
            raise DecodeError("the fields of a record do not end where it does")
        if shows_metadata:
            if fixed_timestamp is not None:
                timestamp = fixed_timestamp
            sequence = base_sequence + offset_delta & _SEQUENCE_MASK if base_sequence >= 0 else -1
            contents = f"{key}{value}" if shows_contents else ""
            lines.append(
                f"| offset: {base_offset + offset_delta} {time_name}: {timestamp} keySize: {key_size} "
                f"valueSize: {value_size} sequence: {sequence} headerKeys: [{header_keys}]{contents}\n"
            )
        elif shows_contents and (key or value):
            lines.append(f"|{key}{value}\n")
        else:
            lines.append("\n")
    if position != section_end:
        raise DecodeError("something follows the last record")
    return "".join(lines).encode("latin-1"), offsets


def _raw_varint(section: bytes, position: int) -> tuple[int, int]:
    """A longer varint, with its sign in the lowest bit as it is there."""
    value, position = read_varint(section, position)
    return (value << 1) ^ (value >> 31), position


def _header_keys(section: bytes, text: str, position: int, end: int) -> tuple[str, int]:
    count, position = read_varint(section, position)
    if not 0 <= count <= end - position:
        raise DecodeError("a record cannot have so many headers")
    keys = []
    for _ in range(count):
        size, position = read_varint(section, position)
        if size < 0:
            raise DecodeError("a record has a header without a key")
        keys.append(text[position : position + size])
        size, position = read_varint(section, position + size)
        position += max(size, 0)
    return ",".join(keys), position


def _put_record(record: RawRecord, header: BatchHeader, depth: Depth, page: Page) -> None:
    """One record by itself: a control record, or one with a decoder."""
    if depth.shows_metadata:
        time_name = "LogAppendTime" if header.attributes & LOG_APPEND_TIME_FLAG else "CreateTime"
        page.text(
            f"| offset: {record.offset} {time_name}: {record.timestamp} keySize: {_size(record.key)} "
            f"valueSize: {_size(record.value)} sequence: {record.sequence} "
            f"headerKeys: [{','.join(map(text_of, record.header_keys))}]"
        )
        if header.is_control:
            page.text(control_text(record.key, record.value))
    if depth.decoder is not None and not header.is_control:
        key, value = depth.decoder(record)
        prefix = " " if depth.shows_metadata else "| "
        if key is not None:
            page.text(f"{prefix}key: {key}")
            prefix = " "
        if value is not None:
            page.text(f"{prefix}payload: {value}")
    page.line("")


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)
