from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.errors import DecodeError, EncodeError
from barnabas.protocol.varint import (
    read_uvarint,
    read_varint,
    read_varlong,
    write_uvarint,
    write_varint,
    write_varlong,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Write = Callable[[bytearray, int], None]
    Read = Callable[[bytes, int], tuple[int, int]]


@pytest.mark.parametrize(
    ("write", "value", "data"),
    [
        (write_uvarint, 0, "00"),
        (write_uvarint, 127, "7f"),
        (write_uvarint, 128, "8001"),
        (write_uvarint, (1 << 32) - 1, "ffffffff0f"),
        (write_varint, 0, "00"),
        (write_varint, -1, "01"),
        (write_varint, 1, "02"),
        (write_varint, -(1 << 31), "ffffffff0f"),
        (write_varlong, (1 << 63) - 1, "feffffffffffffffff01"),
        (write_varlong, -(1 << 63), "ffffffffffffffffff01"),
    ],
)
def test_numbers_have_the_bytes_that_kafka_gives_them(write: Write, value: int, data: str) -> None:
    out = bytearray()
    write(out, value)
    assert out.hex() == data


@given(st.integers(0, (1 << 32) - 1))
def test_an_unsigned_number_is_read_as_it_was_written(value: int) -> None:
    out = bytearray()
    write_uvarint(out, value)
    assert read_uvarint(out, 0) == (value, len(out))


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_a_signed_number_is_read_as_it_was_written(value: int) -> None:
    out = bytearray(b"before")
    write_varint(out, value)
    assert read_varint(out, 6) == (value, len(out))


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_long_signed_number_is_read_as_it_was_written(value: int) -> None:
    out = bytearray()
    write_varlong(out, value)
    assert read_varlong(out, 0) == (value, len(out))


@pytest.mark.parametrize("read", [read_uvarint, read_varint, read_varlong])
@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff", b"\xff" * 12])
def test_a_number_that_does_not_end_is_refused(read: Read, data: bytes) -> None:
    with pytest.raises(DecodeError):
        read(data, 0)


@pytest.mark.parametrize("read", [read_uvarint, read_varint])
def test_a_number_beyond_32_bits_is_refused(read: Read) -> None:
    with pytest.raises(DecodeError, match="longer than 32 bits"):
        read(b"\xff\xff\xff\xff\x1f", 0)


@pytest.mark.parametrize(
    ("write", "value"),
    [
        (write_uvarint, -1),
        (write_uvarint, 1 << 32),
        (write_varint, 1 << 31),
        (write_varint, -(1 << 31) - 1),
        (write_varlong, 1 << 63),
        (write_varlong, -(1 << 63) - 1),
    ],
)
def test_a_number_out_of_range_cannot_be_written(write: Write, value: int) -> None:
    with pytest.raises(EncodeError, match="out of range"):
        write(bytearray(), value)
