"""DescribeTopicPartitions: the partitions of topics, in pages.

Topics come in the order of their names. A page ends after the requested number of partitions, or after
`max.request.partition.size.limit` of them, with a cursor that says where the next one begins. Replicas that may lead
although they are out of sync are listed too, which Metadata does not do.

A page is described in slices, between which the event loop has its turn.
"""

from __future__ import annotations

import asyncio
from heapq import merge
from itertools import groupby
from typing import TYPE_CHECKING, Any

from barnabas.broker.api.admin.cluster_view import ClusterView
from barnabas.broker.api.environments import AdminEnvironment
from barnabas.broker.api.registry import handles
from barnabas.metadata import topic_names
from barnabas.net.large_requests import NAME_BYTES, Cut
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.authorized_operations import TOPIC_OPERATIONS
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from typing import TypeAlias

    from barnabas.metadata.image import PartitionImage, TopicImage
    from barnabas.net.dispatch import Caller, Handler
    from barnabas.net.large_requests import LargeRequest

    Cursor: TypeAlias = m.DescribeTopicPartitionsRequest.Cursor
    ResponseTopic: TypeAlias = m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
    ResponsePartition: TypeAlias = m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition


SLICE_UNITS = 128
"""Partitions described, or topics passed, between two turns of the event loop."""


async def describe_many(handler: Handler, environment: AdminEnvironment, request: LargeRequest, caller: Caller) -> Any:  # noqa: ARG001
    """The same as `describe_topic_partitions`, for very many names: they are sorted in runs, which are merged."""
    await request.check()
    asked: m.DescribeTopicPartitionsRequest = request.root
    cursor = asked.cursor
    is_named = cursor is None
    runs: list[list[str]] = []
    async for piece in request.pieces():
        is_named = is_named or cursor is None or any(topic.name == cursor.topic_name for topic in piece.topics)
        runs.append(names_from_cursor({topic.name for topic in piece.topics}, cursor))
        await request.charge(len(runs[-1]) * NAME_BYTES)
    if not is_named or not is_cursor_valid(asked):
        async for piece in request.pieces():
            await request.add(refuse(piece).topics)
        return m.DescribeTopicPartitionsResponse()
    response = m.DescribeTopicPartitionsResponse()
    names = (name for name, _ in groupby(merge(*runs)))
    async for topic in describe_page(environment, asked, names, caller, response):
        await request.add([topic])
    return response


@handles(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    AdminEnvironment,
    versions=(0, 0),
    cuts=[Cut(("topics",), ("topics",))],
    large_handler=describe_many,
)
async def describe_topic_partitions(
    environment: AdminEnvironment, request: m.DescribeTopicPartitionsRequest, caller: Caller
) -> m.DescribeTopicPartitionsResponse:
    if not is_cursor_valid(request):
        return refuse(request)
    names = names_from_cursor(
        {topic.name for topic in request.topics} or environment.metadata.image.topics.names, request.cursor
    )
    response = m.DescribeTopicPartitionsResponse()
    async for topic in describe_page(environment, request, names, caller, response):
        response.topics.append(topic)
    return response


async def describe_page(
    environment: AdminEnvironment,
    request: m.DescribeTopicPartitionsRequest,
    names: Iterable[str],
    caller: Caller,
    response: m.DescribeTopicPartitionsResponse,
) -> AsyncIterator[ResponseTopic]:
    """The topics of a page; where the next one begins goes into the response."""
    image = environment.metadata.image
    view = ClusterView(image.brokers, caller.listener.name)
    limit = max(1, min(environment.settings.config.max_request_partition_size_limit, request.response_partition_limit))
    for number, name in enumerate(names, start=1):
        if number % SLICE_UNITS == 0:
            await asyncio.sleep(0)
        if limit == 0:
            response.next_cursor = m.DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            yield refuse_name(name)
            continue
        first = first_partition(request.cursor, name)
        end = min(first + limit, len(topic.partitions))
        yield await describe_topic(view, topic, range(first, end))
        if end < len(topic.partitions):
            response.next_cursor = m.DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=end)
            break
        limit -= max(0, end - first)


def is_cursor_valid(request: m.DescribeTopicPartitionsRequest) -> bool:
    """A cursor must be on one of the named topics, if any are named."""
    cursor = request.cursor
    if cursor is None:
        return True
    is_named = not request.topics or any(topic.name == cursor.topic_name for topic in request.topics)
    return is_named and cursor.partition_index >= 0


def refuse(request: m.DescribeTopicPartitionsRequest) -> m.DescribeTopicPartitionsResponse:
    return m.DescribeTopicPartitionsResponse(
        topics=[
            m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
                error_code=Error.INVALID_REQUEST, name=topic.name
            )
            for topic in request.topics
        ]
    )


def names_from_cursor(names: Iterable[str], cursor: Cursor | None) -> list[str]:
    """The names in their order, from the cursor's topic on."""
    return sorted(names if cursor is None else (name for name in names if name >= cursor.topic_name))


def first_partition(cursor: Cursor | None, name: str) -> int:
    return cursor.partition_index if cursor is not None and cursor.topic_name == name else 0


def refuse_name(name: str) -> ResponseTopic:
    return m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=Error.UNKNOWN_TOPIC_OR_PARTITION if topic_names.is_legal(name) else Error.INVALID_TOPIC_EXCEPTION,
        name=name,
        is_internal=name in topic_names.INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


async def describe_topic(view: ClusterView, topic: TopicImage, indexes: range) -> ResponseTopic:
    partitions = []
    for index in indexes:
        partitions.append(describe_partition(view, index, topic.partitions[index]))
        if len(partitions) % SLICE_UNITS == 0:
            await asyncio.sleep(0)
    return m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in topic_names.INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def describe_partition(view: ClusterView, index: int, partition: PartitionImage) -> ResponsePartition:
    """Never with an error code: the missing leader says enough."""
    _, leader = view.leader_of(partition)
    return m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=partition.elr,
        last_known_elr=partition.last_known_elr,
        offline_replicas=view.offline_replicas(partition),
    )
