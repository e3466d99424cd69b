"""The segments of one partition: where a batch is written, where one is found, and which files make it up.

This half of a partition's log knows bytes and files; what batches mean (offsets to give out, producers, leader
epochs) is `PartitionLog`'s. Errors of the disk leave here as KAFKA_STORAGE_ERROR. A failed write is cut away, and an
index that misleads is made again from the log, both before anybody notices.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.log import recovery
from barnabas.log.aborted_txns import AbortedTxns
from barnabas.log.deletion import FILES_OF_SEGMENT, Deletion, mark_deleted, unlink_if_there
from barnabas.log.index import (
    NO_TIMESTAMP,
    RELATIVE_OFFSET_MAX,
    ActiveIndex,
    CorruptIndexError,
    cut_file,
    offset_from_position,
)
from barnabas.log.names import (
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    offset_file,
    offset_name,
)
from barnabas.log.producer_snapshot import write_snapshot
from barnabas.log.segment import UNKNOWN_TIMESTAMP, CorruptSegmentError, RecentBatches, Segment, create_segment
from barnabas.log.timestamps import RisingTimestamps
from barnabas.log.unsynced import FOLDER_ITSELF, Unsynced
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.config.topic import TopicConfig
    from barnabas.log.files import FilePool, OpenFile
    from barnabas.log.producer_state import ProducerEntry
    from barnabas.log.recovery import LoadedLog
    from barnabas.ports import Clock, Disk, Random
    from barnabas.protocol.varint import Buffer

logger = logging.getLogger(__name__)

HOT_TAIL_BYTES = 16 * 1024 * 1024
"""What was written last is in the page cache: no need to ask."""

T = TypeVar("T")


class Place(NamedTuple):
    """A batch in one of the segments."""

    segment: Segment
    position: int
    size: int


class Segments:
    """Invariant: `all` is never empty and rises by base offset; its last is `active`, the one written to."""

    __slots__ = (
        "_clock",
        "_name",
        "_random",
        "aborted_txns",
        "active",
        "all",
        "config",
        "deletions",
        "disk",
        "files",
        "folder",
        "rising_timestamps",
        "unsynced",
    )

    def __init__(
        self,
        loaded: LoadedLog,
        folder: str,
        name: str,
        config: TopicConfig,
        disk: Disk,
        files: FilePool,
        clock: Clock,
        random: Random,
    ) -> None:
        self.all = loaded.segments
        self.active = loaded.segments[-1]
        self.folder = folder
        self.config = config
        self.disk = disk
        self.files = files
        self.deletions: list[Deletion] = []
        """Files of dropped segments, oldest first, to be unlinked once they are due."""
        self.rising_timestamps = RisingTimestamps()
        self.aborted_txns = AbortedTxns(disk, folder, loaded.txn_outlines)
        self.unsynced = Unsynced(folder, loaded.unsynced)
        self._name = name
        self._clock = clock
        self._random = random
        self.active.jitter_ms = self._jitter_ms()

    def number_of(self, offset: int) -> int:
        """Which segment an offset belongs to: the last that does not begin after it."""
        return max(bisect_right(self.all, offset, key=_base_offset_of) - 1, 0)

    def find(self, offset: int) -> Place | None:
        """The batch that holds `offset`; if there is none, as compaction may leave it, the first after it."""
        active = self.active
        if offset >= active.base_offset:
            return self._find_recent(active, offset) or self._find_in(active, offset)
        for segment in self.all[self.number_of(offset) :]:
            place = self._find_in(segment, offset)
            if place is not None:
                return place
        return None

    def offset_from_position(self, segment: Segment, position: int) -> int | None:
        """An offset that no batch of a segment before `position` has, if its index knows one."""
        index = segment.index
        if index is not None:
            return self.repairing(segment, lambda: index.offset_from_position(position))
        return self.repairing(
            segment, lambda: offset_from_position(self.disk, self.folder, segment.base_offset, position)
        )

    def repairing(self, segment: Segment, look_up: Callable[[], T]) -> T:
        """Looks something up by a segment's indexes. If they mislead, they are made again from the log, once."""
        try:
            try:
                return look_up()
            except (CorruptIndexError, CorruptSegmentError) as error:
                logger.warning("the indexes of %s are made again: %s", segment.log_path, error)
            believed = segment.max_timestamp
            recovery.rebuild_indexes(self.disk, segment, self.config)
            self._note_index_files(segment)
            if believed not in (UNKNOWN_TIMESTAMP, segment.max_timestamp):
                self.rising_timestamps.forget()
            return look_up()
        except (OSError, CorruptIndexError, CorruptSegmentError) as error:
            raise self.storage_error("read", error) from error

    def max_timestamp_of(self, segment: Segment) -> int:
        """The largest timestamp in a segment, -1 if it has none."""
        if segment.max_timestamp >= NO_TIMESTAMP:
            return segment.max_timestamp
        return self.repairing(segment, lambda: segment.load_max_timestamp(self.disk))

    def modified_ms(self, segment: Segment) -> int:
        """When a segment's file was last written to."""
        try:
            return self.disk.modified_ms(segment.log_path)
        except OSError as error:
            raise self.storage_error("read", error) from error

    def open_file(self, segment: Segment) -> OpenFile:
        file = segment.file
        if file is None:
            try:
                file = self.files.open(segment)
            except OSError as error:
                raise self.storage_error("read", error) from error
        file.recently_used = True
        return file

    def is_cold(self, file: OpenFile, position: int, length: int) -> bool:
        """Whether reading so much of a file might wait for the device."""
        if file is self.active.file and position >= self.active.size - HOT_TAIL_BYTES:
            return False
        try:
            return not self.disk.is_resident(file.fd, position, length)
        except OSError as error:
            raise self.storage_error("read", error) from error

    def must_roll(self, size: int, last_offset: int, max_ms: int, now_ms: int) -> bool:
        """Whether a batch has to go to a new segment: the active one is full or, measured by its records, old."""
        segment = self.active
        if size > self.config.segment_bytes:
            raise KafkaError(
                Error.RECORD_LIST_TOO_LARGE,
                f"{size} bytes for {self._name} exceed segment.bytes={self.config.segment_bytes}",
            )
        if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not segment.size:
            return False
        first_ms = segment.first_timestamp
        if first_ms < NO_TIMESTAMP:
            first_ms = self.first_timestamp_of(segment)
        age_ms = max_ms - first_ms if first_ms >= 0 else now_ms - segment.created_ms
        return (
            segment.size + size > self.config.segment_bytes
            or age_ms > self.config.segment_ms - segment.jitter_ms
            or segment.index_is_full
        )

    def first_timestamp_of(self, segment: Segment) -> int:
        return self.repairing(segment, lambda: segment.load_first_timestamp(self.disk, self.files))

    def write(self, buffers: Sequence[Buffer], size: int) -> int:
        """Writes to the end of the active segment, all or nothing. Returns the position."""
        segment = self.active
        position = segment.size
        try:
            if segment.index is None:
                self._wake(segment)
            file = segment.file or self.files.open(segment)
            file.recently_used = True
            written = self.disk.pwritev(file.fd, buffers, position)
            if written != size:
                self._write_rest(file, buffers, position, written)
        except OSError as error:
            self._cut_away_failed_write(segment)
            raise self.storage_error("append to", error) from error
        segment.size = position + size
        return position

    def index_batch(self, base_offset: int, last_offset: int, position: int, size: int, max_ms: int) -> None:
        """Takes note of a batch that was just written to the active segment."""
        segment = self.active
        index, recent = segment.index, segment.recent
        assert index is not None, "what is written to is awake"
        assert recent is not None, "what is written to is awake"
        if max_ms > segment.max_timestamp:
            segment.max_timestamp = max_ms
            segment.max_timestamp_offset = last_offset
        if not position:
            segment.first_timestamp = max_ms
        if segment.bytes_since_index_entry > self.config.index_interval_bytes:
            index.add(last_offset, position, segment.max_timestamp, segment.max_timestamp_offset)
            segment.index_is_full = index.is_full(self.config.segment_index_bytes)
            segment.bytes_since_index_entry = 0
        segment.bytes_since_index_entry += size
        recent.add(base_offset, position)

    def roll(self, base_offset: int, producers: Mapping[int, ProducerEntry]) -> None:
        """Closes the active segment and begins one at `base_offset`, with the producers' state up to there."""
        try:
            self._finish_index(self.active)
            new = self._create_with_snapshot(base_offset, producers)
        except OSError as error:
            raise self.storage_error("begin a segment of", error) from error
        self.active.index = None
        self.active.recent = None
        self.all.append(new)
        self.active = new

    def create(self, base_offset: int) -> Segment:
        allocate_bytes = self.config.segment_bytes if self.config.preallocate else 0
        # A segment of this name that was truncated may have left one, which nothing else would replace. It goes first:
        # where this fails, no empty segment is left behind.
        unlink_if_there(self.disk, offset_file(self.folder, base_offset, TXN_INDEX))
        self.aborted_txns.forget(base_offset)
        new = create_segment(self.disk, self.folder, base_offset, allocate_bytes)
        new.created_ms = self._clock.now_ms()
        new.jitter_ms = self._jitter_ms()
        self.unsynced.note(FOLDER_ITSELF)
        return new

    def replace_all(self, base_offset: int) -> None:
        """Drops every segment and begins anew at `base_offset`."""
        self.drop(self.all[:])
        # Where the new one cannot be made, an empty one without files stands for it, until this is tried again.
        self.active = Segment(self.folder, base_offset, 0)
        self.active.max_timestamp = NO_TIMESTAMP
        self.all.append(self.active)
        try:
            self.active = self.all[-1] = self.create(base_offset)
        except OSError as error:
            raise self.storage_error("truncate", error) from error

    def drop(self, segments: Iterable[Segment]) -> None:
        """Takes segments out of the log, in this order; their files are unlinked later, with `deletions`. If the file
        of one cannot be renamed, this one and those after it stay."""
        for segment in segments:
            try:
                marked = mark_deleted(self.disk, self.folder, segment.base_offset)
            except OSError as error:
                raise self.storage_error("remove segments of", error) from error
            if segment.file is not None:
                self.files.close(segment.file)
            segment.index = segment.recent = None
            self.aborted_txns.forget(segment.base_offset)
            self.all.remove(segment)
            self.rising_timestamps.forget()
            self.unsynced.note(FOLDER_ITSELF)
            self.deletions.append(Deletion(self._deletion_due_ms(), marked))

    def take_due_deletions(self) -> list[Deletion]:
        """The deletions that are due: to be run, in any thread."""
        now_ms = self._clock.now_ms()
        due = [deletion for deletion in self.deletions if deletion.due_ms <= now_ms]
        self.deletions = [deletion for deletion in self.deletions if deletion.due_ms > now_ms]
        return due

    def put_off(self, deletion: Deletion) -> None:
        """One that was due could not be run: it is due again after another delay."""
        self.deletions.append(deletion._replace(due_ms=self._deletion_due_ms(), has_failed=True))

    def cut_active(self, offset: int) -> int:
        """Removes the batches of the last segment from the one that holds `offset` on. Returns the new log end."""
        segment = self.active
        place = self._find_in(segment, offset)
        try:
            if segment.index is None:
                self._wake(segment)
            assert segment.index is not None, "it was just woken"
            cut_at = place.position if place is not None else segment.size
            segment.index.truncate_to(offset)
            if (txn_index := self.aborted_txns.cut(segment.base_offset, offset)) is not None:
                self.unsynced.note(txn_index)
            segment.recent = RecentBatches()
            segment.size = cut_at
            self._cut_file(segment)
        except (OSError, CorruptIndexError) as error:
            raise self.storage_error("truncate", error) from error
        self._note_index_files(segment)
        self.unsynced.note(offset_name(segment.base_offset, LOG))
        return self._recompute_tail(segment)

    def release(self) -> None:
        """Closes every file; the newest index entries are written out first."""
        try:
            self._write_pending_entries(self.active)
            for segment in self.all:
                segment.index = segment.recent = None
                if segment.file is not None:
                    self.files.close(segment.file)
        except OSError as error:
            raise self.storage_error("write the index of", error) from error

    def finish(self) -> None:
        """Brings the active segment's files into the state in which a clean shutdown leaves them."""
        try:
            self._finish_index(self.active)
        except OSError as error:
            raise self.storage_error("close", error) from error

    def snapshot_producers(self, offset: int, producers: Mapping[int, ProducerEntry]) -> None:
        """Writes the state of producers before `offset`, so that opening the log replays nothing before it."""
        name = offset_name(offset, PRODUCER_SNAPSHOT)
        try:
            write_snapshot(self.disk, f"{self.folder}/{name}", producers)
        except OSError as error:
            raise self.storage_error("write the producers of", error) from error
        self.unsynced.note(name, FOLDER_ITSELF)

    def rename_folder(self, name: str) -> str:
        """Gives the folder another name beside its old one; every file is closed. Returns the new path. A folder that
        somebody else has removed is out of sight as well."""
        for segment in self.all:
            if segment.file is not None:
                self.files.close(segment.file)
        folder = f"{self.folder.rpartition('/')[0]}/{name}"
        try:
            self.disk.rename(self.folder, folder)
        except FileNotFoundError:
            logger.warning("%s is gone already", self.folder)
        except OSError as error:
            raise self.storage_error("rename", error) from error
        return folder

    def begin_sync(self) -> tuple[list[str], tuple[str, ...]]:
        """(the files beside those of batches that must be synced, the folders that must be)."""
        try:
            self._write_pending_entries(self.active)
        except OSError as error:
            raise self.storage_error("flush", error) from error
        return self.unsynced.begin()

    def is_awake(self) -> bool:
        return self.active.index is not None or any(segment.file is not None for segment in self.all)

    def storage_error(self, verb: str, error: Exception) -> KafkaError:
        return KafkaError(Error.KAFKA_STORAGE_ERROR, f"cannot {verb} {self._name} in {self.folder}: {error}")

    def _find_recent(self, segment: Segment, offset: int) -> Place | None:
        """The batch, if it is one of the newest, whose positions are at hand."""
        recent = segment.recent
        if recent is None:
            return None
        slot = bisect_right(recent.offsets, offset) - 1
        if slot < 0:
            return None
        position = recent.positions[slot]
        end = recent.positions[slot + 1] if slot + 1 < len(recent.positions) else segment.size
        return Place(segment, position, end - position)

    def _find_in(self, segment: Segment, offset: int) -> Place | None:
        batch = self.repairing(segment, lambda: segment.find_batch(self.disk, self.files, offset))
        return Place(segment, batch.position, batch.size) if batch is not None else None

    def _wake(self, segment: Segment) -> None:
        """The active segment is to be written to after its files were closed."""
        self.max_timestamp_of(segment)
        segment.index = self.repairing(segment, lambda: ActiveIndex(self.disk, self.folder, segment.base_offset))
        segment.index_is_full = segment.index.is_full(self.config.segment_index_bytes)
        segment.recent = RecentBatches()

    def _write_rest(self, file: OpenFile, buffers: Sequence[Buffer], position: int, written: int) -> None:
        """A short write usually means a full disk; going on brings the error, or the rest if space came free."""
        data = memoryview(b"".join(buffers))
        while written < len(data):
            written += self.disk.pwritev(file.fd, (data[written:],), position + written)

    def _cut_away_failed_write(self, segment: Segment) -> None:
        try:
            self._cut_file(segment)
        except OSError as error:
            # Readers stop at `size`, the next append writes over the rest, and recovery cuts what is no batch.
            logger.warning("the rest of a failed write stays behind the end of %s: %s", segment.log_path, error)

    def _cut_file(self, segment: Segment) -> None:
        """Removes what follows the last batch: of a failed write, of a truncation, of space reserved ahead."""
        if segment.file is not None:
            self.disk.truncate(segment.file.fd, segment.size)
        elif self.disk.size(segment.log_path) != segment.size:
            cut_file(self.disk, segment.log_path, segment.size)

    def _finish_index(self, segment: Segment) -> None:
        """Writes all index entries out, the last of the time index being the largest timestamp of the segment."""
        if segment.index is None:
            self._wake(segment)
        assert segment.index is not None, "it was just woken"
        segment.index.add_timestamp(segment.max_timestamp, segment.max_timestamp_offset)
        self._write_pending_entries(segment)
        self._cut_file(segment)
        if self.config.preallocate:
            # Its batches may be on the device already, and after them the space that was just given back.
            self.unsynced.note(offset_name(segment.base_offset, LOG))

    def _recompute_tail(self, segment: Segment) -> int:
        """What is kept of the last batches of a segment that was cut. Returns the offset after the last."""
        index = segment.index
        assert index is not None, "a segment that is cut is awake"
        position = index.last_offset_entry().position
        segment.max_timestamp, segment.max_timestamp_offset = index.last_timestamp_entry()
        segment.bytes_since_index_entry = segment.size - position
        end_offset = segment.base_offset
        for batch in segment.batches_from(self.disk, self.files, position):
            end_offset = batch.last_offset + 1
            if batch.max_timestamp > segment.max_timestamp:
                segment.max_timestamp, segment.max_timestamp_offset = batch.max_timestamp, batch.last_offset
        if not segment.size:
            segment.first_timestamp = NO_TIMESTAMP
            segment.created_ms = self._clock.now_ms()
        return end_offset

    def _create_with_snapshot(self, base_offset: int, producers: Mapping[int, ProducerEntry]) -> Segment:
        try:
            new = self.create(base_offset)
            write_snapshot(self.disk, offset_file(self.folder, base_offset, PRODUCER_SNAPSHOT), producers)
        except OSError:
            # An empty segment amid the offsets that the active one still takes would hide them from readers.
            for suffix in FILES_OF_SEGMENT:
                unlink_if_there(self.disk, offset_file(self.folder, base_offset, suffix))
            raise
        self.unsynced.note(offset_name(base_offset, PRODUCER_SNAPSHOT))
        return new

    def _write_pending_entries(self, segment: Segment) -> None:
        """Brings the index files of the active segment up to date."""
        if segment.index is not None and segment.index.write_pending():
            self._note_index_files(segment)
        if (txn_index := self.aborted_txns.write_pending()) is not None:
            self.unsynced.note(txn_index, FOLDER_ITSELF)

    def _note_index_files(self, segment: Segment) -> None:
        self.unsynced.note(*(offset_name(segment.base_offset, suffix) for suffix in (OFFSET_INDEX, TIME_INDEX)))

    def _deletion_due_ms(self) -> int:
        return self._clock.now_ms() + self.config.file_delete_delay_ms

    def _jitter_ms(self) -> int:
        jitter_ms = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return self._random.below(jitter_ms) if jitter_ms > 0 else 0


def _base_offset_of(segment: Segment) -> int:
    return segment.base_offset
