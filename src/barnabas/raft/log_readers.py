"""The nodes that fetch from this node's metadata log, and wait at its end.

A reader gets what is written before it is synced, so that all disks of a quorum work at the same time. Its request
waits until there is more, or the high watermark that it knows is out of date, or this node stops leading.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from barnabas.protocol.errors import Error
from barnabas.raft.consensus.messages import UNKNOWN_HIGH_WATERMARK, FetchResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.ports import Clock, ThreadPool
    from barnabas.raft.consensus.messages import FetchRequest, Request, Response
    from barnabas.raft.folder.metadata_log import MetadataLog


class LogReaders:
    """Use it only on the driver's loop. `handle` is the core's answer to a request."""

    def __init__(
        self, log: MetadataLog, clock: Clock, threads: ThreadPool, handle: Callable[[Request], Awaitable[Response]]
    ) -> None:
        self._log = log
        self._clock = clock
        self._threads = threads
        self._handle = handle
        self._parked: list[asyncio.Future[None]] = []
        """Readers that wait for the log or the high watermark to move, or this node to stop leading."""
        self._is_closed = False

    async def fetch(self, request: FetchRequest, max_wait_ms: int, max_bytes: int) -> tuple[FetchResponse, bytes]:
        """What follows the log of a reader. Waits until there is something, or its high watermark is out of date."""
        deadline = self._clock.monotonic() + max_wait_ms / 1000
        while True:
            response = await self._handle(request)
            assert isinstance(response, FetchResponse)
            if response.head.error is not Error.NONE or response.divergence or response.snapshot:
                return response, b""
            records = await self._read(request.log_end.offset, max_bytes)
            is_news = request.high_watermark != UNKNOWN_HIGH_WATERMARK and (
                response.high_watermark > request.high_watermark
            )
            remaining_s = deadline - self._clock.monotonic()
            if records or is_news or remaining_s <= 0 or self._is_closed:
                return response, records
            await self._wait_for_news(remaining_s)

    async def _read(self, offset: int, max_bytes: int) -> bytes:
        found = self._log.read(offset, max_bytes)
        if found is None:
            return b""
        if self._log.is_cold(found):
            return await self._threads.run(found.file.read, found.position, found.length)
        return found.file.read(found.position, found.length)

    async def _wait_for_news(self, seconds: float) -> None:
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parked.append(news)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await news

    def wake(self) -> None:
        parked, self._parked = self._parked, []
        for news in parked:
            if not news.done():
                news.set_result(None)

    def close(self) -> None:
        """Nobody waits any more."""
        self._is_closed = True
        self.wake()
