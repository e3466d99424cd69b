"""EndTxn: a producer commits or aborts.

The answer leaves when the decision is written, which is when it can no longer be taken back; the partitions learn of it
right after. Up to v4 the producer keeps its epoch. From v5 on, every end raises it, so that no late batch gets into the
next transaction; v5 answers the epoch, and the producer id if the epochs of the old one are used up.

v2 says PRODUCER_FENCED · v3 is flexible · v4 may answer TRANSACTION_ABORTABLE · v5 raises the epoch
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api.environments import TransactionEnvironment
from barnabas.broker.api.registry import handles
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from barnabas.net.dispatch import Caller


@handles(ApiKey.END_TXN, TransactionEnvironment, versions=(0, 5))
async def end_txn(environment: TransactionEnvironment, request: m.EndTxnRequest, caller: Caller) -> m.EndTxnResponse:
    if not request.transactional_id:
        return m.EndTxnResponse(error_code=Error.INVALID_REQUEST)
    version = caller.api_version
    try:
        new_id = await environment.transactions.new_producer_id(request, version)
        response: m.EndTxnResponse = await environment.transactions.step(
            request.transactional_id,
            lambda shard, reply_to, now_ms: shard.end(request, version, new_id, reply_to, now_ms),
        )
    except KafkaError as failed:
        return m.EndTxnResponse(error_code=failed.error)
    return response
