"""Keys of records as Kafka's own serializers write them, so that other applications read the same keys.

`string` is UTF-8, `bytes` is unchanged, `int` and `long` are 4 and 8 bytes, big-endian.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 (so it is called everywhere)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
)

from barnabas.spark.formats.format_arguments import ArgumentError

if TYPE_CHECKING:
    from pyspark.sql import Column

KEY_FORMATS: Final = ("string", "bytes", "int", "long")
_INTEGERS: Final[dict[str, tuple[int, tuple[type[DataType], ...]]]] = {
    "int": (4, (ByteType, ShortType, IntegerType)),
    "long": (8, (ByteType, ShortType, IntegerType, LongType)),
}
"""The size in bytes, and the types that fit, the widest one last."""


def read_key(raw: Column, key_format: str) -> tuple[Column, Column]:
    """The key, and why it is malformed (null if it is not)."""
    if key_format == "bytes":
        return raw, F.lit(None).cast("string")
    if key_format == "string":
        text = raw.cast("string")
        return text, F.when(~F.is_valid_utf8(text), "the key is not UTF-8")
    size_bytes, types = _INTEGERS[key_format]
    # Shifted up and down again to extend the sign of the shorter number.
    unused_bits = 64 - 8 * size_bytes
    bits = F.shiftleft(F.conv(F.hex(raw), 16, -10).cast("long"), unused_bits)
    number = F.shiftright(bits, unused_bits).cast(types[-1]())
    fits = F.octet_length(raw) == size_bytes
    return F.when(fits, number), F.when(~fits, f"the key does not have the {size_bytes} bytes of format {key_format}")


def write_key(key: Column, data_type: DataType, key_format: str) -> Column:
    """A key of this type as bytes. A binary key is left unchanged."""
    if isinstance(data_type, BinaryType) and key_format in ("string", "bytes"):
        return key
    if key_format == "string" and not isinstance(data_type, ArrayType | MapType | StructType):
        return key.cast("string").cast("binary")
    size_bytes, types = _INTEGERS.get(key_format, (0, ()))
    if not isinstance(data_type, types):
        problem = f"{data_type.simpleString()} cannot be written with key_format={key_format!r}: cast it"
        raise ArgumentError("key", problem)
    return F.unhex(F.right(F.lpad(F.hex(key.cast("long")), 16, "0"), F.lit(2 * size_bytes)))
