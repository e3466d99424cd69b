"""The segments of one partition: where a batch is written, where it is found, when a segment rolls, and which files go.

This half of a partition's log knows bytes and files; what the batches mean (offsets to assign, producers, leader
epochs) is up to `PartitionLog`. Disk errors leave here as KAFKA_STORAGE_ERROR. A failed write is cut off, and an index
that does not fit its segment is rebuilt from the log, both before any caller notices.

Reading returns a range of one segment's file, to be sent as it is. The range begins with the batch that holds the
wanted offset and ends where the reader may see no further or wants no more. It ends on a batch boundary where one is
known without reading the file; elsewhere it may end within a batch, as Kafka's answers do, and the reader fetches that
batch again.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.log import recovery
from barnabas.log.cleaning import swap
from barnabas.log.flush import is_failed_write
from barnabas.log.folder.deletion import FILES_OF_SEGMENT, Deletion, mark_deleted, unlink_if_there
from barnabas.log.producers.aborted_txns import AbortedTxns
from barnabas.log.producers.producer_snapshot import write_snapshot
from barnabas.log.segments.file_names import (
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    offset_file,
    offset_name,
)
from barnabas.log.segments.open_files import FileRange
from barnabas.log.segments.segment import (
    RECENT_BATCHES_MAX,
    UNKNOWN_TIMESTAMP,
    CorruptSegmentError,
    RecentBatches,
    Segment,
    create_segment,
)
from barnabas.log.segments.segment_index import (
    NO_TIMESTAMP,
    RELATIVE_OFFSET_MAX,
    ActiveIndex,
    CorruptIndexError,
    cut_file,
    offset_from_position,
)
from barnabas.log.segments.unflushed_files import FOLDER_ITSELF, PARENT_FOLDER, UnflushedFiles
from barnabas.log.timestamps import RisingTimestamps
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.config.topic_config import TopicConfig
    from barnabas.log.cleaning.log_cleaning import CleanedSegment
    from barnabas.log.producers.aborted_txns import AbortedTxn
    from barnabas.log.producers.producer_state import ProducerEntry
    from barnabas.log.recovery import LoadedLog
    from barnabas.log.segments.open_files import FilePool, OpenFile
    from barnabas.ports import Clock, Disk, Random
    from barnabas.protocol.varint import Buffer

logger = logging.getLogger(__name__)

HOT_TAIL_BYTES = 16 * 1024 * 1024
"""The bytes written last are in the page cache: no need to ask."""

T = TypeVar("T")


UNRESOLVED = -1
"""In place of a segment."""


class LogPosition(NamedTuple):
    """An offset and where its batch lies: the base offset of the segment and the byte position in its file."""

    offset: int
    segment: int
    position: int

    @classmethod
    def unresolved(cls, offset: int) -> LogPosition:
        """An offset of which it is not known yet where its batch lies: the log can find out (`position_of`)."""
        return cls(offset, UNRESOLVED, 0)


class Place(NamedTuple):
    """A batch in one of the segments."""

    segment: Segment
    position: int
    size: int


class Segments:
    """Invariant: `all` is never empty and is sorted by base offset; its last is `active`, the one written to."""

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
        "on_failed_disk",
        "rising_timestamps",
        "unflushed",
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
        self.unflushed = UnflushedFiles(folder, loaded.unflushed)
        self.on_failed_disk: Callable[[OSError], None] = nobody_hears
        """Called when the device has failed, before KAFKA_STORAGE_ERROR is raised; not when it is merely full."""
        self._name = name
        self._clock = clock
        self._random = random
        self.active.jitter_ms = self._jitter_ms()

    def number_of(self, offset: int) -> int:
        """The index of the segment that an offset belongs to: the last one that does not begin after it."""
        return max(bisect_right(self.all, offset, key=_base_offset_of) - 1, 0)

    def find(self, offset: int) -> Place | None:
        """The batch that holds `offset`; if there is none, as compaction may leave it, the first one after it."""
        active = self.active
        if offset >= active.base_offset:
            return self._find_recent(active, offset) or self._find_in(active, offset)
        for segment in self.all[self.number_of(offset) :]:
            place = self._find_in(segment, offset) if segment.size else None
            if place is not None:
                return place
        return None

    def read(self, offset: int, max_bytes: int, limit: LogPosition, *, whole_first_batch: bool) -> FileRange | None:
        """The bytes from the batch that holds `offset` up to `limit`; None if there are none to return."""
        place = self.find(offset)
        if place is None:
            return None
        segment, position, first_size = place
        if segment.base_offset == limit.segment:
            end = limit.position
        elif segment.base_offset < limit.segment:
            end = segment.size
        else:
            return None
        if max_bytes < first_size:
            if not whole_first_batch:
                return None
            max_bytes = first_size
        length = end - position
        if length <= 0:
            return None
        if length > max_bytes:
            length = segment.whole_batches(position, max_bytes)
        return FileRange(self.open_file(segment), position, length, segment.base_offset)

    def aborted_in(self, found: FileRange, offset: int, log_end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that may have records in a range that was read from `offset` on. Where the sparse
        index cannot tell at which offset the range ends, there are more than needed, and the reader ignores them."""
        if not self.aborted_txns:
            return []
        number = self.number_of(offset)
        while self.all[number].file is not found.file:
            number += 1
        end_offset = self._offset_from_position(self.all[number], found.position + found.length)
        if end_offset is None:
            is_last = number + 1 == len(self.all)
            end_offset = log_end_offset if is_last else self.all[number + 1].base_offset
        return self.aborted_between(offset, end_offset)

    def aborted_between(self, offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that have records between two offsets, in the order of their end markers."""
        return self.aborted_from(self.all[self.number_of(offset)], offset, end_offset)

    def aborted_from(self, segment: Segment, offset: int, end_offset: int) -> list[AbortedTxn]:
        """Those of them whose end markers are in this segment or a later one."""
        try:
            return self.aborted_txns.between(segment.base_offset, offset, end_offset)
        except (OSError, CorruptIndexError) as error:
            raise self.storage_error("read the aborted transactions of", error) from error

    def repairing(self, segment: Segment, look_up: Callable[[], T]) -> T:
        """Looks something up in a segment's indexes. If they turn out to be corrupt, they are rebuilt from the log,
        once."""
        try:
            try:
                return look_up()
            except (CorruptIndexError, CorruptSegmentError) as error:
                logger.warning("rebuilding the indexes of %s: %s", segment.log_path, error)
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

    def first_timestamp_of(self, segment: Segment) -> int:
        """The largest timestamp of a segment's first batch; less than 0 if there is none."""
        return self.repairing(segment, lambda: segment.load_first_timestamp(self.disk, self.files))

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
        """Whether reading this range of a file might wait for the device."""
        if file is self.active.file and position >= self.active.size - HOT_TAIL_BYTES:
            return False
        try:
            return not self.disk.is_resident(file.fd, position, length)
        except OSError as error:
            raise self.storage_error("read", error) from error

    def must_roll(self, size: int, last_offset: int, max_ms: int, now_ms: int) -> bool:
        """Whether a batch needs a new segment: the active one is full or, going by its records, old enough."""
        segment, config = self.active, self.config
        if size > config.segment_bytes:
            raise KafkaError(
                Error.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size} bytes in append to partition {self._name}, which exceeds the maximum"
                f" configured segment size of {config.segment_bytes}.",
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
            segment.size + size > config.segment_bytes
            or age_ms > config.segment_ms - segment.jitter_ms
            or segment.index_is_full
        )

    def roll(self, base_offset: int, producers: Mapping[int, ProducerEntry]) -> None:
        """Closes the active segment and begins one at `base_offset`, with a snapshot of the producers up to there."""
        try:
            self._finish_index(self.active)
            new = self._create_with_snapshot(base_offset, producers)
        except OSError as error:
            raise self.failed_write("begin a segment of", error) from error
        self.active.index = None
        self.active.recent = None
        self.all.append(new)
        self.active = new

    def append_quickly(self, batch: Buffer, size: int, base_offset: int, last_offset: int, max_ms: int) -> bool:
        """The short way of `must_roll`, `write` and `index_batch`, for a batch that needs neither a new segment nor an
        entry in the index, as nearly all small ones. False, with nothing done, for any other."""
        segment, config = self.active, self.config
        position, file, recent, first_ms = segment.size, segment.file, segment.recent, segment.first_timestamp
        if (
            not position
            or file is None
            or recent is None
            or first_ms < 0
            or segment.bytes_since_index_entry > config.index_interval_bytes
            or position + size > config.segment_bytes
            or max_ms - first_ms > config.segment_ms - segment.jitter_ms
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or segment.index_is_full
        ):
            return False
        try:
            written = self.disk.pwrite(file.fd, batch, position)
            if written != size:
                self._write_rest(file, batch, position, written)
        except OSError as error:
            raise self._append_failed(segment, error) from error
        file.recently_used = True
        segment.size = position + size
        segment.bytes_since_index_entry += size
        if max_ms > segment.max_timestamp:
            segment.max_timestamp = max_ms
            segment.max_timestamp_offset = last_offset
        recent.offsets.append(base_offset)
        recent.positions.append(position)
        if len(recent.offsets) > RECENT_BATCHES_MAX:
            recent.forget_older_half()
        return True

    def write(self, batch: Buffer, size: int) -> int:
        """Writes to the end of the active segment, all or nothing. Returns the position."""
        segment = self.active
        position = segment.size
        try:
            if segment.index is None:
                self._wake(segment)
            file = segment.file or self.files.open(segment)
            file.recently_used = True
            written = self.disk.pwrite(file.fd, batch, position)
            if written != size:
                self._write_rest(file, batch, position, written)
        except OSError as error:
            raise self._append_failed(segment, error) from error
        segment.size = position + size
        return position

    def _append_failed(self, segment: Segment, error: OSError) -> KafkaError:
        self._cut_off_failed_write(segment)
        return self.failed_write("append to", error)

    def index_batch(self, base_offset: int, last_offset: int, position: int, size: int, max_ms: int) -> None:
        """Records where a batch was just written in the active segment."""
        segment = self.active
        recent = segment.recent
        assert recent is not None, "a segment that was written to is awake"
        if max_ms > segment.max_timestamp:
            segment.max_timestamp = max_ms
            segment.max_timestamp_offset = last_offset
        if not position:
            segment.first_timestamp = max_ms
        if segment.bytes_since_index_entry > self.config.index_interval_bytes:
            self._add_index_entry(segment, last_offset, position)
        segment.bytes_since_index_entry += size
        recent.offsets.append(base_offset)
        recent.positions.append(position)
        if len(recent.offsets) > RECENT_BATCHES_MAX:
            recent.forget_older_half()

    def _add_index_entry(self, segment: Segment, last_offset: int, position: int) -> None:
        index = segment.index
        assert index is not None, "a segment that was written to is awake"
        index.add(last_offset, position, segment.max_timestamp, segment.max_timestamp_offset)
        segment.index_is_full = index.is_full(self.config.segment_index_bytes)
        segment.bytes_since_index_entry = 0

    def note_gap(self) -> None:
        """The next batch does not continue the offsets. A reader of an offset in the gap must not be sent to the batch
        before it, so the recent batches are forgotten."""
        self.active.recent = RecentBatches()

    def note_aborted(self, aborted: AbortedTxn) -> None:
        """An abort marker was just written to the active segment."""
        self.aborted_txns.add(self.active.base_offset, aborted)

    def drop(self, segments: Iterable[Segment]) -> None:
        """Takes segments out of the log, in this order; their files are unlinked later, by `deletions`. If the file of
        one cannot be renamed, that one and those after it stay."""
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
            self.unflushed.note(FOLDER_ITSELF)
            self.deletions.append(Deletion(self._deletion_due_ms(), marked))

    def swap_in(self, cleaned: CleanedSegment, old: Sequence[Segment]) -> None:
        """Puts a cleaned segment in place of closed ones (`log/cleaning/swap` says how)."""
        try:
            swap.decide(self.disk, self.folder, cleaned)
        except OSError as error:
            raise self.failed_write("clean", error) from error
        try:
            gone = swap.retire(self.disk, self.folder, cleaned)
            swap.complete(self.disk, self.folder, cleaned)
        except OSError as error:
            # Some files are old and some are new, and only a start sorts that out.
            self.on_failed_disk(error)
            raise self.storage_error("clean", error) from error
        new = Segment(self.folder, cleaned.base_offset, cleaned.size)
        new.max_timestamp, new.max_timestamp_offset = cleaned.max_timestamp, cleaned.max_timestamp_offset
        first = self.all.index(old[0])
        self.all[first : first + len(old)] = [new]
        for segment in old:
            if segment.file is not None:
                self.files.close(segment.file)
        self.aborted_txns.replace(cleaned.replaces, cleaned.base_offset, cleaned.aborted)
        self.rising_timestamps.forget()
        self.unflushed.note(FOLDER_ITSELF)
        self.deletions.append(Deletion(self._deletion_due_ms(), gone))

    def drop_active(self) -> None:
        """Takes the last of several segments out of the log; the one before it becomes active."""
        self.drop((self.active,))
        self.active = self.all[-1]

    def replace_all(self, base_offset: int) -> None:
        """Drops every segment and begins again at `base_offset`."""
        self.drop(self.all[:])
        # If the new segment cannot be created, an empty one without files stands in for it until the next attempt.
        self.active = Segment(self.folder, base_offset, 0)
        self.active.max_timestamp = NO_TIMESTAMP
        self.all.append(self.active)
        try:
            self.active = self.all[-1] = self._create(base_offset)
        except OSError as error:
            raise self.failed_write("truncate", error) from error

    def cut_active(self, offset: int) -> int:
        """Removes the batches of the active segment from the one that holds `offset` on. Returns the new log end."""
        segment = self.active
        place = self._find_in(segment, offset)
        try:
            if segment.index is None:
                self._wake(segment)
            assert segment.index is not None, "it was just woken"
            cut_at = place.position if place is not None else segment.size
            segment.index.truncate_to(offset)
            if (txn_index := self.aborted_txns.cut(segment.base_offset, offset)) is not None:
                self.unflushed.note(txn_index)
            segment.recent = RecentBatches()
            segment.size = cut_at
            self._cut_file(segment)
        except (OSError, CorruptIndexError) as error:
            raise self.failed_write("truncate", error) from error
        self._note_index_files(segment)
        self.unflushed.note(offset_name(segment.base_offset, LOG))
        return self._recompute_tail(segment)

    def take_due_deletions(self) -> list[Deletion]:
        """The deletions that are due: to be run, in any thread."""
        now_ms = self._clock.now_ms()
        due = [deletion for deletion in self.deletions if deletion.due_ms <= now_ms]
        self.deletions = [deletion for deletion in self.deletions if deletion.due_ms > now_ms]
        return due

    def put_off(self, deletion: Deletion) -> None:
        """A deletion that was due could not be run: it is due again after another delay."""
        self.deletions.append(deletion._replace(due_ms=self._deletion_due_ms(), has_failed=True))

    def begin_sync(self) -> tuple[list[str], tuple[str, ...]]:
        """(the files to sync other than those that hold batches, the folders to sync after them)."""
        try:
            self._write_pending_entries(self.active)
        except OSError as error:
            raise self.failed_write("flush", error) from error
        return self.unflushed.begin_sync()

    def finish(self) -> None:
        """Brings the active segment's files to the state in which a clean shutdown leaves them."""
        try:
            self._finish_index(self.active)
        except OSError as error:
            raise self.failed_write("close", error) from error

    def snapshot_producers(self, offset: int, producers: Mapping[int, ProducerEntry]) -> None:
        """Writes the state of the producers before `offset`, so that opening the log replays nothing before it."""
        name = offset_name(offset, PRODUCER_SNAPSHOT)
        try:
            write_snapshot(self.disk, f"{self.folder}/{name}", producers)
        except OSError as error:
            raise self.failed_write("write the producers of", error) from error
        self.unflushed.note(name, FOLDER_ITSELF)

    def release(self) -> None:
        """Closes every file; the newest index entries are written out first."""
        try:
            self._write_pending_entries(self.active)
            for segment in self.all:
                segment.index = segment.recent = None
                if segment.file is not None:
                    self.files.close(segment.file)
        except OSError as error:
            raise self.failed_write("write the index of", error) from error

    def is_awake(self) -> bool:
        return self.active.index is not None or any(segment.file is not None for segment in self.all)

    def rename_folder(self, name: str) -> str:
        """Closes every file and renames the folder within its parent. Returns the new path. A folder that something
        else has removed counts as renamed."""
        for segment in self.all:
            if segment.file is not None:
                self.files.close(segment.file)
        folder = f"{self.folder.rpartition('/')[0]}/{name}"
        try:
            self.disk.rename(self.folder, folder)
        except FileNotFoundError:
            logger.warning("%s is already gone", self.folder)
        except OSError as error:
            raise self.storage_error("rename", error) from error
        return folder

    def rename_in_use(self, name: str) -> None:
        """Renames the folder within its parent, and goes on under the new name. Raises KafkaError if that fails, and
        goes on under the old one."""
        self.release()
        old, new = self.folder, f"{self.folder.rpartition('/')[0]}/{name}"
        try:
            self.disk.rename(old, new)
        except OSError as error:
            raise self.storage_error("rename", error) from error
        self.folder = self.unflushed.folder = self.aborted_txns.folder = new
        for segment in self.all:
            segment.folder = new
        self.deletions = [
            deletion._replace(paths=tuple(f"{new}{path.removeprefix(old)}" for path in deletion.paths))
            for deletion in self.deletions
        ]
        self.unflushed.note(FOLDER_ITSELF, PARENT_FOLDER)

    def failed_write(self, verb: str, error: Exception) -> KafkaError:
        """Reports a device that has failed, and gives what the caller raises."""
        if isinstance(error, OSError) and is_failed_write(error):
            self.on_failed_disk(error)
        return self.storage_error(verb, error)

    def storage_error(self, verb: str, error: Exception) -> KafkaError:
        return KafkaError(Error.KAFKA_STORAGE_ERROR, f"cannot {verb} {self._name} in {self.folder}: {error}")

    def _find_recent(self, segment: Segment, offset: int) -> Place | None:
        """The batch, if it is one of the newest, whose positions are in memory."""
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

    def _offset_from_position(self, segment: Segment, position: int) -> int | None:
        """An offset larger than that of any batch before `position`, if the segment's index knows one."""
        index = segment.index
        if index is not None:
            return self.repairing(segment, lambda: index.offset_from_position(position))
        return self.repairing(
            segment, lambda: offset_from_position(self.disk, self.folder, segment.base_offset, position)
        )

    def _wake(self, segment: Segment) -> None:
        """Prepares the active segment for writing after its files were closed."""
        self.max_timestamp_of(segment)
        segment.index = self.repairing(segment, lambda: ActiveIndex(self.disk, self.folder, segment.base_offset))
        segment.index_is_full = segment.index.is_full(self.config.segment_index_bytes)
        segment.recent = RecentBatches()

    def _write_rest(self, file: OpenFile, batch: Buffer, position: int, written: int) -> None:
        """A short write usually means a full disk; going on brings the error, or the rest if space has been freed."""
        data = memoryview(batch)
        while written < len(data):
            written += self.disk.pwrite(file.fd, data[written:], position + written)

    def _cut_off_failed_write(self, segment: Segment) -> None:
        try:
            self._cut_file(segment)
        except OSError as error:
            # Readers stop at `size`, the next append overwrites the rest, and recovery cuts off what is not a batch.
            logger.warning("the rest of a failed write stays beyond the end of %s: %s", segment.log_path, error)

    def _cut_file(self, segment: Segment) -> None:
        """Removes what follows the last batch, be it from a failed write, a truncation or preallocation."""
        if segment.file is not None:
            self.disk.truncate(segment.file.fd, segment.size)
        elif self.disk.size(segment.log_path) != segment.size:
            cut_file(self.disk, segment.log_path, segment.size)

    def _finish_index(self, segment: Segment) -> None:
        """Writes out all index entries; the last of the time index is the largest timestamp of the segment."""
        if segment.index is None:
            self._wake(segment)
        assert segment.index is not None, "it was just woken"
        segment.index.add_timestamp(segment.max_timestamp, segment.max_timestamp_offset)
        self._write_pending_entries(segment)
        self._cut_file(segment)
        if self.config.preallocate:
            # Its batches may be synced already, followed by the preallocated space that was just given back.
            self.unflushed.note(offset_name(segment.base_offset, LOG))

    def _recompute_tail(self, segment: Segment) -> int:
        """Recomputes what is kept in memory about the last batches of a segment that was cut. Returns the offset after
        the last."""
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

    def _create(self, base_offset: int) -> Segment:
        allocate_bytes = self.config.segment_bytes if self.config.preallocate else 0
        # A truncated segment of the same name may have left this index, which nothing else would replace. It goes
        # first: if that fails, no empty segment is left behind.
        unlink_if_there(self.disk, offset_file(self.folder, base_offset, TXN_INDEX))
        self.aborted_txns.forget(base_offset)
        new = create_segment(self.disk, self.folder, base_offset, allocate_bytes)
        new.created_ms = self._clock.now_ms()
        new.jitter_ms = self._jitter_ms()
        self.unflushed.note(FOLDER_ITSELF)
        return new

    def _create_with_snapshot(self, base_offset: int, producers: Mapping[int, ProducerEntry]) -> Segment:
        try:
            new = self._create(base_offset)
            write_snapshot(self.disk, offset_file(self.folder, base_offset, PRODUCER_SNAPSHOT), producers)
        except OSError:
            # An empty segment amid the offsets that the active one still takes would hide them from readers.
            for suffix in FILES_OF_SEGMENT:
                unlink_if_there(self.disk, offset_file(self.folder, base_offset, suffix))
            raise
        self.unflushed.note(offset_name(base_offset, PRODUCER_SNAPSHOT))
        return new

    def _write_pending_entries(self, segment: Segment) -> None:
        """Brings the index files of the active segment up to date."""
        if segment.index is not None and segment.index.write_pending():
            self._note_index_files(segment)
        if (txn_index := self.aborted_txns.write_pending()) is not None:
            self.unflushed.note(txn_index, FOLDER_ITSELF)

    def _note_index_files(self, segment: Segment) -> None:
        self.unflushed.note(*(offset_name(segment.base_offset, suffix) for suffix in (OFFSET_INDEX, TIME_INDEX)))

    def _deletion_due_ms(self) -> int:
        return self._clock.now_ms() + self.config.file_delete_delay_ms

    def _jitter_ms(self) -> int:
        jitter_ms = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return self._random.below(jitter_ms) if jitter_ms > 0 else 0


def nobody_hears(_: OSError) -> None:
    """The owner of the log looks at the errors itself."""


def _base_offset_of(segment: Segment) -> int:
    return segment.base_offset
