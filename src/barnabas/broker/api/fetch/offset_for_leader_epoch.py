"""OffsetForLeaderEpoch: where a leader epoch ended, so that a reader notices that the log was truncated.

v2 is fenced by the leader epoch that the reader assumes · v3 names a follower · v4 is flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api.environments import FetchEnvironment
from barnabas.broker.api.registry import handles
from barnabas.net.large_requests import Cut
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from barnabas.net.dispatch import Caller
    from barnabas.replication.replica_manager import ReplicaManager


@handles(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    FetchEnvironment,
    versions=(2, 4),
    cuts=[Cut(("topics", "partitions"), ("topics", "partitions"))],
)
def offset_for_leader_epoch(
    environment: FetchEnvironment,
    request: m.OffsetForLeaderEpochRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.OffsetForLeaderEpochResponse:
    return m.OffsetForLeaderEpochResponse(
        topics=[answer_topic(environment.replicas, topic) for topic in request.topics]
    )


def answer_topic(
    replicas: ReplicaManager, topic: m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
) -> m.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult:
    name = topic.topic.encode()
    return m.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
        topic=topic.topic, partitions=[answer_partition(replicas, name, partition) for partition in topic.partitions]
    )


def answer_partition(
    replicas: ReplicaManager, topic: bytes, asked: m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> m.OffsetForLeaderEpochResponse.EpochEndOffset:
    try:
        hosted = replicas.find_by_name(topic, asked.partition)
        hosted.require_leader()
    except KafkaError as refused:
        return m.OffsetForLeaderEpochResponse.EpochEndOffset(partition=asked.partition, error_code=refused.error)
    error = hosted.state.check_reader_epoch(asked.current_leader_epoch)
    if error is not Error.NONE:
        return m.OffsetForLeaderEpochResponse.EpochEndOffset(partition=asked.partition, error_code=error)
    epoch, end_offset = hosted.log.end_offset_for_epoch(asked.leader_epoch)
    return m.OffsetForLeaderEpochResponse.EpochEndOffset(
        partition=asked.partition, leader_epoch=epoch, end_offset=end_offset
    )
