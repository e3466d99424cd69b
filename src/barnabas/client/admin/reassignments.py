"""Replicas that move from some brokers to others: which do, and how to begin and end it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.admin.outcomes import REQUEST_TIMEOUT_MS, passing, refusal
from barnabas.client.cluster import Call, TopicPartition
from barnabas.client.offset_queries import by_topic
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.cluster import Cluster
    from barnabas.protocol.errors import KafkaError


class Reassignment(NamedTuple):
    """A partition on its way."""

    replicas: list[int]
    """All that it has meanwhile."""
    adding: list[int]
    removing: list[int]


def list_reassignments(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """Those of these partitions that are on their way, or all that are."""
    struct = m.ListPartitionReassignmentsRequest
    topics = None
    if partitions is not None:
        topics = [
            struct.ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
            for name, numbers in by_topic(partitions).items()
        ]
    request = struct(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS)
    response: m.ListPartitionReassignmentsResponse = cluster.ask_controller(
        Call(ApiKey.LIST_PARTITION_REASSIGNMENTS, lambda _: request, lambda answer: passing(answer.error_code))
    )
    failure = refusal(response.error_code, response.error_message)
    if failure is not None:
        raise failure
    return {
        (topic.name, each.partition_index): Reassignment(
            list(each.replicas), list(each.adding_replicas), list(each.removing_replicas)
        )
        for topic in response.topics
        for each in topic.partitions
    }


def alter_reassignments(
    cluster: Cluster,
    targets: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool = True,
) -> dict[TopicPartition, KafkaError | None]:
    """Send partitions on their way to other replicas, or, for None, back; what went wrong with each."""
    struct = m.AlterPartitionReassignmentsRequest

    def reassignable(place: TopicPartition) -> m.AlterPartitionReassignmentsRequest.ReassignablePartition:
        replicas = targets[place]
        return struct.ReassignablePartition(
            partition_index=place[1], replicas=None if replicas is None else list(replicas)
        )

    request = struct(
        timeout_ms=REQUEST_TIMEOUT_MS,
        allow_replication_factor_change=allow_replication_factor_change,
        topics=[
            struct.ReassignableTopic(name=name, partitions=[reassignable((name, number)) for number in numbers])
            for name, numbers in by_topic(targets).items()
        ],
    )
    response: m.AlterPartitionReassignmentsResponse = cluster.ask_controller(
        Call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, lambda _: request, lambda answer: passing(answer.error_code))
    )
    failure = refusal(response.error_code, response.error_message)
    if failure is not None:
        raise failure
    return {
        (topic.name, each.partition_index): refusal(each.error_code, each.error_message)
        for topic in response.responses
        for each in topic.partitions
    }
