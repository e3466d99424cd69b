"""Produce: a batch for each of some partitions, appended as it came.

A batch is never opened: the log looks at its header. The acknowledgement leaves at once, or, where a topic asks for
`flush.messages`, when a thread has synced the log, or, with acks=all, when every in-sync replica has the batch.

v3 is the first with magic 2 · v5 answers the log start offset · v7 allows zstd · v8 carries error messages · v9 is
flexible · v10 hints at the current leader · v13 names topics by id
"""

from __future__ import annotations

import asyncio
from struct import error as StructError  # noqa: N812 (an exception class in all but name)
from typing import TYPE_CHECKING

from barnabas.broker.api.produce_lanes import NO_TAGS, Lane, find_lane_end
from barnabas.broker.api.produce_wire import (
    FIRST_FLEXIBLE_VERSION,
    FIRST_VERSION_WITH_TOPIC_IDS,
    Answers,
    PartitionAnswer,
    ProduceRequest,
    encode_answer,
    parse_classic,
    parse_flexible,
)
from barnabas.broker.api.topic_names import INTERNAL_TOPICS
from barnabas.broker.connection import Slot
from barnabas.broker.dispatch import handles_frames
from barnabas.protocol.api import ApiKey
from barnabas.protocol.codec import DecodeError
from barnabas.protocol.compression import Codec
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.varint import read_uvarint
from barnabas.replication.hosted import ACKS_ALL, HostedPartition

if TYPE_CHECKING:
    from barnabas.broker.connection import Connection
    from barnabas.broker.server import Broker
    from barnabas.log.partition_log import PartitionLog

FIRST_VERSION_WITH_ZSTD = 7
NEVER_FLUSH = (1 << 63) - 1
CLIENT_ID_POSITION = 8
ADMIN_CLIENT_ID = b"\0\x0e__admin_client"
"""With its length before it. Kafka's tools call themselves so where they mean to write to an internal topic."""

_LOW_ATTRIBUTES_POSITION = 22
_CODEC_MASK = 0x07
_TRANSACTIONAL_BIT = 0x10


@handles_frames(ApiKey.PRODUCE, versions=(3, 13))
def produce(broker: Broker, connection: Connection, version: int, frame: memoryview, body: int) -> None:
    lane_end = find_lane_end(frame, body, version)
    if lane_end:
        lane = broker.api.lanes.get(broker, frame, body, lane_end, version)
        if lane is not None and produce_in_lane(lane, connection, version, frame, lane_end):
            return
    parse = parse_flexible if version >= FIRST_FLEXIBLE_VERSION else parse_classic
    try:
        request = parse(frame, body, version)
    except (StructError, IndexError) as error:
        raise DecodeError(f"PRODUCE v{version} breaks off: {error}") from error
    is_admin = frame[CLIENT_ID_POSITION : CLIENT_ID_POSITION + len(ADMIN_CLIENT_ID)] == ADMIN_CLIENT_ID
    answers: Answers = []
    to_flush: list[PartitionLog] = []
    is_committed = True
    for topic, batches in request.topics:
        partitions = []
        for index, batch in batches:
            answer = append(broker, topic, index, batch, request, version, may_write_internal=is_admin)
            partitions.append(answer)
            if answer.hosted is not None:
                is_committed = is_committed and answer.is_committed()
                if answer.hosted.must_flush():
                    to_flush.append(answer.hosted.log)
        answers.append((topic, partitions))
    if request.acks == 0:
        close_on_error(connection, answers)
        for log in to_flush:
            broker.flusher.flush_soon(log)
    elif to_flush:
        delayed = DelayedProduce(broker, connection, version, request, answers)
        flushed = asyncio.gather(*map(broker.flusher.flush, to_flush))
        flushed.add_done_callback(delayed.flushed)
    elif is_committed or request.acks != ACKS_ALL:
        connection.reply_bytes(encode_answer(version, connection.correlation_id, answers))
    else:
        DelayedProduce(broker, connection, version, request, answers).wait_for_replicas()


def produce_in_lane(lane: Lane, connection: Connection, version: int, frame: memoryview, lane_end: int) -> bool:
    """The short way for what nearly every request is: one batch, for a partition that was written to before, which
    can be acknowledged at once. False when it is not that, with nothing done."""
    hosted = lane.hosted
    length, position = read_uvarint(frame, lane_end)
    batch_end = position + length - 1
    if hosted.log.config.flush_messages != NEVER_FLUSH or len(hosted.state.isr) != 1 or frame[batch_end:] != NO_TAGS:
        return False
    batch = frame[position:batch_end]
    try:
        check_batch_in_request(batch, version, has_transactional_id=False)
        appended = hosted.append(batch, lane.acks)
    except KafkaError as error:
        answer = PartitionAnswer(lane.index)
        answer.error, answer.message = error.error, error.message
        connection.reply_bytes(encode_answer(version, connection.correlation_id, [(lane.topic, [answer])]))
        return True
    connection.reply_bytes(lane.encode(connection.correlation_id, appended))
    return True


def append(
    broker: Broker,
    topic: bytes,
    index: int,
    batch: memoryview,
    request: ProduceRequest,
    version: int,
    *,
    may_write_internal: bool,
) -> PartitionAnswer:
    """Appends one partition's batch; what is wrong with it becomes the answer."""
    answer = PartitionAnswer(index)
    try:
        hosted = find_partition(broker, topic, index, version)
        if not ACKS_ALL <= request.acks <= 1:
            raise KafkaError(Error.INVALID_REQUIRED_ACKS, f"acks={request.acks} is none of 0, 1, -1")
        if hosted.topic in INTERNAL_TOPICS and not may_write_internal:
            raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"{hosted.topic} is written by its coordinators alone")
        check_batch_in_request(batch, version, has_transactional_id=request.is_transactional)
        appended = hosted.append(batch, request.acks)
    except KafkaError as error:
        answer.error = error.error
        answer.message = error.message
        return answer
    answer.base_offset, answer.last_offset, answer.log_append_time, answer.log_start, _ = appended
    answer.hosted = hosted
    return answer


def find_partition(broker: Broker, topic: bytes, index: int, version: int) -> HostedPartition:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return broker.replicas.find_by_id(topic, index)
    return broker.replicas.find_by_name(topic, index)


def check_batch_in_request(batch: memoryview, version: int, *, has_transactional_id: bool) -> None:
    """What depends on the request around the batch; the log checks the batch itself."""
    attributes = batch[_LOW_ATTRIBUTES_POSITION] if len(batch) > _LOW_ATTRIBUTES_POSITION else 0
    if attributes & _TRANSACTIONAL_BIT:
        if not has_transactional_id:
            raise KafkaError(
                Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch came without a transactional id"
            )
        raise KafkaError(Error.INVALID_TXN_STATE, "no transaction is open for this producer")
    if version < FIRST_VERSION_WITH_ZSTD and attributes & _CODEC_MASK == Codec.ZSTD:
        raise KafkaError(
            Error.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce v{FIRST_VERSION_WITH_ZSTD} or newer, this is v{version}",
        )


def close_on_error(connection: Connection, answers: Answers) -> None:
    """With acks=0 a closed connection is the only way to tell that something went wrong."""
    for _, partitions in answers:
        for answer in partitions:
            if answer.error:
                connection.refuse(
                    f"an acks=0 batch for partition {answer.index} failed with {Error(answer.error).name}: "
                    f"{answer.message}"
                )
                return


def is_all_committed(answers: Answers) -> bool:
    return all(answer.is_committed() for _, partitions in answers for answer in partitions)


class DelayedProduce(Slot):
    """A write that is not acknowledged yet: it waits for the disk, or with acks=all for the in-sync replicas.

    It keeps what it needs of its request, and not the request: that is as large as the batches in it.
    """

    __slots__ = ("_acks", "_answers", "_broker", "_correlation_id", "_timeout_ms", "_version")

    def __init__(
        self, broker: Broker, connection: Connection, version: int, request: ProduceRequest, answers: Answers
    ) -> None:
        super().__init__(connection)
        self._broker = broker
        self._version = version
        self._correlation_id = connection.correlation_id
        self._acks = request.acks
        self._timeout_ms = request.timeout_ms
        self._answers = answers
        connection.line_up(self)

    def flushed(self, done: asyncio.Future[list[None]]) -> None:
        """The logs are synced, or could not be: then nothing in this request is acknowledged."""
        error = done.exception()
        if error is not None:
            for _, partitions in self._answers:
                for answer in partitions:
                    answer.error, answer.message = Error.KAFKA_STORAGE_ERROR, str(error)
            self._reply()
        elif self._acks == ACKS_ALL and not is_all_committed(self._answers) and not self.connection.is_closed:
            self.wait_for_replicas()
        else:
            self._reply()

    def wait_for_replicas(self) -> None:
        watched = [a.hosted.watchers for _, partitions in self._answers for a in partitions if a.hosted is not None]
        self._broker.purgatory.park(self, self._timeout_ms, watched)

    def is_ready(self) -> bool:
        return is_all_committed(self._answers)

    def complete(self) -> None:
        for _, partitions in self._answers:
            for answer in partitions:
                if not answer.is_committed():
                    answer.error = Error.REQUEST_TIMED_OUT
        self._reply()

    def cancel(self) -> None:
        self._broker.purgatory.cancel(self)

    def _reply(self) -> None:
        self.fill([encode_answer(self._version, self._correlation_id, self._answers)])
