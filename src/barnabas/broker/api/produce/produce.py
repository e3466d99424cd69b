"""Produce: a batch for each of some partitions, appended as it arrived.

A batch is not opened, unless its topic asks for that (`batch_opener`): the log looks at its header. The
acknowledgement leaves at once, or, where a topic asks for `flush.messages`, when a thread has synced the log, or, with
acks=all, when every in-sync replica has the batch. What would take long is done in pieces (`produce_pieces`).

v3 is the first with magic 2 · v5 answers the log start offset · v7 allows zstd · v8 carries error messages · v9 is
flexible · v10 hints at the current leader · v11 knows TRANSACTION_ABORTABLE · v12 adds partitions to transactions ·
v13 names topics by id
"""

from __future__ import annotations

import asyncio
import logging
from struct import error as StructError  # noqa: N812 (an exception class in all but name)
from typing import TYPE_CHECKING

from barnabas.broker.api.environments import ProduceEnvironment
from barnabas.broker.api.produce.produce_appending import (
    Appending,
    leaders_tags,
    refuse_all,
    refused,
    settle_all,
)
from barnabas.broker.api.produce.produce_lanes import NO_TAGS, Lane, find_lane_end
from barnabas.broker.api.produce.produce_pieces import append_piece, produce_in_pieces
from barnabas.broker.api.produce.produce_transactions import (
    LOW_ATTRIBUTES_AT,
    TRANSACTIONAL_BIT,
    begin,
    is_open,
    is_transactional,
)
from barnabas.broker.api.produce.produce_wire import (
    FIRST_FLEXIBLE_VERSION,
    FIRST_VERSION_WITH_TOPIC_IDS,
    NO_ERRORS,
    Answers,
    AnswerWriter,
    PartitionAnswer,
    ProduceRequest,
    encode_answer,
    pack_appended,
    parse_classic,
    parse_flexible,
)
from barnabas.broker.api.registry import handles_frames
from barnabas.net.connection import Slot
from barnabas.net.dispatch import ANY_SIZE
from barnabas.net.large_requests import Cut, TooMuchAtOnceError
from barnabas.protocol.api import ApiKey
from barnabas.protocol.batch import HEADER_SIZE
from barnabas.protocol.codec import DecodeError
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.varint import read_uvarint
from barnabas.replication.hosted import ACKS_ALL

if TYPE_CHECKING:
    from barnabas.broker.api.produce.produce_transactions import Transactional
    from barnabas.log.append_batches import Appended
    from barnabas.log.partition_log import PartitionLog
    from barnabas.net.connection import Connection
    from barnabas.replication.replica_manager import ReplicaManager

logger = logging.getLogger("barnabas.produce")

BYTES_AT_ONCE = 8 * 1024 * 1024
"""Of several batches that are appended in one go: some ten milliseconds' work."""
CLIENT_ID_POSITION = 8
ADMIN_CLIENT_ID = b"\0\x0e__admin_client"
"""Preceded by its length. Kafka's tools use this client id when they mean to write to an internal topic."""


@handles_frames(
    ApiKey.PRODUCE,
    ProduceEnvironment,
    versions=(3, 13),
    large=append_piece,
    cuts=[Cut(("topic_data", "partition_data"), ("responses", "partition_responses"))],
    large_handler=produce_in_pieces,
    whole_bytes_max=ANY_SIZE,
)
def produce(
    environment: ProduceEnvironment, connection: Connection, version: int, frame: memoryview, body: int
) -> None:
    lane_end = find_lane_end(frame, body, version)
    if lane_end:
        lane = environment.lanes.get(frame, body, lane_end, version)
        if lane is not None and produce_in_lane(environment, lane, connection, version, frame, lane_end):
            return
    request = parse_request(frame, body, version)
    if len(frame) > BYTES_AT_ONCE and request.has_several_batches:
        raise TooMuchAtOnceError
    if version >= FIRST_FLEXIBLE_VERSION and produce_at_once(environment.replicas, connection, version, request):
        return
    is_admin = frame[CLIENT_ID_POSITION : CLIENT_ID_POSITION + len(ADMIN_CLIENT_ID)] == ADMIN_CLIENT_ID
    appending = Appending(environment, version, request, may_write_internal=is_admin)
    writing = Writing(appending, connection)
    verifies = environment.settings.config.transaction_partition_verification_enable
    try:
        transactional = begin(request, version, appending.find, verifies=verifies)
    except KafkaError as error:
        writing.conclude(refuse_all(request, error))
        return
    if (transactional is not None and transactional.unverified) or appending.must_open_batches():
        appending.request = parse_request(connection.hold(frame), body, version)
        HeldProduce(writing, transactional).start()
    else:
        writing.conclude(appending.append_all(transactional))


def parse_request(frame: memoryview, body: int, version: int) -> ProduceRequest:
    parse = parse_flexible if version >= FIRST_FLEXIBLE_VERSION else parse_classic
    try:
        return parse(frame, body, version)
    except (StructError, IndexError) as error:
        raise DecodeError(f"PRODUCE v{version} is malformed: {error}") from error


def produce_in_lane(
    environment: ProduceEnvironment,
    lane: Lane,
    connection: Connection,
    version: int,
    frame: memoryview,
    lane_end: int,
) -> bool:
    """The short way for what nearly every request is: one batch, for a partition that was written to before. Returns
    False, with nothing done, for any other request."""
    hosted = lane.hosted
    state = hosted.state
    length, position = read_uvarint(frame, lane_end)
    batch_end = position + length - 1
    if not hosted.is_plain or state.leader_id != state.local_id or frame[batch_end:] != NO_TAGS:
        return False
    batch = frame[position:batch_end]
    if is_transactional(batch) and (not lane.has_transactional_id or not is_open(hosted, batch)):
        return False
    try:
        appended = hosted.append(batch, lane.acks)
    except KafkaError as error:
        answers: Answers = [(lane.topic, [refused(lane.index, error, hosted)])]
        connection.reply_bytes(encode_answer(version, connection.correlation_id, answers))
        return True
    if state.commits_alone or lane.acks == 1:
        connection.reply_bytes(lane.encode(connection.correlation_id, appended))
    else:
        DelayedInLane(environment, connection, version, lane, appended).wait_for_replicas()
    return True


def produce_at_once(replicas: ReplicaManager, connection: Connection, version: int, request: ProduceRequest) -> bool:
    """The short way for requests of several batches, as the Java client gathers them: none of them transactional,
    each for a partition that can acknowledge it at once. Returns False, with nothing done, for any other request."""
    acks = request.acks
    if acks != 1 and acks != ACKS_ALL:
        return False
    hosted_by = replicas.hosted_by_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else replicas.hosted_by_name
    found = []
    for topic, batches in request.topics:
        hosted_here = hosted_by(topic)
        for index, batch in batches:
            hosted = hosted_here.get(index)
            if (
                hosted is None
                or not hosted.is_plain
                or len(batch) < HEADER_SIZE
                or batch[LOW_ATTRIBUTES_AT] & TRANSACTIONAL_BIT
            ):
                return False
            state = hosted.state
            if not state.commits_alone and (acks != 1 or state.leader_id != state.local_id):
                return False
            found.append(hosted)
    targets = iter(found)
    now_ms = replicas.clock.now_ms()
    answer = AnswerWriter(version, len(request.topics))
    out = answer.out
    for topic, batches in request.topics:
        answer.begin_topic(topic, len(batches))
        for (index, batch), hosted in zip(batches, targets, strict=False):
            try:
                base_offset, _, append_ms, log_start, _ = hosted.append(batch, acks, None, now_ms)
                out += pack_appended(index, 0, base_offset, append_ms, log_start, NO_ERRORS)
            except KafkaError as error:
                answer.add(refused(index, error, hosted))
        answer.end_topic()
    connection.reply_bytes(answer.finish(connection.correlation_id))
    return True


class Writing:
    """One request on its way to its answer."""

    __slots__ = ("appending", "connection", "correlation_id")

    def __init__(self, appending: Appending, connection: Connection) -> None:
        self.appending = appending
        self.connection = connection
        self.correlation_id = connection.correlation_id

    def conclude(self, answers: Answers, slot: Slot | None = None) -> None:
        """Acknowledges what was appended, now or as soon as it may: in `slot`, if the answer already has its place."""
        acks = self.appending.request.acks
        written = [a.hosted for _, partitions in answers for a in partitions if a.hosted is not None]
        to_flush = [hosted.log for hosted in written if hosted.must_flush()]
        if acks == 0:
            close_on_error(self.connection, answers)
            for log in to_flush:
                self.appending.environment.flusher.flush_soon(log)
            if slot is not None:
                slot.fill([])
        elif (acks == ACKS_ALL and not settle_all(answers)) or to_flush:
            delayed = DelayedProduce(self, answers)
            if slot is not None:
                slot.fill([])
            delayed.wait_for(to_flush)
        else:
            version = self.appending.version
            tags = leaders_tags(self.appending.environment.replicas, self.connection, version, answers)
            encoded = encode_answer(version, self.correlation_id, answers, tags)
            if slot is None:
                self.connection.reply_bytes(encoded)
            else:
                slot.fill([encoded])


def close_on_error(connection: Connection, answers: Answers) -> None:
    """With acks=0 a closed connection is the only way to tell that something went wrong."""
    for _, partitions in answers:
        for answer in partitions:
            if answer.error:
                connection.refuse(
                    f"an acks=0 batch for partition {answer.index} failed with {Error(answer.error).name}: "
                    f"{answer.reason}"
                )
                return


class HeldProduce(Slot):
    """A request whose batches cannot be appended at once: it begins a transaction in a partition, and the coordinator
    is asked, or its batches are opened. It holds its connection, so that later requests wait behind it, and a
    producer's batches stay in their order."""

    __slots__ = ("_task", "_transactional", "_writing")

    def __init__(self, writing: Writing, transactional: Transactional | None) -> None:
        super().__init__(writing.connection)
        self._writing = writing
        self._transactional = transactional
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.connection.line_up(self)
        self._task = asyncio.ensure_future(self._append())
        self._task.add_done_callback(self._appended)

    async def _append(self) -> None:
        appending, transactional = self._writing.appending, self._transactional
        if transactional is not None and transactional.unverified:
            await transactional.ask_coordinator(appending.environment.transactions, appending.version)
        async with appending.opened() as verdicts:
            # The bytes of the request belong to its connection: once that is closed, they are others'.
            if not self.connection.is_closed:
                self._writing.conclude(appending.append_all(transactional, verdicts), self)

    def _appended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            logger.error("%s: internal error in a request that was held", self.connection, exc_info=error)
            self.fail()
        elif not self.connection.is_closed:
            self.connection.let_go()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class DelayedInLane(Slot):
    """A batch that was appended in a lane, and waits for the in-sync replicas."""

    __slots__ = ("_appended", "_correlation_id", "_environment", "_lane", "_leader_epoch", "_outcome", "_version")
    operation = "Produce"

    def __init__(
        self, environment: ProduceEnvironment, connection: Connection, version: int, lane: Lane, appended: Appended
    ) -> None:
        super().__init__(connection)
        self._environment = environment
        self._version = version
        self._correlation_id = connection.correlation_id
        self._lane = lane
        self._appended = appended
        self._leader_epoch = lane.hosted.state.leader_epoch
        self._outcome: Error | None = None

    def wait_for_replicas(self) -> None:
        self.connection.line_up(self)
        if self.is_ready():
            self.complete()
        else:
            self._environment.purgatory.park(self, self._lane.timeout_ms, [self._lane.hosted.watchers])

    def is_ready(self) -> bool:
        self._outcome = self._lane.hosted.outcome(self._appended.last_offset + 1, self._leader_epoch)
        return self._outcome is not None

    def complete(self) -> None:
        lane, appended = self._lane, self._appended
        if self._outcome is None:
            self.is_ready()
        if self._outcome is Error.NONE:
            self.fill([lane.encode(self._correlation_id, appended)])
            return
        answer = PartitionAnswer(lane.index)
        answer.error = Error.REQUEST_TIMED_OUT if self._outcome is None else self._outcome
        answer.base_offset, answer.last_offset, answer.log_append_time, answer.log_start, _ = appended
        answers: Answers = [(lane.topic, [answer])]
        tags = leaders_tags(self._environment.replicas, self.connection, self._version, answers)
        self.fill([encode_answer(self._version, self._correlation_id, answers, tags)])

    def cancel(self) -> None:
        self._environment.purgatory.cancel(self)


class DelayedProduce(Slot):
    """A write that is not acknowledged yet: it waits for the disk, or with acks=all for the in-sync replicas.

    It keeps what it needs of its request, and not the request: that is as large as the batches in it.
    """

    __slots__ = ("_acks", "_answers", "_correlation_id", "_environment", "_timeout_ms", "_version")
    operation = "Produce"

    def __init__(self, writing: Writing, answers: Answers) -> None:
        super().__init__(writing.connection)
        appending = writing.appending
        self._environment = appending.environment
        self._version = appending.version
        self._correlation_id = writing.correlation_id
        self._acks = appending.request.acks
        self._timeout_ms = appending.request.timeout_ms
        self._answers = answers
        writing.connection.line_up(self)

    def wait_for(self, to_flush: list[PartitionLog]) -> None:
        if to_flush:
            flushed = asyncio.gather(*map(self._environment.flusher.flush, to_flush))
            flushed.add_done_callback(self.flushed)
        else:
            self.wait_for_replicas()

    def flushed(self, done: asyncio.Future[list[None]]) -> None:
        """The logs are synced, or could not be: then nothing in this request is acknowledged."""
        error = done.exception()
        if error is not None:
            for _, partitions in self._answers:
                for answer in partitions:
                    answer.fail(Error.KAFKA_STORAGE_ERROR, str(error))
            self._reply()
        elif self._acks == ACKS_ALL and not settle_all(self._answers) and not self.connection.is_closed:
            self.wait_for_replicas()
        else:
            self._reply()

    def wait_for_replicas(self) -> None:
        watched = [a.hosted.watchers for _, partitions in self._answers for a in partitions if a.hosted is not None]
        self._environment.purgatory.park(self, self._timeout_ms, watched)

    def is_ready(self) -> bool:
        return settle_all(self._answers)

    def complete(self) -> None:
        for _, partitions in self._answers:
            for answer in partitions:
                if not answer.settle():
                    answer.error = Error.REQUEST_TIMED_OUT
        self._reply()

    def cancel(self) -> None:
        self._environment.purgatory.cancel(self)

    def _reply(self) -> None:
        tags = leaders_tags(self._environment.replicas, self.connection, self._version, self._answers)
        self.fill([encode_answer(self._version, self._correlation_id, self._answers, tags)])
