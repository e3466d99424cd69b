"""A node that stops in the turn of the loop in which a request came leaves no coroutine behind."""

from __future__ import annotations

import asyncio
import gc
import warnings
from types import SimpleNamespace
from typing import Any, cast

from barnabas.net.dispatch import Dispatcher, Route
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey

LISTENER = object()


class Line:
    peer = ("127.0.0.1", 1)
    listener = LISTENER

    def __init__(self) -> None:
        self.correlation_id = -1

    def reserve(self) -> Any:
        return SimpleNamespace(connection=self, fill=lambda _: None)

    def close(self) -> None:
        pass


async def slow(broker: object, request: object, caller: object) -> Any:
    await asyncio.sleep(60)


def test_a_request_that_was_not_begun_when_the_node_stops_leaves_nothing() -> None:
    async def scenario() -> None:
        dispatcher = Dispatcher({ApiKey.LIST_OFFSETS: Route(ApiKey.LIST_OFFSETS, (1, 11), slow, None)})
        head = b"\0\2\0\1\0\0\0\7\0\0"
        frame = memoryview(head + codec.encode(m.ListOffsetsRequest(replica_id=-1, topics=[]), 1))
        dispatcher.dispatch(cast("Any", Line()), frame)
        await dispatcher.close()

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        asyncio.run(scenario())
        gc.collect()
    assert [str(each.message) for each in seen] == []
