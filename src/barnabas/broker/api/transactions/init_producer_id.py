"""InitProducerId: a producer id for every idempotent producer, and for every transactional id.

An idempotent producer gets a new id. The producer of a transactional id gets the id that belongs to it, in a new epoch,
from its coordinator: that fences the previous producer and aborts what it left open.

v2 is flexible · v3 may name the id that a transactional producer has · v4 fences with PRODUCER_FENCED ·
v5 may answer TRANSACTION_ABORTABLE
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api.environments import TransactionEnvironment
from barnabas.broker.api.registry import handles
from barnabas.broker.coordinators.transaction_coordinator import transaction_settings
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError
from barnabas.transactions.producer_epochs import check_request

if TYPE_CHECKING:
    from barnabas.broker.producer_ids import ProducerIds
    from barnabas.net.dispatch import Caller

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
FIRST_PRODUCER_EPOCH = 0


@handles(ApiKey.INIT_PRODUCER_ID, TransactionEnvironment, versions=(0, 5))
async def init_producer_id(
    environment: TransactionEnvironment, request: m.InitProducerIdRequest, caller: Caller
) -> m.InitProducerIdResponse:
    try:
        if request.transactional_id is None:
            return await init_idempotent(environment.producer_ids, request)
        return await init_transactional(environment, request, caller.api_version)
    except KafkaError as failed:
        return refuse(failed.error)


async def init_idempotent(producer_ids: ProducerIds, request: m.InitProducerIdRequest) -> m.InitProducerIdResponse:
    """A producer may name its old id, but gets a new one all the same."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return refuse(Error.INVALID_REQUEST)
    producer_id = await producer_ids.take()
    return m.InitProducerIdResponse(producer_id=producer_id, producer_epoch=FIRST_PRODUCER_EPOCH)


async def init_transactional(
    environment: TransactionEnvironment, request: m.InitProducerIdRequest, version: int
) -> m.InitProducerIdResponse:
    error = check_request(request, transaction_settings(environment.settings.config))
    if error is not Error.NONE:
        return refuse(error)
    new_id = await environment.transactions.new_producer_id(request, version)
    response: m.InitProducerIdResponse = await environment.transactions.step(
        request.transactional_id or "",
        lambda shard, reply_to, now_ms: shard.init_producer_id(request, version, new_id, reply_to, now_ms),
    )
    return response


def refuse(error: Error) -> m.InitProducerIdResponse:
    return m.InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
