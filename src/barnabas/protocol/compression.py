"""The codecs of record batches, in the framing that Kafka's clients use.

gzip and zstd are plain streams. LZ4 is its frame format with independent blocks, as Kafka's reader refuses linked
ones. Snappy is what the Java library calls its stream: a header, then blocks of at most 32 KiB, each with its length
in front; librdkafka writes a single raw block without any of this, and both are read.

What a small input may expand to is bounded: by the size it declares, or by giving the decompressor no more room.
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
"""Three bytes of snappy copy at most 64: what claims to expand further is damaged."""

_ROOM_BYTES_MIN = 64 * 1024
_ROOM_FACTOR = 4
_NO_ROOM = "failed to write whole buffer"
"""What cramjam says when the output does not fit."""


class NoRoomError(DecodeError):
    """There is less room than the data needs when it is decompressed."""


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
    """`data` as a producer would compress it; ValueError if the codec has no such level."""
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
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))  # unlike the others, it takes nothing but bytes
    return bytes(compressor.finish())


def decompress(codec: Codec, data: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """What was compressed; DecodeError if `data` is damaged or expands to more than `max_bytes`."""
    if codec is Codec.NONE:
        if len(data) > max_bytes:
            raise _too_large(codec, max_bytes)
        return bytes(data)
    if codec is Codec.SNAPPY:
        return _decompress_snappy(data, max_bytes)
    return _decompress_growing(codec, data, max_bytes)


def decompress_into(codec: Codec, data: Buffer, out: memoryview) -> int:
    """Puts what was compressed at the beginning of `out` and returns its size, for those who keep such room at hand.

    NoRoomError if it does not fit, DecodeError if `data` is damaged.
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
    """Streams do not say how long they are: give more room until the output fits."""
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
        raise DecodeError(f"damaged {codec.name.lower()} data: {error}") from None
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
            raise DecodeError(f"damaged snappy data: {error}") from None
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
            raise DecodeError(f"damaged snappy data: {error}") from None
        position = behind
    return position


def _snappy_block_size(block: memoryview) -> int:
    """How long a block says it is when it is decompressed."""
    size, _ = read_uvarint(block, 0)
    if size > len(block) * _SNAPPY_EXPANSION_MAX:
        raise DecodeError(f"damaged snappy data: a block of {len(block)} bytes claims to hold {size}")
    return size


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield view
        return
    if len(view) < _XERIAL_HEADER.size:
        raise DecodeError("damaged snappy data: the header is cut short")
    pos = _XERIAL_HEADER.size
    while pos < len(view):
        if len(view) - pos < _BLOCK_LENGTH.size:
            raise DecodeError("damaged snappy data: a block's length is cut short")
        (length,) = _BLOCK_LENGTH.unpack_from(view, pos)
        pos += _BLOCK_LENGTH.size
        if not 0 < length <= len(view) - pos:
            raise DecodeError(f"damaged snappy data: a block claims {length} bytes, {len(view) - pos} are left")
        yield view[pos : pos + length]
        pos += length
