"""Batches of a Produce request going into the logs of their partitions, each for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api.current_leader import leader_endpoints
from barnabas.broker.api.produce.produce_transactions import LOW_ATTRIBUTES_AT
from barnabas.broker.api.produce.produce_wire import (
    FIRST_VERSION_WITH_CURRENT_LEADER,
    FIRST_VERSION_WITH_TOPIC_IDS,
    NO_TAGS,
    PartitionAnswer,
)
from barnabas.metadata.topic_names import INTERNAL_TOPICS
from barnabas.protocol.compression import Codec
from barnabas.protocol.errors import Error, KafkaError
from barnabas.replication.hosted import ACKS_ALL, HostedPartition

if TYPE_CHECKING:
    from barnabas.broker.api.environments import ProduceEnvironment
    from barnabas.broker.api.produce.produce_transactions import Transactional
    from barnabas.broker.api.produce.produce_wire import Answers, ProduceRequest
    from barnabas.net.connection import Connection
    from barnabas.replication.replica_manager import ReplicaManager

FIRST_VERSION_WITH_ZSTD = 7

_CODEC_MASK = 0x07


class Appending:
    """One request, or a piece of one, on its way into the logs."""

    __slots__ = ("_may_write_internal", "environment", "request", "version")

    def __init__(
        self, environment: ProduceEnvironment, version: int, request: ProduceRequest, *, may_write_internal: bool
    ) -> None:
        self.environment = environment
        self.version = version
        self.request = request
        self._may_write_internal = may_write_internal

    def append_all(self, transactional: Transactional | None) -> Answers:
        """Appends each partition's batch; what is wrong with one becomes its answer."""
        return [
            (topic, [self._append(topic, index, batch, transactional) for index, batch in batches])
            for topic, batches in self.request.topics
        ]

    def _append(
        self, topic: bytes, index: int, batch: memoryview, transactional: Transactional | None
    ) -> PartitionAnswer:
        answer = PartitionAnswer(index)
        verification = None
        try:
            if transactional is not None:
                if (topic, index) in transactional.errors:
                    raise transactional.errors[topic, index]
                verification = transactional.verifications.get((topic, index))
            hosted = self.find_writable(topic, index)
            check_codec(batch, self.version)
            appended = hosted.append(batch, self.request.acks, verification)
        except KafkaError as error:
            answer.error = error.error
            answer.message = error.message
            return answer
        answer.base_offset, answer.last_offset, answer.log_append_time, answer.log_start, _ = appended
        answer.leader_epoch = hosted.state.leader_epoch
        answer.hosted = hosted
        return answer

    def find_writable(self, topic: bytes, index: int) -> HostedPartition:
        """The partition, if a request like this one may write to it at all."""
        hosted = find_partition(self.environment.replicas, topic, index, self.version)
        if not ACKS_ALL <= self.request.acks <= 1:
            raise KafkaError(Error.INVALID_REQUIRED_ACKS, f"acks={self.request.acks} is invalid: it must be 0, 1 or -1")
        if hosted.topic in INTERNAL_TOPICS and not self._may_write_internal:
            raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {hosted.topic}")
        return hosted


def find_partition(replicas: ReplicaManager, topic: bytes, index: int, version: int) -> HostedPartition:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return replicas.find_by_id(topic, index)
    return replicas.find_by_name(topic, index)


def check_codec(batch: memoryview, version: int) -> None:
    """Checks what depends on the version of the request; the log checks the batch itself."""
    if (
        version < FIRST_VERSION_WITH_ZSTD
        and len(batch) > LOW_ATTRIBUTES_AT
        and batch[LOW_ATTRIBUTES_AT] & _CODEC_MASK == Codec.ZSTD
    ):
        raise KafkaError(
            Error.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )


def refuse_all(request: ProduceRequest, error: KafkaError) -> Answers:
    return [(topic, [refused(index, error) for index, _ in batches]) for topic, batches in request.topics]


def refused(index: int, error: KafkaError) -> PartitionAnswer:
    answer = PartitionAnswer(index)
    answer.error, answer.message = error.error, error.message
    return answer


def name_leaders(replicas: ReplicaManager, version: int, answers: Answers) -> list[int]:
    """Tells a producer that wrote to the wrong broker which broker leads. Returns all these leaders."""
    leaders: list[int] = []
    for topic, partitions in answers:
        for answer in partitions:
            if answer.error == Error.NOT_LEADER_OR_FOLLOWER and version >= FIRST_VERSION_WITH_CURRENT_LEADER:
                is_by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
                answer.leader = replicas.leader_of(topic, answer.index, is_by_id=is_by_id)
                leaders.append(answer.leader[0])
    return leaders


def leaders_tags(replicas: ReplicaManager, connection: Connection, version: int, answers: Answers) -> bytes:
    """The tags at the end of an answer: where the leaders are that it names, if any."""
    leaders = name_leaders(replicas, version, answers)
    return leader_endpoints(replicas, leaders, connection.listener.name) if leaders else NO_TAGS


def settle_all(answers: Answers) -> bool:
    """Whether the outcome of every batch is known. Each one is asked, so that each notes its outcome as soon as it is
    known."""
    is_settled = True
    for _, partitions in answers:
        for answer in partitions:
            is_settled &= answer.settle()
    return is_settled
