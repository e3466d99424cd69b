"""DescribeTransactions, ListTransactions, and WriteTxnMarkers, by which coordinators on other brokers end transactions,
and tools those that hang.

DescribeTransactions may name ids of several partitions: each partition is asked for its own, and one that cannot answer
fails only its own ids. ListTransactions fails as a whole while one of the node's partitions is being loaded.

ListTransactions: v1 filters by duration · v2 by a pattern of the transactional id
WriteTxnMarkers: v2 gives the version of the transaction
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.broker.api.environments import TransactionEnvironment
from barnabas.broker.api.groups.offset_commit import has_partition
from barnabas.broker.api.registry import handles
from barnabas.broker.api.transactions.txn_partitions import check_partition_count
from barnabas.log.append_batches import EndMarker
from barnabas.net.large_requests import SHORT_BYTES_MAX, Cut
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError
from barnabas.transactions.transaction_views import Filters, unknown_states

if TYPE_CHECKING:
    from typing import TypeAlias

    from barnabas.broker.coordinators.transaction_coordinator import TransactionCoordinator
    from barnabas.net.dispatch import Caller
    from barnabas.transactions.transaction import TopicPartition

    Described: TypeAlias = m.DescribeTransactionsResponse.TransactionState
    WantedMarker: TypeAlias = m.WriteTxnMarkersRequest.WritableTxnMarker
    Errors: TypeAlias = dict[TopicPartition, Error]


# ── describe and list ────────────────────────────────────────────────────────────────────────────────────────


@handles(
    ApiKey.DESCRIBE_TRANSACTIONS,
    TransactionEnvironment,
    versions=(0, 0),
    cuts=[Cut(("transactional_ids",), ("transaction_states",))],
    whole_bytes_max=SHORT_BYTES_MAX,
)
async def describe_transactions(
    environment: TransactionEnvironment,
    request: m.DescribeTransactionsRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.DescribeTransactionsResponse:
    described = [
        await describe(environment.transactions, transactional_id) for transactional_id in request.transactional_ids
    ]
    return m.DescribeTransactionsResponse(transaction_states=described)


async def describe(transactions: TransactionCoordinator, transactional_id: str) -> Described:
    if not transactional_id:
        return m.DescribeTransactionsResponse.TransactionState(error_code=Error.INVALID_REQUEST)
    try:
        (described,) = await transactions.read(
            transactional_id, lambda shard: shard.describe_transactions([transactional_id])
        )
    except KafkaError as failed:
        return m.DescribeTransactionsResponse.TransactionState(
            error_code=failed.error, transactional_id=transactional_id
        )
    return described


@handles(ApiKey.LIST_TRANSACTIONS, TransactionEnvironment, versions=(0, 2), long_answer="transaction_states")
async def list_transactions(
    environment: TransactionEnvironment,
    request: m.ListTransactionsRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.ListTransactionsResponse:
    try:
        filters = Filters.of(request)
        now_ms = environment.transactions.now_ms()
        listed = await environment.transactions.read_all(lambda shard: shard.list_transactions(filters, now_ms))
    except KafkaError as failed:
        return m.ListTransactionsResponse(error_code=failed.error)
    return m.ListTransactionsResponse(
        unknown_state_filters=unknown_states(request),
        transaction_states=[each for transactions in listed for each in transactions],
    )


# ── markers ──────────────────────────────────────────────────────────────────────────────────────────────────


@handles(ApiKey.WRITE_TXN_MARKERS, TransactionEnvironment, versions=(1, 2), cuts=[Cut(("markers",), ("markers",))])
async def write_txn_markers(
    environment: TransactionEnvironment,
    request: m.WriteTxnMarkersRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.WriteTxnMarkersResponse:
    has_nobody = any(wanted.producer_id < 0 or wanted.producer_epoch < 0 for wanted in request.markers)
    asked = [(wanted, partitions_of(wanted)) for wanted in request.markers]
    if has_nobody:
        # If one marker of a request has no producer, none is written: a log can have no such batch.
        outcomes = [dict.fromkeys(partitions, Error.UNKNOWN_SERVER_ERROR) for _, partitions in asked]
    else:
        timeout_ms = environment.settings.config.request_timeout_ms
        # All are written before any is waited for: replicas take them together.
        writing = [start_marker(environment, wanted, partitions, timeout_ms) for wanted, partitions in asked]
        outcomes = await asyncio.gather(*writing)
    by_producer: dict[int, Errors] = {}
    for (wanted, _), errors in zip(asked, outcomes, strict=True):
        if errors:
            by_producer.setdefault(wanted.producer_id, {}).update(errors)
    return m.WriteTxnMarkersResponse(
        markers=[as_result(producer_id, errors) for producer_id, errors in by_producer.items()]
    )


def start_marker(
    environment: TransactionEnvironment, wanted: WantedMarker, partitions: list[TopicPartition], timeout_ms: int
) -> asyncio.Future[Errors]:
    marker = EndMarker(
        producer_id=wanted.producer_id,
        producer_epoch=wanted.producer_epoch,
        coordinator_epoch=wanted.coordinator_epoch,
        is_commit=wanted.transaction_result,
        transaction_version=wanted.transaction_version,
    )
    done: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()
    if wanted.transaction_version < 0:
        topics = environment.metadata.image.topics
        done.set_result(
            {
                (name, index): Error.UNKNOWN_SERVER_ERROR
                if has_partition(topics.get(name), index)
                else Error.UNKNOWN_TOPIC_OR_PARTITION
                for name, index in partitions
            }
        )
        return done

    def on_done(errors: Errors) -> None:
        if not done.done():
            done.set_result(errors)

    environment.markers.write(marker, partitions, timeout_ms, on_done)
    return done


def partitions_of(wanted: WantedMarker) -> list[TopicPartition]:
    """Each partition once: a second marker would add nothing."""
    check_partition_count(wanted.topics, lambda topic: topic.partition_indexes)
    return list(dict.fromkeys((topic.name, index) for topic in wanted.topics for index in topic.partition_indexes))


def as_result(producer_id: int, errors: Errors) -> m.WriteTxnMarkersResponse.WritableTxnMarkerResult:
    response = m.WriteTxnMarkersResponse
    topics: dict[str, list[m.WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult]] = {}
    for (topic, index), error in errors.items():
        result = response.WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
        topics.setdefault(topic, []).append(result)
    return response.WritableTxnMarkerResult(
        producer_id=producer_id,
        topics=[
            response.WritableTxnMarkerTopicResult(name=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )
