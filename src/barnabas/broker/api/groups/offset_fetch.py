"""OffsetFetch, OffsetDelete: how far a group has read. OffsetCommit is in `offset_commit`.

Offsets of topics and partitions that do not exist are refused here; what the group has is in `groups/group_shard`. The
empty group id is a group id like any other, except that OffsetDelete refuses it: old consumers without a group commit
under it.

OffsetFetch: v2 asks for all topics with null, and has an error for the whole answer · v5 answers leader epochs ·
v6 is flexible · v7 may ask for offsets that no open transaction can change · v8 asks for many groups · v9 names the
member that asks · v10 names topics by id
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from barnabas.broker.api.environments import GroupEnvironment
from barnabas.broker.api.groups.group_steps import step_in_group
from barnabas.broker.api.groups.offset_commit import has_partition, merge_answers
from barnabas.broker.api.registry import handles
from barnabas.net.large_requests import Cut
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from typing import TypeAlias

    from barnabas.metadata.image import TopicsImage
    from barnabas.net.dispatch import Caller

    DeleteTopicAnswer: TypeAlias = m.OffsetDeleteResponse.OffsetDeleteResponseTopic
    FetchGroup: TypeAlias = m.OffsetFetchRequest.OffsetFetchRequestGroup
    FetchGroupAnswer: TypeAlias = m.OffsetFetchResponse.OffsetFetchResponseGroup
    FetchTopic: TypeAlias = m.OffsetFetchRequest.OffsetFetchRequestTopics
    FetchTopicAnswer: TypeAlias = m.OffsetFetchResponse.OffsetFetchResponseTopics

FETCH_BY_ID = 10
FETCH_WITH_ANSWER_ERROR = 2
FETCH_OF_MANY_GROUPS = 8

NO_OFFSET = -1


# ── fetch ────────────────────────────────────────────────────────────────────────────────────────────────────


@handles(
    ApiKey.OFFSET_FETCH,
    GroupEnvironment,
    versions=(1, 10),
    cuts=[
        Cut(("topics", "partition_indexes"), ("topics", "partitions"), last_version=FETCH_OF_MANY_GROUPS - 1),
        Cut(
            ("groups", "topics", "partition_indexes"),
            ("groups", "topics", "partitions"),
            first_version=FETCH_OF_MANY_GROUPS,
        ),
    ],
)
async def offset_fetch(
    environment: GroupEnvironment, request: m.OffsetFetchRequest, caller: Caller
) -> m.OffsetFetchResponse:
    version = caller.api_version
    if version >= FETCH_OF_MANY_GROUPS:
        groups = [
            await fetch_group(environment, group, version, require_stable=request.require_stable)
            for group in request.groups
        ]
        return m.OffsetFetchResponse(groups=groups)
    answer = await fetch_group(environment, only_group(request), version, require_stable=request.require_stable)
    return m.OffsetFetchResponse(
        error_code=answer.error_code if version >= FETCH_WITH_ANSWER_ERROR else Error.NONE,
        topics=[as_topic_of_only_group(topic) for topic in answer.topics],
    )


def only_group(request: m.OffsetFetchRequest) -> FetchGroup:
    """What a request before v8 asks for, in the current form."""
    topics = (
        None
        if request.topics is None
        else [
            m.OffsetFetchRequest.OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    )
    return m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def as_topic_of_only_group(topic: FetchTopicAnswer) -> m.OffsetFetchResponse.OffsetFetchResponseTopic:
    return m.OffsetFetchResponse.OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            m.OffsetFetchResponse.OffsetFetchResponsePartition(
                partition_index=each.partition_index,
                committed_offset=each.committed_offset,
                committed_leader_epoch=each.committed_leader_epoch,
                metadata=each.metadata,
                error_code=each.error_code,
            )
            for each in topic.partitions
        ],
    )


async def fetch_group(
    environment: GroupEnvironment, asked: FetchGroup, version: int, *, require_stable: bool
) -> FetchGroupAnswer:
    unknown: list[FetchTopicAnswer] = []
    if version >= FETCH_BY_ID and asked.topics is not None:
        unknown, asked.topics = name_topics(environment.metadata.image.topics, asked.topics)
    try:
        answer = await environment.groups.read(
            asked.group_id, lambda shard: shard.fetch_offsets(asked, require_stable=require_stable)
        )
    except KafkaError as failed:
        return refuse_fetch(asked, failed.error, version)
    if answer.error_code:
        return answer
    if version >= FETCH_BY_ID and asked.topics is None:
        answer.topics = topics_with_id(environment.metadata.image.topics, answer.topics)
    answer.topics = [*answer.topics, *unknown]
    return answer


def name_topics(topics: TopicsImage, asked: list[FetchTopic]) -> tuple[list[FetchTopicAnswer], list[FetchTopic]]:
    """The answers for ids that no topic has, and the others with their names."""
    unknown: list[FetchTopicAnswer] = []
    known: list[FetchTopic] = []
    for each in asked:
        topic = topics.by_id(each.topic_id)
        if topic is None:
            unknown.append(refuse_fetch_topic(each, Error.UNKNOWN_TOPIC_ID))
        else:
            each.name = topic.name
            known.append(each)
    return unknown, known


def topics_with_id(topics: TopicsImage, answers: list[FetchTopicAnswer]) -> list[FetchTopicAnswer]:
    """A client that knows topics by their ids is not told about offsets whose topic is gone."""
    for answer in answers:
        if answer.topic_id == ZERO_UUID and (topic := topics.get(answer.name)) is not None:
            answer.topic_id = topic.topic_id
    return [answer for answer in answers if answer.topic_id != ZERO_UUID]


def refuse_fetch(asked: FetchGroup, error: Error, version: int) -> FetchGroupAnswer:
    """For the whole group; in v1, which has no place for that, for each partition.

    Consumers before Kafka 3.9 fail on COORDINATOR_NOT_AVAILABLE; on NOT_COORDINATOR they look for the coordinator."""
    if error is Error.COORDINATOR_NOT_AVAILABLE:
        error = Error.NOT_COORDINATOR
    if version >= FETCH_WITH_ANSWER_ERROR:
        return m.OffsetFetchResponse.OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error)
    return m.OffsetFetchResponse.OffsetFetchResponseGroup(
        group_id=asked.group_id, topics=[refuse_fetch_topic(topic, error) for topic in asked.topics or ()]
    )


def refuse_fetch_topic(topic: FetchTopic, error: Error) -> FetchTopicAnswer:
    return m.OffsetFetchResponse.OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            m.OffsetFetchResponse.OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error
            )
            for index in topic.partition_indexes
        ],
    )


# ── delete ───────────────────────────────────────────────────────────────────────────────────────────────────


@handles(
    ApiKey.OFFSET_DELETE,
    GroupEnvironment,
    versions=(0, 0),
    cuts=[Cut(("topics", "partitions"), ("topics", "partitions"))],
)
async def offset_delete(
    environment: GroupEnvironment,
    request: m.OffsetDeleteRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.OffsetDeleteResponse:
    """An error of the whole group takes precedence over errors of single partitions."""
    if not request.group_id:
        return m.OffsetDeleteResponse(error_code=Error.INVALID_GROUP_ID)
    refused, request.topics = split_deletion(environment.metadata.image.topics, request)
    response = await step_in_group(
        environment.groups,
        request.group_id,
        lambda shard, reply_to, _: shard.delete_offsets(request, reply_to),
        m.OffsetDeleteResponse,
    )
    if response.error_code == Error.NONE:
        response.topics = merge_answers(refused, response.topics, attrgetter("name"))
    return response


def split_deletion(
    topics: TopicsImage, request: m.OffsetDeleteRequest
) -> tuple[list[DeleteTopicAnswer], list[m.OffsetDeleteRequest.OffsetDeleteRequestTopic]]:
    """The answers for what does not exist, and what does."""
    refused: list[DeleteTopicAnswer] = []
    known: list[m.OffsetDeleteRequest.OffsetDeleteRequestTopic] = []
    for asked in request.topics:
        topic = topics.get(asked.name)
        missing = [each.partition_index for each in asked.partitions if not has_partition(topic, each.partition_index)]
        if missing or not asked.partitions:
            refused.append(refuse_deletion(asked.name, missing))
            asked.partitions = [each for each in asked.partitions if has_partition(topic, each.partition_index)]
        if asked.partitions:
            known.append(asked)
    return refused, known


def refuse_deletion(topic: str, partitions: list[int]) -> DeleteTopicAnswer:
    return m.OffsetDeleteResponse.OffsetDeleteResponseTopic(
        name=topic,
        partitions=[
            m.OffsetDeleteResponse.OffsetDeleteResponsePartition(
                partition_index=index, error_code=Error.UNKNOWN_TOPIC_OR_PARTITION
            )
            for index in partitions
        ],
    )
