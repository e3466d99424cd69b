"""From the bytes of a Fetch response to Arrow record batches.

A response holds whole batches and perhaps the beginning of one more. Their headers alone tell where the next Fetch
starts, so they are surveyed first (`fetched_batches`), and the next request is in flight while these records are
decoded. Records are decoded many batches at a time (`record_columns`): all that is done per batch is its
checksum and decompression, and per record nothing.

A response starts with the batch that contains the requested offset, not with its record, and may go beyond the range of
a task: the excess is cut off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from barnabas.protocol.batch import ATTRIBUTES_AT, CODEC_MASK, HEADER_SIZE
from barnabas.protocol.checksum import crc32c
from barnabas.protocol.compression import DECOMPRESSED_BYTES_MAX, Codec, NoRoomError, decompress_into
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.record_bounds import Ints, RecordBytes, Sections
from barnabas.spark.columnar.fetched_batches import Batches, Headers, Wanted, corrupt, visible
from barnabas.spark.columnar.record_columns import TYPES, build_columns, read_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from barnabas.spark.columnar.fetched_batches import AbortedTransaction

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
COLUMNS_WITH_HEADERS: Final = (*COLUMNS, "headers")

BATCH_ROWS: Final = 64 * 1024
BATCH_BYTES: Final = 8 * 1024 * 1024
"""How much is decoded at a time, give or take one of Kafka's batches. This bounds the memory of a task."""
SCRATCH_BYTES: Final = BATCH_BYTES + 1024 * 1024


class Chunk(NamedTuple):
    """Batches whose records are decoded together, and where their uncompressed records are in `data`."""

    data: memoryview
    sections: Sections
    headers: Headers


class Scratch:
    """A reusable buffer for decompressed records: a fresh page of memory costs more than decompressing into it."""

    __slots__ = ("room",)

    def __init__(self) -> None:
        self.room = memoryview(bytearray())

    def put(self, codec: Codec, section: memoryview, position: int) -> int:
        """Decompresses a section to this position, after what is kept; returns the position after it."""
        while True:
            try:
                return position + decompress_into(codec, section, self.room[position:])
            except NoRoomError:
                if len(self.room) - position >= DECOMPRESSED_BYTES_MAX:
                    raise
            larger = memoryview(bytearray(max(SCRATCH_BYTES, 2 * len(self.room))))
            larger[:position] = self.room[:position]
            self.room = larger


def schema_of(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, TYPES[name]) for name in columns])


def decode(
    answer: Batches, wanted: Wanted, scratch: Scratch, aborted: Iterable[AbortedTransaction] = ()
) -> Iterator[pa.RecordBatch]:
    """The records of a response in order.

    `aborted` are the transactions that the response lists as aborted, which it does for `read_committed`.
    """
    schema = schema_of(wanted.columns)
    for chunk in _chunks(visible(answer, wanted, aborted), wanted, scratch):
        rows = _decode_chunk(chunk, wanted, schema)
        for first in range(0, rows.num_rows, wanted.batch_rows):
            yield rows.slice(first, wanted.batch_rows)


def _chunks(batches: Batches, wanted: Wanted, scratch: Scratch) -> Iterator[Chunk]:
    """Batches in portions of bounded size, with their checksums verified.

    Uncompressed records stay where they are in the response, unless others must be decompressed.
    """
    in_place = not batches.are_compressed.any()
    counts = batches.headers["record_count"].astype(np.int64)
    first = 0
    while first < len(counts):
        last = first + _fitting(counts[first:], wanted.batch_rows)
        if in_place:
            last = first + _fitting(batches.sizes[first:last], BATCH_BYTES)
        portion = batches.only(slice(first, last))
        _check_crcs(portion, wanted)
        if in_place:
            data = batches.data
            bounds = portion.positions + HEADER_SIZE, portion.positions + portion.sizes
        else:
            ends = _decompress(portion, wanted, scratch)
            last = first + len(ends)
            data = scratch.room[: ends[-1]]
            bounds = np.array([0, *ends[:-1]], np.int64), np.array(ends, np.int64)
        yield Chunk(data, Sections(*bounds, counts[first:last]), batches.headers[first:last])
        first = last


def _fitting(sizes: Ints, limit: int) -> int:
    """How many of these sizes, from the first on, fit into the limit together; at least one."""
    return max(1, int(np.searchsorted(np.cumsum(sizes), limit, side="right")))


def _check_crcs(batches: Batches, wanted: Wanted) -> None:
    starts, ends = batches.positions + ATTRIBUTES_AT, batches.positions + batches.sizes
    crcs = batches.headers["crc"]
    for index, (start, end, crc) in enumerate(zip(starts.tolist(), ends.tolist(), crcs.tolist(), strict=True)):
        if crc32c(batches.data[start:end]) != crc:
            offset = int(batches.headers["base_offset"][index])
            raise corrupt(wanted, offset, "its checksum does not match its content")


def _decompress(batches: Batches, wanted: Wanted, scratch: Scratch) -> list[int]:
    """Decompresses the records of as many batches as fit, one after the other; returns where those of each end."""
    ends: list[int] = []
    position = 0
    starts, behind = batches.positions + HEADER_SIZE, batches.positions + batches.sizes
    codecs = batches.headers["attributes"] & CODEC_MASK
    for start, end, number in zip(starts.tolist(), behind.tolist(), codecs.tolist(), strict=True):
        try:
            position = scratch.put(_codec(number), batches.data[start:end], position)
        except DecodeError as error:
            raise corrupt(wanted, int(batches.headers["base_offset"][len(ends)]), error) from error
        ends.append(position)
        if position >= BATCH_BYTES:
            break
    return ends


def _codec(number: int) -> Codec:
    try:
        return Codec(number)
    except ValueError:
        raise DecodeError(f"no codec has number {number}") from None


def _decode_chunk(chunk: Chunk, wanted: Wanted, schema: pa.Schema) -> pa.RecordBatch:
    try:
        return _to_arrow(chunk, wanted, schema)
    except DecodeError:
        _raise_for_first_corrupt(chunk, wanted, schema)
        raise


def _to_arrow(chunk: Chunk, wanted: Wanted, schema: pa.Schema) -> pa.RecordBatch:
    records = RecordBytes(chunk.data)
    fields = read_fields(records, chunk.sections, chunk.headers).between(wanted.start, wanted.end)
    columns = build_columns(wanted.columns, records, fields, wanted.topic, wanted.partition)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _raise_for_first_corrupt(chunk: Chunk, wanted: Wanted, schema: pa.Schema) -> None:
    """Something in the chunk is corrupt: decoding each batch by itself tells which one it is."""
    for index in range(len(chunk.headers)):
        one = slice(index, index + 1)
        try:
            _to_arrow(Chunk(chunk.data, chunk.sections.only(one), chunk.headers[one]), wanted, schema)
        except DecodeError as error:
            raise corrupt(wanted, int(chunk.headers["base_offset"][index]), error) from error
