"""Every batch of a log by its checksum, and every entry of its indexes by the batches that it leads to.

What a broker reads when it starts is the end of a log. Damage before it stays unnoticed until a client reads there, or
until a broker has to recover the log, and takes the damage for its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.log.segments.file_names import OFFSET_INDEX, TIME_INDEX, offset_file
from barnabas.log.segments.segment_index import OFFSET_ENTRY, RELATIVE_OFFSET_MAX, TIME_ENTRY, read_all
from barnabas.log.segments.segment_scan import check_segment
from barnabas.node.doctor.report import Effect, Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.segments.segment import Segment
    from barnabas.ports import Disk
    from barnabas.protocol.batch import BatchHeader

_EVERY_BATCH = -1
"""Bytes between two batches that an index hears of."""


def check_log(log: PartitionLog, disk: Disk, advance: Callable[[int], None]) -> Iterator[Finding]:
    """`advance` hears of the bytes that are done."""
    expected = log.segments.all[0].base_offset
    for segment in log.segments.all:
        if segment.base_offset < expected:
            yield Finding(
                segment.log_path,
                f"begins before offset {expected}, up to which the segment before it goes: one of the two does not "
                "belong here. Restore the folder of the partition from a copy, or from another replica",
                Effect.LOSES,
                Effect.LOSES,
            )
        indexes = ComparedIndexes(disk, segment)
        valid_bytes, expected = check_segment(disk, segment, _EVERY_BATCH, indexes, RELATIVE_OFFSET_MAX, _ignore)
        if valid_bytes < segment.size:
            yield _damage(segment, valid_bytes, expected)
        else:
            indexes.end(segment.size)
        yield from indexes.findings
        advance(segment.size)


def _ignore(header: BatchHeader, batch: memoryview) -> None:
    """Producers and epochs were looked at when the log was opened."""


def _damage(segment: Segment, position: int, offset: int) -> Finding:
    return Finding(
        segment.log_path,
        f"damaged at position {position}, where offset {offset} or a later one should be: from there up to position "
        f"{segment.size} no data is reliable. Restore the file from a copy, or remove the folder of the partition "
        "if another replica has its records. A broker that has to recover this log gives up everything behind the "
        "damage",
        Effect.LOSES,
        Effect.LOSES,
    )


class ComparedIndexes:
    """Hears of the batches of a segment, one after the other, and compares both indexes with them.

    An offset entry must lead to the beginning of a batch, and no batch before that may hold its offset. No batch that
    ends before the offset of a time entry may be newer than its timestamp. More is not promised: what an entry says
    exactly depends on who wrote it, and how much at once.
    """

    def __init__(self, disk: Disk, segment: Segment) -> None:
        self.findings: list[Finding] = []
        self._base_offset = segment.base_offset
        self._offset_path = offset_file(segment.folder, segment.base_offset, OFFSET_INDEX)
        self._time_path = offset_file(segment.folder, segment.base_offset, TIME_INDEX)
        self._offsets = _whole(disk, self._offset_path, OFFSET_ENTRY.size)
        self._times = _whole(disk, self._time_path, TIME_ENTRY.size)
        self._offset_at = self._time_at = 0
        self._last_offset = self._largest_ms = -1
        """Of all batches so far."""

    def add(self, batch_last_offset: int, position: int, timestamp: int, timestamp_offset: int) -> None:  # noqa: ARG002
        while self._offset_at < len(self._offsets):
            relative, where = OFFSET_ENTRY.unpack_from(self._offsets, self._offset_at)
            if where > position:
                break
            if where < position or self._base_offset + relative <= self._last_offset:
                self._complain_of_offset()
                break
            self._offset_at += OFFSET_ENTRY.size
        while self._time_at < len(self._times):
            until_ms, relative = TIME_ENTRY.unpack_from(self._times, self._time_at)
            if self._base_offset + relative > batch_last_offset:
                break
            if until_ms < self._largest_ms:
                self._complain(self._time_path, self._time_at)
                self._times = b""
                break
            self._time_at += TIME_ENTRY.size
        self._last_offset = batch_last_offset
        self._largest_ms = timestamp

    def add_timestamp(self, timestamp: int, timestamp_offset: int) -> None:
        """The last batch was heard of as all others."""

    def end(self, size: int) -> None:
        """The segment ends here, undamaged: what entries are left leads nowhere."""
        if self._offset_at < len(self._offsets) and size:
            self._complain_of_offset()

    def _complain_of_offset(self) -> None:
        self._complain(self._offset_path, self._offset_at)
        self._offsets = b""

    def _complain(self, path: str, position: int) -> None:
        self.findings.append(
            Finding(
                path,
                f"the entry at position {position} does not fit the segment, so that readers may be led past records: "
                "remove the file while no broker has the folder open, and the next start makes it again",
                # Here it is noticed by whoever uses it, and made again at once.
                kafka=Effect.LOSES,
            )
        )


def _whole(disk: Disk, path: str, entry_bytes: int) -> bytes:
    """The entries of an index. One that is missing, or cut off within an entry, is the start's business."""
    if not disk.exists(path):
        return b""
    data = read_all(disk, path)
    return data[: len(data) // entry_bytes * entry_bytes]
