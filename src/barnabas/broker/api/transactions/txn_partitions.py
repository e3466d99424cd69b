"""AddPartitionsToTxn, AddOffsetsToTxn: what a transaction is about to write to.

Clients name partitions before they write to them, below the feature level at which writing to a partition adds it.
Brokers ask for several transactions at once, on behalf of their clients, and may ask only whether the partitions have
been added. If one partition does not exist, none of its transaction's partitions is added.

AddPartitionsToTxn: v2 says PRODUCER_FENCED · v3 is flexible · v4 is for brokers · v5 may answer TRANSACTION_ABORTABLE
AddOffsetsToTxn: v2 says PRODUCER_FENCED · v3 is flexible · v4 may answer TRANSACTION_ABORTABLE
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from barnabas.broker.api.environments import TransactionEnvironment
from barnabas.broker.api.groups.offset_commit import has_partition
from barnabas.broker.api.registry import handles
from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC
from barnabas.coordination.effects import Producer, ProducerId
from barnabas.metadata.topic_names import INTERNAL_TOPICS
from barnabas.net.connection import BadRequestError
from barnabas.net.large_requests import Cut
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError
from barnabas.transactions.transaction import TRANSACTION_VERSION_1, TRANSACTION_VERSION_2
from barnabas.transactions.transaction_partitions import answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from barnabas.metadata.image import TopicsImage
    from barnabas.net.dispatch import Caller
    from barnabas.transactions.transaction import TopicPartition

    Transaction: TypeAlias = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction

ADD_FROM_BROKERS = 4
FENCED_HAS_ITS_OWN_ERROR_FROM = 2
"""In both APIs; older versions call the epoch invalid."""

PARTITIONS_MAX = 10_000

T = TypeVar("T")


@handles(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    TransactionEnvironment,
    versions=(0, 5),
    cuts=[Cut(("transactions",), ("results_by_transaction",), first_version=ADD_FROM_BROKERS)],
)
async def add_partitions_to_txn(
    environment: TransactionEnvironment, request: m.AddPartitionsToTxnRequest, caller: Caller
) -> m.AddPartitionsToTxnResponse:
    version = caller.api_version
    if version < ADD_FROM_BROKERS:
        asked = of_client(request)
        check_partition_count(asked.topics, lambda topic: topic.partitions)
        errors = await add_or_verify(environment, asked, version)
        (result,) = answer(asked.transactional_id, errors).results_by_transaction
        return m.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)
    # As with Kafka, a transaction that is named more than once is asked about with what it was named with last.
    topics_of = {asked.transactional_id: asked.topics for asked in request.transactions}
    for asked in request.transactions:
        asked.topics = topics_of[asked.transactional_id]
        check_partition_count(asked.topics, lambda topic: topic.partitions)
    # All are begun before any is waited for: they are written together, and none waits for another's replicas.
    outcomes = await asyncio.gather(*(add_or_verify(environment, asked, version) for asked in request.transactions))
    response = m.AddPartitionsToTxnResponse()
    for asked, errors in zip(request.transactions, outcomes, strict=True):
        response.results_by_transaction += answer(asked.transactional_id, errors).results_by_transaction
    return response


def of_client(request: m.AddPartitionsToTxnRequest) -> Transaction:
    """What a client's request asks for, in the form that brokers use."""
    return m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


async def add_or_verify(
    environment: TransactionEnvironment, asked: Transaction, version: int
) -> dict[TopicPartition, Error]:
    partitions = [(topic.name, index) for topic in asked.topics for index in topic.partitions]
    topics = environment.metadata.image.topics
    refused = {each: error for each in partitions if (error := refusal(topics, each, version)) is not Error.NONE}
    if refused:
        return {each: refused.get(each, Error.OPERATION_NOT_ATTEMPTED) for each in partitions}
    transactional_id = asked.transactional_id
    producer = Producer(ProducerId(asked.producer_id), asked.producer_epoch)
    try:
        if asked.verify_only:
            return await environment.transactions.read(
                transactional_id, lambda shard: shard.verify_partitions(transactional_id, producer, partitions)
            )
        transaction_version = TRANSACTION_VERSION_2 if version >= ADD_FROM_BROKERS else TRANSACTION_VERSION_1
        errors = await environment.transactions.add_partitions(
            transactional_id, producer, partitions, transaction_version
        )
    except KafkaError as failed:
        return dict.fromkeys(partitions, failed.error)
    return {each: for_version(error, version) for each, error in errors.items()}


def check_partition_count(topics: Sequence[T], partitions_of: Callable[[T], Sequence[int]]) -> None:
    """A transaction is handled in one step, so there is a limit on how many of its partitions one request may name."""
    count = sum(len(partitions_of(topic)) for topic in topics)
    if count > PARTITIONS_MAX:
        raise BadRequestError(
            f"named {count} partitions of one transaction, but the limit is {PARTITIONS_MAX}: name fewer at a time"
        )


def refusal(topics: TopicsImage, partition: TopicPartition, version: int) -> Error:
    """Clients add the partitions of groups with AddOffsetsToTxn, and do not write to other internal topics at all."""
    if version < ADD_FROM_BROKERS and partition[0] in INTERNAL_TOPICS:
        return Error.TOPIC_AUTHORIZATION_FAILED
    topic = topics.get(partition[0])
    return Error.NONE if has_partition(topic, partition[1]) else Error.UNKNOWN_TOPIC_OR_PARTITION


def for_version(error: Error, version: int) -> Error:
    if error is Error.PRODUCER_FENCED and version < FENCED_HAS_ITS_OWN_ERROR_FROM:
        return Error.INVALID_PRODUCER_EPOCH
    return error


@handles(ApiKey.ADD_OFFSETS_TO_TXN, TransactionEnvironment, versions=(0, 4))
async def add_offsets_to_txn(
    environment: TransactionEnvironment, request: m.AddOffsetsToTxnRequest, caller: Caller
) -> m.AddOffsetsToTxnResponse:
    """The group's partition joins the transaction; what is committed there follows with TxnOffsetCommit."""
    partition = OFFSETS_TOPIC, environment.groups.partition_of(request.group_id)
    producer = Producer(ProducerId(request.producer_id), request.producer_epoch)
    try:
        errors = await environment.transactions.add_partitions(
            request.transactional_id, producer, [partition], TRANSACTION_VERSION_1
        )
    except KafkaError as failed:
        return m.AddOffsetsToTxnResponse(error_code=failed.error)
    return m.AddOffsetsToTxnResponse(error_code=for_version(errors[partition], caller.api_version))
