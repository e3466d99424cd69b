"""The records of a coordinator's topic as bytes, the way Apache Kafka writes them.

    key    int16 record type, then a message of that type in version 0
    value  int16 version, then a message in that version; no value: a tombstone, which deletes what the key stands for

The type of a record is the api key in the schemas of its key and value. The version of the value is the writer's
choice. What follows a message is left unread, as by Kafka.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeVar, cast

from barnabas.protocol.codec import decode_prefix, writer
from barnabas.protocol.compiler.structs import Message
from barnabas.protocol.errors import DecodeError, EncodeError

if TYPE_CHECKING:
    from barnabas.protocol.varint import Buffer

KEY_VERSION = 0

_INT16 = struct.Struct(">h")

T = TypeVar("T", bound=Message)


def encode_key(key: Message) -> bytes:
    key_class = type(key)
    if key_class.api_key is None or not key_class.__name__.endswith("Key"):
        raise EncodeError(f"{key_class.__name__} is not the key of a coordinator's record")
    out = bytearray(_INT16.pack(key_class.api_key))
    writer(key_class, KEY_VERSION)(key, out)
    return bytes(out)


def encode_value(value: Message | None, version: int) -> bytes | None:
    if value is None:
        return None
    out = bytearray(_INT16.pack(version))
    writer(type(value), version)(value, out)
    return bytes(out)


def kind_of(key: Buffer | None) -> int:
    """The type of the record that has this key."""
    if key is None:
        raise DecodeError("a coordinator's record has no key")
    return _int16(key, "key")


def decode_key(cls: type[T], key: Buffer) -> T:
    return decode_prefix(cls, key, KEY_VERSION, _INT16.size)[0]


def decode_value(cls: type[T], value: Buffer | None) -> T | None:
    """Raises UnknownFormatError for a version newer than those known here."""
    return None if value is None else decode_prefix(cls, value, _int16(value, "value"), _INT16.size)[0]


def _int16(data: Buffer, what: str) -> int:
    if len(data) < _INT16.size:
        raise DecodeError(f"the {what} of a coordinator's record is only {len(data)} bytes long")
    return cast("int", _INT16.unpack_from(data)[0])
