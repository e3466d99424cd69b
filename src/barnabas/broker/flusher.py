"""Syncing logs to the device, in threads, one sync of a log at a time.

Whoever needs a log's bytes to be durable awaits `flush`. While a sync of that log runs, all further callers share the
next one, so that a burst of writers that each ask for durability costs two syncs, not one each.

A log whose sync has failed is never synced again (`log/flush` says why): whoever asks for it gets an error.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from barnabas.log.flush import is_failed_sync
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.log.partition_log import PartitionLog
    from barnabas.ports import Disk

logger = logging.getLogger("barnabas.flush")


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

    async def close(self) -> None:
        """Waits for the syncs that are under way."""
        while self._running:
            await asyncio.gather(*self._running.values())

    async def _work(self, log: PartitionLog) -> None:
        try:
            while (done := self._waiting.pop(log, None)) is not None:
                try:
                    # A deleted topic's log has nothing to sync, and its folder may belong to another log by now.
                    if not log.is_gone:
                        await self._sync(log)
                except Exception as error:
                    _settle(done, error)
                else:
                    _settle(done, None)
        finally:
            del self._running[log]

    async def _sync(self, log: PartitionLog) -> None:
        if log.failure is not None:
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, f"{log.name} is offline: {log.failure}")
        flush = log.prepare_flush()
        try:
            await self._run_in_thread(flush.run, self._disk)
        except OSError as error:
            # If the log is gone by now, its folder was renamed while the sync ran.
            if is_failed_sync(error) and not log.is_gone:
                log.failure = error
                self._on_failure(log, error)
            raise
        if log.failure is None:
            log.flushed(flush)


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
