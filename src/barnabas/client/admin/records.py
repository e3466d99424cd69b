"""The records of partitions: where they begin and end, and how the oldest go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin.leaders import PartitionAnswer, ask_leaders
from barnabas.client.cluster import Call
from barnabas.client.offset_queries import CONSUMER, by_topic
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from barnabas.client.cluster import Cluster, TopicPartition
    from barnabas.protocol.errors import KafkaError


def find_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], time_ms: int
) -> dict[TopicPartition, int | KafkaError]:
    """The offset of a time, or one of the places of `offset_queries`, in each partition; -1 where it has none."""
    struct = m.ListOffsetsRequest

    def call_for(led: list[TopicPartition]) -> Call:
        topics = [
            struct.ListOffsetsTopic(
                name=name,
                partitions=[
                    struct.ListOffsetsPartition(partition_index=number, timestamp=time_ms) for number in numbers
                ],
            )
            for name, numbers in by_topic(led).items()
        ]
        request = struct(replica_id=CONSUMER, topics=topics, timeout_ms=cluster.settings.request_timeout_ms)
        return Call(ApiKey.LIST_OFFSETS, lambda _: request, lambda _: Error.NONE)

    def read(response: m.ListOffsetsResponse) -> Iterator[PartitionAnswer]:
        for topic in response.topics:
            for each in topic.partitions:
                yield PartitionAnswer((topic.name, each.partition_index), each.error_code, each.offset)

    return ask_leaders(cluster, partitions, call_for, read)


def delete_records(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
    """Delete what is before an offset, -1 for all there is: where each partition begins then."""
    struct = m.DeleteRecordsRequest

    def call_for(led: list[TopicPartition]) -> Call:
        topics = [
            struct.DeleteRecordsTopic(
                name=name,
                partitions=[
                    struct.DeleteRecordsPartition(partition_index=number, offset=offsets[name, number])
                    for number in numbers
                ],
            )
            for name, numbers in by_topic(led).items()
        ]
        request = struct(topics=topics, timeout_ms=cluster.settings.request_timeout_ms)
        return Call(ApiKey.DELETE_RECORDS, lambda _: request, lambda _: Error.NONE)

    def read(response: m.DeleteRecordsResponse) -> Iterator[PartitionAnswer]:
        for topic in response.topics:
            for each in topic.partitions:
                yield PartitionAnswer((topic.name, each.partition_index), each.error_code, each.low_watermark)

    return ask_leaders(cluster, offsets, call_for, read)
