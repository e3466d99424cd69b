"""The node's logs: those found on disk at start until they are claimed, new ones, discarded ones, and the checkpoints
over all of them.

With several data folders a new log goes where the metadata says, or, where it leaves that to the broker, where the
fewest are, but not into a folder that is cordoned as long as there is another. A log that cannot be opened keeps its
folder and its checkpoints as they are: it stays offline until the next start, and its data folder is not marked as
cleanly closed.

A data folder whose device failed is offline until the next start, with all its logs: nothing is written there any
more, neither checkpoints nor the mark of a clean end, so that the next start checks what is really on the device. One
that could not be used from the start is offline too. Nobody knows which logs are in it, so no log is made in place of
one that may be there.

The folder of a log whose topic is gone is renamed, so that its name is free again. If that fails, a chore tries it
again, and so does whoever needs a log of that name. A failure of one log, or in one data folder, does not affect
others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.log.folder.checkpoints import TopicPartition
from barnabas.log.folder.data_dir import log_start_offsets_of, recovery_points_of, unreplicated_offsets_of
from barnabas.metadata.image import UNASSIGNED_DIRECTORY
from barnabas.protocol.errors import KafkaError
from barnabas.replication.failures import Failures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from barnabas.config.topic_config import TopicConfig
    from barnabas.log.folder.data_dir import DataDir, OpenedPartitions
    from barnabas.log.partition_log import PartitionLog
    from barnabas.ports import Threads
    from barnabas.protocol.uuids import Uuid

logger = logging.getLogger("barnabas.logs")


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
        self.on_failed_dir: Callable[[DataDir, OSError], None] | None = None
        """Called once for each data folder that fails, in the middle of whatever noticed it."""
        self._failed: dict[DataDir, OSError] = {}
        self._found: dict[TopicPartition, list[PartitionLog]] = {}
        """More than one if a topic was created again while the data folder of its predecessor was offline."""
        self._returned: dict[TopicPartition, PartitionLog] = {}
        self._broken: dict[TopicPartition, _Broken] = {}
        self._logs: dict[PartitionLog, DataDir] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
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
            self._high_watermarks |= high_watermarks
            self._take_in(opened, data_dir)
        self._is_open = True
        return -1 if self._unusable or self._failed else min(epochs)

    def _take_in(self, opened: OpenedPartitions, data_dir: DataDir) -> None:
        for partition, log in opened.logs.items():
            self.adopt(log, data_dir)
            self._found.setdefault(partition, []).append(log)
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

    def claim(self, topic: str, topic_id: Uuid, partition: int) -> PartitionLog | None:
        """The log found on disk at start for this partition, handed out once. One of an older topic of the same name is
        renamed; raises KafkaError if that fails."""
        name = TopicPartition(topic, partition)
        returned = self._returned.pop(name, None)
        candidates = [] if returned is None else [returned]
        if not candidates:
            candidates = self._found.pop(name, [])
        mine = next((log for log in candidates if log.topic_id == topic_id), None)
        for log in candidates:
            if log is not mine:
                self._set_aside(log)
        if mine is not None:
            return mine
        for other in [other for other in self._in_the_way if other.name == str(name)]:
            self._rename_again(other)
        return None

    def give_back(self, log: PartitionLog) -> None:
        """A log that was handed out cannot be served for now: it can be claimed again."""
        self._returned[TopicPartition(log.topic, log.partition)] = log

    def discard_returned(self, topic: str, partition: int, now_ms: int) -> None:
        """The topic is deleted: if a log was given back, nobody claims it any more."""
        log = self._returned.pop(TopicPartition(topic, partition), None)
        if log is not None:
            self.discard(log, now_ms)

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

    def create(
        self, data_dir: DataDir, topic: str, topic_id: Uuid, partition: int, config: TopicConfig
    ) -> PartitionLog:
        """Makes the files of a new log. To be handed to `adopt` on the event loop."""
        return data_dir.create_partition(TopicPartition(topic, partition), topic_id, config)

    def high_watermark_of(self, log: PartitionLog) -> int:
        """The high watermark as last checkpointed, within the log."""
        checkpointed = self._high_watermarks.get(TopicPartition(log.topic, log.partition), log.log_start_offset)
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
        for logs in found.values():
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
            logger.error("%s belongs to no topic but keeps its name until it can be renamed: %s", log.name, error)
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
        recovery points on file. Returns the logs for which that cannot be written, and why."""
        refused: dict[PartitionLog, OSError] = {}
        async with self._checkpointing:
            too_high: dict[DataDir, list[PartitionLog]] = {}
            for log in truncated:
                data_dir = self._logs.get(log)
                if data_dir is None or data_dir in self._failed:
                    continue
                if data_dir.recovery_point_on_file(TopicPartition(log.topic, log.partition)) > log.recovery_point:
                    too_high.setdefault(data_dir, []).append(log)
            for data_dir, logs in self._logs_by_dir() if too_high else ():
                if data_dir in too_high:
                    try:
                        await self._run_in_thread(data_dir.write_recovery_points, recovery_points_of(logs))
                    except OSError as error:
                        refused |= dict.fromkeys(too_high[data_dir], error)
        return refused

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
            failed = [log for log in logs if not _close(log)]
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


def _close(log: PartitionLog) -> bool:
    try:
        log.close()
    except Exception:
        logger.exception("cannot close %s", log.name)
        return False
    return True
