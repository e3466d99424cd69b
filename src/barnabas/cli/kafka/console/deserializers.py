"""Kafka's deserializers by the names of their classes: bytes to what Java's `toString` makes of the value.

Raw bytes are shown as they are: Java shows the address of an object in their place, which says nothing of them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.java.java_values import double_text, float_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PACKAGE: Final = "org.apache.kafka.common.serialization."
_SUFFIX: Final = "Deserializer"
_SERIALIZATION: Final = "org.apache.kafka.common.errors.SerializationException"
_PRINTABLE: Final = frozenset(range(ord(" "), ord("~") + 1)) - {ord("\\")}
_UUID_PARTS: Final = (32, 16, 16, 16, 48)
"""The bits of each part that count."""
_UUID_CHARS_MAX: Final = 36
_LONG_DIGITS_MAX: Final = 16


class DeserializationError(ValueError):
    """Bytes that are none of that kind, as Java prints the exception."""


class NoDeserializerError(ValueError):
    """No class that can be used, as Java prints the exception."""


def deserializer(class_name: str, properties: Mapping[str, str], kind: str) -> Callable[[bytes], bytes]:
    """One by its class. `kind` is what it reads (key, value), as the names of its properties have it."""
    name = class_name.removeprefix(_PACKAGE)
    if not class_name.startswith(_PACKAGE) or not name.endswith(_SUFFIX):
        raise NoDeserializerError(f"java.lang.ClassNotFoundException: {class_name}")
    name = name.removesuffix(_SUFFIX)
    if name == "String":
        return _strings(properties, kind)
    if name == "List":
        raise NoDeserializerError(
            "org.apache.kafka.common.config.ConfigException: Not able to determine the list class because it was "
            "neither passed via the constructor nor set in the config."
        )
    if name not in _BY_NAME:
        raise NoDeserializerError(f"java.lang.ClassNotFoundException: {class_name}")
    return _BY_NAME[name]


def _strings(properties: Mapping[str, str], kind: str) -> Callable[[bytes], bytes]:
    encoding = properties.get(f"{kind}.deserializer.encoding") or properties.get("deserializer.encoding") or "UTF-8"
    try:
        "".encode(encoding)
    except LookupError:
        raise NoDeserializerError(
            f"org.apache.kafka.common.errors.SerializationException: java.io.UnsupportedEncodingException: {encoding}"
        ) from None
    return lambda data: data.decode(encoding, "replace").encode()


def _number(form: str, name: str, text: Callable[[int | float], str] = str) -> Callable[[bytes], bytes]:
    layout = struct.Struct(f">{form}")

    def read(data: bytes) -> bytes:
        if len(data) != layout.size:
            raise DeserializationError(f"{_SERIALIZATION}: Size of data received by {name} is not {layout.size}")
        return text(layout.unpack(data)[0]).encode()

    return read


def _boolean(data: bytes) -> bytes:
    if len(data) != 1:
        raise DeserializationError(f"{_SERIALIZATION}: Size of data received by BooleanDeserializer is not 1")
    if data[0] not in (0, 1):
        signed = struct.unpack("b", data)[0]
        raise DeserializationError(f"{_SERIALIZATION}: Unexpected byte received by BooleanDeserializer: {signed}")
    return b"true" if data[0] else b"false"


def _uuid(data: bytes) -> bytes:
    text = data.decode(errors="replace")
    parts = text.split("-")
    hexadecimal = set("0123456789abcdefABCDEF")
    if (
        len(text) > _UUID_CHARS_MAX
        or len(parts) != len(_UUID_PARTS)
        or any(not 0 < len(part) <= _LONG_DIGITS_MAX or not set(part) <= hexadecimal for part in parts)
    ):
        raise DeserializationError(f"{_SERIALIZATION}: Error parsing data into UUID")
    shown = [
        f"{int(part, 16) & ((1 << bits) - 1):0{bits // 4}x}"[-bits // 4 :]
        for part, bits in zip(parts, _UUID_PARTS, strict=True)
    ]
    return "-".join(shown).encode()


def _bytes(data: bytes) -> bytes:
    return "".join(chr(byte) if byte in _PRINTABLE else f"\\x{byte:02X}" for byte in data).encode()


def _buffer(data: bytes) -> bytes:
    return f"java.nio.HeapByteBuffer[pos=0 lim={len(data)} cap={len(data)}]".encode()


def _nothing(data: bytes) -> bytes:  # noqa: ARG001 - as all of them
    # What it is given is never null: null has become the literal that stands for it.
    raise DeserializationError("java.lang.IllegalArgumentException: Data should be null for a VoidDeserializer.")


_BY_NAME: Final[dict[str, Callable[[bytes], bytes]]] = {
    "Boolean": _boolean,
    "ByteArray": bytes,
    "ByteBuffer": _buffer,
    "Bytes": _bytes,
    "Double": _number("d", "Deserializer", double_text),
    "Float": _number("f", "Deserializer", float_text),
    "Integer": _number("i", "IntegerDeserializer"),
    "Long": _number("q", "LongDeserializer"),
    "Short": _number("h", "ShortDeserializer"),
    "UUID": _uuid,
    "Void": _nothing,
}
