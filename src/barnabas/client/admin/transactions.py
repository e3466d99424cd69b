"""Transactions and the producers behind them: what coordinators and leaders know of them, and how they are ended.

A transaction hangs if a partition waits for its end, and its coordinator knows nothing of it. `abort_in_partition` ends
it there; `force_end` asks the coordinator, which ends it everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.client.admin.leaders import PartitionAnswer, ask_leaders
from barnabas.client.admin.outcomes import passing, refusal
from barnabas.client.cluster import TRANSACTION_COORDINATOR, Call, KeyAnswer, TopicPartition
from barnabas.client.offset_queries import by_topic
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from barnabas.client.cluster import Cluster

_NO_PRODUCER: Final = -1
_DURATIONS_SINCE: Final = 1
_PATTERNS_SINCE: Final = 2
"""The first versions of ListTransactions that filter by how long one has been open, and by transactional ids."""


class TransactionListing(NamedTuple):
    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


class TransactionState(NamedTuple):
    transactional_id: str
    coordinator_id: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    """-1 where none is open."""
    partitions: list[TopicPartition]


class ProducerState(NamedTuple):
    """What a partition remembers of a producer; -1 for what it does not."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    start_offset: int
    """Of the transaction that is open."""


def list_transactions(
    cluster: Cluster,
    *,
    min_duration_ms: int = -1,
    id_pattern: str | None = None,
    producer_ids: Collection[int] = (),
) -> list[TransactionListing]:
    """The transactions of all coordinators. Those that are not open have no duration, and pass."""

    def request(version: int) -> m.ListTransactionsRequest:
        filters = m.ListTransactionsRequest(producer_id_filters=sorted(producer_ids))
        if version >= _DURATIONS_SINCE:
            filters.duration_filter = min_duration_ms
        if version >= _PATTERNS_SINCE:
            filters.transactional_id_pattern = id_pattern
        return filters

    found = []
    for broker_id in cluster.nodes():
        call = Call(ApiKey.LIST_TRANSACTIONS, request, lambda answer: passing(answer.error_code))
        response: m.ListTransactionsResponse = cluster.ask_broker(broker_id, call)
        failure = refusal(response.error_code)
        if failure is not None:
            words = f"ListTransactions request sent to broker {broker_id} failed with an unexpected exception"
            raise KafkaError(failure.error, words)
        found += [
            TransactionListing(each.transactional_id, broker_id, each.producer_id, each.transaction_state)
            for each in response.transaction_states
        ]
    return found


def describe_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> dict[str, TransactionState | KafkaError]:
    """Each transactional id, or why it cannot be described."""
    answers = cluster.ask_coordinators(
        transactional_ids,
        lambda asked: Call(
            ApiKey.DESCRIBE_TRANSACTIONS,
            lambda _: m.DescribeTransactionsRequest(transactional_ids=asked),
            lambda _: Error.NONE,
        ),
        lambda response: [
            KeyAnswer(each.transactional_id, each.error_code, each) for each in response.transaction_states
        ],
        key_type=TRANSACTION_COORDINATOR,
    )
    found: dict[str, TransactionState | KafkaError] = {}
    for transactional_id, answer in answers.items():
        failure = refusal(answer.error)
        if failure is not None:
            found[transactional_id] = failure
            continue
        assert answer.coordinator is not None, "somebody has described it"
        each: m.DescribeTransactionsResponse.TransactionState = answer.content
        found[transactional_id] = TransactionState(
            transactional_id,
            answer.coordinator.node_id,
            each.producer_id,
            each.producer_epoch,
            each.transaction_state,
            each.transaction_timeout_ms,
            each.transaction_start_time_ms,
            [(topic.topic, number) for topic in each.topics for number in topic.partitions],
        )
    return found


def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition], broker_id: int | None = None
) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
    """The producers that the leaders of these partitions remember, or one broker that has replicas of them."""
    if broker_id is None:
        return ask_leaders(cluster, partitions, _producers_call, _read_producers)
    response = cluster.ask_broker(broker_id, _producers_call(partitions))
    return {
        answer.place: refusal(answer.error_code, answer.message) or answer.content
        for answer in _read_producers(response)
    }


def abort_in_partition(
    cluster: Cluster, place: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """Write the end of a transaction into a partition, as the coordinator would that knows of it."""
    struct = m.WriteTxnMarkersRequest
    topic, partition = place
    marker = struct.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[struct.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=coordinator_epoch,
    )

    def read(response: m.WriteTxnMarkersResponse) -> Iterator[PartitionAnswer]:
        for written in response.markers:
            for part in written.topics:
                for each in part.partitions:
                    yield PartitionAnswer((part.name, each.partition_index), each.error_code, None)

    def call_for(_: list[TopicPartition]) -> Call:
        return Call(ApiKey.WRITE_TXN_MARKERS, lambda _: struct(markers=[marker]), lambda _: Error.NONE)

    failure = ask_leaders(cluster, [place], call_for, read)[place]
    if isinstance(failure, KafkaError):
        raise failure


def force_end(cluster: Cluster, transactional_id: str) -> None:
    """Fence the producer of a transactional id. What it has left open is aborted."""
    request = m.InitProducerIdRequest(
        transactional_id=transactional_id,
        producer_id=_NO_PRODUCER,
        producer_epoch=_NO_PRODUCER,
        transaction_timeout_ms=cluster.settings.request_timeout_ms,
    )
    call = Call(
        ApiKey.INIT_PRODUCER_ID,
        lambda _: request,
        retried=frozenset({Error.CONCURRENT_TRANSACTIONS}),
    )
    cluster.ask_coordinator(transactional_id, call, key_type=TRANSACTION_COORDINATOR)


def _producers_call(partitions: Iterable[TopicPartition]) -> Call:
    struct = m.DescribeProducersRequest
    topics = [
        struct.TopicRequest(name=name, partition_indexes=numbers) for name, numbers in by_topic(partitions).items()
    ]
    return Call(ApiKey.DESCRIBE_PRODUCERS, lambda _: struct(topics=topics), lambda _: Error.NONE)


def _read_producers(response: m.DescribeProducersResponse) -> Iterator[PartitionAnswer]:
    for topic in response.topics:
        for each in topic.partitions:
            producers = [
                ProducerState(
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.coordinator_epoch,
                    producer.last_sequence,
                    producer.last_timestamp,
                    producer.current_txn_start_offset,
                )
                for producer in each.active_producers
            ]
            yield PartitionAnswer((topic.name, each.partition_index), each.error_code, producers, each.error_message)
