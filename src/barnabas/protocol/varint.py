"""Variable-length integers: seven bits per byte, least significant first, high bit set on all but the last.

Kafka uses three kinds: unsigned ones for lengths and tags, and zigzag-encoded signed ones of 32 and 64 bits inside
records. A reader takes anything that is indexed like bytes and returns the value and the position after it.
"""

from __future__ import annotations

from typing import TypeAlias

from barnabas.protocol.errors import DecodeError, EncodeError

Buffer: TypeAlias = bytes | bytearray | memoryview

UVARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10
_UINT32_MAX = (1 << 32) - 1
_UINT64_MAX = (1 << 64) - 1


def read_uvarint(data: Buffer, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits. Up to three bytes, which is nearly always, it is read without a loop."""
    try:
        first = data[pos]
        if first < 0x80:
            return first, pos + 1
        second = data[pos + 1]
        if second < 0x80:
            return first & 0x7F | second << 7, pos + 2
        third = data[pos + 2]
        if third < 0x80:
            return first & 0x7F | (second & 0x7F) << 7 | third << 14, pos + 3
    except IndexError:
        raise DecodeError(f"the input ends inside a varint that begins at byte {pos}") from None
    return _read_unsigned(data, pos, UVARINT_BYTES_MAX, _UINT32_MAX)


def read_varint(data: Buffer, pos: int) -> tuple[int, int]:
    """A zigzag varint of at most 32 bits."""
    raw, pos = _read_unsigned(data, pos, UVARINT_BYTES_MAX, _UINT32_MAX)
    return (raw >> 1) ^ -(raw & 1), pos


def read_varlong(data: Buffer, pos: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits."""
    raw, pos = _read_unsigned(data, pos, VARLONG_BYTES_MAX, _UINT64_MAX)
    return (raw >> 1) ^ -(raw & 1), pos


def _read_unsigned(data: Buffer, pos: int, bytes_max: int, value_max: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while shift < 7 * bytes_max:
            byte = data[pos]
            pos += 1
            if byte < 0x80:
                value |= byte << shift
                if value > value_max:
                    break
                return value, pos
            value |= (byte & 0x7F) << shift
            shift += 7
    except IndexError:
        raise DecodeError(f"the input ends inside a varint, at byte {pos}") from None
    raise DecodeError(f"the varint that ends before byte {pos} is longer than {value_max.bit_length()} bits")


def write_uvarint(out: bytearray, value: int) -> None:
    if not 0 <= value <= _UINT32_MAX:
        raise EncodeError(f"{value} is out of range for an unsigned varint of 32 bits")
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def write_varint(out: bytearray, value: int) -> None:
    if 0 <= value < 0x40:  # Lengths and deltas, nearly always.
        out.append(value << 1)
        return
    if not -(1 << 31) <= value < 1 << 31:
        raise EncodeError(f"{value} is out of range for a varint of 32 bits")
    write_uvarint(out, (value << 1) ^ (value >> 31))


def varint(value: int) -> bytes:
    """The bytes that `write_varint` appends."""
    return _SHORT[value] if 0 <= value < _SHORT_MAX else _encoded(value)


def _encoded(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


_SHORT_MAX = 512
_SHORT = tuple(_encoded(value) for value in range(_SHORT_MAX))
"""The lengths of most keys, values and records of coordinators, encoded in advance."""


def write_varlong(out: bytearray, value: int) -> None:
    if 0 <= value < 0x40:
        out.append(value << 1)
        return
    if not -(1 << 63) <= value < 1 << 63:
        raise EncodeError(f"{value} is out of range for a varint of 64 bits")
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)
