"""AddPartitionsToTxn: which partitions are part of a transaction.

Before version 2 a client adds each partition before it writes to it, and the partition's leader verifies that with the
coordinator before it appends the first record. From version 2 on the leader adds the partition itself. Either way no
record is appended to a partition that would not get the marker which ends the transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.coordination.effects import Producer
    from barnabas.transactions.transaction import TopicPartition, Transaction


def check_adding(transactional_id: str, transaction: Transaction | None, producer: Producer) -> Error:
    if not transactional_id:
        return Error.INVALID_REQUEST
    if transaction is not None and transaction.is_prepared:
        return Error.CONCURRENT_TRANSACTIONS
    return _check_producer(transaction, producer)


def verify(
    transactional_id: str,
    transaction: Transaction | None,
    producer: Producer,
    partitions: Iterable[TopicPartition],
) -> dict[TopicPartition, Error]:
    if not transactional_id:
        return dict.fromkeys(partitions, Error.INVALID_REQUEST)
    error = _check_producer(transaction, producer)
    if transaction is None or error is not Error.NONE:
        return dict.fromkeys(partitions, error)
    if transaction.is_prepared:
        return dict.fromkeys(partitions, Error.CONCURRENT_TRANSACTIONS)
    missing = Error.TRANSACTION_ABORTABLE
    return {each: Error.NONE if each in transaction.partitions else missing for each in partitions}


def _check_producer(transaction: Transaction | None, producer: Producer) -> Error:
    if transaction is None or producer.producer_id != transaction.producer_id:
        return Error.INVALID_PRODUCER_ID_MAPPING
    return Error.NONE if producer.epoch == transaction.epoch else Error.PRODUCER_FENCED


def answer(transactional_id: str, errors: Mapping[TopicPartition, Error]) -> m.AddPartitionsToTxnResponse:
    """The result for each partition of one transaction, whether it was to be added or verified."""
    topics: dict[str, m.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = {}
    for (topic, partition), error in errors.items():
        if topic not in topics:
            topics[topic] = m.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(name=topic)
        result = m.AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
            partition_index=partition, partition_error_code=error
        )
        topics[topic].results_by_partition.append(result)
    by_transaction = m.AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
        transactional_id=transactional_id, topic_results=list(topics.values())
    )
    return m.AddPartitionsToTxnResponse(results_by_transaction=[by_transaction])
