"""The records of many batches at once, as columns: where each lies, its offset, its key.

No object is made for a record. What is kept of a batch is copied as the bytes that it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from barnabas.protocol.batch import CODEC_MASK, HEADER_SIZE
from barnabas.protocol.compression import decompress
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.record_bounds import RecordBytes, Sections, record_bounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from barnabas.protocol.batch import BatchHeader
    from barnabas.protocol.record_bounds import Ints

    Batches = Sequence[tuple[int, BatchHeader]]
    """Where each begins in the data that holds them, and its header."""

OPENED_BYTES_MAX: Final = 8 * 1024 * 1024
"""So much is decompressed before it is looked at, and the rest of one batch."""
_ATTRIBUTES_BYTES: Final = 1


class UnreadableBatchError(DecodeError):
    """A batch whose checksum is right, and whose records cannot be found all the same."""

    def __init__(self, header: BatchHeader, error: DecodeError) -> None:
        super().__init__(f"the batch at offset {header.base_offset} cannot be read: {error}")


class OpenedBatches(NamedTuple):
    batches: Batches
    firsts: Ints
    """For each batch, the number of its first record. No batch is without."""
    records: RecordBytes
    starts: Ints
    """From here on, there is an item for each record."""
    ends: Ints
    offsets: Ints
    timestamp_deltas: Ints
    key_starts: Ints
    key_sizes: Ints
    """-1 for a record without a key."""
    are_tombstones: NDArray[np.bool_]


def open_batches(data: memoryview, batches: Batches) -> Iterator[OpenedBatches]:
    """The batches in `data`, each of which has records, as many together as may be opened at a time."""
    if not any(header.attributes & CODEC_MASK for _, header in batches):
        if batches:
            ends = [at + header.size for at, header in batches]
            yield _find_records(data, batches, [at + HEADER_SIZE for at, _ in batches], ends)
        return
    first, size = 0, 0
    sections: list[bytes] = []
    for number, (at, header) in enumerate(batches, start=1):
        try:
            sections.append(decompress(header.codec, data[at + HEADER_SIZE : at + header.size]))
        except DecodeError as error:
            raise UnreadableBatchError(header, error) from error
        size += len(sections[-1])
        if size >= OPENED_BYTES_MAX or number == len(batches):
            behind = np.cumsum([len(section) for section in sections]).tolist()
            yield _find_records(memoryview(b"".join(sections)), batches[first:number], [0, *behind[:-1]], behind)
            first, size = number, 0
            sections.clear()


def _find_records(data: memoryview, batches: Batches, starts: list[int], ends: list[int]) -> OpenedBatches:
    try:
        return _read_columns(data, batches, starts, ends)
    except DecodeError:
        # Looking at each batch by itself tells which one it is.
        for (at, header), start, end in zip(batches, starts, ends, strict=True):
            try:
                _read_columns(data, [(at, header)], [start], [end])
            except DecodeError as error:
                raise UnreadableBatchError(header, error) from error
        raise


def _read_columns(data: memoryview, batches: Batches, starts_of: list[int], ends_of: list[int]) -> OpenedBatches:
    """Headers of records are not looked at."""
    records = RecordBytes(data)
    counts = np.array([header.record_count for _, header in batches], np.int64)
    try:
        starts, ends = record_bounds(records, Sections(np.array(starts_of), np.array(ends_of), counts))
        _, at = records.read_varints(starts)
        timestamp_deltas, at = records.read_varints(at + _ATTRIBUTES_BYTES, bits=64)
        offset_deltas, at = records.read_varints(at)
        key_sizes, key_starts = records.read_varints(at)
        values_at = key_starts + np.maximum(key_sizes, 0)
        # The lowest bit of a length is its sign, and a negative one says that there is no value.
        are_tombstones = records.octets[values_at] & 1 != 0
    except IndexError:
        raise DecodeError("a record claims more bytes than there are") from None
    if (key_sizes < -1).any() or (values_at >= ends).any():
        raise DecodeError("the key of a record is longer than the record")
    base_offsets = np.repeat(np.array([header.base_offset for _, header in batches], np.int64), counts)
    return OpenedBatches(
        batches,
        np.cumsum(counts) - counts,
        records,
        starts,
        ends,
        base_offsets + offset_deltas,
        timestamp_deltas,
        key_starts,
        key_sizes,
        are_tombstones,
    )
