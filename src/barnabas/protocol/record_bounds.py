"""Varints and record boundaries of thousands of records at once, by NumPy instead of a loop over bytes.

A record starts with its length, so where one begins is known only after all those before it in its batch. Two things
help. Batches are independent: their first records are looked at in one step, then their second ones, and so on, each
batch in a lane of its own. And records of a batch often have the same length: then all starts of such a run follow from
the first, and comparing the lengths found there proves it. Where neither helps, records are walked one by one in plain
Python.

Varints of one or two bytes, which are nearly all, are looked up in a table by both bytes.

This is for Spark's processes and for those of the cleaner. A node itself does without NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from barnabas.protocol.errors import DecodeError
from barnabas.protocol.record import RECORD_BYTES_MIN
from barnabas.protocol.varint import read_varint

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.int64]"

LANES_MIN = 32
"""A step of all lanes costs as much as this many single steps."""
RUN_LOOKED_AT = 1_024
RUN_MIN = 16
BY_HAND = 256
"""How many records are examined for a run, how many make one worthwhile, and how many are walked if there is none."""

_VARINT_BITS = 7
"""In each byte."""
_SIZE_BITS = 2
_SIZE_MASK = (1 << _SIZE_BITS) - 1


def _make_table() -> Ints:
    """For each pair of bytes, the first one low: the value of the varint, with its size in the lowest bits.

    A size of 0 stands for a longer varint.
    """
    pairs = np.arange(1 << 16, dtype=np.int64)
    first, second = pairs & 0xFF, pairs >> 8
    raw = np.where(first < 0x80, first, first & 0x7F | second << 7)
    size = np.where(first < 0x80, 1, np.where(second < 0x80, 2, 0))
    value = raw >> 1 ^ -(raw & 1)
    table: Ints = value << _SIZE_BITS | size
    return table


_TABLE = _make_table()
_STRIDES: Ints = np.where(_TABLE & _SIZE_MASK, np.maximum(_TABLE >> _SIZE_BITS, 0) + (_TABLE & _SIZE_MASK), 0)
"""The distance from a record's start to the next record; 0, which leads nowhere, if its length takes more than two
bytes."""


class Sections(NamedTuple):
    """The uncompressed records of some batches in a buffer: where those of each batch start and end, and how many."""

    starts: Ints
    ends: Ints
    counts: Ints

    def only(self, which: slice) -> Sections:
        return Sections(self.starts[which], self.ends[which], self.counts[which])


class RecordBytes:
    """A buffer that holds records, seen as bytes and as overlapping pairs of bytes."""

    __slots__ = ("data", "octets", "pairs")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.octets: NDArray[np.uint8] = np.frombuffer(data, np.uint8)
        self.pairs: NDArray[np.uint16] = np.ndarray((len(data) - 1,), "<u2", data, strides=(1,))

    def rows(self, at: Ints, size: int) -> NDArray[np.uint8]:
        """The `size` bytes from each of these positions on, at least one; IndexError if they leave the buffer."""
        windows: NDArray[np.void] = np.ndarray((len(self.data) - size + 1,), f"V{size}", self.data, strides=(1,))
        return windows[at].view(np.uint8).reshape(-1, size)

    def read_varints(self, at: Ints, bits: int = 32) -> tuple[Ints, Ints]:
        """The signed varints of at most `bits` bits at these positions, and the positions after them.

        A varint must not be the last byte of the buffer. One that leaves the buffer is an IndexError.
        """
        found = _TABLE[self.pairs[at]]
        sizes = found & _SIZE_MASK
        values = found >> _SIZE_BITS
        if not sizes.all():
            longer = np.flatnonzero(sizes == 0)
            values[longer], sizes[longer] = self._read_longer(at[longer], bits)
        return values, at + sizes

    def _read_longer(self, at: Ints, bits: int) -> tuple[Ints, Ints]:
        """The values and sizes of varints, read byte by byte."""
        raw = np.zeros(len(at), np.uint64)
        sizes = np.zeros(len(at), np.int64)
        unfinished = np.arange(len(at))
        for shift in range(0, bits, _VARINT_BITS):
            octets = self.octets[at[unfinished] + sizes[unfinished]]
            if shift + _VARINT_BITS > bits and (octets >> (bits - shift)).any():
                break
            raw[unfinished] |= (octets & 0x7F).astype(np.uint64) << np.uint64(shift)
            sizes[unfinished] += 1
            unfinished = unfinished[octets >= 0x80]
            if not len(unfinished):
                return (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64), sizes
        raise DecodeError(f"a varint is longer than {bits} bits")


def record_bounds(records: RecordBytes, sections: Sections) -> tuple[Ints, Ints]:
    """Where each record of each section starts and ends."""
    room = (sections.ends - sections.starts) // RECORD_BYTES_MIN
    if (sections.counts < 0).any() or (sections.counts > room).any():
        raise DecodeError("a batch claims more records than it has bytes for")
    behind = np.cumsum(sections.counts)
    first = behind - sections.counts
    starts = np.empty(int(sections.counts.sum()), np.int64)
    for index in _walk_lanes(records, sections, first, starts):
        bounds = sections.starts[index], sections.ends[index], sections.counts[index]
        starts[first[index] : behind[index]] = _walk(records, *map(int, bounds))
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    filled = sections.counts > 0
    ends[behind[filled] - 1] = sections.ends[filled]
    return starts, ends


def _walk_lanes(records: RecordBytes, sections: Sections, first: Ints, starts: Ints) -> list[int]:
    """Fills in the record starts of all sections side by side, as long as enough sections have records left.

    Returns the sections for which this does not work: those with many more records than the others, those with a record
    whose length takes more than two bytes, and those that are corrupt.
    """
    longest_first = np.argsort(-sections.counts, kind="stable")
    if len(longest_first) < LANES_MIN:
        return _listed(longest_first)
    at, counts, place = sections.starts[longest_first], sections.counts[longest_first], first[longest_first]
    steps = int(counts[LANES_MIN - 1])
    lanes_at_step = np.searchsorted(-counts, -np.arange(steps), side="left").tolist()
    try:
        for step, lanes in enumerate(lanes_at_step):
            now = at[:lanes]
            starts[place[:lanes] + step] = now
            now += _STRIDES[records.pairs[now]]
    except IndexError:
        return _listed(longest_first)
    done = (counts <= steps) & (at == sections.ends[longest_first])
    return _listed(longest_first[~done])


def _listed(numbers: Ints) -> list[int]:
    listed: list[int] = numbers.tolist()
    return listed


def _walk(records: RecordBytes, start: int, end: int, count: int) -> Ints:
    """The starts of the records of one section."""
    found: list[Ints] = []
    at, left, by_hand = start, count, BY_HAND
    while left:
        stride, run = _run_of_equals(records, at, end, left)
        if run >= RUN_MIN:
            found.append(np.arange(at, at + run * stride, stride))
            at += run * stride
        else:
            run = min(left, by_hand)
            starts, at = _walk_by_hand(records.data, at, end, run)
            found.append(np.array(starts, np.int64))
            by_hand *= 2
        left -= run
    if at != end:
        raise DecodeError(f"{end - at} bytes are left after the last of {count} records")
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _run_of_equals(records: RecordBytes, at: int, end: int, left: int) -> tuple[int, int]:
    """The size of the record here, including its length field, and how many from here on have the same size."""
    length, behind = read_varint(records.data, at)
    stride = behind + length - at
    fitting = min(left, RUN_LOOKED_AT, (end - at) // stride) if length >= 0 else 0
    if not fitting:
        raise DecodeError(f"a record claims {length} bytes, but {end - behind} are left")
    if fitting < RUN_MIN:
        return stride, 1
    supposed = records.octets[at : at + fitting * stride].reshape(fitting, stride)
    differs = supposed[:, 0] != supposed[0, 0]
    for index in range(1, behind - at):
        differs |= supposed[:, index] != supposed[0, index]
    return stride, int(differs.argmax()) or fitting


def _walk_by_hand(data: memoryview, at: int, end: int, count: int) -> tuple[list[int], int]:
    """The starts of `count` records, and the position after them. Large batches spend their time here."""
    starts: list[int] = []
    append = starts.append
    for _ in range(count):
        append(at)
        if at >= end:
            raise DecodeError(f"a batch ends before its last {count - len(starts) + 1} records")
        low = data[at]
        if low < 0x80:
            at += (low >> 1) + 1
            continue
        high = data[at + 1]
        if high < 0x80:
            at += (high << 6) + (low >> 1) - 62  # 62 = 64 - 2: the continuation bit, and the two bytes of the length
        else:
            length, behind = read_varint(data, at)
            at = behind + length
    return starts, at
