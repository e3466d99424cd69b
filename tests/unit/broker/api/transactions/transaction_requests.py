"""Requests of transactions, and how a test asks the handlers of a household."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from barnabas.coordination.effects import Producer, ProducerId
from barnabas.protocol import messages as m
from barnabas.protocol.codec import encode
from tests.unit.broker.api.stand_ins import caller
from tests.unit.broker.coordinators.group_household import TOPIC
from tests.unit.broker.coordinators.transaction_household import ID, Place, TransactionHousehold, transaction_household
from tests.wire.requests import error_codes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from barnabas.protocol.compiler.structs import Message

Handler = Any

GROUP = "g"
NOBODY = Producer(ProducerId(5), 0)
ELSEWHERE = Place(2, leader=-1)


def an_init(transactional_id: str = ID, timeout_ms: int = 1000) -> m.InitProducerIdRequest:
    return m.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)


def an_addition(
    version: int, producer: Producer = NOBODY, topics: dict[str, list[int]] | None = None, *, transactional_id: str = ID
) -> m.AddPartitionsToTxnRequest:
    request = m.AddPartitionsToTxnRequest
    wanted = [
        request.AddPartitionsToTxnTopic(name=name, partitions=partitions)
        for name, partitions in (topics or {TOPIC: [0]}).items()
    ]
    if version >= 4:
        transaction = request.AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=wanted,
        )
        return request(transactions=[transaction])
    return request(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=wanted,
    )


def a_group(producer: Producer = NOBODY, *, transactional_id: str = ID) -> m.AddOffsetsToTxnRequest:
    return m.AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=GROUP,
    )


def an_end(producer: Producer = NOBODY, *, transactional_id: str = ID) -> m.EndTxnRequest:
    return m.EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )


def a_commit(
    producer: Producer = NOBODY, *partitions: int, topic: str = TOPIC, group_id: str = GROUP
) -> m.TxnOffsetCommitRequest:
    request = m.TxnOffsetCommitRequest
    offsets = [
        request.TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=5) for each in partitions or (0,)
    ]
    return request(
        transactional_id=ID,
        group_id=group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[request.TxnOffsetCommitRequestTopic(name=topic, partitions=offsets)],
    )


def a_description(*transactional_ids: str) -> m.DescribeTransactionsRequest:
    return m.DescribeTransactionsRequest(transactional_ids=list(transactional_ids))


def run(root: Path, scenario: Callable[[TransactionHousehold], Awaitable[None]], **settings: str) -> None:
    async def in_household() -> None:
        async with transaction_household(root, **settings) as house:
            await scenario(house)

    asyncio.run(in_household())


async def ask(house: TransactionHousehold, handler: Handler, request: Message, version: int) -> Any:
    """An answer that can be sent in this version."""
    response = await handler(house.for_transaction_handlers, request, caller(version))
    encode(response, version)
    return response


async def errors_of(house: TransactionHousehold, handler: Handler, request: Message, version: int) -> set[int]:
    return set(error_codes(await ask(house, handler, request, version)))
