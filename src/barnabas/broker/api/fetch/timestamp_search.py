"""Finding a record by its timestamp: indexes are read in threads, and large batches are opened in worker processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from barnabas.broker.worker_tasks import run_in_worker
from barnabas.log.timestamps import LAST_TIMESTAMP, search_batch
from barnabas.ports.processes import WorkerError
from barnabas.protocol.batch import read_header
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.timestamps import BatchToSearch, TimestampedOffset
    from barnabas.ports import Disk, Processes

OPENED_HERE_BYTES_MAX = 16 * 1024
"""The largest uncompressed batch that is searched on the event loop, which takes about a millisecond. Larger ones, and
compressed ones, which may become larger, go to a worker process."""

SEARCHES_MAX = 2
"""Batches that are opened at a time: more would only slow each other down."""


class TimestampSearch:
    __slots__ = ("_disk", "_processes", "_read_in_thread", "_searches")

    def __init__(self, disk: Disk, read_in_thread: Callable[..., asyncio.Future[Any]], processes: Processes) -> None:
        self._disk = disk
        self._read_in_thread = read_in_thread
        self._processes = processes
        self._searches = asyncio.Semaphore(SEARCHES_MAX)

    async def first_since(self, log: PartitionLog, timestamp: int) -> TimestampedOffset | None:
        """The first record with this timestamp or a later one."""
        await self._read_indexes(log, timestamp)
        return await self._search(lambda start_offset: log.batch_by_timestamp(timestamp, start_offset))

    async def newest(self, log: PartitionLog) -> TimestampedOffset | None:
        """The first of the records with the largest timestamp."""
        await self._read_indexes(log, LAST_TIMESTAMP)
        return await self._search(log.batch_of_max_timestamp)

    async def _read_indexes(self, log: PartitionLog, timestamp: int) -> None:
        unread = log.unread_timestamps(timestamp)
        if unread is not None:
            log.learn_timestamps(await self._read_in_thread(unread.run, self._disk))

    async def _search(self, next_batch: Callable[[int], BatchToSearch | None]) -> TimestampedOffset | None:
        start_offset = 0
        while (batch := next_batch(start_offset)) is not None:
            found = await self._open(batch)
            if found is not None:
                return found
            start_offset = batch.next_offset
        return None

    async def _open(self, batch: BatchToSearch) -> TimestampedOffset | None:
        file = batch.file.acquire()
        try:
            async with self._searches:
                data: bytes = await self._read_in_thread(batch.read, self._disk)
                if len(data) <= OPENED_HERE_BYTES_MAX and not read_header(data).codec:
                    return search_batch(data, batch.timestamp, batch.start_offset)
                return await run_in_worker(self._processes, search_batch, data, batch.timestamp, batch.start_offset)
        except WorkerError as error:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR, f"{batch.path} cannot be searched: {error}") from error
        finally:
            file.release()
