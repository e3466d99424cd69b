"""Requests to the coordinator of transactions in few words."""

from __future__ import annotations

from barnabas.coordination.effects import Producer, ProducerId
from barnabas.protocol import messages as m
from barnabas.transactions.producer_epochs import NOBODY

INIT_VERSION = 5
END_VERSION = 5
END_VERSION_BEFORE_V2 = 4


def init(
    transactional_id: str | None, expected: Producer = NOBODY, *, timeout_ms: int = 60_000
) -> m.InitProducerIdRequest:
    return m.InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=expected.producer_id,
        producer_epoch=expected.epoch,
    )


def end(transactional_id: str, producer: Producer, *, committed: bool) -> m.EndTxnRequest:
    return m.EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=committed,
    )


def producer(producer_id: int, epoch: int) -> Producer:
    return Producer(ProducerId(producer_id), epoch)


def in_topics(partitions: dict[str, list[int]]) -> list[m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]:
    topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return [topic(name=name, partitions=indexes) for name, indexes in partitions.items()]


def add_by_client(transactional_id: str, producer: Producer, **partitions: list[int]) -> m.AddPartitionsToTxnRequest:
    """For versions up to 3."""
    return m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=in_topics(partitions),
    )


def add_by_broker(
    transactional_id: str, producer: Producer, *, verify_only: bool = False, **partitions: list[int]
) -> m.AddPartitionsToTxnRequest:
    """From version 4 on."""
    transaction = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=in_topics(partitions),
    )
    return m.AddPartitionsToTxnRequest(transactions=[transaction])
