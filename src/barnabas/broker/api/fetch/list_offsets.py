"""ListOffsets: where a partition starts, ends, or stood at a given time.

v2 reads committed or uncommitted · v4 fences by leader epoch, and answers one · v6 is flexible · v7 asks for the
newest timestamp (-3) · v8 for the earliest local offset (-4) · v9 for the last offset in remote storage (-5) ·
v10 limits the wait for remote storage · v11 asks for the earliest offset not yet in remote storage (-6)
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.api.fetch.fetch import ISOLATION_LEVELS, READ_COMMITTED
from barnabas.broker.api.fetch.fetch_partitions import readable_end
from barnabas.broker.api.registry import handles
from barnabas.log.timestamps import LAST_TIMESTAMP, search_batch
from barnabas.net.large_requests import Cut
from barnabas.ports.processes import WorkerError
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.batch import read_header
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from barnabas.broker.broker import Broker
    from barnabas.log.timestamps import BatchToSearch, TimestampedOffset
    from barnabas.net.dispatch import Caller
    from barnabas.replication.hosted import HostedPartition

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
"""What a negative timestamp asks for, and the version from which on it may."""

FIRST_VERSION_WITH_LEADER_EPOCH = 4
CONSUMER = -1

OPENED_HERE_BYTES_MAX = 16 * 1024
"""Of an uncompressed batch that is searched on the event loop: a millisecond or so. What is larger, or may become so,
goes to a worker process."""


class Place(NamedTuple):
    """A place in a log; the defaults say that there is none."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


NOWHERE = Place()


@handles(
    ApiKey.LIST_OFFSETS,
    versions=(1, 11),
    cuts=[Cut(("topics", "partitions"), ("topics", "partitions"))],
)
async def list_offsets(broker: Broker, request: m.ListOffsetsRequest, caller: Caller) -> m.ListOffsetsResponse:
    """An isolation level that does not exist fails every partition, as often as it is named."""
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
            await answer_topic(broker, name, partitions, request, caller.api_version)
            for name, partitions in by_topic.items()
        ]
    )


async def answer_topic(
    broker: Broker, name: str, partitions: list[RequestPartition], request: m.ListOffsetsRequest, version: int
) -> m.ListOffsetsResponse.ListOffsetsTopicResponse:
    """A partition that is named twice is refused, once."""
    topic = name.encode()
    times_named = Counter(asked.partition_index for asked in partitions)
    answers = {
        asked.partition_index: refuse(asked, Error.INVALID_REQUEST)
        if times_named[asked.partition_index] > 1
        else await answer_partition(broker, topic, asked, request, version)
        for asked in partitions
    }
    return m.ListOffsetsResponse.ListOffsetsTopicResponse(name=name, partitions=list(answers.values()))


async def answer_partition(
    broker: Broker, topic: bytes, asked: RequestPartition, request: m.ListOffsetsRequest, version: int
) -> PartitionAnswer:
    if asked.timestamp < 0 and version < FIRST_VERSION_OF.get(asked.timestamp, version + 1):
        return refuse(asked, Error.UNSUPPORTED_VERSION)
    try:
        hosted = find_led_here(broker, topic, asked)
        if asked.timestamp >= 0 or asked.timestamp == MAX_TIMESTAMP:
            found = await find_by_time(broker, hosted, asked.timestamp)
            # Another node may lead it by now, or none.
            hosted = find_led_here(broker, topic, asked)
            place = place_before(found, readable_end_offset(hosted, request))
        else:
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


def find_led_here(broker: Broker, topic: bytes, asked: RequestPartition) -> HostedPartition:
    hosted = broker.replicas.find_by_name(topic, asked.partition_index)
    hosted.require_leader()
    error = hosted.state.check_reader_epoch(asked.current_leader_epoch)
    if error is not Error.NONE:
        raise KafkaError(error, f"{hosted} is not in the leader epoch that the reader believes in")
    return hosted


async def find_by_time(broker: Broker, hosted: HostedPartition, timestamp: int) -> TimestampedOffset | None:
    """The first record at or after a point in time, or the first with the largest timestamp. It is read for in threads,
    and large batches are opened in worker processes."""
    log, disk = hosted.log, broker.disk
    unread = log.unread_timestamps(LAST_TIMESTAMP if timestamp == MAX_TIMESTAMP else timestamp)
    if unread is not None:
        log.learn_timestamps(await broker.read_in_thread(unread.run, disk))
    start_offset = 0
    while True:
        if timestamp == MAX_TIMESTAMP:
            batch = log.batch_of_max_timestamp(start_offset)
        else:
            batch = log.batch_by_timestamp(timestamp, start_offset)
        if batch is None:
            return None
        found = await open_batch(broker, batch)
        if found is not None:
            return found
        start_offset = batch.next_offset


async def open_batch(broker: Broker, batch: BatchToSearch) -> TimestampedOffset | None:
    file = batch.file.acquire()
    try:
        async with broker.api.batch_searches:
            data: bytes = await broker.read_in_thread(batch.read, broker.disk)
            if len(data) <= OPENED_HERE_BYTES_MAX and not read_header(data).codec:
                return search_batch(data, batch.timestamp, batch.start_offset)
            return await broker.processes.run(search_batch, data, batch.timestamp, batch.start_offset)
    except WorkerError as error:
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR, f"{batch.path} cannot be searched: {error}") from error
    finally:
        file.release()


def readable_end_offset(hosted: HostedPartition, request: m.ListOffsetsRequest) -> int:
    """A follower asks for the end of the log, a consumer for the end of what it may read."""
    if request.replica_id != CONSUMER:
        return hosted.log.log_end_offset
    return readable_end(hosted, request.isolation_level == READ_COMMITTED)


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
    """Nothing is, without tiered storage, and nothing waits to be uploaded."""
    return NOWHERE


_SPECIAL_PLACES: Mapping[int, Callable[[HostedPartition, int], Place]] = {
    LATEST: latest,
    EARLIEST: earliest,
    EARLIEST_LOCAL: earliest,
    LATEST_TIERED: in_remote_storage,
    EARLIEST_PENDING_UPLOAD: in_remote_storage,
}
