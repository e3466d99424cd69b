"""The files of a new segment, in which a cleaning puts what stays of old ones. Their names end in `.cleaned`."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from barnabas.log.cleaning.log_cleaning import CleanedSegment
from barnabas.log.flush import sync_file
from barnabas.log.folder.deletion import unlink_if_there
from barnabas.log.producers.aborted_txns import write_entries
from barnabas.log.segments import segment_index
from barnabas.log.segments.file_names import (
    CLEANED,
    LOG,
    OFFSET_INDEX,
    SEGMENT_FILES,
    TIME_INDEX,
    TXN_INDEX,
    offset_file,
)

if TYPE_CHECKING:
    from barnabas.log.cleaning.batch_filter import KeptBatch
    from barnabas.log.producers.aborted_txns import AbortedTxn
    from barnabas.ports import Disk

WRITTEN_TOGETHER_BYTES: Final = 1024 * 1024
SYNCED_TOGETHER_BYTES: Final = 64 * 1024 * 1024
"""A segment of a gigabyte would keep a slow disk busy for longer than a worker may take for a step, each time anew."""


class NewSegment:
    """It is written, and brought to the device, in large pieces."""

    def __init__(self, disk: Disk, folder: str, base_offset: int, index_interval_bytes: int) -> None:
        self._disk = disk
        self._folder = folder
        self._base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self.log_path = offset_file(folder, base_offset, LOG + CLEANED)
        self._index = segment_index.ActiveIndex.cleared(disk, folder, base_offset, CLEANED)
        self._fd = disk.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._written = 0
        self._synced = 0
        self._pending = bytearray()
        self._bytes_since_index_entry = 0
        self._max_timestamp = segment_index.NO_TIMESTAMP
        self._max_timestamp_offset = base_offset

    def append(self, kept: KeptBatch) -> None:
        header, batch = kept
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = header.max_timestamp, header.last_offset
        if self._bytes_since_index_entry > self._index_interval_bytes:
            position = self._written + len(self._pending)
            self._index.add(header.last_offset, position, self._max_timestamp, self._max_timestamp_offset)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += len(batch)
        self._pending += batch
        if len(self._pending) >= WRITTEN_TOGETHER_BYTES:
            self._write()
            if self._written - self._synced >= SYNCED_TOGETHER_BYTES:
                self._sync()

    def finish(self, replaces: tuple[int, ...], aborted: list[AbortedTxn]) -> CleanedSegment:
        """Brings everything to the device."""
        self._write()
        self._sync()
        self._index.add_timestamp(self._max_timestamp, self._max_timestamp_offset)
        self._index.write_pending()
        outline = None
        suffixes = [OFFSET_INDEX, TIME_INDEX]
        if aborted:
            outline = write_entries(self._disk, self._folder, self._base_offset, aborted, CLEANED)
            suffixes.append(TXN_INDEX)
        for suffix in suffixes:
            sync_file(self._disk, offset_file(self._folder, self._base_offset, suffix + CLEANED))
        return CleanedSegment(
            self._base_offset, self._written, self._max_timestamp, self._max_timestamp_offset, replaces, outline
        )

    def discard(self) -> None:
        """Removes what was written, at once: on a full disk, others wait for the space. What cannot be removed now goes
        before the next cleaning."""
        with suppress(OSError):
            for suffix in SEGMENT_FILES:
                unlink_if_there(self._disk, offset_file(self._folder, self._base_offset, suffix + CLEANED))

    def close(self) -> None:
        self._disk.close(self._fd)

    def _sync(self) -> None:
        self._disk.fsync(self._fd)
        self._synced = self._written

    def _write(self) -> None:
        written = 0
        with memoryview(self._pending) as data:
            while written < len(data):
                with data[written:] as rest:
                    written += self._disk.pwrite(self._fd, rest, self._written + written)
        self._written += written
        self._pending.clear()
