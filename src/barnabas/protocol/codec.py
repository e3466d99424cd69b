"""Messages to bytes and back, in any of their versions.

    data = encode(messages.MetadataRequest(topics=None), 12)
    request = decode(messages.MetadataRequest, data, 12)

The function that writes or reads a (class, version) is compiled from its schema on first use and cached. The cache is
bounded by the number of structs and versions in the schema file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.protocol.compiler.decoder import Reader, compile_reader
from barnabas.protocol.compiler.encoder import Writer, compile_writer
from barnabas.protocol.compiler.structs import Struct, spec_of
from barnabas.protocol.errors import DecodeError, EncodeError, UnknownFormatError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.varint import Buffer

__all__ = ["DecodeError", "EncodeError", "decode", "decode_prefix", "encode", "reader", "writer"]

T = TypeVar("T", bound=Struct)

_writers: dict[tuple[type[Struct], int], Writer] = {}
_readers: dict[tuple[type[Struct], int], Reader] = {}


def encode(message: Struct, version: int) -> bytes:
    """The bytes of a message. Raises EncodeError if this version cannot express it."""
    out = bytearray()
    writer(type(message), version)(message, out)
    return bytes(out)


def decode(cls: type[T], data: Buffer, version: int, offset: int = 0) -> T:
    """The message that fills `data` from `offset` to its end. Raises DecodeError if it does not."""
    message, end = decode_prefix(cls, data, version, offset)
    if end != len(data):
        raise DecodeError(f"{cls.__qualname__} version {version} ends at byte {end} of {len(data)}")
    return message


def decode_prefix(cls: type[T], data: Buffer, version: int, offset: int = 0) -> tuple[T, int]:
    """The message at `offset` and the position after it. Raises DecodeError if there is none."""
    if offset < 0:
        raise ValueError(f"the offset must not be negative: {offset}")
    return reader(cls, version)(data, offset)


def writer(cls: type[T], version: int) -> Callable[[T, bytearray], None]:
    """The function that appends objects of a class (a message or a struct inside one) to a bytearray.

    It raises EncodeError like `encode`, and leaves in place what it has appended up to that point.
    """
    return _writers.get((cls, version)) or _writer(cls, version)


def reader(cls: type[T], version: int) -> Callable[[Buffer, int], tuple[T, int]]:
    """The function that reads an object of a class at a position, which must not be negative."""
    return _readers.get((cls, version)) or _reader(cls, version)


def _writer(cls: type[Struct], version: int) -> Writer:
    key = (cls, version)
    if key not in _writers:
        spec = spec_of(cls)
        if not spec.message.versions.covers(version):
            raise EncodeError(f"{spec.message.name} has versions {spec.message.versions}, not {version}")
        _writers[key] = compile_writer(cls, spec, version, _writer)
    return _writers[key]


def _reader(cls: type[Struct], version: int) -> Reader:
    key = (cls, version)
    if key not in _readers:
        spec = spec_of(cls)
        if not spec.message.versions.covers(version):
            raise UnknownFormatError(f"{spec.message.name} has versions {spec.message.versions}, not {version}")
        _readers[key] = compile_reader(cls, spec, version, _reader)
    return _readers[key]
