"""Producer ids: a new one for every producer that asks, out of blocks that the controller allocates to this broker.

A block is allocated to one broker and never again, so that no two producers of a cluster share an id. The next block is
fetched before the current one is used up.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from barnabas.coordination.effects import ProducerId
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.controller_channel import ControllerChannel
    from barnabas.metadata.image import MetadataImage

logger = logging.getLogger("barnabas.producer_ids")

PREFETCH_FRACTION = 0.9
"""How much of a block is used up when the next one is fetched."""

BLOCK_WAIT_SECONDS = 1.0
"""How long a request waits for a block before its client is told to retry."""

RETRY_SECONDS = 0.05
"""How long to wait after the controller has given none, which may be moving to another node."""


class ProducerIds:
    """The blocks that this broker has. Invariant: every id is taken at most once."""

    __slots__ = ("_channel", "_current", "_fetch", "_image", "_next_block", "_node_id", "_prefetch_at")

    def __init__(self, node_id: int, channel: ControllerChannel, image: Callable[[], MetadataImage]) -> None:
        self._node_id = node_id
        self._channel = channel
        self._image = image
        self._current = range(0)
        self._next_block = range(0)
        self._prefetch_at = 0
        self._fetch: asyncio.Task[bool] | None = None

    async def take(self) -> ProducerId:
        """An id that no producer had before; COORDINATOR_LOAD_IN_PROGRESS if the controller gives none in time."""
        deadline = asyncio.get_running_loop().time() + BLOCK_WAIT_SECONDS
        while not self._current:
            if self._next_block:
                self._use(self._next_block)
                self._next_block = range(0)
            elif not await self._has_fetched(deadline):
                if asyncio.get_running_loop().time() + RETRY_SECONDS < deadline:
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                raise KafkaError(
                    Error.COORDINATOR_LOAD_IN_PROGRESS,
                    f"the controller allocated no block of producer ids within {BLOCK_WAIT_SECONDS} s: try again",
                )
        taken, self._current = self._current[0], self._current[1:]
        if len(self._current) <= self._prefetch_at and not self._next_block:
            self._start_fetch()
        return ProducerId(taken)

    def _use(self, block: range) -> None:
        self._current = block
        self._prefetch_at = len(block) - int(len(block) * PREFETCH_FRACTION)

    async def _has_fetched(self, deadline: float) -> bool:
        """Whether a block came in time. Other requests that waited for it may have used it up already."""
        fetch = self._start_fetch()
        await asyncio.wait([fetch], timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
        return fetch.done() and fetch.result()

    def _start_fetch(self) -> asyncio.Task[bool]:
        if self._fetch is None or self._fetch.done():
            self._fetch = asyncio.ensure_future(self._fetch_block())
        return self._fetch

    async def _fetch_block(self) -> bool:
        registration = self._image().brokers.get(self._node_id)
        request = m.AllocateProducerIdsRequest(
            broker_id=self._node_id, broker_epoch=-1 if registration is None else registration.epoch
        )
        response: m.AllocateProducerIdsResponse = await self._channel.send(request)
        if response.error_code != Error.NONE:
            logger.warning("the controller allocated no block of producer ids: %s", Error(response.error_code).name)
            return False
        self._next_block = range(response.producer_id_start, response.producer_id_start + response.producer_id_len)
        return True

    async def close(self) -> None:
        if self._fetch is not None:
            self._fetch.cancel()
            await asyncio.wait([self._fetch])
