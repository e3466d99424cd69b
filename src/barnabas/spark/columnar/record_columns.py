"""Records as Arrow columns, without a Python object for any of them.

The fields of all records are located first, as arrays of positions in the buffer that holds the records. Keys and
values are then copied out in one go: seen as an Arrow column, the buffer is a sequence of filler, key, filler, value,
and so on, of which Arrow takes every fourth element, copying bytes at the speed of memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from barnabas.protocol.batch import LOG_APPEND_TIME_FLAG
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.record_bounds import Ints, RecordBytes, Sections, record_bounds
from barnabas.protocol.varint import read_varint
from barnabas.spark.columnar.fetched_batches import Headers, has_flag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

_ATTRIBUTES_BYTES: Final = 1
_HEADER_BYTES_MIN: Final = 2
_HEADERS_SIDE_BY_SIDE: Final = 64
"""Up to this many headers of a record are read together with those of all others; any more, one by one."""

_US_PER_MS: Final = 1_000
_TIMESTAMP_MS_MAX: Final = (1 << 63) // _US_PER_MS - 1

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
TYPES: Final[Mapping[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER_TYPE)),
}
"""The columns of a topic, with the types that Spark expects from a task."""


class Fields(NamedTuple):
    """The fields of records, as arrays with an element per record. A negative length stands for null."""

    offsets: Ints
    timestamps_us: Ints
    timestamp_types: NDArray[np.int32]
    key_starts: Ints
    key_lengths: Ints
    value_starts: Ints
    value_lengths: Ints
    headers_at: Ints
    ends: Ints

    def between(self, start: int, end: int) -> Fields:
        """The fields of the records with offsets from `start` up to but not including `end`."""
        low, high = np.searchsorted(self.offsets, (start, end)).tolist()
        if high - low == len(self.offsets):
            return self
        kept: list[NDArray[Any]] = [array[low:high] for array in self]
        return Fields._make(kept)


def read_fields(records: RecordBytes, sections: Sections, batches: Headers) -> Fields:
    """The fields of all records of these batches, whose sections follow one another.

    DecodeError if they contradict each other; checksums have been verified before.
    """
    try:
        return _read_fields(records, sections, batches)
    except IndexError:
        raise DecodeError("a record claims more bytes than there are") from None


def _read_fields(records: RecordBytes, sections: Sections, batches: Headers) -> Fields:
    starts, ends = record_bounds(records, sections)
    lengths, at = records.read_varints(starts)
    if (at + lengths != ends).any():
        raise DecodeError("the length of a record does not lead to the next one")
    timestamp_deltas, at = records.read_varints(at + _ATTRIBUTES_BYTES, bits=64)
    offset_deltas, at = records.read_varints(at)
    key_lengths, key_starts = records.read_varints(at)
    value_lengths, value_starts = records.read_varints(key_starts + np.maximum(key_lengths, 0))
    headers_at = value_starts + np.maximum(value_lengths, 0)
    if (headers_at >= ends).any():
        raise DecodeError("the key and value of a record are longer than the record")
    are_append_times = has_flag(batches, LOG_APPEND_TIME_FLAG)
    return Fields(
        _offsets(offset_deltas, batches, sections.counts),
        _timestamps_us(timestamp_deltas, batches, are_append_times, sections.counts),
        np.repeat(are_append_times.astype(np.int32), sections.counts),
        key_starts,
        key_lengths,
        value_starts,
        value_lengths,
        headers_at,
        ends,
    )


def _offsets(deltas: Ints, batches: Headers, counts: Ints) -> Ints:
    """Absolute offsets. They must stay within their batch and increase, or the next fetch would return them again."""
    offsets = _for_each_record(batches["base_offset"], counts) + deltas
    last_deltas = _for_each_record(batches["last_offset_delta"], counts)
    if (deltas < 0).any() or (deltas > last_deltas).any() or (offsets[1:] <= offsets[:-1]).any():
        raise DecodeError("the offsets of records do not increase, or are not within their batch")
    return offsets


def _timestamps_us(deltas: Ints, batches: Headers, are_append_times: NDArray[np.bool_], counts: Ints) -> Ints:
    """The effective timestamps: with LogAppendTime, all records of a batch have the batch's maximum timestamp."""
    timestamps = _for_each_record(batches["base_timestamp"], counts) + deltas
    if are_append_times.any():
        max_timestamps = _for_each_record(batches["max_timestamp"], counts)
        timestamps = np.where(np.repeat(are_append_times, counts), max_timestamps, timestamps)
    if len(timestamps) and (timestamps.max() > _TIMESTAMP_MS_MAX or timestamps.min() < -_TIMESTAMP_MS_MAX):
        raise DecodeError("the timestamp of a record is out of Spark's range")
    return timestamps * _US_PER_MS


def _for_each_record(of_batches: NDArray[Any], counts: Ints) -> Ints:
    return np.repeat(of_batches.astype(np.int64), counts)


def build_columns(
    columns: Sequence[str], records: RecordBytes, fields: Fields, topic: str, partition: int
) -> list[pa.Array]:
    """The columns with these names, with their types from `TYPES`."""
    count = len(fields.offsets)
    built: dict[str, pa.Array] = {}
    built["key"], built["value"] = _gather(
        records.data, (fields.key_starts, fields.key_lengths), (fields.value_starts, fields.value_lengths)
    )
    built["topic"] = pa.repeat(pa.scalar(topic, TYPES["topic"]), count)
    built["partition"] = pa.repeat(pa.scalar(partition, TYPES["partition"]), count)
    built["offset"] = _fixed(TYPES["offset"], fields.offsets)
    built["timestamp"] = _fixed(TYPES["timestamp"], fields.timestamps_us)
    built["timestampType"] = _fixed(TYPES["timestampType"], fields.timestamp_types)
    if "headers" in columns:
        built["headers"] = _headers(records, fields.headers_at, fields.ends)
    return [built[name] for name in columns]


def _fixed(kind: pa.DataType, values: NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _gather(data: memoryview, *fields: tuple[Ints, Ints]) -> list[pa.Array]:
    """Binary columns of fields, given by their starts and lengths, that follow in this order in each record."""
    count, width = len(fields[0][0]), 2 * len(fields)
    bounds = np.zeros(count * width + 1, np.int32)
    for index, (starts, lengths) in enumerate(fields):
        bounds[2 * index + 1 :: width] = starts
        bounds[2 * index + 2 :: width] = starts + np.maximum(lengths, 0)
    laid_out = pa.Array.from_buffers(pa.binary(), count * width, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return [
        _take(laid_out, np.arange(2 * index + 1, count * width, width, dtype=np.int32), lengths < 0)
        for index, (_, lengths) in enumerate(fields)
    ]


def _take(laid_out: pa.Array, indices: NDArray[np.int32], is_null: NDArray[np.bool_]) -> pa.Array:
    if is_null.all():
        return pa.nulls(len(indices), pa.binary())
    taken = laid_out.take(pa.array(indices))
    if not is_null.any():
        return taken
    _, bounds, data = taken.buffers()
    is_there = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(indices), [is_there, bounds, data])


def _headers(records: RecordBytes, at: Ints, ends: Ints) -> pa.Array:
    """The column of headers, which is null for a record without any, as in Spark's own connector.

    Most records have none. The first headers of all others are read together, then their second ones, and so on.
    """
    is_null = records.octets[at] == 0
    if (at[is_null] + 1 != ends[is_null]).any():
        raise DecodeError("a record without headers has bytes after its value")
    if is_null.all():
        return pa.nulls(len(at), TYPES["headers"])
    # A header without a value may end the buffer, and varints are read in pairs of bytes: so one byte is added.
    padded = RecordBytes(memoryview(bytes(records.data) + b"\0"))
    try:
        counts, names, values = _read_headers(padded, at[~is_null], ends[~is_null])
    except IndexError:
        raise DecodeError("the header of a record claims more bytes than there are") from None
    bounds = np.zeros(len(at) + 1, np.int32)
    bounds[1:][~is_null] = counts
    name_column, value_column = _gather(padded.data, names, values)
    pairs = pa.StructArray.from_arrays([_as_text(name_column), value_column], fields=list(HEADER_TYPE))
    return pa.ListArray.from_arrays(
        np.cumsum(bounds, dtype=np.int32), pairs, type=TYPES["headers"], mask=pa.array(is_null)
    )


def _read_headers(records: RecordBytes, at: Ints, ends: Ints) -> tuple[Ints, tuple[Ints, Ints], tuple[Ints, Ints]]:
    """How many headers each record has, and the starts and lengths of the names and values of all headers."""
    counts, at = records.read_varints(at)
    if (counts < 0).any() or (counts * _HEADER_BYTES_MIN > ends - at).any():
        raise DecodeError("a record claims more headers than it has bytes for")
    firsts = np.cumsum(counts) - counts
    name_starts, name_lengths, value_starts, value_lengths = np.empty((4, int(counts.sum())), np.int64)
    for rank in range(min(int(counts.max()), _HEADERS_SIDE_BY_SIDE)):
        reading = np.flatnonzero(counts > rank)
        places = firsts[reading] + rank
        name_lengths[places], name_starts[places] = records.read_varints(at[reading])
        value_lengths[places], value_starts[places] = records.read_varints(name_starts[places] + name_lengths[places])
        at[reading] = value_starts[places] + np.maximum(value_lengths[places], 0)
    for record in np.flatnonzero(counts > _HEADERS_SIDE_BY_SIDE).tolist():
        position = int(at[record])
        for place in range(firsts[record] + _HEADERS_SIDE_BY_SIDE, firsts[record] + counts[record]):
            name_lengths[place], name_starts[place] = read_varint(records.data, position)
            behind_name = int(name_starts[place] + name_lengths[place])
            value_lengths[place], value_starts[place] = read_varint(records.data, behind_name)
            position = int(value_starts[place] + max(value_lengths[place], 0))
        at[record] = position
    if (name_lengths < 0).any() or (at != ends).any():
        raise DecodeError("the headers of a record do not end where the record ends")
    return counts, (name_starts, name_lengths), (value_starts, value_lengths)


def _as_text(names: pa.Array) -> pa.Array:
    """Names as strings. A client may have written one that is not UTF-8, which is then decoded as Java does it."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
