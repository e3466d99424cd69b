"""The codecs of record batches, in the framing that Kafka's clients use.

gzip and zstd are plain streams. LZ4 uses its frame format with independent blocks, because Kafka's reader rejects
linked ones. Snappy uses the stream format of the Java library: a header, then blocks of at most 32 KiB, each preceded
by its length. librdkafka writes a single raw block without any framing instead; both can be read.

How far a small input may expand is bounded: by the size it declares, or by the size of the output buffer.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING

import cramjam

from barnabas.protocol.errors import DecodeError
from barnabas.protocol.varint import Buffer, read_uvarint

if TYPE_CHECKING:
    from collections.abc import Iterator

DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = struct.Struct(">8sii")
_XERIAL_VERSION = 1
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")
_SNAPPY_EXPANSION_MAX = 32
"""Three bytes of Snappy can copy at most 64, so data that claims to expand further is corrupt."""

_LZ4_QUICK = 0

_ROOM_BYTES_MIN = 64 * 1024
_ROOM_FACTOR = 4
_NO_ROOM = "failed to write whole buffer"
"""What cramjam says when the output does not fit."""


class NoRoomError(DecodeError):
    """The decompressed data does not fit into the room it was given."""


class Codec(IntEnum):
    """The number of a codec in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_STREAMS = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}

LEVELS: dict[Codec, tuple[int, int, int]] = {
    Codec.GZIP: (1, 9, 6),
    Codec.LZ4: (1, 17, 9),
    Codec.ZSTD: (-131072, 22, 3),
}
"""The lowest, highest and default level of the codecs that have levels."""


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`data` as a producer would compress it. Raises ValueError if the codec has no such level."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.SNAPPY:
        return _compress_snappy(data)
    lowest, highest, default = LEVELS[codec]
    if level is None:
        level = default
    if not lowest <= level <= highest:
        raise ValueError(f"{codec.name.lower()} has levels {lowest} to {highest}, not {level}")
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=level))
    if codec is Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=level))
    # Kafka's default stands for the quick compressor, and not for the ninth level of the thorough one.
    lz4_level = _LZ4_QUICK if level == default else level
    compressor = cramjam.lz4.Compressor(level=lz4_level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))  # unlike the others, it takes nothing but bytes
    return bytes(compressor.finish())


def decompress(codec: Codec, data: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The original data. Raises DecodeError if `data` is corrupt or expands to more than `max_bytes`."""
    if codec is Codec.NONE:
        if len(data) > max_bytes:
            raise _too_large(codec, max_bytes)
        return bytes(data)
    if codec is Codec.SNAPPY:
        return _decompress_snappy(data, max_bytes)
    return _decompress_growing(codec, data, max_bytes)


def decompressed_beginnings(
    codec: Codec, data: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[tuple[memoryview, bool]]:
    """Longer and longer beginnings of what was compressed, each with whether it is all, for those who may find what
    they look for before the end. DecodeError as for `decompress`."""
    if codec in (Codec.NONE, Codec.SNAPPY):
        yield memoryview(data if codec is Codec.NONE else decompress(codec, data, max_bytes)), True
        return
    room = min(_ROOM_BYTES_MIN, max_bytes)
    while True:
        out = memoryview(bytearray(room))
        try:
            yield out[: _decompress_stream_into(codec, data, out)], True
            return
        except NoRoomError:
            # The room is filled up to its end with what fits.
            if room >= max_bytes:
                raise
        yield out, False
        room = min(room * _ROOM_FACTOR, max_bytes)


def decompress_into(codec: Codec, data: Buffer, out: memoryview) -> int:
    """Decompresses to the beginning of `out` and returns the size, for callers that reuse a buffer.

    Raises NoRoomError if it does not fit, and DecodeError if `data` is corrupt.
    """
    if codec is Codec.NONE:
        if len(data) > len(out):
            raise _too_large(codec, len(out))
        out[: len(data)] = data
        return len(data)
    if codec is Codec.SNAPPY:
        return _decompress_snappy_into(data, out)
    return _decompress_stream_into(codec, data, out)


def _decompress_growing(codec: Codec, data: Buffer, max_bytes: int) -> bytes:
    """Streams do not declare their size, so the buffer grows until the output fits."""
    room = min(max(_ROOM_BYTES_MIN, _ROOM_FACTOR * len(data)), max_bytes)
    while True:
        out = memoryview(bytearray(room))
        try:
            return bytes(out[: _decompress_stream_into(codec, data, out)])
        except NoRoomError:
            if room >= max_bytes:
                raise
        room = min(room * _ROOM_FACTOR, max_bytes)


def _decompress_stream_into(codec: Codec, data: Buffer, out: memoryview) -> int:
    try:
        size: int = _STREAMS[codec].decompress_into(data, out)
    except cramjam.DecompressionError as error:
        if _NO_ROOM in str(error):
            raise _too_large(codec, len(out)) from None
        raise DecodeError(f"corrupt {codec.name.lower()} data: {error}") from None
    return size


def _too_large(codec: Codec, max_bytes: int) -> NoRoomError:
    return NoRoomError(f"{codec.name.lower()} data expands to more than {max_bytes} bytes")


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER.pack(_XERIAL_MAGIC, _XERIAL_VERSION, _XERIAL_VERSION))
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += _BLOCK_LENGTH.pack(len(block))
        out += block
    return bytes(out)


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    decompressed: list[bytes] = []
    left_bytes = max_bytes
    for block in _snappy_blocks(memoryview(data)):
        size = _snappy_block_size(block)
        if size > left_bytes:
            raise _too_large(Codec.SNAPPY, max_bytes)
        left_bytes -= size
        try:
            decompressed.append(bytes(cramjam.snappy.decompress_raw(block)))
        except cramjam.DecompressionError as error:
            raise DecodeError(f"corrupt snappy data: {error}") from None
    return b"".join(decompressed)


def _decompress_snappy_into(data: Buffer, out: memoryview) -> int:
    position = 0
    for block in _snappy_blocks(memoryview(data)):
        behind = position + _snappy_block_size(block)
        if behind > len(out):
            raise _too_large(Codec.SNAPPY, len(out))
        try:
            cramjam.snappy.decompress_raw_into(block, out[position:behind])
        except cramjam.DecompressionError as error:
            raise DecodeError(f"corrupt snappy data: {error}") from None
        position = behind
    return position


def _snappy_block_size(block: memoryview) -> int:
    """The decompressed size that a block declares."""
    size, _ = read_uvarint(block, 0)
    if size > len(block) * _SNAPPY_EXPANSION_MAX:
        raise DecodeError(f"corrupt snappy data: a block of {len(block)} bytes claims to hold {size}")
    return size


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield view
        return
    if len(view) < _XERIAL_HEADER.size:
        raise DecodeError("corrupt snappy data: the header is truncated")
    pos = _XERIAL_HEADER.size
    while pos < len(view):
        if len(view) - pos < _BLOCK_LENGTH.size:
            raise DecodeError("corrupt snappy data: the length of a block is truncated")
        (length,) = _BLOCK_LENGTH.unpack_from(view, pos)
        pos += _BLOCK_LENGTH.size
        if not 0 < length <= len(view) - pos:
            raise DecodeError(f"corrupt snappy data: a block claims {length} bytes, but {len(view) - pos} are left")
        yield view[pos : pos + length]
        pos += length
