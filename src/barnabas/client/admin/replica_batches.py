"""What single replicas hold of partitions, be they leaders or not: the headers of their batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.client.admin.outcomes import refusal
from barnabas.client.cluster import Call
from barnabas.client.offset_queries import by_topic
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.batch import iter_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.cluster import Cluster, TopicPartition
    from barnabas.protocol.batch import BatchHeader
    from barnabas.protocol.errors import KafkaError
    from barnabas.protocol.uuids import Uuid

_FOR_DEBUGGING: Final = -2
"""The replica id of consumers that any replica answers."""
_REPLICA_STATE_SINCE: Final = 15
"""The first version of Fetch that has the replica id in a structure of its own."""


class ReplicaBatches(NamedTuple):
    high_watermark: int
    headers: list[BatchHeader]


class FetchSize(NamedTuple):
    partition_bytes: int
    wait_ms: int
    """How long a broker may wait for records."""


def fetch_headers(
    cluster: Cluster,
    broker_id: int,
    offsets: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, Uuid],
    size: FetchSize,
) -> dict[TopicPartition, ReplicaBatches | KafkaError]:
    """The batches that a broker has of these partitions from these offsets on."""
    struct = m.FetchRequest
    topics = [
        struct.FetchTopic(
            topic=name,
            topic_id=topic_ids[name],
            partitions=[
                struct.FetchPartition(
                    partition=number, fetch_offset=offsets[name, number], partition_max_bytes=size.partition_bytes
                )
                for number in numbers
            ],
        )
        for name, numbers in by_topic(offsets).items()
    ]

    def make_request(version: int) -> m.FetchRequest:
        request = struct(max_wait_ms=size.wait_ms, min_bytes=1, topics=topics)
        if version >= _REPLICA_STATE_SINCE:
            request.replica_state.replica_id = _FOR_DEBUGGING
        else:
            request.replica_id = _FOR_DEBUGGING
        return request

    response: m.FetchResponse = cluster.ask_broker(broker_id, Call(ApiKey.FETCH, make_request))
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    return {
        (names.get(topic.topic_id, topic.topic), each.partition_index): refusal(each.error_code)
        or ReplicaBatches(each.high_watermark, [header for _, header in iter_headers(each.records or b"")])
        for topic in response.responses
        for each in topic.partitions
    }
