"""OffsetCommit and TxnOffsetCommit: which commits a group takes, and what is written and answered.

A commit is checked as a whole: one partition that its member may not commit refuses all. Only metadata that is too long
is a matter of the single partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.coordination.effects import NO_PRODUCER_ID, Effects, Producer, ProducerId
from barnabas.groups import consumer_offsets, offsets
from barnabas.groups.consumer_group import ConsumerGroup
from barnabas.groups.offsets import BROKER_RETENTION
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.coordination.effects import ReplyTo
    from barnabas.groups.group import Group
    from barnabas.groups.shard_offsets import ShardOffsets
    from barnabas.metadata.image import TopicsImage
    from barnabas.protocol.uuids import Uuid

UNKNOWN_GROUP_HAS_ITS_OWN_ERROR_FROM: Final = 9
"""The first version of OffsetCommit that says of a group that there is none; before, its generation is called wrong."""


class OffsetCommits:
    """The commits to the groups of one partition of `__consumer_offsets`."""

    __slots__ = ("_metadata_max_chars", "_offsets")

    def __init__(self, shard_offsets: ShardOffsets, metadata_max_chars: int) -> None:
        self._offsets = shard_offsets
        self._metadata_max_chars = metadata_max_chars

    def commit(
        self, group: Group | None, request: m.OffsetCommitRequest, version: int, reply_to: ReplyTo, now_ms: int
    ) -> Effects:
        """Commits the offsets of topics that exist, each named and, where the broker knows it, with its id."""
        effects = Effects()
        error = self._check(group, request, version)
        if error is not Error.NONE:
            effects.answer(reply_to, _refused(request, error))
            return effects
        answer = m.OffsetCommitResponse()
        for topic in request.topics:
            answered = m.OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
            answer.topics.append(answered)
            for partition in topic.partitions:
                # Most commits have no metadata, and this is the one step of groups that is taken thousands of times a
                # second.
                metadata = partition.committed_metadata
                error = self._check_metadata(metadata) if metadata else Error.NONE
                answered.partitions.append(_answered(partition.partition_index, error))
                if error is Error.NONE:
                    value = offsets.committed_value(partition, topic.topic_id, request.retention_time_ms, now_ms)
                    self._offsets.commit(request.group_id, topic.name, partition.partition_index, value, effects)
        effects.answer(reply_to, answer)
        return effects

    def commit_in_transaction(
        self,
        group: Group | None,
        request: m.TxnOffsetCommitRequest,
        topics: TopicsImage,
        reply_to: ReplyTo,
        now_ms: int,
    ) -> Effects:
        """Writes the offsets of topics that exist in the producer's transaction: they count when it commits."""
        error = self._check_in_transaction(group, request, topics)
        if error is not Error.NONE:
            refused = Effects()
            refused.answer(reply_to, _transaction_refused(request, error))
            return refused
        effects = Effects(Producer(ProducerId(request.producer_id), request.producer_epoch))
        answer = m.TxnOffsetCommitResponse()
        for topic in request.topics:
            answered = m.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=topic.name)
            answer.topics.append(answered)
            for partition in topic.partitions:
                error = self._check_metadata(partition.committed_metadata)
                answered.partitions.append(_transaction_answered(partition.partition_index, error))
                if error is Error.NONE:
                    value = offsets.committed_value(partition, ZERO_UUID, BROKER_RETENTION, now_ms)
                    self._offsets.commit(request.group_id, topic.name, partition.partition_index, value, effects)
        effects.answer(reply_to, answer)
        return effects

    def _check(self, group: Group | None, request: m.OffsetCommitRequest, version: int) -> Error:
        generation = request.generation_id_or_member_epoch
        if isinstance(group, ConsumerGroup):
            error = consumer_offsets.check_commit(group, request.member_id, generation, version)
            if error is Error.NONE:
                partitions = (
                    (topic.topic_id, partition.partition_index)
                    for topic in request.topics
                    for partition in topic.partitions
                    if self._check_metadata(partition.committed_metadata) is Error.NONE
                )
                error = _check_partitions(group, request.member_id, generation, partitions)
            return error
        if group is not None:
            return group.check_commit(request.member_id, request.group_instance_id, generation)
        if generation < 0:
            return Error.NONE  # a consumer that assigns itself its partitions, or an administrator
        has_own_error = version >= UNKNOWN_GROUP_HAS_ITS_OWN_ERROR_FROM
        return Error.GROUP_ID_NOT_FOUND if has_own_error else Error.ILLEGAL_GENERATION

    def _check_in_transaction(
        self, group: Group | None, request: m.TxnOffsetCommitRequest, topics: TopicsImage
    ) -> Error:
        if request.producer_id <= NO_PRODUCER_ID:
            return Error.INVALID_PRODUCER_ID_MAPPING  # Else its offsets would count as committed outside of any.
        who = request.member_id, request.group_instance_id, request.generation_id
        if isinstance(group, ConsumerGroup):
            error = consumer_offsets.check_transactional_commit(group, *who)
            if error is Error.NONE:
                partitions = (
                    (ZERO_UUID if (known := topics.get(topic.name)) is None else known.topic_id, each.partition_index)
                    for topic in request.topics
                    for each in topic.partitions
                    if self._check_metadata(each.committed_metadata) is Error.NONE
                )
                error = _check_partitions(group, request.member_id, request.generation_id, partitions)
            return Error.ILLEGAL_GENERATION if error is Error.STALE_MEMBER_EPOCH else error
        if group is not None:
            return group.check_transactional_commit(*who)
        return Error.NONE if request.generation_id < 0 else Error.ILLEGAL_GENERATION

    def _check_metadata(self, metadata: str | None) -> Error:
        fits = offsets.metadata_fits(metadata, self._metadata_max_chars)
        return Error.NONE if fits else Error.OFFSET_METADATA_TOO_LARGE


def _check_partitions(
    group: ConsumerGroup, member_id: str, epoch: int, partitions: Iterator[tuple[Uuid, int]]
) -> Error:
    errors = (consumer_offsets.check_partition(group, member_id, epoch, *each) for each in partitions)
    return next((error for error in errors if error is not Error.NONE), Error.NONE)


def _answered(partition: int, error: Error) -> m.OffsetCommitResponse.OffsetCommitResponsePartition:
    return m.OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=partition, error_code=error)


def _refused(request: m.OffsetCommitRequest, error: Error) -> m.OffsetCommitResponse:
    topics = [
        m.OffsetCommitResponse.OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[_answered(partition.partition_index, error) for partition in topic.partitions],
        )
        for topic in request.topics
    ]
    return m.OffsetCommitResponse(topics=topics)


def _transaction_answered(partition: int, error: Error) -> m.TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition:
    return m.TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(partition_index=partition, error_code=error)


def _transaction_refused(request: m.TxnOffsetCommitRequest, error: Error) -> m.TxnOffsetCommitResponse:
    topics = [
        m.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[_transaction_answered(partition.partition_index, error) for partition in topic.partitions],
        )
        for topic in request.topics
    ]
    return m.TxnOffsetCommitResponse(topics=topics)
