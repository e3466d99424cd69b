"""ListOffsets: where a partition starts, ends, or stood at a given time.

v2 reads committed or uncommitted · v4 fences by leader epoch, and answers one · v6 is flexible · v7 asks for the
newest timestamp (-3) · v8 for the earliest local offset (-4) · v9 for the last offset in remote storage (-5) ·
v10 limits the wait for remote storage · v11 asks for the earliest offset not yet in remote storage (-6)
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.api.environments import FetchEnvironment
from barnabas.broker.api.fetch.fetch_partitions import readable_end
from barnabas.broker.api.fetch.fetch_requests import ISOLATION_LEVELS, READ_COMMITTED
from barnabas.broker.api.registry import handles
from barnabas.net.large_requests import Cut
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from barnabas.log.timestamps import TimestampedOffset
    from barnabas.net.dispatch import Caller
    from barnabas.replication.hosted import HostedPartition
    from barnabas.replication.replica_manager import ReplicaManager

    RequestTopic: TypeAlias = m.ListOffsetsRequest.ListOffsetsTopic
    RequestPartition: TypeAlias = m.ListOffsetsRequest.ListOffsetsPartition
    PartitionAnswer: TypeAlias = m.ListOffsetsResponse.ListOffsetsPartitionResponse

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

FIRST_VERSION_OF: Mapping[int, int] = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The negative timestamps that have a meaning, and the first version that may use each."""

FIRST_VERSION_WITH_LEADER_EPOCH = 4
CONSUMER = -1


class Place(NamedTuple):
    """A place in a log; the defaults say that there is none."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


NOWHERE = Place()


@handles(
    ApiKey.LIST_OFFSETS,
    FetchEnvironment,
    versions=(1, 11),
    cuts=[Cut(("topics", "partitions"), ("topics", "partitions"))],
)
async def list_offsets(
    environment: FetchEnvironment, request: m.ListOffsetsRequest, caller: Caller
) -> m.ListOffsetsResponse:
    """An unknown isolation level fails every partition, as often as it is named."""
    if request.isolation_level not in ISOLATION_LEVELS:
        return m.ListOffsetsResponse(
            topics=[refuse_topic(topic, Error.UNKNOWN_SERVER_ERROR) for topic in request.topics]
        )
    by_topic: dict[str, list[RequestPartition]] = {}
    for topic in request.topics:
        if topic.partitions:
            by_topic.setdefault(topic.name, []).extend(topic.partitions)
    return m.ListOffsetsResponse(
        topics=[
            await answer_topic(environment, name, partitions, request, caller.api_version)
            for name, partitions in by_topic.items()
        ]
    )


async def answer_topic(
    environment: FetchEnvironment,
    name: str,
    partitions: list[RequestPartition],
    request: m.ListOffsetsRequest,
    version: int,
) -> m.ListOffsetsResponse.ListOffsetsTopicResponse:
    """A partition that is named twice is refused, once."""
    topic = name.encode()
    times_named = Counter(asked.partition_index for asked in partitions)
    answers = {
        asked.partition_index: refuse(asked, Error.INVALID_REQUEST)
        if times_named[asked.partition_index] > 1
        else await answer_partition(environment, topic, asked, request, version)
        for asked in partitions
    }
    return m.ListOffsetsResponse.ListOffsetsTopicResponse(name=name, partitions=list(answers.values()))


async def answer_partition(
    environment: FetchEnvironment, topic: bytes, asked: RequestPartition, request: m.ListOffsetsRequest, version: int
) -> PartitionAnswer:
    if asked.timestamp < 0 and version < FIRST_VERSION_OF.get(asked.timestamp, version + 1):
        return refuse(asked, Error.UNSUPPORTED_VERSION)
    try:
        hosted = find_led_here(environment.replicas, topic, asked)
        if asked.timestamp >= 0 or asked.timestamp == MAX_TIMESTAMP:
            if asked.timestamp == MAX_TIMESTAMP:
                found = await environment.timestamps.newest(hosted.log)
            else:
                found = await environment.timestamps.first_since(hosted.log, asked.timestamp)
            # Another node may lead it by now, or none.
            hosted = find_led_here(environment.replicas, topic, asked)
            place = place_before(found, readable_end_offset(hosted, request))
            if place is NOWHERE and found is not None:
                require_known_end(hosted, request)
        else:
            if asked.timestamp == LATEST:
                require_known_end(hosted, request)
            place = _SPECIAL_PLACES[asked.timestamp](hosted, readable_end_offset(hosted, request))
    except KafkaError as failed:
        return refuse(asked, failed.error)
    return m.ListOffsetsResponse.ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=place.timestamp,
        offset=place.offset,
        leader_epoch=place.leader_epoch if version >= FIRST_VERSION_WITH_LEADER_EPOCH else NOWHERE.leader_epoch,
    )


def refuse_topic(topic: RequestTopic, error: Error) -> m.ListOffsetsResponse.ListOffsetsTopicResponse:
    return m.ListOffsetsResponse.ListOffsetsTopicResponse(
        name=topic.name, partitions=[refuse(asked, error) for asked in topic.partitions]
    )


def refuse(asked: RequestPartition, error: Error) -> PartitionAnswer:
    return m.ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error)


def find_led_here(replicas: ReplicaManager, topic: bytes, asked: RequestPartition) -> HostedPartition:
    hosted = replicas.find_by_name(topic, asked.partition_index)
    hosted.require_leader()
    error = hosted.state.check_reader_epoch(asked.current_leader_epoch)
    if error is not Error.NONE:
        raise KafkaError(error, f"{hosted} is not in the leader epoch that the reader assumes")
    return hosted


def readable_end_offset(hosted: HostedPartition, request: m.ListOffsetsRequest) -> int:
    """A follower asks for the end of the log, a consumer for the end of what it may read."""
    if request.replica_id != CONSUMER:
        return hosted.log.log_end_offset
    return readable_end(hosted, request.isolation_level == READ_COMMITTED)


def require_known_end(hosted: HostedPartition, request: m.ListOffsetsRequest) -> None:
    """What another leader has shown as committed must not seem to be gone because its successor does not know it yet
    (KIP-207)."""
    if request.replica_id == CONSUMER and not hosted.state.knows_its_end():
        raise KafkaError(
            Error.OFFSET_NOT_AVAILABLE,
            f"the high watermark of {hosted} has not reached the start of its leader epoch yet",
        )


def place_before(found: TimestampedOffset | None, end_offset: int) -> Place:
    if found is None or found.offset >= end_offset:
        return NOWHERE
    return Place(found.offset, found.timestamp, found.leader_epoch)


def latest(hosted: HostedPartition, end_offset: int) -> Place:
    return Place(end_offset, leader_epoch=hosted.state.leader_epoch)


def earliest(hosted: HostedPartition, end_offset: int) -> Place:  # noqa: ARG001
    start = hosted.log.log_start_offset
    return Place(start, leader_epoch=hosted.log.epoch_of(start))


def in_remote_storage(hosted: HostedPartition, end_offset: int) -> Place:  # noqa: ARG001
    """Always nowhere: without tiered storage, nothing is there, and nothing waits to be uploaded."""
    return NOWHERE


_SPECIAL_PLACES: Mapping[int, Callable[[HostedPartition, int], Place]] = {
    LATEST: latest,
    EARLIEST: earliest,
    EARLIEST_LOCAL: earliest,
    LATEST_TIERED: in_remote_storage,
    EARLIEST_PENDING_UPLOAD: in_remote_storage,
}
