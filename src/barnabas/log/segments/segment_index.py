"""The offset index and the time index of a segment.

An offset index entry says that the batch which ends at `base offset + relative offset` starts at `position`; a time
index entry says that no batch up to the one ending at `base offset + relative offset` is newer than `timestamp`. An
entry is added for the first batch that begins more than `index.interval.bytes` after the last indexed one, so both
indexes are sparse and sorted, and a binary search finds an entry.

    offset index   relative offset int32 · position int32
    time index     timestamp int64 · relative offset int32

Only the active segment's indexes grow. Their newest entries wait in memory and reach the files in blocks: when the
segment is flushed, rolled or closed, or when enough have accumulated. So an append costs no second write. Files are as
long as their entries, never longer. Entries that are lost in a crash are rebuilt from the log by recovery.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.segments.file_names import OFFSET_INDEX, TIME_INDEX, offset_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.ports import Disk

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
RELATIVE_OFFSET_MAX = 2**31 - 1
NO_TIMESTAMP = -1

_PENDING_BYTES_MAX = 4096
_BLOCK_ENTRIES = 512


class CorruptIndexError(Exception):
    """An index file does not fit its segment. The log is the truth: the index is rebuilt from it."""


class OffsetPosition(NamedTuple):
    """The offset of the last record in a batch, and where that batch starts in the segment's file."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """The largest timestamp up to the batch whose last record has this offset."""

    timestamp: int
    offset: int


class ActiveIndex:
    """Both indexes of the segment that is being written.

    Invariant: offsets strictly increase from entry to entry, and so do timestamps in the time index. `*_on_file` counts
    the entries in the files; the entries in `*_pending` follow them.
    """

    __slots__ = (
        "_base_offset",
        "_disk",
        "_files_changed",
        "_folder",
        "_last_timestamp",
        "_mark",
        "_offset_pending",
        "_offsets_on_file",
        "_time_pending",
        "_times_on_file",
    )

    def __init__(self, disk: Disk, folder: str, base_offset: int, mark: str = "") -> None:
        """Continues whatever the files hold; they are created if they are missing. Their names end in `mark`."""
        self._disk = disk
        self._folder = folder
        self._base_offset = base_offset
        self._mark = mark
        self._offset_pending = bytearray()
        self._time_pending = bytearray()
        self._offsets_on_file = _whole_entries(disk, self._offset_path(), OFFSET_ENTRY.size)
        self._times_on_file = _whole_entries(disk, self._time_path(), TIME_ENTRY.size)
        self._files_changed = False
        self._last_timestamp = NO_TIMESTAMP
        if self._times_on_file:
            self._last_timestamp = last_time_entry(disk, folder, base_offset).timestamp

    @classmethod
    def cleared(cls, disk: Disk, folder: str, base_offset: int, mark: str = "") -> ActiveIndex:
        """Indexes without entries, whatever the files held."""
        create_index_files(disk, folder, base_offset, mark)
        return cls(disk, folder, base_offset, mark)

    def add(self, batch_last_offset: int, position: int, timestamp: int, timestamp_offset: int) -> None:
        """Adds an entry for the batch at `position`, and one for the largest timestamp so far if that has grown."""
        self._offset_pending += OFFSET_ENTRY.pack(batch_last_offset - self._base_offset, position)
        self.add_timestamp(timestamp, timestamp_offset)
        if len(self._offset_pending) % _PENDING_BYTES_MAX == 0:
            try:
                self._files_changed = self.write_pending()
            except OSError:
                # The batch is in the log, so its append has succeeded. The entries stay in memory, and the next block,
                # flush or close tries again; only the latter two report the failure.
                return

    def add_timestamp(self, timestamp: int, timestamp_offset: int) -> None:
        if timestamp > self._last_timestamp:
            self._time_pending += TIME_ENTRY.pack(timestamp, timestamp_offset - self._base_offset)
            self._last_timestamp = timestamp

    def is_full(self, index_bytes_max: int) -> bool:
        """Whether the next batch needs a new segment. The last slot of the time index is reserved for the roll."""
        return (
            self.offset_entries >= index_bytes_max // OFFSET_ENTRY.size
            or self._times_on_file + len(self._time_pending) // TIME_ENTRY.size
            >= index_bytes_max // TIME_ENTRY.size - 1
        )

    @property
    def offset_entries(self) -> int:
        return self._offsets_on_file + len(self._offset_pending) // OFFSET_ENTRY.size

    def lookup_offset(self, offset: int) -> OffsetPosition:
        """The last entry at or before `offset`; the segment's start if there is none."""
        relative = offset - self._base_offset
        pending = self._offset_pending
        if pending and OFFSET_ENTRY.unpack_from(pending)[0] <= relative:
            return self._offset_entry(pending, _last_at_most(pending, OFFSET_ENTRY, relative))
        if not self._offsets_on_file:
            return OffsetPosition(self._base_offset, 0)
        return lookup_offset(self._disk, self._folder, self._base_offset, offset, self._offsets_on_file)

    def lookup_timestamp(self, timestamp: int) -> TimestampOffset:
        """The last entry with at most this timestamp; the segment's start if there is none."""
        pending = self._time_pending
        if pending and TIME_ENTRY.unpack_from(pending)[0] <= timestamp:
            found, relative = TIME_ENTRY.unpack_from(
                pending, _last_at_most(pending, TIME_ENTRY, timestamp) * TIME_ENTRY.size
            )
            return TimestampOffset(found, self._base_offset + relative)
        return lookup_timestamp(self._disk, self._folder, self._base_offset, timestamp, self._times_on_file)

    def offset_from_position(self, position: int) -> int | None:
        """An offset larger than that of any batch before `position`; None if all entries are before it."""
        found = offset_from_position(self._disk, self._folder, self._base_offset, position, self._offsets_on_file)
        if found is not None:
            return found
        pending = self._offset_pending
        count = len(pending) // OFFSET_ENTRY.size
        slot = _binary_search(count, position - 1, lambda slot: self._offset_entry(pending, slot).position) + 1
        return self._offset_entry(pending, slot).offset if slot < count else None

    def last_offset_entry(self) -> OffsetPosition:
        if self._offset_pending:
            return self._offset_entry(self._offset_pending, len(self._offset_pending) // OFFSET_ENTRY.size - 1)
        return last_offset_entry(self._disk, self._folder, self._base_offset)

    def last_timestamp_entry(self) -> TimestampOffset:
        return self.lookup_timestamp(2**63 - 1)

    def write_pending(self) -> bool:
        """Moves the pending entries to the files. True if the files have changed since the last call."""
        if self._offset_pending:
            write_all(self._disk, self._offset_path(), self._offsets_on_file * OFFSET_ENTRY.size, self._offset_pending)
            self._offsets_on_file += len(self._offset_pending) // OFFSET_ENTRY.size
            self._offset_pending = bytearray()
            self._files_changed = True
        if self._time_pending:
            write_all(self._disk, self._time_path(), self._times_on_file * TIME_ENTRY.size, self._time_pending)
            self._times_on_file += len(self._time_pending) // TIME_ENTRY.size
            self._time_pending = bytearray()
            self._files_changed = True
        changed, self._files_changed = self._files_changed, False
        return changed

    def truncate_to(self, offset: int) -> None:
        """Removes every entry at or after `offset`."""
        self.write_pending()
        relative = offset - self._base_offset
        offsets = bytearray(read_all(self._disk, self._offset_path()))
        times = bytearray(read_all(self._disk, self._time_path()))
        self._offsets_on_file = _last_at_most(offsets, OFFSET_ENTRY, relative - 1) + 1
        kept = len(times) // TIME_ENTRY.size
        while kept and TIME_ENTRY.unpack_from(times, (kept - 1) * TIME_ENTRY.size)[1] >= relative:
            kept -= 1
        self._times_on_file = kept
        cut_file(self._disk, self._offset_path(), self._offsets_on_file * OFFSET_ENTRY.size)
        cut_file(self._disk, self._time_path(), kept * TIME_ENTRY.size)
        self._last_timestamp = TIME_ENTRY.unpack_from(times, (kept - 1) * TIME_ENTRY.size)[0] if kept else NO_TIMESTAMP

    def _offset_entry(self, entries: bytearray, slot: int) -> OffsetPosition:
        relative, position = OFFSET_ENTRY.unpack_from(entries, slot * OFFSET_ENTRY.size)
        return OffsetPosition(self._base_offset + relative, position)

    def _offset_path(self) -> str:
        return offset_file(self._folder, self._base_offset, OFFSET_INDEX + self._mark)

    def _time_path(self) -> str:
        return offset_file(self._folder, self._base_offset, TIME_INDEX + self._mark)


def create_index_files(disk: Disk, folder: str, base_offset: int, mark: str = "") -> None:
    """Creates empty index files for a new segment, replacing any that an earlier one of that name left."""
    for suffix in (OFFSET_INDEX, TIME_INDEX):
        disk.close(disk.open(offset_file(folder, base_offset, suffix + mark), os.O_WRONLY | os.O_CREAT | os.O_TRUNC))


def lookup_offset(disk: Disk, folder: str, base_offset: int, offset: int, entries: int = -1) -> OffsetPosition:
    """The last entry at or before `offset` in a segment's file; the segment's start if there is none.

    `entries` is how many to search; by default, as many as the file holds.
    """
    path = offset_file(folder, base_offset, OFFSET_INDEX)
    entry = _search_file(disk, path, OFFSET_ENTRY, offset - base_offset, entries)
    return OffsetPosition(base_offset, 0) if entry is None else OffsetPosition(base_offset + entry[0], entry[1])


def lookup_timestamp(disk: Disk, folder: str, base_offset: int, timestamp: int, entries: int = -1) -> TimestampOffset:
    path = offset_file(folder, base_offset, TIME_INDEX)
    return _timestamp_offset(base_offset, _search_file(disk, path, TIME_ENTRY, timestamp, entries))


def offset_from_position(disk: Disk, folder: str, base_offset: int, position: int, entries: int = -1) -> int | None:
    """An offset larger than that of any batch before `position`: that of the first entry from there on, if any."""
    path = offset_file(folder, base_offset, OFFSET_INDEX)
    try:
        count = _entries_in_file(disk, path, OFFSET_ENTRY.size) if entries < 0 else entries
        if not count:
            return None
        fd = disk.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise CorruptIndexError(f"{path} is missing") from None

    def entry(slot: int) -> tuple[int, int]:
        return _unpack(OFFSET_ENTRY, disk.pread(fd, OFFSET_ENTRY.size, slot * OFFSET_ENTRY.size), 0, path)

    try:
        slot = _binary_search(count, position - 1, lambda slot: entry(slot)[1]) + 1
        return base_offset + entry(slot)[0] if slot < count else None
    finally:
        disk.close(fd)


def last_offset_entry(disk: Disk, folder: str, base_offset: int) -> OffsetPosition:
    """The last entry of the index: the known batch nearest to the segment's end."""
    entry = _last_entry(disk, offset_file(folder, base_offset, OFFSET_INDEX), OFFSET_ENTRY)
    return OffsetPosition(base_offset, 0) if entry is None else OffsetPosition(base_offset + entry[0], entry[1])


def last_time_entry(disk: Disk, folder: str, base_offset: int) -> TimestampOffset:
    """The largest timestamp of a closed segment, and its offset. -1 if no record has a timestamp."""
    entry = _last_entry(disk, offset_file(folder, base_offset, TIME_INDEX), TIME_ENTRY)
    return _timestamp_offset(base_offset, entry)


def _timestamp_offset(base_offset: int, entry: tuple[int, int] | None) -> TimestampOffset:
    if entry is None:
        return TimestampOffset(NO_TIMESTAMP, base_offset)
    return TimestampOffset(entry[0], base_offset + entry[1])


def _last_at_most(entries: bytearray | bytes, entry: Struct, key: int) -> int:
    """The slot of the last entry whose first field is at most `key`; -1 if all are larger."""
    count = len(entries) // entry.size
    return _binary_search(count, key, lambda slot: entry.unpack_from(entries, slot * entry.size)[0])


def _binary_search(count: int, key: int, key_of: Callable[[int], int]) -> int:
    """The last of `count` slots whose key is at most `key`; -1 if all are larger."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if key_of(middle) <= key:
            low = middle + 1
        else:
            high = middle
    return low - 1


def _search_file(disk: Disk, path: str, entry: Struct, key: int, entries: int) -> tuple[int, int] | None:
    """The last entry whose first field is at most `key`: a binary search in the file down to one block, then in
    memory."""
    try:
        fd = disk.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise CorruptIndexError(f"{path} is missing") from None
    try:
        high = _entries_in_file(disk, path, entry.size) if entries < 0 else entries
        low = 0
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if _unpack(entry, disk.pread(fd, entry.size, middle * entry.size), 0, path)[0] <= key:
                low = middle
            else:
                high = middle
        block = disk.pread(fd, (high - low) * entry.size, low * entry.size)
    finally:
        disk.close(fd)
    if len(block) != (high - low) * entry.size:
        raise CorruptIndexError(f"{path} ends after {low * entry.size + len(block)} bytes")
    slot = _last_at_most(block, entry, key)
    return None if slot < 0 else _unpack(entry, block, slot * entry.size, path)


def _last_entry(disk: Disk, path: str, entry: Struct) -> tuple[int, int] | None:
    """The last entry alone: one small read, or none if the file is empty."""
    try:
        count = _entries_in_file(disk, path, entry.size)
        if not count:
            return None
        fd = disk.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise CorruptIndexError(f"{path} is missing") from None
    try:
        data = disk.pread(fd, entry.size, (count - 1) * entry.size)
    finally:
        disk.close(fd)
    return _unpack(entry, data, 0, path)


def _unpack(entry: Struct, data: bytes, position: int, path: str) -> tuple[int, int]:
    if len(data) < position + entry.size:
        raise CorruptIndexError(f"{path} is shorter than it was")
    first, second = entry.unpack_from(data, position)
    return first, second


def _entries_in_file(disk: Disk, path: str, entry_size: int) -> int:
    size = disk.size(path)
    if size % entry_size:
        raise CorruptIndexError(f"{path} has {size} bytes, not a multiple of {entry_size}")
    return size // entry_size


def _whole_entries(disk: Disk, path: str, entry_size: int) -> int:
    if not disk.exists(path):
        disk.close(disk.open(path, os.O_WRONLY | os.O_CREAT))
        return 0
    return _entries_in_file(disk, path, entry_size)


def read_all(disk: Disk, path: str) -> bytes:
    fd = disk.open(path, os.O_RDONLY)
    try:
        return disk.pread(fd, disk.size(path), 0)
    finally:
        disk.close(fd)


def write_all(disk: Disk, path: str, position: int, data: bytearray) -> None:
    """Writes all of `data` or raises; what a failed write leaves behind lies beyond the entries that count."""
    fd = disk.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        written = 0
        while written < len(data):
            # A copy: the traceback of a failed write may outlive it, and must not keep `data` from growing.
            written += disk.pwrite(fd, bytes(data[written:]), position + written)
    finally:
        disk.close(fd)


def cut_file(disk: Disk, path: str, length: int) -> None:
    """Truncates a file to this length, even while it is open elsewhere."""
    fd = disk.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        disk.truncate(fd, length)
    finally:
        disk.close(fd)
