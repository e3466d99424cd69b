"""The metadata log on disk: the folder `__cluster_metadata-0`, which is a partition like any other, and its snapshots.

Reading comes before opening. `read_folder` reads the newest snapshot and the batches after it without writing anything,
so that a folder that this software must not touch is left as it is. `MetadataLog.open` then repairs a torn end and
makes the log ready for appends.

A torn end is one that no complete batch follows: what a crash left there was never synced, and so never committed. If a
complete batch follows invalid data, the data between was most likely committed, and truncating the log there would
remove topics whose records are on the disk. Such a folder is left unchanged and rejected, for an operator to decide.

The log rolls to a new segment whenever a snapshot is complete: so it can be trimmed exactly to the end of a snapshot,
and after a crash only what follows the newest snapshot needs to be checked.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from barnabas.config.topic_config import TopicConfig
from barnabas.log.flush import sync_file
from barnabas.log.folder.checkpoints import CheckpointError, read_topic_id, write_topic_id
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments import segment_index
from barnabas.log.segments.file_names import LOG, PARTITION_METADATA, offset_file, parse_offset_file, partition_folder
from barnabas.log.segments.segment_scan import find_batch, scan
from barnabas.protocol import messages as m
from barnabas.protocol.batch import crc_is_valid
from barnabas.protocol.uuids import METADATA_TOPIC_ID
from barnabas.raft.consensus.log_history import BOOTSTRAP, LogEnd, LogHistory, SnapshotId
from barnabas.raft.folder.metadata_batches import DecodedBatch, decode_batch, voters_from_record
from barnabas.raft.folder.snapshots import (
    CorruptCheckpointError,
    Snapshot,
    list_snapshots,
    read_snapshot,
    remove_leftovers,
    snapshot_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.log.flush import Flush
    from barnabas.log.segments.open_files import FileRange
    from barnabas.ports import Clock, Disk
    from barnabas.raft.consensus.voter_sets import VoterNode

logger = logging.getLogger(__name__)

TOPIC = "__cluster_metadata"
PARTITION = 0
NO_EPOCH = 0
_NEVER = -1


class MetadataLogLimits(NamedTuple):
    """Kafka's `metadata.*` settings for sizes and times."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = 100 * 1024 * 1024
    retention_ms: int = 7 * 24 * 3600 * 1000
    snapshot_bytes: int = 20 * 1024 * 1024
    """A snapshot is due after this many bytes of new records."""
    snapshot_interval_ms: int = 3600 * 1000
    idle_interval_ms: int = 500


class FolderContent(NamedTuple):
    """The contents of a metadata folder, up to its last complete batch."""

    snapshot: Snapshot | None
    batches: tuple[DecodedBatch, ...]
    """Everything after the snapshot."""
    voters: tuple[VoterNode, ...]
    """The newest voters in the snapshot or the log."""
    are_voters_in_log: bool
    """Whether the voters are in the log or a snapshot of it, and not only in the bootstrap snapshot."""
    kraft_version: int

    @property
    def end_offset(self) -> int:
        if self.batches:
            return self.batches[-1].last_offset + 1
        return self.snapshot.id.end_offset if self.snapshot else 0

    @property
    def epoch(self) -> int:
        if self.batches:
            return self.batches[-1].epoch
        return self.snapshot.id.epoch if self.snapshot else NO_EPOCH


class MissingMetadataError(Exception):
    """Committed records are missing, for example between the end of the newest snapshot and the start of the log."""


class DamagedMetadataError(Exception):
    """The log contains invalid data that is followed by committed batches."""


def metadata_folder(data_folder: str) -> str:
    return f"{data_folder}/{partition_folder(TOPIC, PARTITION)}"


def read_folder(disk: Disk, folder: str) -> FolderContent:
    """Reads a metadata folder without changing anything in it. A folder that does not exist yet counts as empty.

    Raises NewerMetadataError if it has records that this software does not know, and DamagedMetadataError or
    MissingMetadataError if it has lost committed records.
    """
    if not disk.exists(folder):
        return FolderContent(None, (), (), False, 0)
    snapshot = _newest_snapshot(disk, folder)
    start = snapshot.id.end_offset if snapshot else 0
    batches = tuple(_read_batches(disk, folder, start))
    if batches and batches[0].base_offset > start:
        raise MissingMetadataError(
            f"{folder} has a log that starts at offset {batches[0].base_offset}, and no snapshot reaches that far: "
            "restore the missing snapshot"
        )
    _require_all_of_snapshots(disk, folder, batches[-1].last_offset + 1 if batches else start)
    voters = snapshot.voters if snapshot else ()
    kraft_version = snapshot.kraft_version if snapshot else 0
    are_in_log = bool(voters) and snapshot is not None and snapshot.id != BOOTSTRAP
    for batch in batches:
        for message in batch.records if batch.is_control else ():
            if isinstance(message, m.VotersRecord):
                voters, are_in_log = voters_from_record(message), True
            elif isinstance(message, m.KRaftVersionRecord):
                kraft_version = message.kraft_version
    return FolderContent(snapshot, batches, voters, are_in_log, kraft_version)


class MetadataLog:
    """The log, ready for appends. Use it from one thread only; `Flush.run` may run in another."""

    __slots__ = ("_clock", "_disk", "_folder", "_limits", "_log", "_snapshots")

    def __init__(
        self, log: PartitionLog, snapshots: list[SnapshotId], limits: MetadataLogLimits, disk: Disk, clock: Clock
    ) -> None:
        self._log = log
        self._folder = log.folder
        self._snapshots = snapshots
        self._limits = limits
        self._disk = disk
        self._clock = clock

    @classmethod
    def open(
        cls, folder: str, content: FolderContent, limits: MetadataLogLimits, *, disk: Disk, clock: Clock
    ) -> MetadataLog:
        """Opens the folder that `read_folder` has read, or creates it if it does not exist."""
        if not disk.exists(folder):
            disk.make_folder(folder)
            disk.sync_dir(os.path.dirname(folder))
        remove_leftovers(disk, folder)
        _ensure_topic_id(disk, folder)
        snapshot_end = content.snapshot.id.end_offset if content.snapshot else 0
        log = PartitionLog.open(
            folder,
            TOPIC,
            PARTITION,
            _topic_config(limits),
            disk=disk,
            clock=clock,
            recovery_point=snapshot_end,
            log_start_offset=0,
            clean_shutdown=False,
        )
        if log.log_end_offset < snapshot_end:
            log.truncate_fully(snapshot_end)
        log.truncate_to(content.end_offset)
        if log.log_end_offset != content.end_offset:
            raise MissingMetadataError(
                f"{folder} was read up to offset {content.end_offset} but opened up to {log.log_end_offset}: "
                "is another process writing to it?"
            )
        return cls(log, list_snapshots(disk, folder), limits, disk, clock)

    @property
    def folder(self) -> str:
        return self._folder

    @property
    def end(self) -> LogEnd:
        """The end of the log, or of its newest snapshot if the log has no batches."""
        epoch = self._log.latest_epoch
        if epoch < 0:
            epoch = self._snapshots[-1].epoch if self._snapshots else NO_EPOCH
        return LogEnd(epoch, self._log.log_end_offset)

    @property
    def history(self) -> LogHistory:
        """What the rules of the quorum need to know of this log, as of now."""
        return LogHistory(
            self.end,
            self._log.epochs.entries,
            start_offset=self._log.log_start_offset,
            oldest_snapshot=self._snapshots[0] if self._snapshots else None,
            newest_snapshot=self._snapshots[-1] if self._snapshots else None,
        )

    @property
    def durable_end(self) -> int:
        """Everything before it was synced."""
        return self._log.recovery_point

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def snapshots(self) -> tuple[SnapshotId, ...]:
        return tuple(self._snapshots)

    def append(self, batches: bytes) -> None:
        """Writes batches that already have their offsets and epochs. They are durable after the next flush."""
        appended = self._log.append_at(memoryview(batches))
        assert appended is not None, "not a complete batch"

    def truncate_to(self, offset: int) -> None:
        """Removes everything from `offset` on."""
        self._log.truncate_to(offset)

    def read(self, offset: int, max_bytes: int) -> FileRange | None:
        """The batches from `offset` on, of which the last may be cut off; None at the end of the log."""
        return self._log.read(offset, max_bytes, self._log.end_position, whole_first_batch=True)

    def is_cold(self, found: FileRange) -> bool:
        """Whether reading the range might wait for the device."""
        return self._log.is_cold(found)

    def restart_at(self, snapshot_id: SnapshotId) -> list[str]:
        """Drops the whole log: it continues at the end of a snapshot that was put into the folder. Returns the paths
        of the snapshots before it, to unlink in any thread."""
        self._log.truncate_fully(snapshot_id.end_offset)
        doomed = [self.snapshot_path(each) for each in self._snapshots if each != snapshot_id]
        self._snapshots = [snapshot_id]
        for deletion in self._log.take_due_deletions():
            doomed += deletion.paths
        return doomed

    def prepare_flush(self) -> Flush:
        return self._log.prepare_flush()

    def flushed(self, flush: Flush) -> bool:
        """A flush has run. Whether the log is durable up to its end: not if it was truncated meanwhile."""
        self._log.flushed(flush)
        return self._log.recovery_point >= flush.end_offset

    def snapshot_completed(self, snapshot_id: SnapshotId) -> list[str]:
        """Notes a new snapshot and drops what is no longer needed. Returns paths to unlink, in any thread.

        Older data is kept within the limits of size and age, for other nodes that lag behind; but the log never
        starts after the end of the oldest snapshot.
        """
        self._snapshots.append(snapshot_id)
        self._log.roll(self._log.log_end_offset)
        doomed = []
        while len(self._snapshots) > 1 and self._is_oldest_snapshot_due():
            doomed.append(self.snapshot_path(self._snapshots.pop(0)))
            self._log.advance_log_start(min(self._snapshots[0].end_offset, self._log.log_end_offset))
            self._log.apply_retention(self._snapshots[0].end_offset)
        for deletion in self._log.take_due_deletions():
            doomed += deletion.paths
        return doomed

    def close(self) -> None:
        self._log.close()

    def _is_oldest_snapshot_due(self) -> bool:
        oldest = self.snapshot_path(self._snapshots[0])
        kept_bytes = self._log.size_bytes + sum(
            self._disk.size(self.snapshot_path(snapshot)) for snapshot in self._snapshots
        )
        age_ms = self._clock.now_ms() - self._disk.modified_ms(oldest)
        return kept_bytes > self._limits.retention_bytes or age_ms > self._limits.retention_ms

    def snapshot_path(self, snapshot_id: SnapshotId) -> str:
        return f"{self._folder}/{snapshot_name(snapshot_id)}"


def _ensure_topic_id(disk: Disk, folder: str) -> None:
    """The topic id is the same in every cluster, so a missing or torn file can be rewritten."""
    path = f"{folder}/{PARTITION_METADATA}"
    try:
        if read_topic_id(disk, path) == METADATA_TOPIC_ID:
            return
    except CheckpointError as error:
        logger.warning("%s; rewriting it", error)
    write_topic_id(disk, path, METADATA_TOPIC_ID)
    sync_file(disk, path)
    disk.sync_dir(folder)


def _topic_config(limits: MetadataLogLimits) -> TopicConfig:
    return TopicConfig(
        segment_bytes=limits.segment_bytes,
        segment_ms=limits.segment_ms,
        # The start of this log moves only to the end of a snapshot.
        retention_bytes=_NEVER,
        retention_ms=_NEVER,
        file_delete_delay_ms=0,
    )


def _newest_snapshot(disk: Disk, folder: str) -> Snapshot | None:
    for snapshot_id in reversed(list_snapshots(disk, folder)):
        try:
            return read_snapshot(disk, folder, snapshot_id)
        except CorruptCheckpointError as error:
            logger.warning("%s; falling back to an older snapshot", error)
    return None


def _require_all_of_snapshots(disk: Disk, folder: str, end_offset: int) -> None:
    """The contents of a snapshot were committed. An unreadable one must not hide that the log has lost some of them."""
    newest = max(list_snapshots(disk, folder), default=BOOTSTRAP)
    if newest.end_offset > end_offset:
        raise MissingMetadataError(
            f"{folder}/{snapshot_name(newest)} cannot be read, and the log ends at offset {end_offset}, before the end "
            "of that snapshot. Nothing was changed; restore the snapshot or the log"
        )


def _read_batches(disk: Disk, folder: str, start: int) -> Iterator[DecodedBatch]:
    """The valid batches from `start` on. At invalid data, ends if no complete batch follows, and otherwise raises
    DamagedMetadataError."""
    parsed = filter(None, map(parse_offset_file, disk.list_folder(folder)))
    bases = sorted(base for base, suffix in parsed if suffix == LOG)
    has_begun, next_offset = False, start
    for number, base in enumerate(bases):
        if number + 1 < len(bases) and bases[number + 1] <= start:
            continue
        paths = [offset_file(folder, each, LOG) for each in bases[number:]]
        if has_begun and base > next_offset:
            _require_nothing_whole(disk, _Place(paths[0], 0, next_offset), 0, paths)
            return
        size = disk.size(paths[0])
        position = _position_before(disk, folder, base, start)
        for header, at, data in scan(disk, paths[0], position, size):
            # The checksum does not cover offsets, but this log has no gaps, except before its first batch.
            is_next = header.base_offset == next_offset if has_begun else header.base_offset >= base
            if not is_next or not crc_is_valid(data, 0, header.size):
                break
            position = at + header.size
            if header.last_offset >= start:
                has_begun, next_offset = True, header.next_offset
                yield decode_batch(bytes(data), folder)
        if position < size:
            _require_nothing_whole(disk, _Place(paths[0], position, next_offset), position + 1, paths)
            return


class _Place(NamedTuple):
    """Where a batch was expected but not found."""

    path: str
    position: int
    offset: int


def _require_nothing_whole(disk: Disk, place: _Place, position: int, paths: Sequence[str]) -> None:
    """Raises DamagedMetadataError if a complete batch follows in these files, from `position` in the first one."""
    for path in paths:
        found = find_batch(disk, path, position, disk.size(path), place.offset)
        if found is not None:
            header, at = found
            raise DamagedMetadataError(
                f"{place.path} is damaged at position {place.position}, where offset {place.offset} should be, but "
                f"complete batches follow, starting with offset {header.base_offset} at position {at} of {path}. "
                "Nothing was changed; restore the file from a copy, or truncate it there to give up all that follows"
            )
        position = 0


def _position_before(disk: Disk, folder: str, base: int, offset: int) -> int:
    """A position at or before the batch with `offset`: that of the index, if there is a valid batch, else 0."""
    if offset <= base:
        return 0
    try:
        position = segment_index.lookup_offset(disk, folder, base, offset).position
    except (FileNotFoundError, segment_index.CorruptIndexError):
        return 0
    path = offset_file(folder, base, LOG)
    for header, _, data in scan(disk, path, position, disk.size(path)):
        return position if crc_is_valid(data, 0, header.size) and base <= header.base_offset <= offset else 0
    return 0
