"""InitProducerId: an id of its own for every idempotent producer, and for every transactional id.

Ids come from the controller in blocks, each handed out to one broker once and never again, so that no two producers
of a cluster share an id. The next block is fetched before the current one is used up.

The producer of a transactional id gets the id that this has, in an epoch of its own, from the coordinator of the
transactional id; whoever had it before is fenced, and what that left open is aborted.

v2 is flexible · v3 may name the id that a transactional producer has · v4 fences with PRODUCER_FENCED ·
v5 may answer TRANSACTION_ABORTABLE
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from barnabas.broker.dispatch import handles
from barnabas.broker.transactions.coordinator import transaction_settings
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError
from barnabas.transactions.producers import check_request

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Caller
    from barnabas.broker.server import Broker

logger = logging.getLogger("barnabas.producer_ids")

PREFETCH_FRACTION = 0.9
"""How much of a block is used when the next one is fetched."""

BLOCK_WAIT_SECONDS = 1.0
"""How long a request waits for a block before its client is told to try again."""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
FIRST_PRODUCER_EPOCH = 0


class ProducerIds:
    """The blocks that this broker has. Invariant: every id is taken at most once."""

    __slots__ = ("_broker", "_current", "_fetch", "_next_block", "_prefetch_at")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._current = range(0)
        self._next_block = range(0)
        self._prefetch_at = 0
        self._fetch: asyncio.Task[bool] | None = None

    async def take(self) -> int:
        """An id that nobody had before; COORDINATOR_LOAD_IN_PROGRESS if the controller does not give any in time."""
        deadline = self._broker.loop.time() + BLOCK_WAIT_SECONDS
        while not self._current:
            if self._next_block:
                self._use(self._next_block)
                self._next_block = range(0)
            elif not await self._block_came(deadline):
                raise KafkaError(
                    Error.COORDINATOR_LOAD_IN_PROGRESS,
                    f"the controller gave no block of producer ids in {BLOCK_WAIT_SECONDS} s: try again",
                )
        taken, self._current = self._current[0], self._current[1:]
        if len(self._current) <= self._prefetch_at and not self._next_block:
            self._start_fetch()
        return taken

    def _use(self, block: range) -> None:
        self._current = block
        self._prefetch_at = len(block) - int(len(block) * PREFETCH_FRACTION)

    async def _block_came(self, deadline: float) -> bool:
        """Whether the controller gave a block in time. Others who waited for it may have used it up already."""
        fetch = self._start_fetch()
        await asyncio.wait([fetch], timeout=max(0.0, deadline - self._broker.loop.time()))
        return fetch.done() and fetch.result()

    def _start_fetch(self) -> asyncio.Task[bool]:
        if self._fetch is None or self._fetch.done():
            self._fetch = asyncio.ensure_future(self._fetch_block())
        return self._fetch

    async def _fetch_block(self) -> bool:
        broker = self._broker
        registration = broker.image.brokers.get(broker.node_id)
        request = m.AllocateProducerIdsRequest(
            broker_id=broker.node_id, broker_epoch=-1 if registration is None else registration.epoch
        )
        response: m.AllocateProducerIdsResponse = await broker.channel.send(request)
        if response.error_code != Error.NONE:
            logger.warning("no block of producer ids from the controller: %s", Error(response.error_code).name)
            return False
        self._next_block = range(response.producer_id_start, response.producer_id_start + response.producer_id_len)
        return True

    async def close(self) -> None:
        if self._fetch is not None:
            self._fetch.cancel()
            await asyncio.wait([self._fetch])


@handles(ApiKey.INIT_PRODUCER_ID, versions=(0, 5))
async def init_producer_id(
    broker: Broker, request: m.InitProducerIdRequest, caller: Caller
) -> m.InitProducerIdResponse:
    try:
        if request.transactional_id is None:
            return await init_idempotent(broker, request)
        return await init_transactional(broker, request, caller.api_version)
    except KafkaError as failed:
        return refuse(failed.error)


async def init_idempotent(broker: Broker, request: m.InitProducerIdRequest) -> m.InitProducerIdResponse:
    """A producer may name its old id: it gets a new one all the same."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return refuse(Error.INVALID_REQUEST)
    producer_id = await broker.api.producer_ids.take()
    return m.InitProducerIdResponse(producer_id=producer_id, producer_epoch=FIRST_PRODUCER_EPOCH)


async def init_transactional(
    broker: Broker, request: m.InitProducerIdRequest, version: int
) -> m.InitProducerIdResponse:
    error = check_request(request, transaction_settings(broker.config))
    if error is not Error.NONE:
        return refuse(error)
    new_id = await broker.transactions.new_producer_id(request, version)
    response: m.InitProducerIdResponse = await broker.transactions.step(
        request.transactional_id or "",
        lambda shard, reply_to, now_ms: shard.init_producer_id(request, version, new_id, reply_to, now_ms),
    )
    return response


def refuse(error: Error) -> m.InitProducerIdResponse:
    return m.InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
