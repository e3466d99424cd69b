"""One entry of `log.dirs`: a locked folder with a folder for each partition, and the checkpoints that concern all.

A start takes the lock, checks `meta.properties`, takes the mark of the last clean shutdown away and opens every
partition in a few threads; a partition that cannot be opened is reported by name and does not keep the others from
serving. A clean stop writes the checkpoints and the mark again, in this order. What a checkpoint said of a partition
that could not be opened, it goes on saying: where its log starts is written nowhere else.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.folder import checkpoints
from barnabas.log.folder.checkpoints import TopicPartition
from barnabas.log.folder.deletion import remove_partition_folder, unlink_if_there
from barnabas.log.folder.meta_properties import read_meta_properties, write_meta_properties
from barnabas.log.partition_log import PRODUCER_ID_EXPIRATION_MS, PartitionLog
from barnabas.log.segments.file_names import (
    DELETE_FOLDER,
    FUTURE_FOLDER,
    STRAY_FOLDER,
    marked_folder,
    parse_folder,
    partition_folder,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from barnabas.config.topic_config import TopicConfig
    from barnabas.log.flush import Flush
    from barnabas.log.folder.meta_properties import MetaProperties
    from barnabas.log.segments.open_files import FilePool
    from barnabas.ports import Clock, Disk, Random, Threads
    from barnabas.protocol.uuids import Uuid

logger = logging.getLogger(__name__)

LOCK = ".lock"
METADATA_TOPIC = "__cluster_metadata"


def plain_path(path: str) -> str:
    """A path as it is compared with others: without slashes at its end."""
    return path.rstrip("/") or "/"


class FolderInUseError(Exception):
    """Another process has the data folder open."""


class OpenedPartitions(NamedTuple):
    logs: dict[TopicPartition, PartitionLog]
    failures: dict[TopicPartition, Exception]
    """Partitions that could not be opened, and why."""
    leftovers: list[str]
    """Folders of deleted topics that are still to be removed, with `remove_partition_folder`."""
    futures: list[PartitionLog]
    """Copies of logs in other data folders, which were on their way here."""


class DataDir:
    """Used by one thread at a time. Writing checkpoints waits for the device, so that thread may be another one."""

    __slots__ = ("_clock", "_disk", "_files", "_half_made", "_kept", "_lock_fd", "_on_file", "_random", "path")

    def __init__(self, path: str, lock_fd: int, *, disk: Disk, clock: Clock, files: FilePool, random: Random) -> None:
        self.path = path
        self._lock_fd = lock_fd
        self._disk = disk
        self._clock = clock
        self._files = files
        self._random = random
        self._kept: dict[str, dict[TopicPartition, int]] = {}
        """For each checkpoint, its entries of partitions that could not be opened."""
        self._on_file: dict[str, Mapping[TopicPartition, int]] = {}
        """For each checkpoint, its other entries, as last read or written."""
        self._half_made: set[str] = set()
        """Folders of partitions that could neither be made nor cleared away again."""

    @classmethod
    def lock(cls, path: str, *, disk: Disk, clock: Clock, files: FilePool, random: Random) -> DataDir:
        """Takes the folder, which is made if it is missing, for this process."""
        if not disk.exists(path):
            disk.make_folder(path)
        try:
            fd = disk.lock(f"{path}/{LOCK}")
        except BlockingIOError:
            raise FolderInUseError(
                f"{path} is in use by another process, which holds {path}/{LOCK}: stop it, or use another folder"
            ) from None
        return cls(path, fd, disk=disk, clock=clock, files=files, random=random)

    def unlock(self) -> None:
        self._disk.close(self._lock_fd)

    def read_meta(self) -> MetaProperties | None:
        return read_meta_properties(self._disk, self.path)

    def write_meta(self, meta: MetaProperties) -> None:
        write_meta_properties(self._disk, self.path, meta)

    def take_clean_shutdown(self) -> int | None:
        """The broker epoch at the last clean shutdown; None after a crash, or in a new folder."""
        return checkpoints.take_clean_shutdown(self._disk, self.path)

    def mark_clean_shutdown(self, broker_epoch: int) -> None:
        """The last act of a clean stop, after every log was closed and the checkpoints were written."""
        checkpoints.write_clean_shutdown(self._disk, self.path, broker_epoch)

    def open_partitions(
        self,
        config_of: Callable[[TopicPartition], TopicConfig],
        *,
        clean_shutdown: bool,
        threads: Threads,
        threads_max: int,
        producer_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        on_progress: Callable[[int, int], None] = lambda _opened, _all: None,
    ) -> OpenedPartitions:
        """Opens every partition's log. Blocks; `on_progress` hears how many of how many are done."""
        recovery_points = self._read_offsets(checkpoints.RECOVERY_POINTS)
        log_start_offsets = self._read_offsets(checkpoints.LOG_START_OFFSETS)
        unreplicated = self._read_offsets(checkpoints.UNREPLICATED_TXNS)
        first_dirty_offsets = self._read_offsets(checkpoints.FIRST_DIRTY_OFFSETS)
        folders, futures, leftovers = self._survey()
        opened = OpenedPartitions({}, {}, leftovers, [])

        def open_one(partition: TopicPartition) -> PartitionLog:
            return open_in(f"{self.path}/{partition}", partition)

        def open_future(name: str) -> PartitionLog:
            return open_in(f"{self.path}/{name}", futures[name])

        def open_in(folder: str, partition: TopicPartition) -> PartitionLog:
            return PartitionLog.open(
                folder,
                partition.topic,
                partition.partition,
                config_of(partition),
                disk=self._disk,
                clock=self._clock,
                recovery_point=recovery_points.get(partition, 0),
                log_start_offset=log_start_offsets.get(partition, 0),
                clean_shutdown=clean_shutdown,
                unreplicated_from=unreplicated.get(partition),
                files=self._files,
                random=self._random,
                producer_expiration_ms=producer_expiration_ms,
            )

        opening = threads.each("open-log", threads_max, open_one, folders)
        for number, (partition, done) in enumerate(opening, start=1):
            try:
                opened.logs[partition] = log = done.result()
                log.first_dirty_offset = first_dirty_offsets.get(partition)
            except Exception as error:
                logger.exception("cannot open %s in %s", partition, self.path)
                opened.failures[partition] = error
            on_progress(number, len(folders))
        for name, done in threads.each("open-log", threads_max, open_future, list(futures)):
            try:
                opened.futures.append(done.result())
            except Exception:
                logger.exception("cannot open %s/%s, a copy of a log, which is left alone", self.path, name)
        self._kept = self._entries_of(opened.failures) if opened.failures else {}
        self._on_file = {
            checkpoints.RECOVERY_POINTS: _without(recovery_points, opened.failures),
            checkpoints.LOG_START_OFFSETS: _without(log_start_offsets, opened.failures),
            checkpoints.FIRST_DIRTY_OFFSETS: _without(first_dirty_offsets, opened.failures),
        }
        return opened

    def sync_logs(
        self, flushes: Mapping[PartitionLog, Flush], *, threads: Threads, threads_max: int
    ) -> dict[PartitionLog, OSError]:
        """Runs the flushes of many logs, so many at once. Blocks. Those that need names of this folder to be durable
        share one sync of it. Returns the logs for which it failed, and why."""
        failed: dict[PartitionLog, OSError] = {}

        def sync_one(log: PartitionLog) -> None:
            flush = flushes[log]
            flush._replace(folders=tuple(each for each in flush.folders if each != self.path)).run(self._disk)

        for log, done in threads.each("sync-log", threads_max, sync_one, flushes):
            if (error := done.exception()) is not None:
                if not isinstance(error, OSError):
                    raise error
                failed[log] = error
        named = [log for log, flush in flushes.items() if self.path in flush.folders]
        if named:
            try:
                self._disk.sync_dir(self.path)
            except OSError as error:
                failed |= dict.fromkeys(named, error)
        return failed

    def create_partition(self, partition: TopicPartition, topic_id: Uuid, config: TopicConfig) -> PartitionLog:
        """Makes a new partition's folder and files, all of them or none."""
        return self._create(partition_folder(*partition), partition, topic_id, config)

    def create_future(self, partition: TopicPartition, topic_id: Uuid, config: TopicConfig) -> PartitionLog:
        """The same for a copy of a log that is in another data folder."""
        name = marked_folder(*partition, self._random.uuid().hex(), FUTURE_FOLDER)
        return self._create(name, partition, topic_id, config)

    def _create(self, name: str, partition: TopicPartition, topic_id: Uuid, config: TopicConfig) -> PartitionLog:
        folder = f"{self.path}/{name}"
        if folder in self._half_made:
            remove_partition_folder(self._disk, folder)
            self._half_made.remove(folder)
        if self._disk.exists(folder):
            raise FileExistsError(f"{folder} exists already")
        try:
            return PartitionLog.create(
                folder,
                partition.topic,
                partition.partition,
                topic_id,
                config,
                disk=self._disk,
                clock=self._clock,
                files=self._files,
                random=self._random,
            )
        except BaseException:
            self._clear_half_made(folder)
            raise

    def discard(self, log: PartitionLog) -> str:
        """Takes a deleted topic's partition out of sight. Returns the folder for `remove_partition_folder`."""
        return log.rename_away(self._random.uuid().hex(), DELETE_FOLDER)

    def set_aside(self, log: PartitionLog) -> str:
        """Keeps a partition that belongs to no known topic, under a name that no start looks at. Returns that."""
        return log.rename_away(self._random.uuid().hex(), STRAY_FOLDER)

    def remove(self, folder: str) -> None:
        """Removes a folder that `discard` returned, or a start found left over. May take long."""
        remove_partition_folder(self._disk, folder)

    def has_checkpoints_of(self, partition: TopicPartition) -> bool:
        """Whether the files say how far a log of this name is synced or clean, or where it starts."""
        return any(
            partition in self._on_file.get(name, ())
            for name in (checkpoints.RECOVERY_POINTS, checkpoints.LOG_START_OFFSETS, checkpoints.FIRST_DIRTY_OFFSETS)
        )

    def recovery_point_on_file(self, partition: TopicPartition) -> int:
        return self._on_file.get(checkpoints.RECOVERY_POINTS, {}).get(partition, 0)

    def first_dirty_offset_on_file(self, partition: TopicPartition) -> int | None:
        return self._on_file.get(checkpoints.FIRST_DIRTY_OFFSETS, {}).get(partition)

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        return self._read_offsets(checkpoints.HIGH_WATERMARKS)

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._write_offsets(checkpoints.HIGH_WATERMARKS, offsets)

    def write_unreplicated(self, offsets: Mapping[TopicPartition, int]) -> None:
        """At a clean stop. Usually there are none, and no file."""
        path = f"{self.path}/{checkpoints.UNREPLICATED_TXNS}"
        if offsets:
            checkpoints.write_offsets(self._disk, path, offsets)
        else:
            unlink_if_there(self._disk, path)

    def write_recovery_points(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._write_offsets(checkpoints.RECOVERY_POINTS, offsets)

    def write_log_start_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._write_offsets(checkpoints.LOG_START_OFFSETS, offsets)

    def write_first_dirty_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._write_offsets(checkpoints.FIRST_DIRTY_OFFSETS, offsets)

    def _clear_half_made(self, folder: str) -> None:
        try:
            remove_partition_folder(self._disk, folder)
        except OSError as error:
            logger.warning(
                "%s was only partly created and could not be removed; it will be removed before it is created again:"
                " %s",
                folder,
                error,
            )
            self._half_made.add(folder)

    def _survey(self) -> tuple[list[TopicPartition], dict[str, TopicPartition], list[str]]:
        """(partitions to open, copies by the names of their folders, folders that a deletion left behind)."""
        partitions: list[TopicPartition] = []
        futures: dict[str, TopicPartition] = {}
        leftovers: list[str] = []
        for name in sorted(self._disk.list_folder(self.path)):
            if not self._disk.is_folder(f"{self.path}/{name}"):
                continue
            folder = parse_folder(name)
            if folder is None:
                logger.warning("%s/%s is not a partition folder; ignoring it", self.path, name)
            elif folder.mark == DELETE_FOLDER:
                leftovers.append(f"{self.path}/{name}")
            elif folder.mark == FUTURE_FOLDER:
                futures[name] = TopicPartition(folder.topic, folder.partition)
            elif not folder.mark and folder.topic != METADATA_TOPIC:
                partitions.append(TopicPartition(folder.topic, folder.partition))
        return partitions, futures, leftovers

    def _entries_of(self, partitions: Collection[TopicPartition]) -> dict[str, dict[TopicPartition, int]]:
        """What each checkpoint has of these partitions."""
        return {
            name: {
                partition: offset for partition, offset in self._read_offsets(name).items() if partition in partitions
            }
            for name in (
                checkpoints.RECOVERY_POINTS,
                checkpoints.LOG_START_OFFSETS,
                checkpoints.HIGH_WATERMARKS,
                checkpoints.FIRST_DIRTY_OFFSETS,
            )
        }

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint that cannot be read costs time or old positions, never records: the start goes on without."""
        try:
            return checkpoints.read_offsets(self._disk, f"{self.path}/{name}")
        except checkpoints.CheckpointError as error:
            logger.warning("%s; treating it as empty", error)
            return {}

    def _write_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        checkpoints.write_offsets(self._disk, f"{self.path}/{name}", {**self._kept.get(name, {}), **offsets})
        self._on_file[name] = offsets


def _without(
    offsets: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    return {partition: offset for partition, offset in offsets.items() if partition not in partitions}


def recovery_points_of(logs: Iterable[PartitionLog]) -> dict[TopicPartition, int]:
    return {TopicPartition(log.topic, log.partition): log.recovery_point for log in logs}


def first_dirty_offsets_of(logs: Iterable[PartitionLog]) -> dict[TopicPartition, int]:
    """Of the logs that have been compacted."""
    return {
        TopicPartition(log.topic, log.partition): log.first_dirty_offset
        for log in logs
        if log.first_dirty_offset is not None
    }


def unreplicated_offsets_of(
    logs: Iterable[PartitionLog], high_watermarks: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Of the logs with transactions that have ended, but not below the high watermark."""
    found = {}
    for log in logs:
        partition = TopicPartition(log.topic, log.partition)
        offset = log.first_unreplicated_offset(high_watermarks[partition])
        if offset is not None:
            found[partition] = offset
    return found


def log_start_offsets_of(logs: Iterable[PartitionLog]) -> dict[TopicPartition, int]:
    """Of the logs whose start cannot be told from the name of their first segment."""
    return {
        TopicPartition(log.topic, log.partition): log.log_start_offset
        for log in logs
        if log.log_start_offset > log.segments.all[0].base_offset
    }
