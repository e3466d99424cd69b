"""TxnOffsetCommit: how far a group has read, as part of a transaction that commits or aborts it.

The offsets are written to the group's partition under the producer's id, and count when the transaction commits. Before
the first of them is written, the transaction's coordinator is asked whether the group's partition is part of it, so
that the end of the transaction will reach it; from v5 on, asking adds the partition.

v2 has the leader epoch, and knows COORDINATOR_LOAD_IN_PROGRESS · v3 is flexible and names the member · v4 may answer
TRANSACTION_ABORTABLE · v5 adds the group to the transaction
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from barnabas.broker.api.environments import TransactionEnvironment
from barnabas.broker.api.groups.offset_commit import has_partition, merge_answers
from barnabas.broker.api.registry import handles
from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC
from barnabas.log.producers.producer_state import NO_SEQUENCE
from barnabas.net.large_requests import Cut
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from typing import TypeAlias

    from barnabas.metadata.image import TopicsImage
    from barnabas.net.dispatch import Caller
    from barnabas.replication.hosted import HostedPartition

    Topic: TypeAlias = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    TopicAnswer: TypeAlias = m.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic

LOADING_HAS_ITS_OWN_ERROR_FROM = 2
ABORTABLE_HAS_ITS_OWN_ERROR_FROM = 4
ADDS_GROUP_FROM = 5


@handles(
    ApiKey.TXN_OFFSET_COMMIT,
    TransactionEnvironment,
    versions=(0, 5),
    cuts=[Cut(("topics", "partitions"), ("topics", "partitions"))],
)
async def txn_offset_commit(
    environment: TransactionEnvironment, request: m.TxnOffsetCommitRequest, caller: Caller
) -> m.TxnOffsetCommitResponse:
    refused, request.topics = split(environment.metadata.image.topics, request.topics)
    if not request.topics:
        return m.TxnOffsetCommitResponse(topics=refused)
    try:
        response = await commit(environment, request, caller.api_version)
    except KafkaError as failed:
        error = for_version(failed.error, caller.api_version)
        response = m.TxnOffsetCommitResponse(topics=[refuse(topic, error) for topic in request.topics])
    response.topics = merge_answers(refused, response.topics, attrgetter("name"))
    return response


async def commit(
    environment: TransactionEnvironment, request: m.TxnOffsetCommitRequest, version: int
) -> m.TxnOffsetCommitResponse:
    if not request.group_id:
        raise KafkaError(Error.INVALID_GROUP_ID, "the group id is missing")
    hosted = environment.groups.serving(environment.groups.partition_of(request.group_id)).hosted
    await join_transaction(environment, hosted, request, version)
    response: m.TxnOffsetCommitResponse = await environment.groups.step(
        request.group_id,
        lambda shard, reply_to, now_ms: shard.commit_offsets_in_transaction(request, reply_to, now_ms),
    )
    return response


async def join_transaction(
    environment: TransactionEnvironment, hosted: HostedPartition, request: m.TxnOffsetCommitRequest, version: int
) -> None:
    """Returns when the producer may write to the group's partition; KafkaError if it may not.

    If the transaction ends while the coordinator is being asked, the coordinator's answer is void. Afterwards, an end
    marker comes after what the group's next step writes, because it finishes the turn first."""
    producer_id, epoch, log = request.producer_id, request.producer_epoch, hosted.log
    adds = version >= ADDS_GROUP_FROM
    if not adds and not environment.settings.config.transaction_partition_verification_enable:
        log.check_coordinator(producer_id, epoch)
        return
    verification = hosted.begin_verification(producer_id, epoch, NO_SEQUENCE, adds_partition=adds)
    if verification is None:
        return
    partition = OFFSETS_TOPIC, hosted.index
    errors = await environment.verification.check_partitions(
        request.transactional_id, producer_id, epoch, [partition], adds=adds
    )
    if errors[partition] is not Error.NONE:
        raise KafkaError(errors[partition], f"{hosted} is not in the transaction of {request.transactional_id}")
    if not log.is_verified(producer_id, epoch, verification):
        raise KafkaError(
            Error.INVALID_TXN_STATE, f"the transaction of {request.transactional_id} has ended in the meantime"
        )


def for_version(error: Error, version: int) -> Error:
    if error is Error.NETWORK_EXCEPTION:
        # Clients do not expect it of a coordinator. This one they retry, without looking for the coordinator again.
        error = Error.COORDINATOR_LOAD_IN_PROGRESS
    if error is Error.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_HAS_ITS_OWN_ERROR_FROM:
        return Error.COORDINATOR_NOT_AVAILABLE
    if error is Error.TRANSACTION_ABORTABLE and version < ABORTABLE_HAS_ITS_OWN_ERROR_FROM:
        return Error.INVALID_TXN_STATE
    return error


def split(topics: TopicsImage, asked: list[Topic]) -> tuple[list[TopicAnswer], list[Topic]]:
    """The answers for what does not exist, and what does."""
    refused: list[TopicAnswer] = []
    known: list[Topic] = []
    for each in asked:
        topic = topics.get(each.name)
        missing = [part for part in each.partitions if not has_partition(topic, part.partition_index)]
        if missing:
            each.partitions = [part for part in each.partitions if has_partition(topic, part.partition_index)]
            not_there = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=each.name, partitions=missing)
            refused.append(refuse(not_there, Error.UNKNOWN_TOPIC_OR_PARTITION))
        if each.partitions:
            known.append(each)
    return refused, known


def refuse(topic: Topic, error: Error) -> TopicAnswer:
    return m.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            m.TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=error
            )
            for partition in topic.partitions
        ],
    )
