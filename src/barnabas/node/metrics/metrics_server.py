"""The HTTP end: `/metrics` for Prometheus, `/health` (the process works) and `/ready` (it serves clients).

One request for each connection, as a scraper or a probe sends them, with limits on what is read and how many are served
at once. Metrics are made in slices with pauses between them: threads of one interpreter take turns, and those who wait
for records should not notice that somebody counts partitions.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.metrics.exposition import CONTENT_TYPE, render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.metrics.exposition import Family
    from barnabas.ports import LoopThread

logger = logging.getLogger("barnabas.metrics")

HEAD_BYTES_MAX: Final = 16 * 1024
CONNECTIONS_MAX: Final = 32
REQUEST_SECONDS_MAX: Final = 10.0
SLICE_SECONDS: Final = 0.001
PAUSE_SECONDS: Final = 0.002
_STATUS: Final = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
_JSON: Final = "application/json; charset=utf-8"
_TEXT: Final = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    status: int
    content_type: str
    body: str


class MetricsServer:
    """Serves on a loop of its own; `start` and `stop` are called on the node's."""

    def __init__(
        self,
        thread: LoopThread,
        families: Callable[[], Iterator[Family]],
        state: Callable[[], dict[str, object]],
    ) -> None:
        """`state` tells of the node, with `ready` among it."""
        self._thread = thread
        self._families = families
        self._state = state
        self._server: asyncio.Server | None = None
        self._connections = 0

    async def start(self, host: str, port: int) -> int:
        """Returns the port, which is any free one for 0. Raises OSError if it is taken."""
        return await asyncio.wrap_future(self._thread.submit(self._start(host, port)))

    async def stop(self) -> None:
        await asyncio.wrap_future(self._thread.submit(self._stop()))
        await self._thread.stop()

    def run(self, function: Callable[[], None]) -> None:
        """Calls a function in the thread in which figures are made."""
        self._thread.loop.call_soon_threadsafe(function)

    async def _start(self, host: str, port: int) -> int:
        self._server = await asyncio.start_server(self._serve, host or None, port, limit=HEAD_BYTES_MAX)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= CONNECTIONS_MAX:
                async with asyncio.timeout(REQUEST_SECONDS_MAX):
                    await self._answer(reader, writer)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            logger.debug("a request for metrics broke off: %s", error)
        finally:
            self._connections -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, *_ = [*head.partition("\r\n")[0].split(" "), "", ""]
        answer = await self._made(method, path.partition("?")[0])
        body = answer.body.encode()
        writer.write(
            f"HTTP/1.1 {answer.status} {_STATUS[answer.status]}\r\n"
            f"Content-Type: {answer.content_type}\r\n"
            f"Content-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        if method != "HEAD":
            writer.write(body)
        await writer.drain()

    async def _made(self, method: str, path: str) -> Answer:
        if method not in ("GET", "HEAD"):
            return Answer(405, _TEXT, "only GET\n")
        if path == "/metrics":
            try:
                return Answer(200, CONTENT_TYPE, await self._metrics())
            except RuntimeError:
                # A collection that was read has changed its size meanwhile. Whoever asks again gets all of it.
                logger.warning("figures changed while they were read", exc_info=True)
                return Answer(503, _TEXT, "figures changed while they were read: ask again\n")
        if path in ("/health", "/ready"):
            state = self._state()
            is_good = path == "/health" or bool(state["ready"])
            return Answer(200 if is_good else 503, _JSON, json.dumps(state) + "\n")
        return Answer(404, _TEXT, "there are /metrics, /health and /ready\n")

    async def _metrics(self) -> str:
        loop = asyncio.get_running_loop()
        parts: list[str] = []
        turn_ends = loop.time() + SLICE_SECONDS
        for family in self._families():
            for line in render(family):
                parts.append(line)
                if loop.time() > turn_ends:
                    await asyncio.sleep(PAUSE_SECONDS)
                    turn_ends = loop.time() + SLICE_SECONDS
        return "".join(parts)
