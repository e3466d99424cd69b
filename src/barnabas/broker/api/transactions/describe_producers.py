"""DescribeProducers: which producers have written to a partition, and which of them have a transaction open there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api.environments import TransactionEnvironment
from barnabas.broker.api.registry import handles
from barnabas.metadata.topic_names import check_topic_name
from barnabas.net.large_requests import Cut
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.error_messages import message_of
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.log.producers.producer_state import ProducerEntry
    from barnabas.net.dispatch import Caller
    from barnabas.replication.replica_manager import ReplicaManager


@handles(
    ApiKey.DESCRIBE_PRODUCERS,
    TransactionEnvironment,
    versions=(0, 0),
    cuts=[Cut(("topics", "partition_indexes"), ("topics", "partitions"))],
)
def describe_producers(
    environment: TransactionEnvironment,
    request: m.DescribeProducersRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.DescribeProducersResponse:
    topics = environment.metadata.image.topics

    def exists(name: str) -> bool:
        return topics.get(name) is not None

    return m.DescribeProducersResponse(
        topics=[
            m.DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[
                    answer_partition(environment.replicas, exists, topic.name, index)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def answer_partition(
    replicas: ReplicaManager, exists: Callable[[str], bool], topic: str, index: int
) -> m.DescribeProducersResponse.PartitionResponse:
    try:
        check_topic_name(topic)
        producers = replicas.find_by_name(topic.encode(), index).log.active_producers
    except KafkaError as refused:
        # As with Kafka, only what is wrong with the topic itself is told in words.
        message: str | None = refused.message
        if refused.error is not Error.INVALID_TOPIC_EXCEPTION:
            message = None if exists(topic) else message_of(refused.error)
        return m.DescribeProducersResponse.PartitionResponse(
            partition_index=index, error_code=refused.error, error_message=message
        )
    return m.DescribeProducersResponse.PartitionResponse(
        partition_index=index,
        active_producers=[describe(producer_id, entry) for producer_id, entry in producers.items()],
    )


def describe(producer_id: int, entry: ProducerEntry) -> m.DescribeProducersResponse.ProducerState:
    return m.DescribeProducersResponse.ProducerState(
        producer_id=producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.txn_first_offset,
    )
