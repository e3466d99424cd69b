"""Batches of a Produce request going into the logs of their partitions, each for itself."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

from barnabas.broker.api.current_leader import leader_endpoints
from barnabas.broker.api.produce.batch_opener import RecordsRefusedError
from barnabas.broker.api.produce.produce_transactions import LOW_ATTRIBUTES_AT
from barnabas.broker.api.produce.produce_wire import (
    FIRST_VERSION_WITH_CURRENT_LEADER,
    FIRST_VERSION_WITH_TOPIC_IDS,
    NO_TAGS,
    PartitionAnswer,
)
from barnabas.log.batch_validation import NotOneBatchError
from barnabas.metadata.topic_names import INTERNAL_TOPICS
from barnabas.protocol.compression import Codec
from barnabas.protocol.errors import Error, KafkaError
from barnabas.replication.hosted import ACKS_ALL, HostedPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractAsyncContextManager

    from barnabas.broker.api.environments import ProduceEnvironment
    from barnabas.broker.api.produce.batch_opener import GoodBatch, Verdict
    from barnabas.broker.api.produce.produce_transactions import Transactional
    from barnabas.broker.api.produce.produce_wire import Answers, ProduceRequest
    from barnabas.log.append_batches import Appended
    from barnabas.log.producers.producer_state import Verification
    from barnabas.net.connection import Connection
    from barnabas.replication.replica_manager import ReplicaManager

FIRST_VERSION_WITH_ZSTD = 7
NONE_OPENED: Iterable[Verdict] = repeat(None)

ERRORS_WITHOUT_LOG_START = frozenset(
    {
        Error.CORRUPT_MESSAGE,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.MESSAGE_TOO_LARGE,
        Error.RECORD_LIST_TOO_LARGE,
        Error.KAFKA_STORAGE_ERROR,
        Error.UNKNOWN_TOPIC_ID,
    }
)
"""With these, Kafka does not say where the log starts."""

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

    def must_open_batches(self) -> bool:
        """Whether some have to be opened before they are appended, or have to wait for others that are."""
        for topic, batches in self.request.topics:
            for index, _ in batches:
                try:
                    hosted = find_partition(self.environment.replicas, topic, index, self.version)
                except KafkaError:
                    continue
                if hosted.opening_rules is not None or hosted.openings:
                    return True
        return False

    def opened(self) -> AbstractAsyncContextManager[Sequence[Verdict]]:
        """Opens the batches that have to be opened. What comes of it is for `append_all`."""
        return self.environment.opener.opened(self.request, self._find_for)

    def append_all(self, transactional: Transactional | None, verdicts: Iterable[Verdict] = NONE_OPENED) -> Answers:
        """Appends each partition's batch; what is wrong with one becomes its answer."""
        verdict_of_next = iter(verdicts)
        return [
            (
                topic,
                [self._append(topic, index, batch, transactional, next(verdict_of_next)) for index, batch in batches],
            )
            for topic, batches in self.request.topics
        ]

    def _append(
        self, topic: bytes, index: int, batch: memoryview, transactional: Transactional | None, verdict: Verdict
    ) -> PartitionAnswer:
        verification = None
        try:
            if transactional is not None:
                if (topic, index) in transactional.errors:
                    raise transactional.errors[topic, index]
                verification = transactional.verifications.get((topic, index))
            hosted = self._find_for(topic, index, batch)
        except KafkaError as error:
            return refused(index, error)
        try:
            if verdict is None:
                require_unopened(hosted)
                appended = hosted.append(batch, self.request.acks, verification)
            elif isinstance(verdict, KafkaError):
                raise verdict
            else:
                appended = self._append_opened(hosted, verdict, verification)
        except KafkaError as error:
            return refused(index, error, hosted)
        answer = PartitionAnswer(index)
        answer.base_offset, answer.last_offset, answer.log_append_time, answer.log_start, _ = appended
        answer.leader_epoch = hosted.state.leader_epoch
        answer.hosted = hosted
        return answer

    def _append_opened(self, hosted: HostedPartition, good: GoodBatch, verification: Verification | None) -> Appended:
        if hosted is not good.hosted:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"{hosted} was deleted while a batch for it was opened")
        return hosted.append_opened(good.data, good.max_timestamp, self.request.acks, verification)

    def _find_for(self, topic: bytes, index: int, batch: memoryview) -> HostedPartition:
        hosted = self.find_writable(topic, index)
        check_codec(batch, self.version)
        return hosted

    def find(self, topic: bytes, index: int) -> HostedPartition:
        return find_partition(self.environment.replicas, topic, index, self.version)

    def find_writable(self, topic: bytes, index: int) -> HostedPartition:
        """The partition, if a request like this one may write to it at all. As with Kafka, that is asked after the
        coordinator of a transaction."""
        hosted = self.find(topic, index)
        if not ACKS_ALL <= self.request.acks <= 1:
            raise KafkaError(Error.INVALID_REQUIRED_ACKS, f"acks={self.request.acks} is invalid: it must be 0, 1 or -1")
        if hosted.topic in INTERNAL_TOPICS and not self._may_write_internal:
            raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {hosted.topic}")
        return hosted


def find_partition(replicas: ReplicaManager, topic: bytes, index: int, version: int) -> HostedPartition:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return replicas.find_by_id(topic, index)
    return replicas.find_by_name(topic, index)


def require_unopened(hosted: HostedPartition) -> None:
    """A request may wait for its other batches to be opened. Meanwhile its partition may have come to this broker, or
    its topic may have been compacted: such a batch is sent again, and opened then."""
    if hosted.opening_rules is not None:
        raise KafkaError(
            Error.NOT_LEADER_OR_FOLLOWER, f"{hosted} has come here, or has other settings, since the batch was sent"
        )


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


def refused(index: int, error: KafkaError, hosted: HostedPartition | None = None) -> PartitionAnswer:
    """`hosted` is the partition whose log refused the batch, if it came that far. Clients are then told where the log
    starts, except with some errors."""
    answer = PartitionAnswer(index)
    answer.refuse(error)
    if isinstance(error, RecordsRefusedError) and error.record_errors:
        answer.record_errors, answer.message = error.record_errors, error.message
    if hosted is not None and error.error not in ERRORS_WITHOUT_LOG_START and not isinstance(error, NotOneBatchError):
        answer.log_start = hosted.log.log_start_offset
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
