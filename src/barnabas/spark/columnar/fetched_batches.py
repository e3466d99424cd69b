"""The batches of a Fetch response: where they are, what their headers say, and which of them a reader may see.

Producers that do not linger send batches of one record, so a response may have as many batches as records. Their
headers are read all together, as a structured NumPy array; only finding the next header is a loop.
"""

from __future__ import annotations

import struct
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from barnabas.protocol.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
    decode_records,
)
from barnabas.protocol.control_records import ControlRecordType, decode_key
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from barnabas.protocol import messages as m
    from barnabas.protocol.record_bounds import Ints

    AbortedTransaction = m.FetchResponse.AbortedTransaction

Headers: TypeAlias = "NDArray[np.void]"
"""An array of `HEADER`."""

HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
"""As in `protocol.batch`."""
assert HEADER.itemsize == HEADER_SIZE

_LENGTH_AND_MAGIC: Final = struct.Struct(">i4xb")


class Wanted(NamedTuple):
    """What a reader wants from a partition: offsets from `start` up to but not including `end`, as these columns."""

    topic: str
    partition: int
    start: int
    end: int
    columns: Sequence[str]
    batch_rows: int


class Batches(NamedTuple):
    """Whole batches of a response: where they start, and their headers."""

    data: memoryview
    positions: Ints
    headers: Headers

    @property
    def next_offset(self) -> int | None:
        """The offset after the last one; None if there are no batches."""
        return int(last_offsets(self.headers[-1:])[0]) + 1 if len(self.headers) else None

    @property
    def sizes(self) -> Ints:
        sizes: Ints = self.headers["length"].astype(np.int64) + LENGTH_OVERHEAD
        return sizes

    @property
    def are_compressed(self) -> NDArray[np.bool_]:
        return has_flag(self.headers, CODEC_MASK)

    def only(self, which: NDArray[np.bool_] | slice) -> Batches:
        return Batches(self.data, self.positions[which], self.headers[which])


def last_offsets(headers: Headers) -> Ints:
    offsets: Ints = headers["base_offset"].astype(np.int64) + headers["last_offset_delta"]
    return offsets


def has_flag(headers: Headers, flag: int) -> NDArray[np.bool_]:
    """Which batches have this flag, or one of these flags, in their attributes."""
    flagged: NDArray[np.bool_] = headers["attributes"] & flag != 0
    return flagged


def survey(data: memoryview, wanted: Wanted) -> Batches:
    """The whole batches of a response. A batch that is cut off at its end will be fetched again."""
    positions: list[int] = []
    position, end = 0, len(data)
    while end - position >= HEADER_SIZE:
        length, magic = _LENGTH_AND_MAGIC.unpack_from(data, position + LENGTH_AT)
        size = length + LENGTH_OVERHEAD
        if magic != MAGIC or size < HEADER_SIZE:
            before = _headers_at(data, positions)
            offset = int(last_offsets(before)[-1]) + 1 if positions else wanted.start
            raise corrupt(wanted, offset, f"it has magic {magic} (only {MAGIC} is supported) and {size} bytes")
        if size > end - position:
            break
        positions.append(position)
        position += size
    return Batches(data, np.array(positions, np.int64), _headers_at(data, positions))


def _headers_at(data: memoryview, positions: Sequence[int]) -> Headers:
    if not positions:
        return np.empty(0, HEADER)
    anywhere: Headers = np.ndarray((len(data) - HEADER_SIZE + 1,), HEADER, data, strides=(1,))
    return anywhere[positions]


def visible(batches: Batches, wanted: Wanted, aborted: Iterable[AbortedTransaction]) -> Batches:
    """The batches with records for this reader: no control batches, nothing outside of the range, and nothing from the
    transactions that the response lists as aborted, which it does for `read_committed`."""
    headers = batches.headers
    shown = ~has_flag(headers, CONTROL_FLAG) & (headers["record_count"] != 0)
    shown &= (headers["base_offset"] < wanted.end) & (last_offsets(headers) >= wanted.start)
    upcoming = sorted(aborted, key=attrgetter("first_offset"), reverse=True)
    if upcoming:
        _hide_aborted(batches, wanted, upcoming, shown)
    return batches.only(shown)


def _hide_aborted(
    batches: Batches, wanted: Wanted, upcoming: list[AbortedTransaction], shown: NDArray[np.bool_]
) -> None:
    """An aborted transaction reaches from its first offset to its abort marker.

    After that, its producer may have begun another one. `upcoming` has the last transaction first.
    """
    transactional = np.flatnonzero(has_flag(batches.headers, TRANSACTIONAL_FLAG)).tolist()
    are_control = has_flag(batches.headers, CONTROL_FLAG)
    ends = last_offsets(batches.headers)
    aborting: set[int] = set()
    for index in transactional:
        while upcoming and upcoming[-1].first_offset <= ends[index]:
            aborting.add(upcoming.pop().producer_id)
        producer_id = int(batches.headers["producer_id"][index])
        if producer_id not in aborting:
            continue
        if are_control[index]:
            if _is_abort_marker(batches, index, wanted):
                aborting.discard(producer_id)
        else:
            shown[index] = False


def _is_abort_marker(batches: Batches, index: int, wanted: Wanted) -> bool:
    try:
        (marker,) = decode_records(batches.data, int(batches.positions[index]))
        return decode_key(marker.key or b"") is ControlRecordType.ABORT
    except ValueError as error:
        raise corrupt(wanted, int(batches.headers["base_offset"][index]), error) from error


def corrupt(wanted: Wanted, offset: int, reason: object) -> KafkaError:
    """The error for a batch that cannot be read."""
    return KafkaError(
        Error.CORRUPT_MESSAGE,
        f"{wanted.topic}-{wanted.partition}: the batch at offset {offset} cannot be read: {reason}. "
        "Check the broker's disk, or start reading after this batch",
    )
