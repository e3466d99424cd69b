"""Which partition each row goes to, as Kafka's default partitioner decides it, computed for whole columns at once.

A partition that the row names wins. A row with a key goes by the murmur2 hash of the key, so that equal keys end up in
the same partition, whichever client wrote them. Rows with neither stick together: as many as fill a batch go to one
partition, the next ones to the next.

murmur2 takes a key word by word, mixing each word into the hash so far. Here each step takes the next word of all keys
that still have one: keys are ordered from the longest to the shortest, so these are always the first ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from barnabas.spark.columnar.sink_columns import PARTITION, ColumnError
from barnabas.spark.columnar.sink_rows import NO_PARTITION, Rows, data_of, lengths_of, offsets_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from barnabas.spark.columnar.sink_rows import Ints

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_WORD_BYTES: Final = 4
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF

LONG_KEY_BYTES: Final = 2_048
"""A longer key is hashed by itself: steps over whole columns would be wasted on the few that are this long."""


class Partitions(NamedTuple):
    """The partitions of a topic."""

    topic: str
    partition_count: int
    available: Sequence[int]
    """Those that have a leader; rows that may go anywhere do not wait for the rest."""


class Sticky:
    """Where rows without a key go: to one partition until a batch is full, then to the next."""

    def __init__(self, batch_bytes: int, start: int) -> None:
        self._batch_bytes = batch_bytes
        self._at_bytes = start * batch_bytes

    def choose(self, sizes: Ints, available: Sequence[int]) -> NDArray[np.int32]:
        """A partition for each row of these sizes."""
        ends = self._at_bytes + np.cumsum(sizes)
        turns = (ends - sizes) // self._batch_bytes
        if len(ends):
            self._at_bytes = int(ends[-1])
        chosen: NDArray[np.int32] = np.array(available, np.int32)[turns % len(available)]
        return chosen


def assign(rows: Rows, partitions: Partitions, sticky: Sticky) -> NDArray[np.int32]:
    """The partition of each row."""
    chosen = np.full(len(rows), NO_PARTITION, np.int32) if rows.partitions is None else rows.partitions
    if len(rows) and (highest := int(chosen.max())) >= partitions.partition_count:
        raise ColumnError(
            PARTITION,
            f"is {highest} in a row, but topic {partitions.topic} has only {partitions.partition_count} partitions",
        )
    open_places = np.flatnonzero(chosen == NO_PARTITION)
    if not len(open_places):
        return chosen
    chosen = chosen.copy()
    if rows.keys is not None:
        has_key = rows.keys.is_valid().to_numpy(zero_copy_only=False)
        keyed = open_places[has_key[open_places]]
        keys = rows.keys if len(keyed) == len(rows) else rows.keys.take(pa.array(keyed))
        chosen[keyed] = by_key(keys, partitions.partition_count)
        open_places = open_places[~has_key[open_places]]
    if len(open_places):
        sizes = lengths_of(rows.values)[open_places]
        chosen[open_places] = sticky.choose(sizes, partitions.available or range(partitions.partition_count))
    return chosen


def by_key(keys: pa.Array, partition_count: int) -> NDArray[np.int32]:
    """The partition of each key; none may be null."""
    return ((murmur2(keys) & np.uint32(_POSITIVE)) % np.uint32(partition_count)).astype(np.int32)


def murmur2(keys: pa.Array) -> NDArray[np.uint32]:
    """The hash of each key in a column of bytes without nulls, as Kafka's clients compute it."""
    lengths = lengths_of(keys)
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    data = data_of(keys)
    if len(data) < _WORD_BYTES:
        # A word may be read at any position with four bytes left, and there must be at least one such position.
        data = np.concatenate([data, np.zeros(_WORD_BYTES, np.uint8)])
    starts = offsets_of(keys)[:-1]
    long_places = np.flatnonzero(lengths > LONG_KEY_BYTES)
    short_lengths = lengths.copy()
    short_lengths[long_places] = 0
    order = np.argsort(-short_lengths, kind="stable")
    hashes[order] = _mix(hashes[order], data, starts[order], short_lengths[order])
    for place in long_places.tolist():
        start = int(starts[place])
        hashes[place] = murmur2_of(data[start : start + int(lengths[place])].tobytes())
    return hashes


def murmur2_of(key: bytes) -> int:
    """The hash of one key, as an unsigned number."""
    hashed = _SEED ^ len(key)
    whole = len(key) - len(key) % _WORD_BYTES
    for word in np.frombuffer(key, "<u4", whole // _WORD_BYTES).tolist():
        mixed = word * _M & _MASK
        mixed = (mixed ^ mixed >> _R) * _M & _MASK
        hashed = hashed * _M & _MASK ^ mixed
    if len(key) > whole:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


def _mix(hashes: NDArray[np.uint32], data: NDArray[np.uint8], starts: Ints, lengths: Ints) -> NDArray[np.uint32]:
    """The hashes of keys, which are ordered by length, longest first; `hashes` start out seeded with the lengths."""
    m = np.uint32(_M)
    words: NDArray[np.uint32] = np.ndarray((len(data) - _WORD_BYTES + 1,), "<u4", data.data, strides=(1,))
    word_counts = lengths // _WORD_BYTES
    for step in range(int(word_counts[0]) if len(word_counts) else 0):
        active = int(np.searchsorted(-word_counts, -step))
        mixed = words[starts[:active] + step * _WORD_BYTES] * m
        mixed = (mixed ^ mixed >> np.uint32(_R)) * m
        hashes[:active] = hashes[:active] * m ^ mixed
    rests = lengths % _WORD_BYTES
    for byte in reversed(range(_WORD_BYTES - 1)):
        at = np.flatnonzero(rests > byte)
        tail = data[starts[at] + word_counts[at] * _WORD_BYTES + byte].astype(np.uint32)
        hashes[at] ^= tail << np.uint32(8 * byte)
    with_rest = np.flatnonzero(rests)
    hashes[with_rest] *= m
    hashes = (hashes ^ hashes >> np.uint32(13)) * m
    return hashes ^ hashes >> np.uint32(15)
