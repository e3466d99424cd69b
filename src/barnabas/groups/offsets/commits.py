"""OffsetCommit and TxnOffsetCommit: which commits a group accepts, and what is written and answered.

A commit is checked as a whole: one partition that its member may not commit fails all. Only metadata that is too long
fails its partition alone.

A member of a consumer group commits in its current epoch. A commit in an earlier epoch may come from a member that has
not learned of the next one yet: it is accepted for partitions that the member has owned since that epoch or longer, as
no other member can have read them meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.coordination.effects import NO_PRODUCER_ID, Effects, Producer, ProducerId
from barnabas.groups.consumer.consumer_group import ConsumerGroup
from barnabas.groups.offsets import group_offsets
from barnabas.groups.offsets.group_offsets import BROKER_RETENTION
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.coordination.effects import ReplyTo
    from barnabas.groups.consumer.consumer_member import ConsumerMember
    from barnabas.groups.group_views import Group
    from barnabas.groups.offsets.shard_offsets import ShardOffsets
    from barnabas.metadata.image import TopicsImage
    from barnabas.protocol.uuids import Uuid

UNKNOWN_GROUP_HAS_ITS_OWN_ERROR_FROM: Final = 9
"""The first version of OffsetCommit that answers GROUP_ID_NOT_FOUND; earlier ones answer ILLEGAL_GENERATION."""
COMMIT_WITH_MEMBER_EPOCH: Final = 9
"""The first version of OffsetCommit whose generation may be a member epoch."""


class OffsetCommits:
    """The commits to the groups of one partition of `__consumer_offsets`."""

    __slots__ = ("_metadata_max_chars", "_offsets")

    def __init__(self, shard_offsets: ShardOffsets, metadata_max_chars: int) -> None:
        self._offsets = shard_offsets
        self._metadata_max_chars = metadata_max_chars

    def commit(
        self, group: Group | None, request: m.OffsetCommitRequest, version: int, reply_to: ReplyTo, now_ms: int
    ) -> Effects:
        """Commits offsets of existing topics, each with its name and, if the broker knows it, its id."""
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
                # Most commits have no metadata, and this is the one step of groups that runs thousands of times a
                # second.
                metadata = partition.committed_metadata
                error = self._check_metadata(metadata) if metadata else Error.NONE
                answered.partitions.append(_answered(partition.partition_index, error))
                if error is Error.NONE:
                    value = group_offsets.committed_value(partition, topic.topic_id, request.retention_time_ms, now_ms)
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
        """Writes offsets of existing topics in the producer's transaction: they count when it commits."""
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
                    value = group_offsets.committed_value(partition, ZERO_UUID, BROKER_RETENTION, now_ms)
                    self._offsets.commit(request.group_id, topic.name, partition.partition_index, value, effects)
        effects.answer(reply_to, answer)
        return effects

    def _check(self, group: Group | None, request: m.OffsetCommitRequest, version: int) -> Error:
        generation = request.generation_id_or_member_epoch
        if isinstance(group, ConsumerGroup):
            error = check_commit(group, request.member_id, generation, version)
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
            return Error.NONE  # A consumer that assigns its partitions itself, or an administrator.
        has_own_error = version >= UNKNOWN_GROUP_HAS_ITS_OWN_ERROR_FROM
        return Error.GROUP_ID_NOT_FOUND if has_own_error else Error.ILLEGAL_GENERATION

    def _check_in_transaction(
        self, group: Group | None, request: m.TxnOffsetCommitRequest, topics: TopicsImage
    ) -> Error:
        if request.producer_id <= NO_PRODUCER_ID:
            return Error.INVALID_PRODUCER_ID_MAPPING  # Otherwise its offsets would count as committed already.
        who = request.member_id, request.group_instance_id, request.generation_id
        if isinstance(group, ConsumerGroup):
            error = check_transactional_commit(group, *who)
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
        fits = group_offsets.metadata_fits(metadata, self._metadata_max_chars)
        return Error.NONE if fits else Error.OFFSET_METADATA_TOO_LARGE


def _check_partitions(
    group: ConsumerGroup, member_id: str, epoch: int, partitions: Iterator[tuple[Uuid, int]]
) -> Error:
    errors = (check_partition(group, member_id, epoch, *each) for each in partitions)
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


# Consumer groups: who may commit and fetch.


def check_commit(group: ConsumerGroup, member_id: str, epoch: int, version: int) -> Error:
    """Whether an offset commit is allowed, apart from what depends on the partition."""
    if epoch < 0 and group.is_empty:
        return Error.NONE
    member = group.members.get(member_id)
    if member is None:
        return Error.UNKNOWN_MEMBER_ID
    if version < COMMIT_WITH_MEMBER_EPOCH and not member.uses_classic_protocol:
        return Error.UNSUPPORTED_VERSION
    return _stale(member) if epoch > member.epoch else Error.NONE


def check_transactional_commit(group: ConsumerGroup, member_id: str, instance_id: str | None, epoch: int) -> Error:
    """The same for a commit in a transaction, which need not name a member."""
    if epoch < 0 and (group.is_empty or (epoch == -1 and not member_id and instance_id is None)):
        return Error.NONE
    member = group.members.get(member_id)
    if member is None:
        return Error.UNKNOWN_MEMBER_ID
    return Error.ILLEGAL_GENERATION if epoch > member.epoch else Error.NONE


def check_partition(group: ConsumerGroup, member_id: str, epoch: int, topic_id: Uuid, partition: int) -> Error:
    """Whether a commit that is allowed as a whole is allowed for a partition."""
    member = group.members.get(member_id)
    if member is None or epoch == member.epoch:
        return Error.NONE
    owned_since = member.epoch_of(topic_id, partition)
    return _stale(member) if owned_since is None or epoch < owned_since else Error.NONE


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> Error:
    """Whether a member may fetch offsets. A client that does not claim to be a member may."""
    if member_id is None and epoch < 0:
        return Error.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return Error.UNKNOWN_MEMBER_ID
    return Error.NONE if epoch == member.epoch else _stale(member)


def _stale(member: ConsumerMember) -> Error:
    return Error.ILLEGAL_GENERATION if member.uses_classic_protocol else Error.STALE_MEMBER_EPOCH
