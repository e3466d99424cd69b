"""Rows to be written: the columns of a batch (`sink_columns`) in one uniform representation.

What only the rows can tell (a null topic, a negative partition, a time before 1970) is an error before they are sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark.columnar.sink_columns import HEADERS, KEY, PARTITION, TIMESTAMP, TOPIC, VALUE, ColumnError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.int64]"

NO_PARTITION: Final = -1
BYTES: Final = pa.large_binary()
"""The one type of keys and values here. It has 64-bit offsets, so that no sum of lengths is too large."""

_US_PER_MS: Final = 1_000


class Rows(NamedTuple):
    """Columns of some rows, each with one element per row."""

    keys: pa.Array | None
    """Of type `BYTES`, or None if no row has a key."""
    values: pa.Array
    headers: pa.Array | None
    """Lists of structs of `BYTES`, or None if no row has headers."""
    topics: pa.Array | None
    partitions: NDArray[np.int32] | None
    """NO_PARTITION for a row that does not name one."""
    timestamps_ms: Ints

    def __len__(self) -> int:
        return len(self.values)

    def take(self, places: NDArray[Any]) -> Rows:
        """The rows at these positions, in this order."""
        at = pa.array(places)
        return Rows(
            _take(self.keys, at),
            self.values.take(at),
            _take(self.headers, at),
            _take(self.topics, at),
            None if self.partitions is None else self.partitions[places],
            self.timestamps_ms[places],
        )


def read_rows(batch: pa.RecordBatch, *, topic: str | None, now_ms: int) -> Rows:
    """The rows of a batch whose schema has been checked; ColumnError if a value cannot be written."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return Rows(
        keys=_some(_as_bytes(columns.get(KEY))),
        values=_as_bytes(columns[VALUE]),
        headers=_some(_as_headers(columns.get(HEADERS))),
        topics=None if topic is not None else _checked_topics(columns[TOPIC]),
        partitions=_partitions(columns.get(PARTITION)),
        timestamps_ms=_timestamps_ms(columns.get(TIMESTAMP), len(batch), now_ms),
    )


def lengths_of(column: pa.Array) -> Ints:
    """The length of each element, 0 for null."""
    lengths: Ints = np.diff(offsets_of(column))
    if column.null_count:
        # The bytes under a null do not count, and need not be empty.
        lengths = np.where(column.is_null().to_numpy(zero_copy_only=False), 0, lengths)
    return lengths


def offsets_of(column: pa.Array) -> Ints:
    """Where each element of a column of `BYTES` begins in its data, and where the last one ends."""
    offsets: Ints = np.frombuffer(column.buffers()[1], np.int64, len(column) + 1, column.offset * 8)
    return offsets


def data_of(column: pa.Array) -> NDArray[np.uint8]:
    """The bytes that a column of `BYTES` holds. A slice shares those of the whole column, at the same positions."""
    data = column.buffers()[2]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def _take(column: pa.Array | None, places: pa.Array) -> pa.Array | None:
    return None if column is None else column.take(places)


def _some(column: pa.Array | None) -> pa.Array | None:
    """The column, or None if all of it is null."""
    return None if column is None or column.null_count == len(column) else column


def _as_bytes(column: pa.Array | None) -> pa.Array | None:
    return None if column is None else column.cast(BYTES)


def _as_headers(column: pa.Array | None) -> pa.Array | None:
    if column is None:
        return None
    names = [column.type.value_type.field(place).name for place in range(2)]
    header = pa.struct([pa.field(name, BYTES) for name in names])
    return column.cast(pa.list_(pa.field(column.type.value_field.name, header)))


def _checked_topics(column: pa.Array) -> pa.Array:
    if column.null_count:
        raise ColumnError(TOPIC, "is null in a row, but must name a topic in each row unless option topic is set")
    return column


def _partitions(column: pa.Array | None) -> NDArray[np.int32] | None:
    if column is None or column.null_count == len(column):
        return None
    numbers: NDArray[np.int32] = column.fill_null(NO_PARTITION).to_numpy(zero_copy_only=False)
    if column.drop_null().to_numpy(zero_copy_only=False).min() < 0:
        raise ColumnError(PARTITION, f"is {numbers.min()} in a row: partitions count from 0; null means by key")
    return numbers


def _timestamps_ms(column: pa.Array | None, count: int, now_ms: int) -> Ints:
    if column is None:
        return np.full(count, now_ms, np.int64)
    times_us = pc.fill_null(column.cast(pa.int64()), now_ms * _US_PER_MS).to_numpy(zero_copy_only=False)
    times: Ints = times_us // _US_PER_MS
    if count and times.min() < 0:
        raise ColumnError(TIMESTAMP, f"is {times.min()} ms in a row: Kafka has no timestamps before 1970")
    return times
