"""The node's logs: those found on disk at start until they are claimed, new ones, discarded ones, and the checkpoints
over all of them.

With several data folders a new log goes where the metadata says, or, where it leaves that to the broker, where the
fewest are.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.checkpoints import TopicPartition
from barnabas.log.data_dir import log_start_offsets_of, recovery_points_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from barnabas.config.topic import TopicConfig
    from barnabas.log.data_dir import DataDir
    from barnabas.log.partition_log import PartitionLog
    from barnabas.protocol.uuids import Uuid

logger = logging.getLogger("barnabas.logs")


class OpenDir(NamedTuple):
    """A data folder with its identity and whether it was closed cleanly."""

    directory_id: Uuid
    data_dir: DataDir
    was_clean: bool


class _Doomed(NamedTuple):
    due_ms: int
    data_dir: DataDir
    folder: str


class LogStore:
    """Used on the broker's event loop, except `open` and `create`, which are called in threads."""

    def __init__(
        self,
        dirs: Sequence[OpenDir],
        run_in_thread: Callable[..., Awaitable[None]],
        on_roll: Callable[[PartitionLog], None],
    ) -> None:
        self._dirs = list(dirs)
        self._run_in_thread = run_in_thread
        self._on_roll = on_roll
        self._found: dict[TopicPartition, PartitionLog] = {}
        self._logs: dict[PartitionLog, DataDir] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._doomed: list[_Doomed] = []

    def open(
        self,
        config_of: Callable[[TopicPartition], TopicConfig],
        *,
        threads_per_dir: int,
        producer_expiration_ms: int,
        on_progress: Callable[[int, int], None],
    ) -> None:
        """Opens, and where needed recovers, every log on disk. Blocks."""
        for _, data_dir, was_clean in self._dirs:
            opened = data_dir.open_partitions(
                config_of,
                clean_shutdown=was_clean,
                threads=threads_per_dir,
                producer_expiration_ms=producer_expiration_ms,
                on_progress=on_progress,
            )
            for partition, log in opened.logs.items():
                self._adopt(log, data_dir)
                self._found[partition] = log
            for partition, error in opened.failures.items():
                logger.error("%s stays offline, its log cannot be opened: %s", partition, error)
            self._high_watermarks |= data_dir.read_high_watermarks()
            self._doomed += [_Doomed(0, data_dir, folder) for folder in opened.leftovers]

    def _adopt(self, log: PartitionLog, data_dir: DataDir) -> None:
        log.on_roll = self._on_roll
        self._logs[log] = data_dir

    # ── what the replica manager asks ────────────────────────────────────────────────────────────────────────

    def claim(self, topic: str, topic_id: Uuid, partition: int) -> PartitionLog | None:
        """The log found on disk at start for this partition, handed out once. One of an older topic of the same
        name makes room."""
        log = self._found.pop(TopicPartition(topic, partition), None)
        if log is not None and log.topic_id != topic_id:
            self._set_aside(log)
            return None
        return log

    def create(self, topic: str, topic_id: Uuid, partition: int, directory: Uuid, config: TopicConfig) -> PartitionLog:
        data_dir = self._choose(directory)
        log = data_dir.create_partition(TopicPartition(topic, partition), topic_id, config)
        self._adopt(log, data_dir)
        return log

    def _choose(self, directory: Uuid) -> DataDir:
        for directory_id, data_dir, _ in self._dirs:
            if directory_id == directory:
                return data_dir
        logs_in = Counter(self._logs.values())
        return min((data_dir for _, data_dir, _ in self._dirs), key=lambda data_dir: logs_in[data_dir])

    def high_watermark_of(self, log: PartitionLog) -> int:
        """The high watermark as last checkpointed, within the log."""
        checkpointed = self._high_watermarks.get(TopicPartition(log.topic, log.partition), log.log_start_offset)
        return max(log.log_start_offset, min(checkpointed, log.log_end_offset))

    def discard(self, log: PartitionLog, now_ms: int) -> None:
        """Takes a deleted topic's log out of sight at once; its files go in the background, later."""
        data_dir = self._logs.pop(log)
        self._doomed.append(_Doomed(now_ms + log.config.file_delete_delay_ms, data_dir, data_dir.discard(log)))

    def set_unclaimed_aside(self) -> None:
        """What is on disk but in no topic of the cluster is kept under a name that no start looks at."""
        for log in list(self._found.values()):
            self._set_aside(log)
        self._found.clear()

    def _set_aside(self, log: PartitionLog) -> None:
        folder = self._logs.pop(log).set_aside(log)
        logger.warning("%s belongs to no topic of this cluster and is kept as %s", log.name, folder)

    # ── chores ───────────────────────────────────────────────────────────────────────────────────────────────

    async def checkpoint_recovery_points(self) -> None:
        for data_dir, logs in self._logs_by_dir():
            await self._run_in_thread(data_dir.write_recovery_points, recovery_points_of(logs))

    async def checkpoint_log_starts(self) -> None:
        for data_dir, logs in self._logs_by_dir():
            await self._run_in_thread(data_dir.write_log_start_offsets, log_start_offsets_of(logs))

    async def checkpoint_high_watermarks(self, offsets: Mapping[PartitionLog, int]) -> None:
        for data_dir, logs in self._logs_by_dir():
            await self._run_in_thread(
                data_dir.write_high_watermarks,
                {TopicPartition(log.topic, log.partition): offsets[log] for log in logs if log in offsets},
            )

    async def remove_discarded(self, now_ms: int) -> None:
        """Removes the folders of deleted topics that are due."""
        due = [doomed for doomed in self._doomed if doomed.due_ms <= now_ms]
        self._doomed = [doomed for doomed in self._doomed if doomed.due_ms > now_ms]
        for doomed in due:
            await self._run_in_thread(doomed.data_dir.remove, doomed.folder)

    def _logs_by_dir(self) -> list[tuple[DataDir, list[PartitionLog]]]:
        return [
            (data_dir, [log for log, home in self._logs.items() if home is data_dir]) for _, data_dir, _ in self._dirs
        ]

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────

    def close(self, offsets: Mapping[PartitionLog, int], broker_epoch: int) -> None:
        """A clean end: every log is closed and synced, then the checkpoints, then the mark. Blocks.

        A folder in which a log could not be closed gets no mark, so that the next start looks at its logs.
        """
        for data_dir, logs in self._logs_by_dir():
            failed = [log for log in logs if not _close(log)]
            data_dir.write_recovery_points(recovery_points_of(logs))
            data_dir.write_log_start_offsets(log_start_offsets_of(logs))
            data_dir.write_high_watermarks(
                {TopicPartition(log.topic, log.partition): offsets[log] for log in logs if log in offsets}
            )
            if not failed:
                data_dir.mark_clean_shutdown(broker_epoch)


def _close(log: PartitionLog) -> bool:
    try:
        log.close()
    except Exception:
        logger.exception("cannot close %s", log.name)
        return False
    return True
