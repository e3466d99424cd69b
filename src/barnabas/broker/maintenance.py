"""What a broker does in the background: retention, flushing, checkpoints, expiry.

Each chore is a coroutine that waits its interval and then visits the partitions, a few at a time so that requests go
first. The event loop does only what is quick; fsync, unlink and checkpoint files go through threads. A failure in one
partition is logged when it begins, is tried again, and does not affect the others.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from barnabas.replication.failures import Failures

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from barnabas.broker.api.environments import CurrentConfig
    from barnabas.broker.flusher import Flusher
    from barnabas.log.folder.deletion import Deletion
    from barnabas.ports import Clock, Disk
    from barnabas.replication.hosted import HostedPartition
    from barnabas.replication.log_store import LogStore
    from barnabas.replication.replica_manager import ReplicaManager

logger = logging.getLogger("barnabas.maintenance")

VISITED_PER_TURN = 50
IDLE_FILES_INTERVAL_MS = 30_000
DELETION_INTERVAL_MS = 1_000
OFFLINE_INTERVAL_MS = 2_000
FLUSH_LOOK_INTERVAL_MS = 1_000


class Maintenance:
    """The chores of one broker, started and stopped with it."""

    def __init__(
        self,
        store: LogStore,
        replicas: ReplicaManager,
        flusher: Flusher,
        settings: CurrentConfig,
        *,
        clock: Clock,
        disk: Disk,
        run_in_thread: Callable[..., Awaitable[None]],
    ) -> None:
        self._store = store
        self._replicas = replicas
        self._flusher = flusher
        self._settings = settings
        self._clock = clock
        self._disk = disk
        self._run_in_thread = run_in_thread
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._with_deletions: dict[HostedPartition, None] = {}
        """Partitions with files of dropped segments that wait to be deleted."""
        self._retention_failures = Failures("retention", logger)
        self._release_failures = Failures("releasing idle files", logger)

    def start(self) -> None:
        store, replicas, settings = self._store, self._replicas, self._settings
        self._with_deletions = {hosted: None for hosted in replicas if hosted.log.has_deletions}
        chores: list[tuple[str, Callable[[], int], Callable[[], Awaitable[None]]]] = [
            ("retention", lambda: settings.config.log_retention_check_interval_ms, self._apply_retention),
            ("flush", self._flush_interval_ms, self._flush_due),
            (
                "recovery points",
                lambda: settings.config.log_flush_offset_checkpoint_interval_ms,
                store.checkpoint_recovery_points,
            ),
            (
                "log start offsets",
                lambda: settings.config.log_flush_start_offset_checkpoint_interval_ms,
                store.checkpoint_log_starts,
            ),
            (
                "high watermarks",
                lambda: settings.config.replica_high_watermark_checkpoint_interval_ms,
                self._checkpoint_high_watermarks,
            ),
            ("offline partitions", lambda: OFFLINE_INTERVAL_MS, lambda: replicas.retry_offline(settings.config)),
            ("deletion", lambda: DELETION_INTERVAL_MS, self._delete_due_files),
            ("idle files", lambda: IDLE_FILES_INTERVAL_MS, self._release_idle_files),
            (
                "producer ids",
                lambda: settings.config.producer_id_expiration_check_interval_ms,
                self._expire_producers,
            ),
        ]
        self._tasks = [asyncio.ensure_future(self._repeat(*chore)) for chore in chores]

    async def stop(self) -> None:
        """Returns when the chore that is under way is done: none is cut off in the middle of a file."""
        self._stopping.set()
        await asyncio.gather(*self._tasks)
        self._tasks = []

    async def _repeat(self, name: str, interval_ms: Callable[[], int], chore: Callable[[], Awaitable[None]]) -> None:
        while not await self._is_stopped_within(interval_ms() / 1000):
            try:
                await chore()
            except Exception:
                logger.exception("%s failed, will retry in %d ms", name, interval_ms())

    async def _is_stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._stopping.wait()
        except TimeoutError:
            return False

    async def _partitions(self) -> AsyncIterator[HostedPartition]:
        """Every hosted partition that is still hosted when its turn comes."""
        for number, hosted in enumerate(list(self._replicas)):
            if number % VISITED_PER_TURN == VISITED_PER_TURN - 1:
                await asyncio.sleep(0)
            if not hosted.is_removed:
                yield hosted

    async def _apply_retention(self) -> None:
        self._retention_failures.begin_round()
        async for hosted in self._partitions():
            if hosted.log.is_being_cleaned:
                continue
            with self._retention_failures.of(hosted):
                count = hosted.apply_retention()
                if count:
                    start = hosted.log.log_start_offset
                    logger.info("%s: retention removed %d segments, the log now starts at %d", hosted, count, start)
            self.watch_deletions(hosted)

    def watch_deletions(self, hosted: HostedPartition) -> None:
        """Segments may have been dropped: their files are deleted in time."""
        if hosted.log.has_deletions:
            self._with_deletions[hosted] = None

    def _flush_interval_ms(self) -> int:
        return min(FLUSH_LOOK_INTERVAL_MS, self._settings.config.log_flush_scheduler_interval_ms)

    async def _flush_due(self) -> None:
        """Topics with `flush.ms` are synced when that has passed since their last sync."""
        now_ms = self._clock.now_ms()
        for hosted in self._replicas.flushed_by_time:
            log = hosted.log
            if log.unflushed_messages and now_ms - log.last_flush_ms >= log.config.flush_ms:
                self._flusher.flush_soon(log)

    async def _checkpoint_high_watermarks(self) -> None:
        await self._store.checkpoint_high_watermarks(self._replicas.high_watermarks())

    async def _delete_due_files(self) -> None:
        now_ms = self._clock.now_ms()
        for hosted in list(self._with_deletions):
            if not hosted.is_removed:
                for deletion in hosted.log.take_due_deletions():
                    await self._run_deletion(hosted, deletion)
            if hosted.is_removed or not hosted.log.has_deletions:
                del self._with_deletions[hosted]
        await self._store.remove_discarded(now_ms)

    async def _run_deletion(self, hosted: HostedPartition, deletion: Deletion) -> None:
        try:
            await self._run_in_thread(deletion.run, self._disk)
        except OSError as error:
            hosted.log.put_off(deletion)
            if not deletion.has_failed:
                logger.error("cannot remove old segments of %s, will retry: %s", hosted, error)

    async def _release_idle_files(self) -> None:
        self._release_failures.begin_round()
        async for hosted in self._partitions():
            with self._release_failures.of(hosted):
                hosted.log.release_if_idle()

    async def _expire_producers(self) -> None:
        expiration_ms = self._settings.config.producer_id_expiration_ms
        async for hosted in self._partitions():
            hosted.log.expire_producers(expiration_ms)
