"""Which offset a partition had reached at a given time: offsets by timestamp, from the time indexes.

Producers set timestamps, so they need not increase along the log; the answer is the first record at or after the wanted
time. The largest timestamp up to each segment does increase, so a binary search leads to one segment, its time index to
a few batches, and only the one batch that holds the answer is decoded. A look-up therefore opens a few files, however
long the log is. Opening the batch is left to the caller (`BatchToSearch`): there may be millions of records in it.

This needs the largest timestamp of each closed segment before the answer. A segment that was filled by this process has
it in memory. One that was found on disk has it in the last entry of its time index, and nowhere else: as timestamps are
arbitrary, a segment is known to be the first that reaches the wanted time only once every one before it was looked at,
and Kafka's folder has no file in which the maximum so far could be kept. (A file's modification time says nothing: the
clock of a producer may be ahead, and a copied folder has other times.) So the first look-up in a log found on disk
reads those entries, as Kafka does: in order, no further than the answer, 12 bytes of each segment, once in the life of
the process. `unread` hands them out, to be read in a thread before the look-up.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.segments import segment_index
from barnabas.log.segments.segment import UNKNOWN_TIMESTAMP
from barnabas.protocol.batch import read_header
from barnabas.protocol.errors import DecodeError, Error, KafkaError
from barnabas.protocol.record_search import first_at_or_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from barnabas.log.segments.open_files import OpenFile
    from barnabas.log.segments.segment import BatchPlace, Segment
    from barnabas.log.segments.segment_list import Segments
    from barnabas.ports import Disk

LAST_TIMESTAMP = 2**63 - 1
"""No timestamp is later: looking for it takes in every segment."""


class TimestampedOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class RisingTimestamps:
    """The largest timestamp up to each closed segment after the one in which the log starts, as far as look-ups have
    needed it.

    The segment in which the log starts is left out because some of its records may be before the start.
    """

    __slots__ = ("_after_offset", "_largest")

    def __init__(self) -> None:
        self._after_offset = 0
        self._largest = array("q")

    def after(self, segment: Segment) -> array[int]:
        """The increasing timestamps of as many segments after this one as are known. The caller may append to them."""
        if segment.base_offset != self._after_offset:
            self._after_offset = segment.base_offset
            self.forget()
        return self._largest

    def forget(self) -> None:
        """Segments were dropped, or the largest timestamp of one turned out to be another."""
        del self._largest[:]


class SegmentTimestamp(NamedTuple):
    """The largest timestamp of a segment, according to its time index."""

    segment: Segment
    largest: segment_index.TimestampOffset


class Unread(NamedTuple):
    """The segments whose largest timestamps a look-up would have to read, in order."""

    segments: tuple[Segment, ...]
    timestamp: int
    start_offset: int

    def run(self, disk: Disk) -> list[SegmentTimestamp]:
        """Reads them, up to the segment that ends the search. May run in any thread. Hand the result to `learn`."""
        found = []
        for segment in self.segments:
            try:
                largest = segment_index.last_time_entry(disk, segment.folder, segment.base_offset)
            except (OSError, segment_index.CorruptIndexError):
                # The look-up itself comes back to this segment, and repairs its index or reports the failure.
                continue
            found.append(SegmentTimestamp(segment, largest))
            if _ends_search(segment, largest.timestamp, self.timestamp, self.start_offset):
                break
        return found


def unread(segments: Segments, timestamp: int, start_offset: int) -> Unread | None:
    """What a look-up of `timestamp` has to read first; None if everything that it needs is in memory."""
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
    """Takes over what `Unread.run` has read, in the thread of the log's owner, unless a look-up was faster."""
    for segment, largest in found:
        if segment.max_timestamp == UNKNOWN_TIMESTAMP:
            segment.max_timestamp, segment.max_timestamp_offset = largest


class BatchToSearch(NamedTuple):
    """A batch that may hold the record that a look-up wants. Opening it may take long: better done in a worker
    process."""

    file: OpenFile
    """To be held (`acquire`) while another thread reads it."""
    path: str
    place: BatchPlace
    timestamp: int
    start_offset: int

    @property
    def next_offset(self) -> int:
        """Where the look-up goes on if the record is not here."""
        return self.place.last_offset + 1

    def read(self, disk: Disk) -> bytes:
        """The bytes of the batch, for `search_batch`. May run in any thread."""
        try:
            return disk.pread(self.file.fd, self.place.size, self.place.position)
        except OSError as error:
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, f"{self.path} cannot be read: {error}") from error

    def run(self, disk: Disk) -> TimestampedOffset | None:
        """The record, if the batch has it."""
        return search_batch(self.read(disk), self.timestamp, self.start_offset)


def search_batch(batch: bytes, timestamp: int, start_offset: int) -> TimestampedOffset | None:
    """The first record of a batch that is not before either of these. May run in another process."""
    try:
        found = first_at_or_after(batch, timestamp, start_offset)
    except DecodeError as error:
        # The broker takes batches as they come, so that a producer's garbage shows only here.
        offset = read_header(batch).base_offset
        message = f"the batch at offset {offset} holds no readable records: {error}"
        raise KafkaError(Error.CORRUPT_MESSAGE, message) from error
    return None if found is None else TimestampedOffset(*found, read_header(batch).partition_leader_epoch)


def batch_at_or_after(segments: Segments, timestamp: int, start_offset: int) -> BatchToSearch | None:
    """The first batch from `start_offset` on that should have a record whose timestamp is at least `timestamp`."""
    for segment in _candidates(segments, timestamp, segments.number_of(start_offset)):
        if segments.max_timestamp_of(segment) >= timestamp:
            found = _find_batch(segments, segment, timestamp, start_offset)
            if found is not None:
                return found
    return None


def batch_with_largest_timestamp(segments: Segments, log_start_offset: int, start_offset: int) -> BatchToSearch | None:
    """The first batch from `start_offset` on that should have the largest timestamp of all."""
    start = segments.number_of(log_start_offset)
    rising = _cover(segments, start, LAST_TIMESTAMP)
    candidates = segments.all[: start + 1]
    if rising:
        candidates.append(segments.all[start + 1 + bisect_left(rising, rising[-1])])
    newest = max((*candidates, segments.active), key=segments.max_timestamp_of)
    if newest.max_timestamp < 0:
        return None
    return _find_batch(segments, newest, newest.max_timestamp, max(start_offset, newest.base_offset))


def search(
    disk: Disk, next_batch: Callable[[int], BatchToSearch | None], start_offset: int
) -> TimestampedOffset | None:
    """The record that one of the batches has, one after the other, opened on the spot."""
    while (batch := next_batch(start_offset)) is not None:
        found = batch.run(disk)
        if found is not None:
            return found
        start_offset = batch.next_offset
    return None


def _ends_search(segment: Segment, largest: int, timestamp: int, start_offset: int) -> bool:
    """Whether the answer is in this segment. In the one in which the log starts, the record may be before the start."""
    return largest >= timestamp and segment.base_offset >= start_offset


def _candidates(segments: Segments, timestamp: int, start: int) -> Iterator[Segment]:
    """The segment in which the log starts; then the first after it that reaches `timestamp`, and all that follow."""
    yield segments.all[start]
    rising = _cover(segments, start, timestamp)
    for number in range(start + 1 + bisect_left(rising, timestamp), len(segments.all)):
        yield segments.all[number]


def _cover(segments: Segments, start: int, timestamp: int) -> array[int]:
    """The largest timestamps up to each closed segment after `start`, at least until one reaches `timestamp`."""
    rising = segments.rising_timestamps.after(segments.all[start])
    for number in range(start + 1 + len(rising), len(segments.all) - 1):
        so_far = rising[-1] if rising else segment_index.NO_TIMESTAMP
        if so_far >= timestamp:
            break
        rising.append(max(so_far, segments.max_timestamp_of(segments.all[number])))
    return rising


def _find_batch(segments: Segments, segment: Segment, timestamp: int, start_offset: int) -> BatchToSearch | None:
    place = segments.repairing(segment, lambda: _look_up(segments, segment, timestamp, start_offset))
    if place is None:
        return None
    return BatchToSearch(segments.open_file(segment), segment.log_path, place, timestamp, start_offset)


def _look_up(segments: Segments, segment: Segment, timestamp: int, start_offset: int) -> BatchPlace | None:
    # An entry with the wanted timestamp itself may name a later batch than the first: the last entry below it does not.
    if segment.index is not None:
        before = segment.index.lookup_timestamp(timestamp - 1)
    else:
        before = segment_index.lookup_timestamp(segments.disk, segment.folder, segment.base_offset, timestamp - 1)
    for batch in segment.batches_around(segments.disk, segments.files, max(before.offset, start_offset)):
        if batch.max_timestamp >= timestamp and batch.last_offset >= start_offset:
            return batch
    return None
