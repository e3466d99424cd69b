"""Varints of whole columns at once: the numbers before keys and values in a record batch, as Arrow columns.

A varint of up to eight bytes fits into a word, lowest byte first, and so do several short ones in a row: one shift and
one "or" per column put them there. The bytes in use are then cut out of all words in one go.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from barnabas.spark.columnar.sink_rows import BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from barnabas.spark.columnar.sink_rows import Ints

Words: TypeAlias = "NDArray[np.uint64]"

WORD_BYTES: Final = 8
_BITS: Final = 7
_GROUP: Final = (1 << _BITS) - 1
_MORE: Final = 1 << _BITS
_TABLE_SIZE: Final = 1 << 16
"""Zigzag-encoded numbers below this, which most are, are looked up in a table."""


class Varints(NamedTuple):
    """A varint for each row, or several in a row: in a word, lowest byte first, with their size in bytes."""

    words: Words
    sizes: Ints


def pack(numbers: Ints) -> Varints:
    """Each number as a varint of at most eight bytes, which have room for 55 bits and a sign."""
    raw = (numbers << 1 ^ numbers >> 63).view(np.uint64)
    highest = int(raw.max()) if len(raw) else 0
    if highest < _TABLE_SIZE:
        places = raw.view(np.int64)
        return Varints(_WORDS.take(places), _SIZES.take(places))
    if highest >> _BITS * WORD_BYTES:
        raise OverflowError(f"{highest >> 1} takes a varint of more than {WORD_BYTES} bytes")
    return _spread(raw, highest)


def join(columns: Sequence[Varints]) -> list[pa.Array]:
    """Columns of varints side by side, as columns of bytes: as few as their sizes allow."""
    pieces: list[Varints] = []
    for column in columns:
        if pieces and _max(pieces[-1].sizes) + _max(column.sizes) <= WORD_BYTES:
            last = pieces[-1]
            shifted = column.words << (last.sizes.view(np.uint64) << np.uint64(3))
            pieces[-1] = Varints(last.words | shifted, last.sizes + column.sizes)
        else:
            pieces.append(column)
    return [_as_bytes(piece) for piece in pieces]


def _as_bytes(column: Varints) -> pa.Array:
    count = len(column.sizes)
    words = column.words if sys.byteorder == "little" else column.words.byteswap()
    width = _max(column.sizes)
    table = words.view(np.uint8).reshape(count, WORD_BYTES)[:, :width]
    if count * width == int(column.sizes.sum()):
        data = np.ascontiguousarray(table)
    else:
        data = table[np.arange(width) < column.sizes[:, np.newaxis]]
    ends = np.zeros(count + 1, np.int64)
    np.cumsum(column.sizes, out=ends[1:])
    return pa.LargeBinaryArray.from_buffers(BYTES, count, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _spread(raw: Words, highest: int) -> Varints:
    """Seven bits per byte, with the highest bit set in every byte but the last."""
    words = raw & np.uint64(_GROUP)
    sizes = np.ones(len(raw), np.int64)
    for byte in range(1, WORD_BYTES):
        floor = 1 << _BITS * byte
        if highest < floor:
            break
        goes_on = raw >= np.uint64(floor)
        sizes += goes_on
        words |= goes_on.astype(np.uint64) << np.uint64(8 * byte - 1)
        words |= (raw >> np.uint64(_BITS * byte) & np.uint64(_GROUP)) << np.uint64(8 * byte)
    return Varints(words, sizes)


def _max(sizes: Ints) -> int:
    return int(sizes.max()) if len(sizes) else 0


_WORDS, _SIZES = _spread(np.arange(_TABLE_SIZE, dtype=np.uint64), _TABLE_SIZE - 1)
