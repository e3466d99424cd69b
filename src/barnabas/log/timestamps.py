"""Where a partition stood at a given time: offsets by timestamp, from the time indexes.

Producers set timestamps, so that they need not rise along the log; the answer is the first record that is at or after
the wanted time. The largest timestamp up to each segment, which does rise, leads to one segment; its time index to a
few batches; only the one batch that holds the answer is opened.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log import index
from barnabas.protocol.batch import read_header
from barnabas.protocol.errors import DecodeError, Error, KafkaError
from barnabas.protocol.records import decode_records

if TYPE_CHECKING:
    from barnabas.log.segment import BatchPlace, Segment
    from barnabas.log.segments import Segments


class TimestampedOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(segments: Segments, timestamp: int, start_offset: int) -> TimestampedOffset | None:
    """The first record from `start_offset` on whose timestamp is at least `timestamp`."""
    for segment in segments.all[bisect_left(segments.rising_timestamps(), timestamp) :]:
        if segments.max_timestamp_of(segment) >= timestamp:
            found = _search_segment(segments, segment, timestamp, start_offset)
            if found is not None:
                return found
    return None


def with_largest_timestamp(segments: Segments) -> TimestampedOffset | None:
    """The first record that has the largest timestamp of all."""
    newest = max(segments.all, key=segments.max_timestamp_of)
    if newest.max_timestamp < 0:
        return None
    return _search_segment(segments, newest, newest.max_timestamp, newest.base_offset)


def _search_segment(
    segments: Segments, segment: Segment, timestamp: int, start_offset: int
) -> TimestampedOffset | None:
    return segments.repairing(segment, lambda: _search(segments, segment, timestamp, start_offset))


def _search(segments: Segments, segment: Segment, timestamp: int, start_offset: int) -> TimestampedOffset | None:
    # An entry with the wanted timestamp itself may name a later batch than the first: the last below it does not.
    if segment.index is not None:
        before = segment.index.lookup_timestamp(timestamp - 1)
    else:
        before = index.lookup_timestamp(segments.disk, segment.folder, segment.base_offset, timestamp - 1)
    for batch in segment.batches_around(segments.disk, segments.files, max(before.offset, start_offset)):
        if batch.max_timestamp >= timestamp and batch.last_offset >= start_offset:
            found = _search_batch(segments, segment, batch, timestamp, start_offset)
            if found is not None:
                return found
    return None


def _search_batch(
    segments: Segments, segment: Segment, batch: BatchPlace, timestamp: int, start_offset: int
) -> TimestampedOffset | None:
    data = segments.disk.pread(segments.open_file(segment).fd, batch.size, batch.position)
    try:
        records = decode_records(data)
    except DecodeError as error:
        # The broker takes batches as they come, so that a producer's garbage shows only here.
        raise KafkaError(
            Error.CORRUPT_MESSAGE, f"the batch at offset {batch.base_offset} holds no readable records: {error}"
        ) from error
    for record in records:
        if record.timestamp >= timestamp and record.offset >= start_offset:
            return TimestampedOffset(record.timestamp, record.offset, read_header(data).partition_leader_epoch)
    return None
