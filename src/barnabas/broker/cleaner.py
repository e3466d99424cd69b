"""The cleaner: compacts the logs of topics with `cleanup.policy=compact`, the dirtiest first.

Up to `log.cleaner.threads` logs are cleaned at a time, each by a worker process (`log/cleaning/log_cleaning`), so that
no request waits for it. What a worker has made is put in place here, on the event loop, which takes a few renames; a
pause between two of its steps keeps to `log.cleaner.io.max.bytes.per.second`. When there is nothing to clean, the
cleaner looks again after `log.cleaner.backoff.ms`.

A log is clean up to the first dirty offset. That is written to the data folder's checkpoint when what the cleaning has
made is on the device, and not before: from then on, what lies before that offset is taken for clean.

What can go wrong: a worker that dies, or a full disk, costs a cleaning, which is tried again. A log that holds what
cannot be read is named in the log of the node, and left alone until the next start; so is one for which the cleaner
itself has failed. A log that is truncated, or goes, while it is cleaned is looked at again later.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from barnabas.config.topic_config import COMPACT
from barnabas.log.cleaning.log_cleaning import CleanedSegment, CleaningDone, Progress, UncleanableLogError, clean_log
from barnabas.log.cleaning.swap import CleaningLimits
from barnabas.log.flush import is_failed_write
from barnabas.net.large_requests import Breather
from barnabas.ports.processes import WorkerError, WorkersClosedError
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.api.environments import CurrentConfig
    from barnabas.broker.flusher import Flusher
    from barnabas.config.broker_config import BrokerConfig
    from barnabas.log.cleaning.dirt import Dirt
    from barnabas.log.partition_log import PartitionLog
    from barnabas.ports import Disk, Processes
    from barnabas.replication.hosted import HostedPartition
    from barnabas.replication.log_store import LogStore
    from barnabas.replication.replica_manager import ReplicaManager

logger = logging.getLogger("barnabas.cleaner")

MAP_BYTES_MAX = 2**31 - 1
"""For one log, as in Kafka."""
STEP_BYTES_MAX = 16 * 1024 * 1024
STEP_BYTES_MIN = 64 * 1024
STEPS_PER_SECOND = 4
"""Where there is a limit to bytes per second, a step has a quarter of it."""


class DirtyLog(NamedTuple):
    hosted: HostedPartition
    dirt: Dirt


class CleanerFigures:
    """What the cleaner has done lately, for those who watch it."""

    __slots__ = ("dirtiest_share", "looked_s", "recopied_share", "took_s")

    def __init__(self) -> None:
        self.looked_s: float | None = None
        """When it last looked for dirty logs, by the clock of the event loop."""
        self.dirtiest_share = 0.0
        """How much of the dirtiest log was dirty then."""
        self.took_s = 0.0
        """How long the last cleaning took."""
        self.recopied_share = 0.0
        """How much of what it read it wrote again."""


class LogCleaner:
    def __init__(
        self,
        store: LogStore,
        replicas: ReplicaManager,
        flusher: Flusher,
        settings: CurrentConfig,
        *,
        disk: Disk,
        processes: Processes,
        on_replaced: Callable[[HostedPartition], None],
    ) -> None:
        """`on_replaced` is told of partitions with files of old segments to be deleted."""
        self._store = store
        self._replicas = replicas
        self._flusher = flusher
        self._settings = settings
        self._disk = disk
        self._processes = processes
        self._on_replaced = on_replaced
        self._is_stopping = False
        self._woken = asyncio.Event()
        self._rests_by: tuple[int, int] | None = None
        """The settings on which it depends how long the cleaner rests."""
        self._task: asyncio.Task[None] | None = None
        self._running: dict[asyncio.Task[None], HostedPartition] = {}
        self._throttle = Throttle()
        self._not_before: dict[PartitionLog, float] = {}
        """When a log is to be tried again that could not be cleaned, by the clock of the event loop."""
        self.uncleanable: dict[PartitionLog, Exception] = {}
        """Logs that are left alone until the next start, and why."""
        self.figures = CleanerFigures()

    @property
    def is_dead(self) -> bool:
        """Whether it has ended of its own accord."""
        return self._task is not None and self._task.done() and not self._is_stopping

    def start(self) -> None:
        if self._settings.config.log_cleaner_enable:
            self._task = asyncio.ensure_future(self._work())

    async def stop(self) -> None:
        """Leaves the cleanings that are under way. What they have not put in place is removed by the next."""
        self._is_stopping = True
        self._woken.set()
        if self._task is not None:
            await self._task
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def reconfigure(self, config: BrokerConfig) -> None:
        """A cleaner that rests does not go by settings that are no longer in force."""
        if self._rests_by not in (None, _rest_settings(config)):
            self._woken.set()

    async def _work(self) -> None:
        while not self._is_stopping:
            try:
                while len(self._running) < self._settings.config.log_cleaner_threads:
                    dirtiest = await self._find_dirtiest()
                    if dirtiest is None:
                        break
                    self._begin(dirtiest)
            except Exception:
                logger.exception("could not look for logs to compact, will retry")
            await self._rest()

    async def _rest(self) -> None:
        """Until a cleaning has ended, or it is time to look again, or to stop."""
        config = self._settings.config
        self._rests_by = _rest_settings(config)
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            timeout_s = config.log_cleaner_backoff_ms / 1000
            await asyncio.wait({woken, *self._running}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
            self._woken.clear()

    async def _find_dirtiest(self) -> DirtyLog | None:
        now = asyncio.get_running_loop().time()
        self._not_before = {log: moment for log, moment in self._not_before.items() if moment > now}
        under_way = set(self._running.values())
        dirtiest: DirtyLog | None = None
        breather = Breather()
        for hosted in list(self._replicas):
            await breather.pause_if_due()
            log = hosted.log
            if (
                COMPACT not in log.config.cleanup_policy
                or len(log.segments.all) == 1
                or hosted.is_removed
                or hosted.offline_reason is not None
                or hosted in under_way
                or log in self._not_before
                or log in self.uncleanable
            ):
                continue
            try:
                dirt = log.dirt(hosted.state.high_watermark.offset)
            except KafkaError as error:
                self._put_off(hosted, error)
                continue
            except Exception as error:
                self._give_up(hosted, error)
                continue
            if dirt.is_enough(log.config.min_cleanable_dirty_ratio) and (
                dirtiest is None or dirt.ratio > dirtiest.dirt.ratio
            ):
                dirtiest = DirtyLog(hosted, dirt)
        self.figures.looked_s = now
        self.figures.dirtiest_share = 0.0 if dirtiest is None else dirtiest.dirt.ratio
        return dirtiest

    def _begin(self, dirty: DirtyLog) -> None:
        task = asyncio.ensure_future(self._clean_safely(dirty))
        self._running[task] = dirty.hosted
        task.add_done_callback(self._running.pop)

    async def _clean_safely(self, dirty: DirtyLog) -> None:
        hosted, log = dirty.hosted, dirty.hosted.log
        log.is_being_cleaned = True
        try:
            await self._clean(dirty)
        except WorkersClosedError:
            return
        except UncleanableLogError as error:
            self.uncleanable[log] = error
            logger.error(
                "%s is not compacted until the next start, because a file of it cannot be read: %s. No data was"
                " changed. If other brokers have the partition, stop this one, remove the partition's folder, and start"
                " it again: it copies the partition from its leader",
                hosted,
                error,
            )
        except OSError as error:
            if is_failed_write(error):
                self._store.report_failure(log, error)
            self._put_off(hosted, error)
        except (KafkaError, MemoryError, WorkerError) as error:
            self._put_off(hosted, error)
        except Exception as error:
            self._give_up(hosted, error)
        finally:
            log.is_being_cleaned = False

    async def _clean(self, dirty: DirtyLog) -> None:
        hosted, log = dirty.hosted, dirty.hosted.log
        loop = asyncio.get_running_loop()
        begun, done = loop.time(), None
        limits = self._limits()
        cleaning = log.begin_cleaning(dirty.dirt, limits)
        steps = self._processes.stream(clean_log, self._disk, cleaning.order, extra_memory_bytes=limits.map_bytes)
        try:
            async with aclosing(steps):
                async for step in steps:
                    if self._is_in_vain(hosted) or log.is_void(cleaning):
                        return
                    match step:
                        case Progress(count):
                            await self._throttle.pause(count, self._settings.config.log_cleaner_io_max_bytes_per_second)
                        case CleanedSegment():
                            cleaning = hosted.swap_in(cleaning, step)
                            self._on_replaced(hosted)
                        case CleaningDone():
                            done = step
            # What the new files hold is there already; what was in the old ones does not matter any more.
            await self._flusher.sync_names(log)
        except (OSError, UncleanableLogError):
            if self._is_in_vain(hosted) or log.is_void(cleaning):
                return  # There were files that had been cut or removed.
            raise
        assert done is not None, "a cleaning that ends without an error says so"
        if self._is_in_vain(hosted) or log.is_void(cleaning):
            return
        log.first_dirty_offset = done.end_offset
        await self._store.checkpoint_first_dirty_offset(log)
        self._report(hosted, done, loop.time() - begun)

    def _is_in_vain(self, hosted: HostedPartition) -> bool:
        """Whether nobody wants the partition compacted any more."""
        log = hosted.log
        return hosted.is_removed or log.failure is not None or COMPACT not in log.config.cleanup_policy

    def _limits(self) -> CleaningLimits:
        config = self._settings.config
        step_bytes = config.log_cleaner_io_max_bytes_per_second / STEPS_PER_SECOND
        return CleaningLimits(
            map_bytes=min(config.log_cleaner_dedupe_buffer_size // config.log_cleaner_threads, MAP_BYTES_MAX),
            map_load_factor=config.log_cleaner_io_buffer_load_factor,
            step_bytes=int(min(max(step_bytes, STEP_BYTES_MIN), STEP_BYTES_MAX)),
        )

    def _give_up(self, hosted: HostedPartition, error: Exception) -> None:
        """The cleaner itself has failed, for this log: there is no sense in trying again, and others go on."""
        self.uncleanable[hosted.log] = error
        logger.exception("%s is not compacted until the next start", hosted, exc_info=error)

    def _put_off(self, hosted: HostedPartition, error: Exception) -> None:
        backoff_s = self._settings.config.log_cleaner_backoff_ms / 1000
        self._not_before[hosted.log] = asyncio.get_running_loop().time() + backoff_s
        reason = str(error) or type(error).__name__
        logger.warning("%s could not be cleaned, will retry in %g s: %s", hosted, backoff_s, reason)

    def _report(self, hosted: HostedPartition, done: CleaningDone, seconds: float) -> None:
        self.figures.took_s = seconds
        self.figures.recopied_share = done.bytes_written / done.bytes_read if done.bytes_read else 0.0
        logger.info(
            "%s compacted up to offset %d: kept %d of %d records and %d of %d bytes, after %.1f s",
            hosted,
            done.end_offset,
            done.records_kept,
            done.records_read,
            done.bytes_written,
            done.bytes_read,
            seconds,
        )
        if done.keyless_records:
            logger.warning("%s: %d records without a key were removed", hosted, done.keyless_records)


def _rest_settings(config: BrokerConfig) -> tuple[int, int]:
    return config.log_cleaner_backoff_ms, config.log_cleaner_threads


class Throttle:
    """Keeps all cleanings together to so many bytes per second."""

    def __init__(self) -> None:
        self._free_at = 0.0
        """When what was read and written until now is paid for."""

    async def pause(self, count: int, bytes_per_second: float) -> None:
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now) + count / max(bytes_per_second, 1.0)
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)
