"""Where a partition stood at a given time: offsets by timestamp, from the time indexes.

Producers set timestamps, so that they need not rise along the log; the answer is the first record that is at or after
the wanted time. The largest timestamp up to each segment, which does rise, leads to one segment by halving; its time
index to a few batches; only the one batch that holds the answer is opened. So a look-up opens a few files, however
long the log is.

This needs the largest timestamp of each closed segment before the answer. A segment that was filled in this process
has it at hand. One that was found on disk has it in the last entry of its time index, and nowhere else: as timestamps
are free, a segment is known to be the first that reaches the wanted time only once every one before it was seen, and
the folder is Kafka's, with no file to note the maximum so far in. (The time of a file's last change says nothing: the
clock of a producer may be ahead, and a copied folder has other times.) So the first look-up in a log found on disk
reads those entries, as Kafka's does: in order, no further than to the answer, 12 bytes of each segment, once in the
life of the process. `unread` hands them out, to be read in a thread before the look-up.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log import index
from barnabas.log.segment import UNKNOWN_TIMESTAMP
from barnabas.protocol.batch import read_header
from barnabas.protocol.errors import DecodeError, Error, KafkaError
from barnabas.protocol.records import decode_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.log.segment import BatchPlace, Segment
    from barnabas.log.segments import Segments
    from barnabas.ports import Disk

LAST_TIMESTAMP = 2**63 - 1
"""None is later: who looks for it has to see every segment."""


class TimestampedOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class RisingTimestamps:
    """The largest timestamp up to each of the closed segments that follow one of them, as far as look-ups needed it.

    That one is the segment in which the log starts. It stands apart, as some of its records may be before the start.
    """

    __slots__ = ("_after_offset", "_largest")

    def __init__(self) -> None:
        self._after_offset = 0
        self._largest = array("q")

    def after(self, segment: Segment) -> array[int]:
        """The timestamps, which rise, of as many of the segments after this one as are known; to be added to."""
        if segment.base_offset != self._after_offset:
            self._after_offset = segment.base_offset
            self.forget()
        return self._largest

    def forget(self) -> None:
        """Segments were dropped, or one turned out to hold something else."""
        del self._largest[:]


class SegmentTimestamp(NamedTuple):
    """The largest timestamp of a segment, as its time index has it."""

    segment: Segment
    largest: index.TimestampOffset


class Unread(NamedTuple):
    """The segments whose largest timestamps a look-up would have to read, in its order."""

    segments: tuple[Segment, ...]
    timestamp: int
    start_offset: int

    def run(self, disk: Disk) -> list[SegmentTimestamp]:
        """Reads them, up to the segment that ends the search; may run in any thread. Hand the result to `learn`."""
        found = []
        for segment in self.segments:
            try:
                largest = index.last_time_entry(disk, segment.folder, segment.base_offset)
            except (OSError, index.CorruptIndexError):
                # The look-up itself comes to this segment again, and repairs its index or reports the failure.
                continue
            found.append(SegmentTimestamp(segment, largest))
            if _ends_search(segment, largest.timestamp, self.timestamp, self.start_offset):
                break
        return found


def unread(segments: Segments, timestamp: int, start_offset: int) -> Unread | None:
    """What a look-up of `timestamp` has to read first; None when all is at hand that it needs."""
    start = segments.number_of(start_offset)
    rising = segments.rising_timestamps.after(segments.all[start])
    if rising and rising[-1] >= timestamp:
        return None
    wanted = []
    for number in range(start + 1 + len(rising) if rising else start, len(segments.all) - 1):
        segment = segments.all[number]
        if segment.max_timestamp == UNKNOWN_TIMESTAMP:
            wanted.append(segment)
        elif _ends_search(segment, segment.max_timestamp, timestamp, start_offset):
            break
    return Unread(tuple(wanted), timestamp, start_offset) if wanted else None


def learn(found: Iterable[SegmentTimestamp]) -> None:
    """Takes what `Unread.run` has read, on the thread of the log's owner, who may have learnt better meanwhile."""
    for segment, largest in found:
        if segment.max_timestamp == UNKNOWN_TIMESTAMP:
            segment.max_timestamp, segment.max_timestamp_offset = largest


def first_at_or_after(segments: Segments, timestamp: int, start_offset: int) -> TimestampedOffset | None:
    """The first record from `start_offset` on whose timestamp is at least `timestamp`."""
    for segment in _candidates(segments, timestamp, segments.number_of(start_offset)):
        if segments.max_timestamp_of(segment) >= timestamp:
            found = _search_segment(segments, segment, timestamp, start_offset)
            if found is not None:
                return found
    return None


def with_largest_timestamp(segments: Segments, start_offset: int) -> TimestampedOffset | None:
    """The first record that has the largest timestamp of all."""
    start = segments.number_of(start_offset)
    rising = _cover(segments, start, LAST_TIMESTAMP)
    candidates = segments.all[: start + 1]
    if rising:
        candidates.append(segments.all[start + 1 + bisect_left(rising, rising[-1])])
    newest = max((*candidates, segments.active), key=segments.max_timestamp_of)
    if newest.max_timestamp < 0:
        return None
    return _search_segment(segments, newest, newest.max_timestamp, newest.base_offset)


def _ends_search(segment: Segment, largest: int, timestamp: int, start_offset: int) -> bool:
    """Whether a record of the segment is the answer. In the one that holds the start, it may be before that."""
    return largest >= timestamp and segment.base_offset >= start_offset


def _candidates(segments: Segments, timestamp: int, start: int) -> Iterator[Segment]:
    """The segment in which the log starts; after it, the first that reaches `timestamp`, and what follows that."""
    yield segments.all[start]
    rising = _cover(segments, start, timestamp)
    for number in range(start + 1 + bisect_left(rising, timestamp), len(segments.all)):
        yield segments.all[number]


def _cover(segments: Segments, start: int, timestamp: int) -> array[int]:
    """The largest timestamps up to closed segments after number `start`, at least to one that reaches `timestamp`."""
    rising = segments.rising_timestamps.after(segments.all[start])
    for number in range(start + 1 + len(rising), len(segments.all) - 1):
        so_far = rising[-1] if rising else index.NO_TIMESTAMP
        if so_far >= timestamp:
            break
        rising.append(max(so_far, segments.max_timestamp_of(segments.all[number])))
    return rising


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
