"""The node's logs: those found on disk at start until they are claimed, new ones, discarded ones, and the checkpoints
over all of them.

With several data folders a new log goes where the metadata says, or, where it leaves that to the broker, where the
fewest are, but not into a folder that is cordoned as long as there is another. A log that cannot be opened keeps its
folder and its checkpoints as they are: it stays offline until the next start, and its data folder is not marked as
cleanly closed.

A data folder whose device failed is offline until the next start, with all its logs: nothing is written there any more,
neither checkpoints nor the mark of a clean end, so that the next start checks what is really on the device. One that
could not be used from the start is offline too. It is not known which logs are in it, so no log is made in place of one
that may be there.

The folder of a log whose topic is gone is renamed, so that its name is free again. If that fails, a chore tries it
again, and so does any code that needs a log of that name. A failure of one log, or in one data folder, does not affect
others.

A log that moves to another data folder has a copy there, its *future log*, in a folder of its own name
(`replication/replica_moves`). Of what a start finds of the same partition, the log with the newest records is it: a
copy that has more than the log had taken its place when the node was killed. Any other copy is completed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.log.folder.checkpoints import TopicPartition
from barnabas.log.folder.data_dir import (
    first_dirty_offsets_of,
    log_start_offsets_of,
    recovery_points_of,
    unreplicated_offsets_of,
)
from barnabas.metadata.image import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from barnabas.protocol.errors import Error, KafkaError
from barnabas.replication.failures import Failures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from barnabas.config.topic_config import TopicConfig
    from barnabas.log.flush import Flush
    from barnabas.log.folder.data_dir import DataDir, OpenedPartitions
    from barnabas.log.partition_log import PartitionLog
    from barnabas.ports import Threads
    from barnabas.protocol.uuids import Uuid

logger = logging.getLogger("barnabas.logs")

PREFERENCES_MAX = 10_000
"""Names of partitions that do not exist, with the data folders that they are to be made in."""


class OpenDir(NamedTuple):
    directory_id: Uuid
    data_dir: DataDir


class UnusableDir(NamedTuple):
    """An entry of `log.dirs` that could not be locked or identified when the node started."""

    path: str
    error: Exception


class OfflineLogError(Exception):
    """A partition whose log is on disk but could not be opened."""


class _Broken(NamedTuple):
    data_dir: DataDir
    error: Exception
    topic_id: Uuid | None = None
    """None if that could not be found out: then no topic gets a new log under this name."""


class _Doomed(NamedTuple):
    due_ms: int
    data_dir: DataDir
    folder: str


class _Syncing(NamedTuple):
    threads: Threads
    threads_per_dir: int


def newness(log: PartitionLog) -> tuple[int, int]:
    """Of two logs of a partition on one node, the one with the newer records was in use last."""
    return log.latest_epoch, log.log_end_offset


class LogStore:
    """Used on the broker's event loop, except `open`, `create` and `close`, which block and are called in a thread
    while nothing else is."""

    def __init__(
        self,
        dirs: Sequence[OpenDir],
        run_in_thread: Callable[..., Awaitable[Any]],
        on_roll: Callable[[PartitionLog], None],
        unusable: Sequence[UnusableDir] = (),
    ) -> None:
        self._dirs = list(dirs)
        self._unusable = unusable
        self._cordoned: frozenset[str] = frozenset()
        self._directory_ids = {data_dir: directory_id for directory_id, data_dir in dirs}
        self._run_in_thread = run_in_thread
        self._on_roll = on_roll
        self._is_open = False
        self._syncing: _Syncing | None = None
        """With what logs are synced at the end; known once they are open."""
        self.on_failed_dir: Callable[[DataDir, OSError], None] | None = None
        """Called once for each data folder that fails, in the middle of whatever noticed it."""
        self._failed: dict[DataDir, OSError] = {}
        self._found: dict[TopicPartition, list[PartitionLog]] = {}
        """More than one if a topic was created again while the data folder of its predecessor was offline."""
        self._returned: dict[TopicPartition, PartitionLog] = {}
        self._broken: dict[TopicPartition, _Broken] = {}
        self._futures: dict[TopicPartition, list[PartitionLog]] = {}
        """Copies that were found at start."""
        self._logs: dict[PartitionLog, DataDir] = {}
        self._high_watermarks: dict[DataDir, dict[TopicPartition, int]] = {}
        self._preferred: dict[TopicPartition, Uuid] = {}
        """The data folders that were asked for, for logs that do not exist yet."""
        self._in_the_way: dict[PartitionLog, Callable[[], None]] = {}
        """Logs whose topic is gone but whose folder still has its name, with the function that renames it."""
        self._doomed: list[_Doomed] = []
        self._checkpointing = asyncio.Lock()
        """Held while a checkpoint is gathered and written, so that an older one never replaces a newer one."""
        self._recovery_point_failures = Failures("checkpointing recovery points", logger)
        self._log_start_failures = Failures("checkpointing log start offsets", logger)
        self._high_watermark_failures = Failures("checkpointing high watermarks", logger)
        self._removal_failures = Failures("removal", logger)

    def open(
        self,
        config_of: Callable[[TopicPartition], TopicConfig],
        *,
        threads: Threads,
        threads_per_dir: int,
        producer_expiration_ms: int,
        on_progress: Callable[[int, int], None],
    ) -> int:
        """Opens, and where needed recovers, every log on disk. Blocks. Returns the broker epoch of the run before if
        all folders were closed cleanly after it, else -1.

        A data folder that cannot be read is among the `failed` afterwards; if no other is left, raises its error.
        """
        epochs = []
        for _, data_dir in self._dirs:
            try:
                epoch = data_dir.take_clean_shutdown()
                high_watermarks = data_dir.read_high_watermarks()
                opened = data_dir.open_partitions(
                    config_of,
                    clean_shutdown=epoch is not None,
                    threads=threads,
                    threads_max=threads_per_dir,
                    producer_expiration_ms=producer_expiration_ms,
                    on_progress=on_progress,
                )
            except OSError as error:
                self._failed[data_dir] = error
                if not self.online:
                    raise
                continue
            epochs.append(-1 if epoch is None else epoch)
            if epoch is None and opened.logs:
                logger.info("%s was not closed cleanly: its %d logs were checked", data_dir.path, len(opened.logs))
            self._high_watermarks[data_dir] = high_watermarks
            self._take_in(opened, data_dir)
        self._is_open = True
        self._syncing = _Syncing(threads, threads_per_dir)
        return -1 if self._unusable or self._failed else min(epochs)

    def _take_in(self, opened: OpenedPartitions, data_dir: DataDir) -> None:
        for partition, log in opened.logs.items():
            self.adopt(log, data_dir)
            self._found.setdefault(partition, []).append(log)
        for log in opened.futures:
            self.adopt(log, data_dir)
            self._futures.setdefault(TopicPartition(log.topic, log.partition), []).append(log)
        for partition, error in opened.failures.items():
            logger.error("%s stays offline, its log cannot be opened: %s", partition, error)
            self._broken[partition] = _Broken(data_dir, error)
        self._doomed += [_Doomed(0, data_dir, folder) for folder in opened.leftovers]

    def adopt(self, log: PartitionLog, data_dir: DataDir) -> None:
        """Takes a log into the store's care."""
        log.on_roll = self._on_roll
        log.on_failed_disk = partial(self.report_failure, log)
        self._logs[log] = data_dir
        log.failure = self._failed.get(data_dir)

    # ── data folders that fail ───────────────────────────────────────────────────────────────────────────────

    @property
    def online(self) -> list[OpenDir]:
        """The data folders that have not failed."""
        return [each for each in self._dirs if each.data_dir not in self._failed]

    @property
    def failed(self) -> Mapping[DataDir, OSError]:
        return self._failed

    @property
    def offline_paths(self) -> list[str]:
        """Of the data folders that have failed, and of those that could not be used from the start."""
        return [*(data_dir.path for data_dir in self._failed), *(each.path for each in self._unusable)]

    # ── data folders that take no new logs ───────────────────────────────────────────────────────────────────

    def cordon(self, paths: Iterable[str]) -> bool:
        """From now on, no new log is placed in these data folders, and in others again. True if that is a change."""
        before, self._cordoned = self._cordoned, frozenset(paths)
        return self._cordoned != before

    def is_cordoned(self, data_dir: DataDir) -> bool:
        return data_dir.path in self._cordoned

    @property
    def cordoned_ids(self) -> list[Uuid]:
        return [directory_id for directory_id, data_dir in self._dirs if self.is_cordoned(data_dir)]

    # ── data folders that are asked for ──────────────────────────────────────────────────────────────────────

    def find_dir(self, path: str) -> OpenDir:
        """The data folder at an absolute path. Raises KafkaError if there is none, or it takes no more logs."""
        found = next((each for each in self._dirs if os.path.abspath(each.data_dir.path) == path), None)
        if found is None and all(os.path.abspath(each.path) != path for each in self._unusable):
            raise KafkaError(Error.LOG_DIR_NOT_FOUND, f"Log dir {path} is not found in the config.")
        if found is None or found.data_dir in self._failed:
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")
        if self.is_cordoned(found.data_dir):
            raise KafkaError(Error.INVALID_REPLICA_ASSIGNMENT, f"Log directory {path} is cordoned")
        return found

    def prefer(self, partition: TopicPartition, directory: Uuid) -> None:
        """If a log is made for this partition, it is to be made there. So much is remembered of names that may never
        come that nobody can fill the memory with them."""
        self._preferred.pop(partition, None)
        if len(self._preferred) >= PREFERENCES_MAX:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[partition] = directory

    def take_preference(self, partition: TopicPartition, directory: Uuid) -> Uuid:
        """The data folder for a log that is made now, of which the metadata says that it is in this one."""
        return self._preferred.pop(partition, directory)

    # ── where logs are ───────────────────────────────────────────────────────────────────────────────────────

    def folder_of(self, log: PartitionLog) -> DataDir | None:
        """The data folder that holds a log; None if the log is not this store's any more."""
        return self._logs.get(log)

    def directory_of(self, log: PartitionLog) -> Uuid:
        """The id of the data folder that holds a log of this store."""
        return self._directory_ids[self._logs[log]]

    def id_of(self, data_dir: DataDir) -> Uuid:
        return self._directory_ids[data_dir]

    def report_failure(self, log: PartitionLog, error: OSError) -> None:
        """The device did not take what was to be written to a log, or nobody knows whether it did."""
        if (data_dir := self._logs.get(log)) is not None:
            self.fail(data_dir, error)

    def fail(self, data_dir: DataDir, error: OSError) -> None:
        """From now on nothing is written to this data folder. `take_offline` must follow."""
        if data_dir in self._failed:
            return
        self._failed[data_dir] = error
        for log, home in self._logs.items():
            if home is data_dir:
                log.failure = error
        if self.on_failed_dir is not None:
            self.on_failed_dir(data_dir, error)

    def take_offline(self, data_dir: DataDir) -> list[PartitionLog]:
        """Lets go of the logs of a data folder that has failed, without touching a file. Returns them."""
        error = self._failed[data_dir]
        lost = [log for log, home in self._logs.items() if home is data_dir]
        for log in lost:
            del self._logs[log]
            name = TopicPartition(log.topic, log.partition)
            if log.is_future:
                self._futures[name] = [other for other in self._futures.get(name, ()) if other is not log]
                continue
            self._broken[name] = _Broken(data_dir, error, log.topic_id)
            self._returned.pop(name, None)
            if name in self._found:
                self._found[name] = [other for other in self._found[name] if other is not log]
        self._doomed = [doomed for doomed in self._doomed if doomed.data_dir is not data_dir]
        return lost

    def require_online(self, topic: str, topic_id: Uuid, partition: int, directory: Uuid) -> None:
        """Raises OfflineLogError if a partition's log exists but is out of reach, so that none may be created in its
        place."""
        name = TopicPartition(topic, partition)
        broken = self._broken.get(name)
        if broken is not None and broken.topic_id is None:
            raise OfflineLogError(f"the log of {name} could not be opened: {broken.error}")
        for directory_id, data_dir in self._dirs:
            was_there = broken is not None and broken.data_dir is data_dir and broken.topic_id == topic_id
            if data_dir in self._failed and (directory_id == directory or was_there or not self.online):
                raise OfflineLogError(f"its folder {data_dir.path} has failed: {self._failed[data_dir]}")
        if self._unusable and directory not in (UNASSIGNED_DIRECTORY, *self._directory_ids.values()):
            which = "; ".join(f"{path}: {error}" for path, error in self._unusable)
            raise OfflineLogError(f"its folder cannot be used: {which}")

    # ── what the replica manager asks ────────────────────────────────────────────────────────────────────────

    def claim(
        self, topic: str, topic_id: Uuid, partition: int, directory: Uuid = UNASSIGNED_DIRECTORY
    ) -> PartitionLog | None:
        """The log found on disk at start for this partition, handed out once. The metadata says that it is in the data
        folder with the id `directory`. One of an older topic of the same name is renamed; raises KafkaError if that
        fails."""
        name = TopicPartition(topic, partition)
        returned = self._returned.pop(name, None)
        found = self._found.pop(name, []) if returned is None else [returned]
        mine = self._newest(found, topic_id, directory)
        future = self._newest(self._futures.pop(name, []), topic_id, directory)
        if future is not None and self._is_in_place_of(future, mine, directory):
            try:
                future.come_into_place()
            except KafkaError:
                self._found[name] = [] if mine is None else [mine]
                self._futures[name] = [future]
                raise
            logger.warning("%s: using the copy in %s as the log", name, self._logs[future].path)
            if mine is not None:
                self.discard(mine, mine.clock.now_ms())
            return future
        if future is not None:
            self._futures[name] = [future]
        if mine is not None:
            return mine
        self._make_way(str(name))
        return None

    def _make_way(self, name: str) -> None:
        for other in [other for other in self._in_the_way if other.name == name]:
            self._rename_again(other)

    def _newest(self, candidates: list[PartitionLog], topic_id: Uuid, directory: Uuid) -> PartitionLog | None:
        """Of the logs that were found for a partition, the one of its topic. If a kill has left several, the one with
        the newest records has all of them, and the others go. Those of other topics are set aside."""
        mine = [log for log in candidates if log.topic_id == topic_id]
        for log in candidates:
            if log.topic_id != topic_id:
                self._set_aside(log)
        if not mine:
            return None
        newest = max(mine, key=lambda log: (newness(log), self.directory_of(log) == directory))
        for log in mine:
            if log is not newest:
                logger.warning("%s in %s is an outdated copy of the log; deleting it", log.name, log.folder)
                self.discard(log, log.clock.now_ms())
        return newest

    def _is_in_place_of(self, future: PartitionLog, mine: PartitionLog | None, directory: Uuid) -> bool:
        """Whether a copy that was found is the log by now: its folder was to be renamed when the node was killed."""
        is_meant = self.directory_of(future) == directory
        is_unsaid = directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)
        if mine is not None:
            return (is_meant or is_unsaid) and newness(future) > newness(mine)
        return is_meant or (is_unsaid and not self.offline_paths)

    def take_future(self, topic: str, topic_id: Uuid, partition: int) -> PartitionLog | None:
        """The copy of this partition's log that was found at start and is to be completed, handed out once."""
        found = self._futures.pop(TopicPartition(topic, partition), [])
        return next((log for log in found if log.topic_id == topic_id), None)

    def give_back(self, log: PartitionLog) -> None:
        """A log that was handed out cannot be served for now: it can be claimed again."""
        self._returned[TopicPartition(log.topic, log.partition)] = log

    def discard_returned(self, topic: str, partition: int, now_ms: int) -> None:
        """The topic is deleted: if a log was given back, nobody claims it any more."""
        name = TopicPartition(topic, partition)
        log = self._returned.pop(name, None)
        if log is not None:
            self.discard(log, now_ms)
        for future in self._futures.pop(name, ()):
            self.discard(future, now_ms)

    def choose(self, directories: Iterable[Uuid]) -> list[DataDir]:
        """A folder for each of several new logs: the one with this id, else where the fewest logs are, those that are
        placed here included."""
        by_id = dict(self.online)
        open_to_new = [each for each in by_id.values() if not self.is_cordoned(each)] or list(by_id.values())
        logs_in = Counter(self._logs.values())
        chosen = []
        for directory in directories:
            data_dir = by_id.get(directory) or min(open_to_new, key=lambda data_dir: logs_in[data_dir])
            logs_in[data_dir] += 1
            chosen.append(data_dir)
        return chosen

    async def forget_predecessors(self, places: Iterable[tuple[TopicPartition, DataDir]]) -> None:
        """Call it before logs are created whose names other logs had. Otherwise, after a crash, the checkpoints of the
        old logs would be taken for those of the new ones, and a log that ends before it starts is removed. Raises
        OSError if the checkpoints cannot be written."""
        async with self._checkpointing:
            stale = {data_dir for name, data_dir in places if data_dir.has_checkpoints_of(name)}
            for data_dir, logs in self._logs_by_dir() if stale else ():
                if data_dir in stale:
                    await self._run_in_thread(data_dir.write_log_start_offsets, log_start_offsets_of(logs))
                    await self._run_in_thread(data_dir.write_recovery_points, recovery_points_of(logs))
                    await self._run_in_thread(data_dir.write_first_dirty_offsets, first_dirty_offsets_of(logs))

    def create(
        self, data_dir: DataDir, topic: str, topic_id: Uuid, partition: int, config: TopicConfig
    ) -> PartitionLog:
        """Makes the files of a new log. To be handed to `adopt` on the event loop."""
        return data_dir.create_partition(TopicPartition(topic, partition), topic_id, config)

    def create_future(
        self, data_dir: DataDir, topic: str, topic_id: Uuid, partition: int, config: TopicConfig
    ) -> PartitionLog:
        """The same for a copy of a log that is in another data folder."""
        return data_dir.create_future(TopicPartition(topic, partition), topic_id, config)

    def replace(self, log: PartitionLog, future: PartitionLog, now_ms: int) -> None:
        """A copy that has everything takes the place of a log, which is discarded. Raises KafkaError with nothing
        changed."""
        self._make_way(log.name)
        future.come_into_place()
        future.inherit(log)
        self.discard(log, now_ms)

    def high_watermark_of(self, log: PartitionLog) -> int:
        """The high watermark as last checkpointed, within the log."""
        data_dir = self._logs.get(log)
        in_dir = {} if data_dir is None else self._high_watermarks.get(data_dir, {})
        checkpointed = in_dir.get(TopicPartition(log.topic, log.partition), log.log_start_offset)
        return max(log.log_start_offset, min(checkpointed, log.log_end_offset))

    def discard(self, log: PartitionLog, now_ms: int) -> None:
        """Takes the log of a deleted topic out of the way at once; its files are removed later, in the background. If
        its data folder has failed, they stay."""
        data_dir = self._logs.pop(log, None)
        if data_dir is None:
            return

        def rename() -> None:
            self._doomed.append(_Doomed(now_ms + log.config.file_delete_delay_ms, data_dir, data_dir.discard(log)))

        self._rename_away(log, rename)

    def set_unclaimed_aside(self) -> None:
        """Renames logs on disk that belong to no topic of the cluster: they are kept, but no later start opens them."""
        found, self._found = self._found, {}
        # If a log is out of reach, its copy waits for it, until the next start at least.
        copies = [] if self._unusable else [name for name in self._futures if name not in self._broken]
        for logs in [*found.values(), *(self._futures.pop(name) for name in copies)]:
            for log in logs:
                self._set_aside(log)

    def _set_aside(self, log: PartitionLog) -> None:
        data_dir = self._logs.pop(log)

        def rename() -> None:
            folder = data_dir.set_aside(log)
            logger.warning("%s belongs to no topic of this cluster and is kept as %s", log.name, folder)

        self._rename_away(log, rename)

    def _rename_away(self, log: PartitionLog, rename: Callable[[], None]) -> None:
        try:
            rename()
        except KafkaError as error:
            logger.error("%s belongs to no topic but could not be renamed; will retry: %s", log.name, error)
            self._in_the_way[log] = rename

    def _rename_again(self, log: PartitionLog) -> None:
        self._in_the_way[log]()
        del self._in_the_way[log]

    # ── chores ───────────────────────────────────────────────────────────────────────────────────────────────

    async def checkpoint_recovery_points(self) -> None:
        self._recovery_point_failures.begin_round()
        async with self._checkpointing:
            for data_dir, logs in self._logs_by_dir():
                with self._recovery_point_failures.of(data_dir.path):
                    await self._run_in_thread(data_dir.write_recovery_points, recovery_points_of(logs))

    async def reload_producers(self, truncated: Iterable[PartitionLog]) -> dict[PartitionLog, Exception]:
        """Call it when logs were truncated, before they grow again. Returns the logs for which that failed, and why."""
        failed: dict[PartitionLog, Exception] = {}

        async def reload(log: PartitionLog) -> None:
            prepared = log.prepare_reload()
            if prepared is not None:
                try:
                    log.reloaded(prepared, await self._run_in_thread(prepared.run))
                except (KafkaError, OSError) as error:
                    failed[log] = error

        await asyncio.gather(*map(reload, truncated))
        return failed

    async def lower_recovery_points(self, truncated: Iterable[PartitionLog]) -> dict[PartitionLog, OSError]:
        """Call it when logs were truncated, before they grow again: a start after a crash trusts what lies before the
        recovery points on file, and takes what lies before the first dirty offsets for clean. Returns the logs for
        which that cannot be written, and why."""
        refused: dict[PartitionLog, OSError] = {}
        async with self._checkpointing:
            too_high: dict[DataDir, list[PartitionLog]] = {}
            for log in truncated:
                data_dir = self._logs.get(log)
                if data_dir is None or data_dir in self._failed:
                    continue
                name = TopicPartition(log.topic, log.partition)
                if data_dir.recovery_point_on_file(name) > log.recovery_point or (
                    data_dir.first_dirty_offset_on_file(name) or 0
                ) > (log.first_dirty_offset or 0):
                    too_high.setdefault(data_dir, []).append(log)
            for data_dir, logs in self._logs_by_dir() if too_high else ():
                if data_dir in too_high:
                    try:
                        await self._run_in_thread(data_dir.write_recovery_points, recovery_points_of(logs))
                        await self._run_in_thread(data_dir.write_first_dirty_offsets, first_dirty_offsets_of(logs))
                    except OSError as error:
                        refused |= dict.fromkeys(too_high[data_dir], error)
        return refused

    async def checkpoint_first_dirty_offset(self, cleaned: PartitionLog) -> None:
        """A log was cleaned, and what came of it is on the device. Raises OSError."""
        async with self._checkpointing:
            for data_dir, logs in self._logs_by_dir():
                if self._logs.get(cleaned) is data_dir:
                    await self._run_in_thread(data_dir.write_first_dirty_offsets, first_dirty_offsets_of(logs))

    async def checkpoint_log_starts(self) -> None:
        self._log_start_failures.begin_round()
        async with self._checkpointing:
            for data_dir, logs in self._logs_by_dir():
                with self._log_start_failures.of(data_dir.path):
                    await self._run_in_thread(data_dir.write_log_start_offsets, log_start_offsets_of(logs))

    async def checkpoint_high_watermarks(self, offsets: Mapping[PartitionLog, int]) -> None:
        """For the logs that are served, the given offsets; for the others, those found at start."""
        self._high_watermark_failures.begin_round()
        for data_dir, logs in self._logs_by_dir():
            with self._high_watermark_failures.of(data_dir.path):
                await self._run_in_thread(data_dir.write_high_watermarks, self._high_watermarks_of(logs, offsets))

    async def remove_discarded(self, now_ms: int) -> None:
        """Removes the folders of deleted topics that are due. What cannot be renamed or removed is tried again."""
        for log in list(self._in_the_way):
            with suppress(KafkaError):  # It was logged when it first failed.
                self._rename_again(log)
        self._removal_failures.begin_round()
        for doomed in [doomed for doomed in self._doomed if doomed.due_ms <= now_ms]:
            with self._removal_failures.of(doomed.folder):
                await self._run_in_thread(doomed.data_dir.remove, doomed.folder)
                self._doomed.remove(doomed)

    def _logs_by_dir(self) -> Iterator[tuple[DataDir, list[PartitionLog]]]:
        """Only in data folders that have not failed by the time it is their turn."""
        for _, data_dir in self._dirs:
            if data_dir not in self._failed:
                yield data_dir, [log for log, home in self._logs.items() if home is data_dir]

    def _high_watermarks_of(
        self, logs: Sequence[PartitionLog], offsets: Mapping[PartitionLog, int]
    ) -> dict[TopicPartition, int]:
        return {
            TopicPartition(log.topic, log.partition): offsets[log] if log in offsets else self.high_watermark_of(log)
            for log in logs
        }

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────

    def close(self, offsets: Mapping[PartitionLog, int], broker_epoch: int) -> None:
        """A clean end: closes and syncs every log, then writes the checkpoints, then the mark. Blocks.

        A folder in which something could not be closed, or could not be opened before, gets no mark, so that the next
        start looks at its logs; one that has failed is left as it is. If the logs were never opened, nothing is
        touched.
        """
        if not self._is_open:
            return
        self.on_failed_dir = None
        for data_dir, logs in self._logs_by_dir():
            failed = self._close_logs(data_dir, logs)
            if (error := self._failed.get(data_dir)) is not None:
                logger.error("%s has failed, and its logs are checked at the next start: %s", data_dir.path, error)
                continue
            try:
                data_dir.write_recovery_points(recovery_points_of(logs))
                data_dir.write_log_start_offsets(log_start_offsets_of(logs))
                high_watermarks = self._high_watermarks_of(logs, offsets)
                data_dir.write_high_watermarks(high_watermarks)
                data_dir.write_unreplicated(unreplicated_offsets_of(logs, high_watermarks))
                if not failed and not any(broken.data_dir is data_dir for broken in self._broken.values()):
                    data_dir.mark_clean_shutdown(broker_epoch)
            except OSError:
                logger.exception(
                    "cannot write the checkpoints of %s: its logs are checked at the next start", data_dir.path
                )

    def _close_logs(self, data_dir: DataDir, logs: Sequence[PartitionLog]) -> set[PartitionLog]:
        """Closes the logs of a data folder. They are synced several at once: with half a dozen syncs for each that is
        new, ten thousand would take minutes one after the other. Returns those that could not be closed."""
        assert self._syncing is not None
        failed: set[PartitionLog] = set()
        flushes: dict[PartitionLog, Flush | None] = {}
        for log in logs:
            with _noting(log, failed):
                flushes[log] = log.prepare_close()
        threads, threads_max = self._syncing
        needed = {log: flush for log, flush in flushes.items() if flush is not None}
        not_synced = data_dir.sync_logs(needed, threads=threads, threads_max=threads_max)
        for log, flush in flushes.items():
            with _noting(log, failed):
                if (error := not_synced.get(log)) is not None:
                    raise log.sync_failed(error) from error
                log.closed(flush)
        return failed


@contextmanager
def _noting(log: PartitionLog, failed: set[PartitionLog]) -> Iterator[None]:
    """What fails concerns this log, and not the others."""
    try:
        yield
    except Exception:
        logger.exception("cannot close %s", log.name)
        failed.add(log)
