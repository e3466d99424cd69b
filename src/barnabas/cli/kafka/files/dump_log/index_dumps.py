"""Indexes entry by entry, compared with their segments, and the snapshots of producers."""

from __future__ import annotations

import os
from bisect import bisect_left
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.kafka.files.dump_log.careful_records import careful_records
from barnabas.cli.kafka.files.dump_log.file_names import base_offset_in, beside
from barnabas.cli.kafka.files.dump_log.log_file import INT32_MAX, LogFile
from barnabas.cli.kafka.tool import ToolError, warn
from barnabas.log.producers import aborted_txns
from barnabas.log.segments.file_names import LOG, OFFSET_INDEX
from barnabas.log.segments.segment_index import OFFSET_ENTRY, TIME_ENTRY
from barnabas.protocol import messages as m
from barnabas.protocol.batch import read_header
from barnabas.protocol.checksum import crc32c
from barnabas.protocol.codec import decode_prefix
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.record import NO_TIMESTAMP

if TYPE_CHECKING:
    from struct import Struct

    from barnabas.cli.kafka.files.dump_log.complaints import Complaints
    from barnabas.cli.kafka.files.dump_log.log_file import FoundBatch
    from barnabas.cli.kafka.files.dump_log.page import Page

_WARM_BYTES: Final = 8_192
_SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_VERSION_BYTES: Final = 2
_SNAPSHOT_HEAD_BYTES: Final = 6
"""The version and the checksum of what follows."""
_SEQUENCE_MASK: Final = 0x7FFF_FFFF


class IndexCheck(Enum):
    """What is to be done with an index; the values are the flags that ask for it."""

    SANITY = "index-sanity-check"
    VERIFY = "verify-index-only"
    PRINT = ""


class _Index:
    """The whole entries of an index file."""

    def __init__(self, path: str, base_offset: int, entry: Struct) -> None:
        try:
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            # Kafka makes an empty one then, and finds that it cannot.
            raise ToolError("Invalid max index size: -1") from None
        self.path = path
        self.base_offset = base_offset
        self.entries: list[tuple[int, int]] = list(entry.iter_unpack(data[: len(data) // entry.size * entry.size]))

    def place_of(self, offset: int) -> int:
        """Of an index of offsets: where in the segment the batch begins that has this offset, or one before it.

        The search goes as Kafka's does: in a file with zeros at its end, another would come to another place.
        """
        entries = [(self.base_offset + relative, position) for relative, position in self.entries]
        if not entries:
            return 0
        low, high = 0, len(entries) - 1
        warm = max(0, len(entries) - 1 - _WARM_BYTES // OFFSET_ENTRY.size)
        if entries[warm][0] < offset:
            low = warm
        elif entries[0][0] > offset:
            return 0
        else:
            high = warm
        while low < high:
            middle = (low + high + 1) // 2
            found = entries[middle][0]
            if found == offset:
                return entries[middle][1]
            low, high = (middle, high) if found < offset else (low, middle - 1)
        return entries[low][1]


def dump_offset_index(path: str, check: IndexCheck, message_bytes_max: int, page: Page, complaints: Complaints) -> None:
    base_offset = base_offset_in(path)
    with LogFile(beside(path, LOG)) as log:
        index = _Index(path, base_offset, OFFSET_ENTRY)
        if not index.entries:
            page.line(f"{path} is empty.")
            return
        full_path = os.path.abspath(path)
        if check is IndexCheck.SANITY:
            last_offset = base_offset + index.entries[-1][0]
            if last_offset < base_offset:
                raise ToolError(
                    f"Corrupt index found, index file {full_path} has non-zero size but the last offset is "
                    f"{last_offset} which is less than the base offset {base_offset}"
                )
            page.line(f"{path} passed sanity check.")
            return
        for number, (relative, position) in enumerate(index.entries):
            if not relative and number:
                # A file that was made larger in advance has zeros behind its entries.
                return
            batch = next(log.batches(position, log.end_of(position, message_bytes_max)), None)
            if batch is None:
                raise ToolError("java.util.NoSuchElementException")
            if batch.last_offset != base_offset + relative:
                complaints.index_leads_elsewhere(full_path, base_offset + relative, batch.last_offset)
            if check is IndexCheck.PRINT:
                page.line(f"offset: {base_offset + relative} position: {position}")


def dump_time_index(path: str, check: IndexCheck, page: Page, complaints: Complaints) -> None:
    base_offset = base_offset_in(path)
    with LogFile(beside(path, LOG)) as log:
        offsets = _Index(beside(path, OFFSET_INDEX), base_offset, OFFSET_ENTRY)
        index = _Index(path, base_offset, TIME_ENTRY)
        if check is IndexCheck.SANITY:
            _check_times(index)
            page.line(f"{path} passed sanity check.")
            return
        segment = _Segment(log)
        full_path = os.path.abspath(path)
        previous = NO_TIMESTAMP
        for number, (timestamp, relative) in enumerate(index.entries):
            if not relative and number:
                return
            offset = base_offset + relative
            batch = segment.batch_with(offset, offsets.place_of(offset))
            if batch is None or batch.last_offset != offset:
                complaints.offset_not_found(full_path, offset, -1 if batch is None else batch.last_offset)
            else:
                largest = _largest_timestamp(batch)
                if largest != timestamp:
                    complaints.timestamp_differs(full_path, timestamp, largest)
                if previous >= timestamp:
                    complaints.timestamp_out_of_order(full_path, timestamp, previous)
            if check is IndexCheck.PRINT:
                page.line(f"timestamp: {timestamp} offset: {offset}")
            previous = timestamp


def _check_times(index: _Index) -> None:
    if not index.entries:
        return
    (first_timestamp, _), (last_timestamp, last_relative) = index.entries[0], index.entries[-1]
    beginning = (
        f"Corrupt time index found, time index file ({os.path.abspath(index.path)}) has non-zero size but the last"
    )
    if last_timestamp < first_timestamp:
        raise ToolError(
            f"{beginning} timestamp is {last_timestamp} which is less than the first timestamp {first_timestamp}"
        )
    if last_relative < 0:
        raise ToolError(
            f"{beginning} offset is {index.base_offset + last_relative} which is less than the first offset "
            f"{index.base_offset}"
        )


class _Place(NamedTuple):
    position: int
    last_offset: int


class _Segment:
    """Finds batches of a segment by their last offsets, after one look at all of them."""

    def __init__(self, log: LogFile) -> None:
        self._log = log
        self._places: dict[int, list[_Place]] = {}
        """The batches from a position on."""

    def batch_with(self, offset: int, start: int) -> FoundBatch | None:
        """The first batch from a position on that ends at an offset or after it."""
        end = self._log.end_of(start, INT32_MAX)
        places = self._places_from(start, end)
        first = bisect_left(places, start, key=lambda place: place.position)
        place = next((place for place in places[first:] if place.last_offset >= offset), None)
        return None if place is None else next(self._log.batches(place.position, end))

    def _places_from(self, start: int, end: int) -> list[_Place]:
        for places in self._places.values():
            at = bisect_left(places, start, key=lambda place: place.position)
            if at < len(places) and places[at].position == start:
                return places
        found = [_Place(batch.position, batch.last_offset) for batch in self._log.batches(start, end)]
        self._places[start] = found
        return found


def _largest_timestamp(batch: FoundBatch) -> int:
    header = read_header(batch.data)
    return max((record.timestamp for record in careful_records(batch, header)), default=NO_TIMESTAMP)


def dump_aborted_transactions(path: str, page: Page) -> None:
    base_offset_in(path)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        # Most segments have none.
        return
    for entry in aborted_txns.ENTRY.iter_unpack(data[: len(data) // aborted_txns.ENTRY.size * aborted_txns.ENTRY.size]):
        _, producer_id, first_offset, last_offset, last_stable_offset = entry
        page.line(
            f"version: {aborted_txns.VERSION} producerId: {producer_id} firstOffset: {first_offset} "
            f"lastOffset: {last_offset} lastStableOffset: {last_stable_offset}"
        )


def dump_producers(path: str, page: Page) -> None:
    with open(path, "rb") as file:
        data = file.read()
    try:
        snapshot = _producer_snapshot(data)
    except DecodeError as error:
        page.flush()
        warn(str(error))
        return
    for each in snapshot.producer_entries:
        first_offset = each.current_txn_first_offset
        open_since = f"OptionalLong[{first_offset}]" if first_offset >= 0 else "OptionalLong.empty"
        last_batch = ""
        if each.last_offset >= 0:
            first_sequence = each.last_sequence - each.offset_delta & _SEQUENCE_MASK
            last_batch = (
                f" firstSequence: {first_sequence} lastSequence: {each.last_sequence} lastOffset: {each.last_offset} "
                f"offsetDelta: {each.offset_delta} timestamp: {each.timestamp}"
            )
        page.line(
            f"producerId: {each.producer_id} producerEpoch: {each.epoch} coordinatorEpoch: {each.coordinator_epoch} "
            f"currentTxnFirstOffset: {open_since} lastTimestamp: {each.timestamp}{last_batch}"
        )


def _producer_snapshot(data: bytes) -> m.ProducerSnapshot:
    """DecodeError, in Kafka's words, if the file is none."""
    version = int.from_bytes(data[:_SNAPSHOT_VERSION_BYTES], "big", signed=True)
    failed = "Snapshot failed schema validation:"
    if len(data) < _SNAPSHOT_VERSION_BYTES:
        raise DecodeError(f"{failed} null")
    if version != _SNAPSHOT_VERSION:
        raise DecodeError(f"{failed} Snapshot contained an unknown file version {version}")
    try:
        snapshot, _ = decode_prefix(m.ProducerSnapshot, data, version, _SNAPSHOT_VERSION_BYTES)
    except DecodeError:
        count = data[_SNAPSHOT_HEAD_BYTES : _SNAPSHOT_HEAD_BYTES + 1]
        is_null = bool(count) and count[0] >= 0x80
        raise DecodeError(
            f"{failed} {'non-nullable field producerEntries was serialized as null' if is_null else 'null'}"
        ) from None
    computed = crc32c(data[_SNAPSHOT_HEAD_BYTES:])
    if snapshot.crc != computed:
        raise DecodeError(
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {snapshot.crc}. Computed crc: {computed}"
        )
    return snapshot
