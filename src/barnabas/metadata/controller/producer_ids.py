"""Blocks of producer ids: each broker hands out ids from a block that no other broker ever gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.controller.brokers import check_broker_epoch
from barnabas.metadata.controller.context import Decision
from barnabas.metadata.versions import VersionedRecord
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from barnabas.metadata.controller.context import Context
    from barnabas.metadata.controller.state import ControllerState

BLOCK_SIZE = 1000
_LAST_ID = (1 << 63) - 1


def allocate_producer_ids(state: ControllerState, request: m.AllocateProducerIdsRequest, _context: Context) -> Decision:
    check_broker_epoch(state, request.broker_id, request.broker_epoch)
    first = max(state.metadata.next_producer_id, 0)
    if first > _LAST_ID - BLOCK_SIZE:
        raise KafkaError(
            Error.UNKNOWN_SERVER_ERROR,
            "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit",
        )
    record = m.ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    response = m.AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)
    return Decision(response, [VersionedRecord(record, 0)])
