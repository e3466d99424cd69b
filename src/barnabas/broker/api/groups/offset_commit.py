"""OffsetCommit: how far a group has read, as reported by one of its members or by another client.

Offsets of topics and partitions that do not exist are refused here; how the group answers the others is in
`groups/group_shard`. A commit of the same partitions as before is recognised by its bytes (`standing_commits`).

v2 to v4 may say how long the offset is kept · v6 has the leader epoch · v7 knows static members · v8 is flexible · v9
may come from a member of a KIP-848 group · v10 names topics by id
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from barnabas.broker.api.environments import GroupEnvironment
from barnabas.broker.api.groups.standing_commits import COMMIT_BY_ID, StandingCommit
from barnabas.broker.api.registry import handles_frames
from barnabas.net.dispatch import reply_with
from barnabas.net.large_requests import Cut
from barnabas.net.pending import Pending, answered
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import TypeAlias

    from barnabas.broker.api.client_connection import ClientConnection
    from barnabas.broker.coordinators.group_coordinator import GroupCoordinator
    from barnabas.coordination.effects import Effects, ReplyTo
    from barnabas.groups.group_shard import GroupShard
    from barnabas.metadata.image import TopicImage, TopicsImage
    from barnabas.net.dispatch import Caller

    CommitTopic: TypeAlias = m.OffsetCommitRequest.OffsetCommitRequestTopic
    CommitTopicAnswer: TypeAlias = m.OffsetCommitResponse.OffsetCommitResponseTopic

WHOLE_BYTES_MAX = 16 * 1024
"""Commits of some hundred partitions, which consumers repeat all day long, are handled in one go."""


def commit_decoded(environment: GroupEnvironment, request: m.OffsetCommitRequest, caller: Caller) -> Pending[Any]:
    return commit(environment, request, caller.api_version)


@handles_frames(
    ApiKey.OFFSET_COMMIT,
    GroupEnvironment,
    versions=(2, 10),
    large=commit_decoded,
    cuts=[Cut(("topics", "partitions"), ("topics", "partitions"))],
    whole_bytes_max=WHOLE_BYTES_MAX,
)
def offset_commit(
    environment: GroupEnvironment, connection: ClientConnection, version: int, frame: memoryview, body_at: int
) -> None:
    body = frame[body_at:]
    topics = environment.metadata.image.topics
    last = connection.last_commit
    if last is not None and last.is_repeated_by(body, version, topics):
        answer = begin_commit(environment.groups, last.request, version, last.finish)
    else:
        request, _ = codec.decode_prefix(m.OffsetCommitRequest, body, version)
        answer = commit(environment, request, version)
        connection.last_commit = StandingCommit.of(request, body, version, topics)
    reply_with(connection, ApiKey.OFFSET_COMMIT, version, answer)


def commit(environment: GroupEnvironment, request: m.OffsetCommitRequest, version: int) -> Pending[Any]:
    """Commits what exists, and leaves only that in the request."""
    refused, request.topics = split_commit(environment.metadata.image.topics, request, version)
    return begin_commit(environment.groups, request, version, partial(beside_refused, refused) if refused else None)


def begin_commit(
    groups: GroupCoordinator,
    request: m.OffsetCommitRequest,
    version: int,
    finish: Callable[[m.OffsetCommitResponse], Any] | None = None,
) -> Pending[Any]:
    """Commits offsets of partitions that exist. `finish` completes the answer."""
    if not request.topics:
        nothing = m.OffsetCommitResponse()
        return answered(nothing if finish is None else finish(nothing))

    def step(shard: GroupShard, reply_to: ReplyTo, now_ms: int) -> Effects:
        return shard.commit_offsets(request, version, reply_to, now_ms)

    def refuse(error: Error) -> m.OffsetCommitResponse:
        return m.OffsetCommitResponse(topics=[refuse_commit(topic, error) for topic in request.topics])

    answer: Pending[Any] = Pending(refuse, finish)
    groups.begin_write(request.group_id, step, answer)
    return answer


def beside_refused(refused: list[CommitTopicAnswer], response: m.OffsetCommitResponse) -> m.OffsetCommitResponse:
    response.topics = merge_answers(refused, response.topics, attrgetter("name", "topic_id"))
    return response


def split_commit(
    topics: TopicsImage, request: m.OffsetCommitRequest, version: int
) -> tuple[list[CommitTopicAnswer], list[CommitTopic]]:
    """The answers for what does not exist, and what does exist, each topic with its name and its id."""
    refused: list[CommitTopicAnswer] = []
    known: list[CommitTopic] = []
    for asked in request.topics:
        topic = topics.by_id(asked.topic_id) if version >= COMMIT_BY_ID else topics.get(asked.name)
        if topic is None:
            error = Error.UNKNOWN_TOPIC_ID if version >= COMMIT_BY_ID else Error.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(refuse_commit(asked, error))
            continue
        asked.name, asked.topic_id = topic.name, topic.topic_id
        count = len(topic.partitions)
        missing = [each for each in asked.partitions if not 0 <= each.partition_index < count]
        if missing:
            asked.partitions = [each for each in asked.partitions if has_partition(topic, each.partition_index)]
            not_there = m.OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=missing
            )
            refused.append(refuse_commit(not_there, Error.UNKNOWN_TOPIC_OR_PARTITION))
        if asked.partitions:
            known.append(asked)
    return refused, known


def has_partition(topic: TopicImage | None, index: int) -> bool:
    return topic is not None and 0 <= index < len(topic.partitions)


def refuse_commit(topic: CommitTopic, error: Error) -> CommitTopicAnswer:
    return m.OffsetCommitResponse.OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            m.OffsetCommitResponse.OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=error
            )
            for partition in topic.partitions
        ],
    )


class TopicAnswer(Protocol):
    """A topic in the answer to a commit, whether in a transaction or not."""

    partitions: list[Any]


A = TypeVar("A", bound=TopicAnswer)


def merge_answers(first: list[A], second: list[A], topic_of: Callable[[A], Hashable]) -> list[A]:
    """One entry for each topic, in the order in which they first occur. A request may name a topic more than once."""
    by_topic: dict[Hashable, A] = {}
    for answer in (*first, *second):
        before = by_topic.setdefault(topic_of(answer), answer)
        if before is not answer:
            before.partitions = [*before.partitions, *answer.partitions]
    return list(by_topic.values())
