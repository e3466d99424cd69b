"""The metadata log on disk: the folder `__cluster_metadata-0`, a partition like others, and its snapshots.

Reading comes before opening. `read_folder` looks at the newest snapshot and at the batches after it without writing
a byte, so that a folder that this software must not touch stays as it is. `MetadataLog.open` then repairs a torn
end and makes the log ready for appends.

The log begins a new segment whenever a snapshot is complete: so it can be trimmed to the end of a snapshot exactly,
and after a crash only what follows the newest snapshot needs checking.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from barnabas.config.topic import TopicConfig
from barnabas.log import index
from barnabas.log.checkpoints import CheckpointError, read_topic_id, write_topic_id
from barnabas.log.flushing import sync_file
from barnabas.log.names import LOG, PARTITION_METADATA, offset_file, parse_offset_file, partition_folder
from barnabas.log.partition_log import PartitionLog
from barnabas.log.scanning import scan
from barnabas.protocol import messages as m
from barnabas.protocol.batch import crc_is_valid
from barnabas.protocol.uuids import METADATA_TOPIC_ID
from barnabas.raft.batches import DecodedBatch, VoterNode, decode_batch, voters_from_record
from barnabas.raft.core import LogEnd
from barnabas.raft.snapshots import (
    BOOTSTRAP,
    CorruptCheckpointError,
    Snapshot,
    SnapshotId,
    list_snapshots,
    read_snapshot,
    remove_leftovers,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.log.flushing import Flush
    from barnabas.ports import Clock, Disk

logger = logging.getLogger(__name__)

TOPIC = "__cluster_metadata"
PARTITION = 0
NO_EPOCH = 0
_NEVER = -1


class MetadataLogLimits(NamedTuple):
    """Kafka's `metadata.*` settings of size and time."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = 100 * 1024 * 1024
    retention_ms: int = 7 * 24 * 3600 * 1000
    snapshot_bytes: int = 20 * 1024 * 1024
    """So many bytes of new records make a snapshot due."""
    snapshot_interval_ms: int = 3600 * 1000
    idle_interval_ms: int = 500


class FolderContent(NamedTuple):
    """What a metadata folder says, as far as its last whole batch."""

    snapshot: Snapshot | None
    batches: tuple[DecodedBatch, ...]
    """Everything after the snapshot."""
    voters: tuple[VoterNode, ...]
    """The newest voters that snapshot or log name."""
    are_voters_in_log: bool
    """Whether the voters stand in the log or a snapshot of it, and not only in what formatting wrote."""
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
    """The log begins after the newest snapshot ends: what lies between is lost."""


def metadata_folder(data_folder: str) -> str:
    return f"{data_folder}/{partition_folder(TOPIC, PARTITION)}"


def read_folder(disk: Disk, folder: str) -> FolderContent:
    """Reads a metadata folder without changing anything in it. One that does not exist yet holds nothing.

    Raises NewerMetadataError for a folder with records that this software does not know.
    """
    if not disk.exists(folder):
        return FolderContent(None, (), (), False, 0)
    snapshot = _newest_snapshot(disk, folder)
    start = snapshot.id.end_offset if snapshot else 0
    batches = tuple(_read_batches(disk, folder, start))
    if batches and batches[0].base_offset > start:
        raise MissingMetadataError(
            f"{folder} has a log from offset {batches[0].base_offset} on and no snapshot that reaches this far: "
            "restore the missing snapshot"
        )
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
    """The log ready for appends. Used by one thread; `Flush.run` may run in another."""

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
        """Opens what `read_folder` has read, or makes it where there is no log yet."""
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
                "does another process write to it?"
            )
        return cls(log, list_snapshots(disk, folder), limits, disk, clock)

    @property
    def folder(self) -> str:
        return self._folder

    @property
    def end(self) -> LogEnd:
        """The end of the log; that of its newest snapshot when it has no batch."""
        epoch = self._log.latest_epoch
        if epoch < 0:
            epoch = self._snapshots[-1].epoch if self._snapshots else NO_EPOCH
        return LogEnd(epoch, self._log.log_end_offset)

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def snapshots(self) -> tuple[SnapshotId, ...]:
        return tuple(self._snapshots)

    def append(self, batch: bytes) -> None:
        """Writes a batch that has its offset and epoch. It is durable after the next flush."""
        appended = self._log.append_at(memoryview(batch))
        assert appended is not None, "an append of no whole batch"

    def prepare_flush(self) -> Flush:
        return self._log.prepare_flush()

    def flushed(self, flush: Flush) -> None:
        self._log.flushed(flush)

    def snapshot_completed(self, snapshot_id: SnapshotId) -> list[str]:
        """Notes a new snapshot and lets go of what is no longer needed. Returns paths to unlink, in any thread.

        Something older is kept as long as sizes and ages allow, for other nodes that lag behind; but the log never
        begins after the end of the oldest snapshot.
        """
        self._snapshots.append(snapshot_id)
        self._log.roll(self._log.log_end_offset)
        doomed = []
        while len(self._snapshots) > 1 and self._is_oldest_snapshot_due():
            doomed.append(self._snapshot_path(self._snapshots.pop(0)))
            self._log.advance_log_start(min(self._snapshots[0].end_offset, self._log.log_end_offset))
            self._log.apply_retention(self._snapshots[0].end_offset)
        for deletion in self._log.take_due_deletions():
            doomed += deletion.paths
        return doomed

    def close(self) -> None:
        self._log.close()

    def _is_oldest_snapshot_due(self) -> bool:
        oldest = self._snapshot_path(self._snapshots[0])
        kept_bytes = self._log.size_bytes + sum(
            self._disk.size(self._snapshot_path(snapshot)) for snapshot in self._snapshots
        )
        age_ms = self._clock.now_ms() - self._disk.modified_ms(oldest)
        return kept_bytes > self._limits.retention_bytes or age_ms > self._limits.retention_ms

    def _snapshot_path(self, snapshot_id: SnapshotId) -> str:
        return f"{self._folder}/{snapshot_id.file_name()}"


def _ensure_topic_id(disk: Disk, folder: str) -> None:
    """The topic id is the same in every cluster, so that a missing or torn file can be written again."""
    path = f"{folder}/{PARTITION_METADATA}"
    try:
        if read_topic_id(disk, path) == METADATA_TOPIC_ID:
            return
    except CheckpointError as error:
        logger.warning("%s; it is written again", error)
    write_topic_id(disk, path, METADATA_TOPIC_ID)
    sync_file(disk, path)
    disk.sync_dir(folder)


def _topic_config(limits: MetadataLogLimits) -> TopicConfig:
    return TopicConfig(
        segment_bytes=limits.segment_bytes,
        segment_ms=limits.segment_ms,
        # Only the end of a snapshot moves the beginning of this log.
        retention_bytes=_NEVER,
        retention_ms=_NEVER,
        file_delete_delay_ms=0,
    )


def _newest_snapshot(disk: Disk, folder: str) -> Snapshot | None:
    for snapshot_id in reversed(list_snapshots(disk, folder)):
        try:
            return read_snapshot(disk, folder, snapshot_id)
        except CorruptCheckpointError as error:
            logger.warning("%s; an older snapshot is looked for", error)
    return None


def _read_batches(disk: Disk, folder: str, start: int) -> Iterator[DecodedBatch]:
    """The whole, valid batches from `start` on; ends at the first thing that is none."""
    parsed = filter(None, map(parse_offset_file, disk.list_folder(folder)))
    bases = sorted(base for base, suffix in parsed if suffix == LOG)
    has_begun, next_offset = False, start
    for number, base in enumerate(bases):
        if number + 1 < len(bases) and bases[number + 1] <= start:
            continue
        path = offset_file(folder, base, LOG)
        size = disk.size(path)
        position = _position_before(disk, folder, base, start)
        for header, at, data in scan(disk, path, position, size):
            if not crc_is_valid(data, 0, header.size) or header.base_offset < base:
                return
            position = at + header.size
            if header.last_offset < start:
                continue
            # Offsets are not covered by the checksum; but this log has no gaps, except before its first batch.
            if has_begun and header.base_offset != next_offset:
                return
            has_begun, next_offset = True, header.next_offset
            yield decode_batch(bytes(data), folder)
        if position < size:
            return


def _position_before(disk: Disk, folder: str, base: int, offset: int) -> int:
    """A position at or before the batch with `offset`, by the index if it leads to a good batch."""
    if offset <= base:
        return 0
    try:
        position = index.lookup_offset(disk, folder, base, offset).position
    except (FileNotFoundError, index.CorruptIndexError):
        return 0
    path = offset_file(folder, base, LOG)
    for header, _, data in scan(disk, path, position, disk.size(path)):
        return position if crc_is_valid(data, 0, header.size) and base <= header.base_offset <= offset else 0
    return 0
