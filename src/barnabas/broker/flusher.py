"""Syncing logs to the device, in threads, one sync of a log at a time.

A caller that needs a log's bytes to be durable awaits `flush`. While a sync of that log runs, all further callers share
the next one, so that a burst of writers that each ask for durability costs two syncs, not one each.

A log whose sync has failed is never synced again (`log/flush` says why): a caller that asks for it gets an error.

If another log takes the place of one that is to be synced, what was written is in that one, and that one is synced.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVarTuple

from barnabas.log.flush import is_failed_sync
from barnabas.metrics.histogram import Histogram
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.log.partition_log import PartitionLog
    from barnabas.ports import Disk

logger = logging.getLogger("barnabas.flush")

Ts = TypeVarTuple("Ts")


class Flusher:
    def __init__(
        self,
        disk: Disk,
        run_in_thread: Callable[..., Awaitable[None]],
        on_failure: Callable[[PartitionLog, OSError], None],
    ) -> None:
        """`on_failure` is told of a log whose sync has failed: what the device holds of it, nobody knows."""
        self._disk = disk
        self._run_in_thread = run_in_thread
        self._on_failure = on_failure
        self._waiting: dict[PartitionLog, asyncio.Future[None]] = {}
        self._running: dict[PartitionLog, asyncio.Task[None]] = {}
        self._successors: dict[PartitionLog, PartitionLog] = {}
        """Of logs that are being synced."""
        self.times = Histogram()
        """How long syncs took."""

    def flush(self, log: PartitionLog) -> asyncio.Future[None]:
        """Done when everything that is in the log now is on the device."""
        done = self._waiting.get(log)
        if done is None:
            done = self._waiting[log] = asyncio.get_running_loop().create_future()
            if log not in self._running:
                self._running[log] = asyncio.ensure_future(self._work(log))
        return done

    def flush_soon(self, log: PartitionLog) -> None:
        """Like `flush`, for callers that do not wait: a failure is logged."""
        self.flush(log).add_done_callback(_log_failure)

    async def sync_names(self, log: PartitionLog) -> None:
        """Done when the names that the log's files have now are on the device, whatever of their content is there.
        Raises KafkaError or OSError."""
        self._check(log)
        await self._run(log, self._disk.sync_dir, log.folder)

    def replaced(self, log: PartitionLog, successor: PartitionLog) -> None:
        """Another log has everything that this one has, and takes its place."""
        if log in self._running:
            self._successors[log] = successor

    async def close(self) -> None:
        """Waits for the syncs that are under way."""
        while self._running:
            await asyncio.gather(*self._running.values())

    async def _work(self, log: PartitionLog) -> None:
        try:
            while (done := self._waiting.pop(log, None)) is not None:
                try:
                    await self._make_durable(log)
                except Exception as error:
                    _settle(done, error)
                else:
                    _settle(done, None)
        finally:
            del self._running[log]
            self._successors.pop(log, None)

    async def _make_durable(self, log: PartitionLog) -> None:
        try:
            # A deleted topic's log has nothing to sync, and its folder may belong to another log by now.
            if not log.is_gone:
                await self._sync(log)
        except OSError:
            if log not in self._successors:
                raise
        if (successor := self._successors.get(log)) is not None:
            await self.flush(successor)

    async def _sync(self, log: PartitionLog) -> None:
        self._check(log)
        flush = log.prepare_flush()
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        await self._run(log, flush.run, self._disk)
        self.times.add(int((loop.time() - begun_s) * 1e9))
        if log.failure is None:
            log.flushed(flush)

    def _check(self, log: PartitionLog) -> None:
        if log.failure is not None:
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, f"{log.name} is offline: {log.failure}")

    async def _run(self, log: PartitionLog, function: Callable[[*Ts], None], *arguments: *Ts) -> None:
        try:
            await self._run_in_thread(function, *arguments)
        except OSError as error:
            # If the log is gone by now, its folder was renamed while the sync ran.
            if is_failed_sync(error) and not log.is_gone:
                log.failure = error
                self._on_failure(log, error)
            raise


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _log_failure(done: asyncio.Future[None]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        logger.error("cannot sync a log: %s", error)
