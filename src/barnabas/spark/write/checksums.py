"""A checksum of rows that does not depend on their order, computed for whole columns at once.

Each row has a hash, and the checksum of many rows is the sum of their hashes. The hash of an element is the sum of its
eight-byte words, each multiplied by an odd number that depends on its position, then mixed, so that bytes that move
from one row to another are noticed. To compute it, Arrow pads all elements with zeros to one width, and they are
multiplied as a matrix. The checksum detects that a plan computed other rows; it does not protect against an attacker
who searches for collisions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from barnabas.spark.columnar.sink_rows import BYTES, data_of, lengths_of, offsets_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barnabas.spark.columnar.sink_rows import Rows

Words: TypeAlias = "NDArray[np.uint64]"

MASK: Final = (1 << 64) - 1
WIDTHS: Final = (32, 128, 512)
"""What elements are padded to; a longer one is hashed by itself."""

_WORD_BYTES: Final = 8
_NULL: Final = np.uint64(0x9AE16A3B2F90404F)


def _mixed(numbers: Words) -> Words:
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ numbers >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return numbers ^ numbers >> np.uint64(31)


def _odd_numbers(count: int) -> Words:
    """Pseudo-random odd numbers, always the same ones."""
    return _mixed(np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)


_LENGTH_WEIGHT, _COLUMN_WEIGHT, *_ = _odd_numbers(2)
_WORD_WEIGHTS: Final = _odd_numbers(2 + WIDTHS[-1] // _WORD_BYTES)[2:]


def checksum(rows: Rows) -> int:
    """The checksum of keys, values and, if the rows name them, topics."""
    total = np.zeros(len(rows), np.uint64)
    topics = None if rows.topics is None else rows.topics.cast(BYTES)
    for column in (rows.keys, rows.values, topics):
        total = total * _COLUMN_WEIGHT + (_NULL if column is None else hashes_of(column))
    return int(_mixed(total).sum(dtype=np.uint64))


def hashes_of(column: pa.Array) -> Words:
    """The hash of each element of a column of bytes."""
    lengths = lengths_of(column)
    hashes = np.empty(len(column), np.uint64)
    least = -1
    for width in WIDTHS:
        places = np.flatnonzero((lengths > least) & (lengths <= width))
        if len(places) == len(column):
            hashes = _hash_padded(column, width)
        elif len(places):
            hashes[places] = _hash_padded(column.take(pa.array(places)), width)
        least = width
    starts, data = offsets_of(column), data_of(column)
    for place in np.flatnonzero(lengths > least).tolist():
        first = int(starts[place])
        hashes[place] = xxh3_64_intdigest(data[first : first + int(lengths[place])].data)
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _hash_padded(column: pa.Array, width: int) -> Words:
    """The hashes of elements of at most this width."""
    as_text = column.fill_null(b"").view(pa.large_string())  # not really text, but nothing here checks that
    padded = pc.ascii_rpad(as_text, width, "\0")
    first = int(offsets_of(padded)[0])
    words = data_of(padded)[first : first + width * len(column)].view("<u8").reshape(len(column), width // _WORD_BYTES)
    sums = np.einsum("ij,j->i", words, _WORD_WEIGHTS[: words.shape[1]])
    return _mixed(sums + lengths_of(column).view(np.uint64) * _LENGTH_WEIGHT)
