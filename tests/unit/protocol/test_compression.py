from __future__ import annotations

import gzip
import struct
import tracemalloc

import aiokafka.codec
import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.compression import LEVELS, Codec, NoRoomError, compress, decompress, decompress_into
from barnabas.protocol.errors import DecodeError

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"".join(b"record number %d of many\n" % number for number in range(20_000))

THEIRS = {
    Codec.GZIP: (aiokafka.codec.gzip_encode, aiokafka.codec.gzip_decode),
    Codec.SNAPPY: (aiokafka.codec.snappy_encode, aiokafka.codec.snappy_decode),
    Codec.LZ4: (aiokafka.codec.lz4_encode, aiokafka.codec.lz4_decode),
    Codec.ZSTD: (aiokafka.codec.zstd_encode, aiokafka.codec.zstd_decode),
}


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"a", TEXT, bytes(3_000_000)])
def test_what_is_compressed_comes_out_again(codec: Codec, data: bytes) -> None:
    compressed = compress(codec, data)
    assert decompress(codec, compressed) == data
    assert decompress(codec, memoryview(bytearray(compressed))) == data
    assert compress(codec, memoryview(data)) == compressed
    if codec is not Codec.NONE and data is TEXT:
        assert len(compressed) < len(data) / 2


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"a", TEXT])
def test_data_is_decompressed_into_room_that_is_there(codec: Codec, data: bytes) -> None:
    compressed = compress(codec, data)
    room = memoryview(bytearray(b"." * (len(data) + 10)))
    assert decompress_into(codec, compressed, room) == len(data)
    assert room[: len(data)] == data
    if data:
        with pytest.raises(NoRoomError):
            decompress_into(codec, compressed, room[: len(data) - 1])
        with pytest.raises(NoRoomError):
            decompress_into(codec, compressed, room[:0])


@pytest.mark.parametrize("codec", COMPRESSING)
@settings(max_examples=30)
@given(st.binary(max_size=1000))
def test_any_bytes_come_out_again(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("data", [b"a", TEXT])
def test_other_clients_read_ours_and_we_read_theirs(codec: Codec, data: bytes) -> None:
    encode, decode = THEIRS[codec]
    assert decode(compress(codec, data)) == data
    assert decompress(codec, encode(data)) == data


@pytest.mark.parametrize("codec", list(LEVELS))
def test_a_codec_takes_the_levels_that_it_has(codec: Codec) -> None:
    lowest, highest, default = LEVELS[codec]
    assert compress(codec, TEXT, default) == compress(codec, TEXT)
    assert compress(codec, TEXT, highest) != compress(codec, TEXT, lowest)
    assert decompress(codec, compress(codec, TEXT, highest)) == decompress(codec, compress(codec, TEXT, lowest)) == TEXT
    for level in (lowest - 1, highest + 1):
        with pytest.raises(ValueError, match=f"has levels {lowest} to {highest}, not {level}"):
            compress(codec, TEXT, level)


@pytest.mark.parametrize("codec", list(Codec))
def test_data_that_expands_beyond_the_bound_is_refused_without_room_for_it(codec: Codec) -> None:
    compressed = compress(codec, bytes(30_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="expands to more than 1000000 bytes"):
            decompress(codec, compressed, max_bytes=1_000_000)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2_500_000


@pytest.mark.parametrize("codec", list(Codec))
def test_data_that_just_fits_the_bound_is_read(codec: Codec) -> None:
    assert decompress(codec, compress(codec, bytes(300_000)), max_bytes=300_000) == bytes(300_000)
    with pytest.raises(DecodeError):
        decompress(codec, compress(codec, bytes(300_001)), max_bytes=300_000)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_damaged_data_is_refused(codec: Codec) -> None:
    compressed = compress(codec, TEXT)
    with pytest.raises(DecodeError):
        decompress(codec, b"\xff" * 50)
    with pytest.raises(DecodeError):
        decompress(codec, compressed[: len(compressed) // 2])
    with pytest.raises(DecodeError):
        decompress(codec, compressed[:10])


@pytest.mark.parametrize("codec", COMPRESSING)
@settings(max_examples=200)
@given(st.binary(max_size=100), st.booleans())
def test_random_bytes_are_read_or_refused(codec: Codec, data: bytes, with_start: bool) -> None:
    start = compress(codec, b"x")[:8] if with_start else b""
    try:
        decompress(codec, start + data, max_bytes=10_000)
    except DecodeError:
        return


def test_snappy_is_written_in_blocks_of_32_kib_behind_the_header_of_the_java_library() -> None:
    compressed = compress(Codec.SNAPPY, bytes(70_000))
    assert compressed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    sizes, position = [], 16
    while position < len(compressed):
        (length,) = struct.unpack_from(">i", compressed, position)
        block = compressed[position + 4 : position + 4 + length]
        sizes.append(len(bytes(cramjam.snappy.decompress_raw(block))))
        position += 4 + length
    assert sizes == [32768, 32768, 70_000 - 65536]


def test_a_bare_snappy_block_is_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


@pytest.mark.parametrize("length", [-1, 0, 1 << 30])
def test_a_snappy_block_of_an_impossible_length_is_refused(length: int) -> None:
    with pytest.raises(DecodeError, match="a block claims"):
        decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"")[:16] + struct.pack(">i", length) + b"abc")


def test_a_snappy_block_that_claims_to_hold_more_than_snappy_can_is_refused() -> None:
    with pytest.raises(DecodeError, match="a block of 6 bytes claims to hold 2097151"):
        decompress(Codec.SNAPPY, b"\xff\xff\x7f" + b"\x08abc"[:3])


def test_lz4_frames_have_independent_blocks() -> None:
    assert compress(Codec.LZ4, TEXT)[4] & 0x20


def test_gzip_is_the_standard_librarys() -> None:
    assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT
    assert decompress(Codec.GZIP, gzip.compress(TEXT)) == TEXT


def test_the_default_level_of_lz4_stands_for_the_quick_compressor_as_in_kafka() -> None:
    quick, thorough = compress(Codec.LZ4, TEXT, 1), compress(Codec.LZ4, TEXT, 10)
    assert compress(Codec.LZ4, TEXT) == compress(Codec.LZ4, TEXT, 9) == quick
    assert len(thorough) < len(quick)
