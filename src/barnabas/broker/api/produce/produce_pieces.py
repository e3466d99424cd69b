"""Produce requests of so many partitions, or so many bytes, that they are read, appended and answered in pieces.

Each piece is acknowledged, as far as it must wait for the disk or for replicas, before the next is appended. What
concerns a request as a whole is found out before: whether it is well formed, and whether its transactional batches are
those of one producer.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.broker.api.current_leader import leader_addresses
from barnabas.broker.api.produce.produce_appending import (
    Appending,
    find_partition,
    name_leaders,
    refuse_all,
    settle_all,
)
from barnabas.broker.api.produce.produce_transactions import (
    begin,
    producers_of,
    require_transactional_id,
    sole_producer,
    transactional_batches,
)
from barnabas.broker.api.produce.produce_wire import FIRST_VERSION_WITH_TOPIC_IDS, ProduceRequest
from barnabas.net.connection import BadRequestError
from barnabas.net.purgatory import Parked
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from barnabas.replication.hosted import ACKS_ALL

if TYPE_CHECKING:
    from barnabas.broker.api.environments import ProduceEnvironment
    from barnabas.broker.api.produce.produce_wire import Answers, PartitionAnswer, TopicBatches
    from barnabas.broker.flusher import Flusher
    from barnabas.net.dispatch import Caller, Handler
    from barnabas.net.large_requests import LargeRequest
    from barnabas.net.purgatory import Purgatory

ADMIN_CLIENT = "__admin_client"
NO_PRODUCER = (-1, -1, 0)
PRODUCERS_MAX = 3
"""As many as it takes to know that a request has batches of two."""
_NO_BATCH = memoryview(b"")


async def produce_in_pieces(
    handler: Handler, environment: ProduceEnvironment, request: LargeRequest, caller: Caller
) -> Any:
    producers: set[tuple[int, int, int]] = set()
    has_transactional = False
    find = partial(find_partition, environment.replicas, version=caller.api_version)

    def look(piece: m.ProduceRequest) -> None:
        nonlocal has_transactional
        if len(producers) < PRODUCERS_MAX:
            batches = transactional_batches(as_parsed(piece, caller.api_version))
            has_transactional = has_transactional or bool(batches)
            found = producers_of(batches, find)
            producers.update(
                (producer_id, epoch, 0) if producer_id >= 0 else NO_PRODUCER for producer_id, epoch, _ in found.values()
            )

    await request.check(look)
    refusal = None
    try:
        if has_transactional:
            require_transactional_id(request.root.transactional_id)
        sole_producer(producers)
    except KafkaError as error:
        refusal = error
    response = None
    leaders: set[int] = set()
    async for piece in request.pieces():
        if refusal is None:
            response = await request.call(handler, environment, piece, caller)
            leaders.update(named_leaders(response))
        else:
            response = answer_to(piece, refuse_all(as_parsed(piece, caller.api_version), refusal))
        await request.add(response.responses)
    if request.root.acks == 0:
        return []
    if leaders and response is not None:
        addresses = leader_addresses(environment.replicas, leaders, caller.listener.name)
        response.node_endpoints = [m.ProduceResponse.NodeEndpoint(**each._asdict()) for each in addresses]
    return response


async def append_piece(environment: ProduceEnvironment, piece: m.ProduceRequest, caller: Caller) -> m.ProduceResponse:
    """Appends the batches of a piece, and waits until they may be acknowledged."""
    version = caller.api_version
    request = as_parsed(piece, version)
    appending = Appending(environment, version, request, may_write_internal=caller.client_id == ADMIN_CLIENT)
    verifies = environment.settings.config.transaction_partition_verification_enable
    try:
        transactional = begin(request, version, appending.find, verifies=verifies)
    except KafkaError as error:
        return answer_to(piece, refuse_all(request, error))
    if transactional is not None and transactional.unverified:
        await transactional.ask_coordinator(environment.transactions, version)
    if appending.must_open_batches():
        async with appending.opened() as verdicts:
            answers = appending.append_all(transactional, verdicts)
    else:
        answers = appending.append_all(transactional)
    partitions = [answer for _, of_topic in answers for answer in of_topic]
    if request.acks == 0:
        require_success(partitions)
    await flush(environment.flusher, partitions)
    if request.acks == ACKS_ALL and not settle_all(answers):
        await Replicating(answers).wait(environment.purgatory, request.timeout_ms)
    name_leaders(environment.replicas, version, answers)
    return answer_to(piece, answers)


def as_parsed(piece: m.ProduceRequest, version: int) -> ProduceRequest:
    topics: list[TopicBatches] = [
        (
            topic.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.name.encode(),
            [
                (data.index, _NO_BATCH if data.records is None else memoryview(data.records))
                for data in topic.partition_data
            ],
        )
        for topic in piece.topic_data
        if topic.partition_data
    ]
    return ProduceRequest(piece.acks, piece.timeout_ms, piece.transactional_id, topics)


def require_success(partitions: list[PartitionAnswer]) -> None:
    """With acks=0 a closed connection is the only way to tell that something went wrong."""
    for answer in partitions:
        if answer.error:
            raise BadRequestError(
                f"an acks=0 batch for partition {answer.index} failed with {Error(answer.error).name}: {answer.reason}"
            )


async def flush(flusher: Flusher, partitions: list[PartitionAnswer]) -> None:
    """Syncs what has to be synced; what cannot be is not acknowledged."""
    to_flush = [answer for answer in partitions if answer.hosted is not None and answer.hosted.must_flush()]
    flushes = [flusher.flush(answer.hosted.log) for answer in to_flush if answer.hosted is not None]
    for answer, outcome in zip(to_flush, await asyncio.gather(*flushes, return_exceptions=True), strict=True):
        if outcome is not None:
            answer.fail(Error.KAFKA_STORAGE_ERROR, str(outcome))


class Replicating(Parked):
    """Waits until every in-sync replica has the batches of a piece."""

    __slots__ = ("_answers", "_done")
    operation = "Produce"

    def __init__(self, answers: Answers) -> None:
        super().__init__()
        self._answers = answers
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self, purgatory: Purgatory, timeout_ms: int) -> None:
        watched = [a.hosted.watchers for _, partitions in self._answers for a in partitions if a.hosted is not None]
        purgatory.park(self, timeout_ms, watched)
        try:
            await self._done
        finally:
            purgatory.cancel(self)

    def is_ready(self) -> bool:
        return settle_all(self._answers)

    def complete(self) -> None:
        for _, partitions in self._answers:
            for answer in partitions:
                if not answer.settle():
                    answer.error = Error.REQUEST_TIMED_OUT
        if not self._done.done():
            self._done.set_result(None)

    def fail(self) -> None:
        if not self._done.done():
            self._done.set_exception(RuntimeError("internal error while batches were being acknowledged"))


def named_leaders(response: m.ProduceResponse) -> set[int]:
    """The leaders that it names for partitions that this broker does not lead."""
    return {
        each.current_leader.leader_id
        for topic in response.responses
        for each in topic.partition_responses
        if each.error_code == Error.NOT_LEADER_OR_FOLLOWER
    }


def answer_to(piece: m.ProduceRequest, answers: Answers) -> m.ProduceResponse:
    """Topics without batches are not in it, as they are not with Kafka."""
    topic_response = m.ProduceResponse.TopicProduceResponse
    topics = [topic for topic in piece.topic_data if topic.partition_data]
    return m.ProduceResponse(
        responses=[
            topic_response(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[partition_answer(answer) for answer in of_topic],
            )
            for topic, (_, of_topic) in zip(topics, answers, strict=True)
        ]
    )


def partition_answer(answer: PartitionAnswer) -> m.ProduceResponse.PartitionProduceResponse:
    response = m.ProduceResponse.PartitionProduceResponse(
        index=answer.index,
        error_code=answer.error,
        base_offset=answer.base_offset,
        log_append_time_ms=answer.log_append_time,
        log_start_offset=answer.log_start,
        record_errors=[
            m.ProduceResponse.BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=reason)
            for number, reason in answer.record_errors
        ],
        error_message=answer.message,
    )
    if answer.leader is not None:
        response.current_leader.leader_id, response.current_leader.leader_epoch = answer.leader
    return response
