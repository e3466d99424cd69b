"""What a broker has to know of the records in a batch, found in one pass over their bytes.

No object is made for a record. The pass is what opening a batch costs beside its codec, so most of it is done without a
step for each record: where records of the same size follow one another, as they do in batches of measurements, all of
them have their lengths at the same distance, and slices with that step compare them at once. Other records are walked
one by one, reading varints of one and two bytes on the spot: nearly all are.

Structures that no reader could take for records are refused with the words that Apache Kafka has for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.protocol.errors import DecodeError
from barnabas.protocol.varint import read_varint, read_varlong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CUT_SHORT: Final = "Incorrect declared batch size, premature EOF reached"
LEFT_OVER: Final = "Incorrect declared batch size, records still remaining in file"
NO_RECORD: Final = "Found invalid record structure"

_NULL: Final = 1
"""A length of -1 as a varint. Any negative length means that there is nothing."""
_WALKED_MIN: Final = 4
_WALKED_MAX: Final = 512
"""How many records are walked before the next attempt to find a run: more and more, while attempts fail."""
_RUN_MIN: Final = 8
_RUN_MAX: Final = 64
_RUN_GROWTH: Final = 8
"""How many records are looked at for a run, and how many times more after one that did not end there."""


class Survey(NamedTuple):
    """The records of a batch, all of them well formed."""

    first_timestamp_delta: int
    timestamp_delta_min: int
    timestamp_delta_max: int
    has_null_key: bool
    is_sequential: bool
    """Whether their offset deltas are 0, 1, 2 and so on."""


def survey_records(section: bytes | bytearray, size: int, count: int) -> Survey:
    """The `count` records, at least one, that fill the first `size` bytes of `section`, the uncompressed content of a
    batch. Raises DecodeError if they are no records, or do not fill it."""
    pos, part = _walk(section, size, 0, 0, 1)
    first, least, most, has_null_key, is_sequential = part
    number = 1
    walked, run_max = _WALKED_MIN, _RUN_MAX
    while number < count:
        behind, found, part = _find_run(section, size, pos, number, min(run_max, count - number))
        if found:
            walked = _WALKED_MIN
            run_max = run_max * _RUN_GROWTH if found == run_max else _RUN_MAX
        else:
            found = min(walked, count - number)
            behind, part = _walk(section, size, pos, number, number + found)
            walked = min(2 * walked, _WALKED_MAX)
        pos = behind
        number += found
        least = min(least, part.timestamp_delta_min)
        most = max(most, part.timestamp_delta_max)
        has_null_key |= part.has_null_key
        is_sequential &= part.is_sequential
    if pos != size:
        raise DecodeError(LEFT_OVER)
    return Survey(first, least, most, has_null_key, is_sequential)


def _walk(section: bytes | bytearray, size: int, pos: int, number: int, end_number: int) -> tuple[int, Survey]:
    """Some records, one after the other, and the position behind them."""
    has_null_key = False
    is_sequential = True
    last_raw = -1
    deltas: list[int] = []
    try:
        for sequential_raw in range(2 * number, 2 * end_number, 2):
            raw = section[pos]
            if raw < 0x80:
                pos += 1
            elif (second := section[pos + 1]) < 0x80:
                raw += (second - 1) << 7
                pos += 2
            else:
                raw, pos = _read_length(section, pos, size)
            end = pos + (raw >> 1)
            if raw & 1 or end > size:
                raise DecodeError(_wrong_length(raw, pos, size))
            # Behind the length there is a byte of attributes, which nobody uses.
            raw = section[pos + 1]
            if raw < 0x80:
                pos += 2
            elif (second := section[pos + 2]) < 0x80:
                raw += (second - 1) << 7
                pos += 3
            else:
                delta, pos = _read(read_varlong, section, pos + 1)
                raw = (delta << 1) ^ (delta >> 63)
            if raw != last_raw:
                last_raw = raw
                deltas.append((raw >> 1) ^ -(raw & 1))
            raw = section[pos]
            if raw < 0x80:
                pos += 1
            elif (second := section[pos + 1]) < 0x80:
                raw += (second - 1) << 7
                pos += 2
            else:
                delta, pos = _read(read_varint, section, pos)
                raw = (delta << 1) ^ (delta >> 31)
            if raw != sequential_raw:
                is_sequential = False
            raw = section[pos]
            if raw < 0x80:
                pos += 1
            elif (second := section[pos + 1]) < 0x80:
                raw += (second - 1) << 7
                pos += 2
            else:
                raw, pos = _read_field_size(section, pos)
            if raw & 1:
                has_null_key = True
            else:
                pos += raw >> 1
            raw = section[pos]
            if raw < 0x80:
                pos += 1
            elif (second := section[pos + 1]) < 0x80:
                raw += (second - 1) << 7
                pos += 2
            else:
                raw, pos = _read_field_size(section, pos)
            if not raw & 1:
                pos += raw >> 1
            # Nearly always, all that is left is the byte that says that there are no headers.
            if pos + 1 != end or section[pos]:
                _check_headers(section, pos, end)
            pos = end
    except IndexError:
        raise DecodeError(CUT_SHORT if pos == size else NO_RECORD) from None
    return pos, Survey(deltas[0], min(deltas), max(deltas), has_null_key, is_sequential)


# ── records of one size ──────────────────────────────────────────────────────────────────────────────────────

_BLOCK: Final = 8192
"""Within a block of so many records, the third byte of their offset deltas, if there is one, is the same."""
_ONE_BYTE: Final = bytes(range(0, 128, 2))
_FIRST_BYTES: Final = bytes(raw | 0x80 for raw in _ONE_BYTE) * (_BLOCK // 64)
_LAST_OF_TWO: Final = b"".join(bytes([high]) * 64 for high in range(128))
_SECOND_OF_THREE: Final = b"".join(bytes([high | 0x80]) * 64 for high in range(128))
"""The bytes of the offset deltas 0, 1, 2 … of a block, as varints of one, two and three bytes."""
_CONTINUES: Final = bytes(128) + b"\x01" * 128
"""Whether a byte of a varint is followed by another."""
_DELTA_BYTES_MAX: Final = 3
_NO_RUN: Final = (0, 0, Survey(0, 0, 0, False, True))


def _find_run(section: bytes | bytearray, size: int, pos: int, number: int, run_max: int) -> tuple[int, int, Survey]:
    """How many records, at most `run_max`, from the one at `pos` on have the size of that one and all their fields
    where that one has them; the position behind them, and what they have in common. No run if there are too few, if
    they have headers, or if their offsets are not sequential: then they have to be walked."""
    try:
        length, at = read_varint(section, pos)
        step = at - pos + length
        timestamp_at = at + 1
        _, offset_at = read_varlong(section, timestamp_at)
        offset, key_at = read_varint(section, offset_at)
        key_size, at_key = read_varint(section, key_at)
        value_at = at_key + max(0, key_size)
        value_size, at_value = read_varint(section, value_at)
        last = at_value + max(0, value_size)
        is_plain = length > 0 and offset == number and last + 1 == pos + step <= size and not section[last]
    except (DecodeError, IndexError):
        return _NO_RUN
    if not is_plain or offset_at - timestamp_at > _DELTA_BYTES_MAX:
        return _NO_RUN
    in_block = number % _BLOCK
    run = min((size - pos) // step, run_max, (64 if number < 64 else _BLOCK) - in_block)
    for place in (*range(pos, at), *range(key_at, at_key), *range(value_at, at_value), last):
        column = section[place : place + run * step : step]
        run = len(column) - len(column.lstrip(section[place : place + 1]))
    for place in range(timestamp_at, offset_at):
        column = section[place : place + run * step : step].translate(_CONTINUES)
        run = len(column) - len(column.lstrip(b"\0" if place + 1 == offset_at else b"\1"))
    if run < _RUN_MIN:
        return _NO_RUN
    behind = pos + run * step
    for place, expected in zip(range(offset_at, key_at), _offset_bytes(number), strict=True):
        if section[place:behind:step][:run] != expected[in_block : in_block + run]:
            return _NO_RUN
    columns = [section[place:behind:step][:run] for place in range(timestamp_at, offset_at)]
    deltas = [read_varlong(bytes(each), 0)[0] for each in set(zip(*columns, strict=True))]
    return behind, run, Survey(deltas[0], min(deltas), max(deltas), key_size < 0, True)


def _offset_bytes(number: int) -> tuple[bytes, ...]:
    """For each byte of the offset delta of a record, that byte of all offset deltas in its block."""
    if number < 64:
        return (_ONE_BYTE,)
    if number < _BLOCK:
        return _FIRST_BYTES, _LAST_OF_TWO
    return _FIRST_BYTES, _SECOND_OF_THREE, bytes([number // _BLOCK]) * _BLOCK


# ── one record ───────────────────────────────────────────────────────────────────────────────────────────────


class RecordFields(NamedTuple):
    timestamp_delta: int
    offset_delta: int
    key_size: int
    value_size: int
    """-1 where there is nothing, as for the key."""


def iter_fields(section: bytes | bytearray, count: int) -> Iterator[RecordFields]:
    """One record after the other, of those that were surveyed. Takes its time: it is for saying what is wrong with
    which of them."""
    pos = 0
    for _ in range(count):
        length, pos = read_varint(section, pos)
        end = pos + length
        timestamp_delta, pos = read_varlong(section, pos + 1)
        offset_delta, pos = read_varint(section, pos)
        key_size, pos = read_varint(section, pos)
        value_size, _ = read_varint(section, pos + max(0, key_size))
        yield RecordFields(timestamp_delta, offset_delta, key_size, value_size)
        pos = end


def _read_length(section: bytes | bytearray, pos: int, size: int) -> tuple[int, int]:
    try:
        length, behind = read_varint(section, pos)
    except DecodeError:
        raise DecodeError(CUT_SHORT if size - pos < 5 else NO_RECORD) from None
    return (length << 1 if length >= 0 else _NULL), behind


def _wrong_length(raw: int, pos: int, size: int) -> str:
    if pos > size:
        return CUT_SHORT
    if raw & 1:
        return NO_RECORD
    return (
        f"Invalid record size: expected {raw >> 1} bytes in record payload, but instead the buffer has only"
        f" {size - pos} remaining bytes."
    )


def _read(
    read_signed: Callable[[bytes | bytearray, int], tuple[int, int]], section: bytes | bytearray, pos: int
) -> tuple[int, int]:
    try:
        return read_signed(section, pos)
    except DecodeError:
        raise DecodeError(NO_RECORD) from None


def _read_field_size(section: bytes | bytearray, pos: int) -> tuple[int, int]:
    length, pos = _read(read_varint, section, pos)
    return (length << 1 if length >= 0 else _NULL), pos


def _check_headers(section: bytes | bytearray, pos: int, end: int) -> None:
    """Raises DecodeError unless headers, or their absence, fill a record up to its end."""
    if pos >= end:
        raise DecodeError(NO_RECORD)
    count, pos = _read(read_varint, section, pos)
    if count < 0:
        raise DecodeError(f"Found invalid number of record headers {count}")
    if count > end - pos:
        raise DecodeError(
            f"Found invalid number of record headers. {count} is larger than the remaining size of the buffer"
        )
    for _ in range(count):
        size, pos = _read(read_varint, section, pos)
        if size < 0:
            raise DecodeError(f"Invalid negative header key size {size}")
        size, pos = _read(read_varint, section, pos + size)
        pos += max(0, size)
        if pos > end:
            raise DecodeError(NO_RECORD)
    if pos != end:
        raise DecodeError(f"Invalid record size: its fields end {end - pos} bytes before it does")
