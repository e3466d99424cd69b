"""A connection for loads that hold many at once, on one event loop: Kafka's messages out, Kafka's messages in.

Messages are encoded by the project's own small client: what is compared here is how fast a broker coordinates, and the
loads check what it answered by what it did.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

from barnabas.net.frames import Expected, parse_response, request_api_key, request_frame
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from bench.wire import WireError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Self

    from barnabas.protocol.messages import Message

CLIENT_ID = "bench"
ANSWER_SECONDS_MAX = 120.0
RETRY_SECONDS = 0.001
GROUP, TRANSACTION = 0, 1
"""What a coordinator's key is."""

NOT_YET = frozenset(
    {
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.NOT_COORDINATOR,
        Error.CONCURRENT_TRANSACTIONS,
    }
)
"""The coordinator is on its way up, or not done with what was before: the same request again is the right answer."""

_SIZE = struct.Struct(">i")


class Channel:
    """One connection, one request at a time."""

    __slots__ = ("_address", "_correlation_id", "_reader", "_writer")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str) -> None:
        self._reader = reader
        self._writer = writer
        self._address = address
        self._correlation_id = 0

    @classmethod
    async def open(cls, host: str, port: int) -> Self:
        reader, writer = await asyncio.open_connection(host, port)
        return cls(reader, writer, f"{host}:{port}")

    async def send(self, request: Message, version: int) -> Any:
        self._correlation_id += 1
        expected = Expected(self._correlation_id, request_api_key(request), version)
        frame = await self.exchange(request_frame(request, version, self._correlation_id, CLIENT_ID))
        return parse_response(memoryview(frame), expected, self._address)

    async def exchange(self, frame: bytes) -> bytes:
        """Sends an encoded request and returns its answer without the size."""
        self._writer.write(frame)
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
            return await self._reader.readexactly(size)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def until_coordinated(ask: Callable[[], Awaitable[tuple[int, Any]]]) -> Any:
    """Repeats a request, given as its error code and answer, as long as the coordinator wants it repeated."""
    while True:
        error, answer = await ask()
        if error == Error.NONE:
            return answer
        if error not in NOT_YET:
            raise WireError(f"{Error(error).name} in {answer}")
        await asyncio.sleep(RETRY_SECONDS)


async def await_coordinator(channel: Channel, key: str, key_type: int) -> None:
    """The coordinator's topic is made when the first one asks for it."""

    async def ask() -> tuple[int, Any]:
        request = m.FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
        answer = await channel.send(request, 6)
        return answer.coordinators[0].error_code, answer

    await until_coordinated(ask)
