"""What a transactional producer says, and what readers of its partitions are given: one call each, nothing retried."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol import messages as m
from barnabas.protocol.batch import decode_records
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.batches import TRANSACTIONAL, batch, split
from tests.wire.groups import UNAVAILABLE, find_coordinator
from tests.wire.requests import (
    ADDS_MANY_TRANSACTIONS,
    TRANSACTION_KEY,
    fetch_request,
    list_offsets_request,
    produce_request,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.wire.connection import Connection
    from tests.wire.requests import Topic

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
TIMEOUT_MS = 60_000
NOT_YET = (Error.CONCURRENT_TRANSACTIONS, Error.COORDINATOR_LOAD_IN_PROGRESS)
"""The transaction before is being ended, or the node waits for producer ids to give out."""

PRODUCE_V1, END_V1, OFFSETS_V1 = 11, 4, 4
"""The last versions of a client that adds its partitions itself, and that keeps its epoch."""
PRODUCE_V2, END_V2, OFFSETS_V2 = 12, 5, 5
"""The first versions of one whose partitions join when they are written to, with an epoch of its own for each
transaction."""


class Producer(NamedTuple):
    transactional_id: str
    id: int
    epoch: int


class Seen(NamedTuple):
    """What a reader gets of a partition."""

    values: list[bytes | None]
    control_offsets: list[int]
    last_stable_offset: int
    high_watermark: int
    aborted: list[tuple[int, int]] | None
    """Producer id and first offset of each aborted transaction in what was read."""


class Described(NamedTuple):
    error: Error
    state: str
    producer_id: int
    epoch: int
    partitions: set[tuple[str, int]]


def await_transactions(connection: Connection, *transactional_ids: str) -> None:
    """The internal topic is created by the first who asks, and each of its partitions is loaded on its own."""
    for transactional_id in transactional_ids:

        def is_there(transactional_id: str = transactional_id) -> bool:
            if find_coordinator(connection, transactional_id, TRANSACTION_KEY)[0] != Error.NONE:
                return False
            return describe(connection, transactional_id).error not in UNAVAILABLE

        wait_until(is_there, f"{transactional_id} has a coordinator")


def init_request(
    transactional_id: str | None, *, timeout_ms: int = TIMEOUT_MS, producer_id: int = -1, epoch: int = -1
) -> m.InitProducerIdRequest:
    return m.InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def init(connection: Connection, request: m.InitProducerIdRequest, version: int = 5) -> Producer:
    """A producer that may begin a transaction; what an older one left behind is aborted first."""
    answers: list[m.InitProducerIdResponse] = []

    def is_answered() -> bool:
        answers.append(connection.call(request, version, m.InitProducerIdResponse))
        assert answers[-1].error_code in {Error.NONE, *NOT_YET}, Error(answers[-1].error_code).name
        return answers[-1].error_code == Error.NONE

    wait_until(is_answered, "the transaction before is over and a producer id is there")
    return Producer(request.transactional_id or "", answers[-1].producer_id, answers[-1].producer_epoch)


def refused_init(connection: Connection, request: m.InitProducerIdRequest, version: int = 5) -> Error:
    answer = connection.call(request, version, m.InitProducerIdResponse)
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    return Error(answer.error_code)


def add_partitions_request(
    producer: Producer, topics: Mapping[str, Sequence[int]], version: int
) -> m.AddPartitionsToTxnRequest:
    request = m.AddPartitionsToTxnRequest
    wanted = [request.AddPartitionsToTxnTopic(name=name, partitions=list(parts)) for name, parts in topics.items()]
    if version < ADDS_MANY_TRANSACTIONS:
        return request(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=wanted,
        )
    transaction = request.AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=wanted,
    )
    return request(transactions=[transaction])


def verify_partitions_request(
    producer: Producer, topics: Mapping[str, Sequence[int]], version: int
) -> m.AddPartitionsToTxnRequest:
    """What a partition's leader asks before it takes a write: are these in the transaction?"""
    request = add_partitions_request(producer, topics, version)
    request.transactions[0].verify_only = True
    return request


def ask_partitions(
    connection: Connection, request: m.AddPartitionsToTxnRequest, version: int
) -> dict[tuple[str, int], Error]:
    """The answer of each partition."""
    answer = connection.call(request, version, m.AddPartitionsToTxnResponse)
    results = answer.results_by_topic_v3_and_below
    if version >= ADDS_MANY_TRANSACTIONS:
        assert Error(answer.error_code) == Error.NONE
        (of_transaction,) = answer.results_by_transaction
        assert of_transaction.transactional_id == request.transactions[0].transactional_id
        results = of_transaction.topic_results
    return {
        (topic.name, each.partition_index): Error(each.partition_error_code)
        for topic in results
        for each in topic.results_by_partition
    }


def add_partitions(
    connection: Connection, producer: Producer, topics: Mapping[str, Sequence[int]], version: int = 3
) -> dict[tuple[str, int], Error]:
    """Add them when the markers of the transaction before are written."""
    request, answers = add_partitions_request(producer, topics, version), [{("", 0): Error.NONE}]

    def is_answered() -> bool:
        answers.append(ask_partitions(connection, request, version))
        return Error.CONCURRENT_TRANSACTIONS not in answers[-1].values()

    wait_until(is_answered, "the transaction before is over")
    return answers[-1]


def add_group(connection: Connection, producer: Producer, group: str, version: int = 4) -> Error:
    request = m.AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        group_id=group,
    )
    return Error(connection.call(request, version, m.AddOffsetsToTxnResponse).error_code)


def offsets_request(
    producer: Producer,
    group: str,
    topic: str,
    offsets: Mapping[int, int],
    *,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    metadata: str | None = "",
) -> m.TxnOffsetCommitRequest:
    request = m.TxnOffsetCommitRequest
    partitions = [
        request.TxnOffsetCommitRequestPartition(partition_index=p, committed_offset=at, committed_metadata=metadata)
        for p, at in offsets.items()
    ]
    return request(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[request.TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )


def commit_offsets(
    connection: Connection, request: m.TxnOffsetCommitRequest, version: int = OFFSETS_V1
) -> dict[int, Error]:
    (answered,) = connection.call(request, version, m.TxnOffsetCommitResponse).topics
    assert answered.name == request.topics[0].name
    return {each.partition_index: Error(each.error_code) for each in answered.partitions}


def commit(connection: Connection, producer: Producer, version: int = END_V1) -> Error:
    return _end(connection, producer, version, is_commit=True)[0]


def abort(connection: Connection, producer: Producer, version: int = END_V1) -> Error:
    return _end(connection, producer, version, is_commit=False)[0]


def commit_for_next(connection: Connection, producer: Producer) -> Producer:
    """Commit as transactions v2 do, and be given the epoch of the next one."""
    error, following = _end(connection, producer, END_V2, is_commit=True)
    assert error == Error.NONE
    return following


def abort_for_next(connection: Connection, producer: Producer) -> Producer:
    error, following = _end(connection, producer, END_V2, is_commit=False)
    assert error == Error.NONE
    return following


def _end(connection: Connection, producer: Producer, version: int, *, is_commit: bool) -> tuple[Error, Producer]:
    request = m.EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        committed=is_commit,
    )
    answer = connection.call(request, version, m.EndTxnResponse)
    following = Producer(producer.transactional_id, answer.producer_id, answer.producer_epoch)
    return Error(answer.error_code), following


def write(
    connection: Connection,
    producer: Producer,
    topic: Topic,
    values: Sequence[bytes | None],
    *,
    sequence: int = 0,
    partition: int = 0,
    version: int = PRODUCE_V1,
) -> m.ProduceResponse.PartitionProduceResponse:
    """Write a batch of the producer's transaction, whatever the transaction before is up to."""
    records = batch(
        values,
        attributes=TRANSACTIONAL,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
    )
    request = produce_request(topic, records, version, partition=partition)
    request.transactional_id = producer.transactional_id
    answers: list[m.ProduceResponse.PartitionProduceResponse] = []

    def is_answered() -> bool:
        answers.append(connection.call(request, version, m.ProduceResponse).responses[0].partition_responses[0])
        return answers[-1].error_code != Error.CONCURRENT_TRANSACTIONS

    wait_until(is_answered, "the transaction before is over")
    return answers[-1]


def read(
    connection: Connection,
    topic: Topic,
    isolation_level: int,
    *,
    partition: int = 0,
    offset: int = 0,
    version: int = 12,
) -> Seen:
    """One Fetch, as it is answered at once. Values of aborted transactions are among what a client leaves out."""
    request = fetch_request(topic, version, partition=partition, offset=offset)
    request.isolation_level = isolation_level
    data = connection.call(request, version, m.FetchResponse).responses[0].partitions[0]
    assert Error(data.error_code) == Error.NONE
    batches = split(data.records)
    return Seen(
        values=[record.value for each in batches if not each.is_control for record in decode_records(each.data)],
        control_offsets=[each.base_offset for each in batches if each.is_control],
        last_stable_offset=data.last_stable_offset,
        high_watermark=data.high_watermark,
        aborted=None
        if data.aborted_transactions is None
        else [(each.producer_id, each.first_offset) for each in data.aborted_transactions],
    )


def latest_offset(
    connection: Connection, topic: Topic, isolation_level: int, *, partition: int = 0, version: int = 11
) -> int:
    request = list_offsets_request(topic, -1, partition=partition)
    request.isolation_level = isolation_level
    found = connection.call(request, version, m.ListOffsetsResponse).topics[0].partitions[0]
    assert Error(found.error_code) == Error.NONE
    return found.offset


def await_end(connection: Connection, transactional_id: str) -> Described:
    """A transaction is ended when its markers are written, which may be after the answer."""
    wait_until(
        lambda: describe(connection, transactional_id).state.startswith("Complete"), f"{transactional_id} has ended"
    )
    return describe(connection, transactional_id)


def describe(connection: Connection, transactional_id: str) -> Described:
    (found,) = describe_all(connection, [transactional_id])
    return found


def describe_all(connection: Connection, transactional_ids: Iterable[str]) -> list[Described]:
    request = m.DescribeTransactionsRequest(transactional_ids=list(transactional_ids))
    answer = connection.call(request, 0, m.DescribeTransactionsResponse)
    assert [each.transactional_id for each in answer.transaction_states] == request.transactional_ids
    return [
        Described(
            Error(each.error_code),
            each.transaction_state,
            each.producer_id,
            each.producer_epoch,
            {(topic.topic, partition) for topic in each.topics for partition in topic.partitions},
        )
        for each in answer.transaction_states
    ]


def list_transactions(
    connection: Connection,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    duration_ms: int = -1,
    pattern: str | None = None,
    version: int = 2,
) -> dict[str, tuple[int, str]]:
    """Producer id and state by transactional id."""
    request = m.ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=duration_ms,
        transactional_id_pattern=pattern,
    )
    answer = connection.call(request, version, m.ListTransactionsResponse)
    assert Error(answer.error_code) == Error.NONE
    return {each.transactional_id: (each.producer_id, each.transaction_state) for each in answer.transaction_states}


def write_markers(
    connection: Connection,
    producer: Producer,
    topics: Mapping[str, Sequence[int]],
    *,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
    version: int = 1,
) -> dict[tuple[str, int], Error]:
    """What a coordinator, or a tool in its place, tells the leaders of the partitions: this transaction is aborted."""
    request = m.WriteTxnMarkersRequest
    wanted = [
        request.WritableTxnMarkerTopic(name=name, partition_indexes=list(parts)) for name, parts in topics.items()
    ]
    marker = request.WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        topics=wanted,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    (answered,) = connection.call(request(markers=[marker]), version, m.WriteTxnMarkersResponse).markers
    assert answered.producer_id == producer.id
    return {
        (topic.name, each.partition_index): Error(each.error_code)
        for topic in answered.topics
        for each in topic.partitions
    }


def producers_of(
    connection: Connection, topic: str, partition: int = 0
) -> tuple[Error, dict[int, m.DescribeProducersResponse.ProducerState]]:
    """The producers that a partition's leader knows, by id."""
    request = m.DescribeProducersRequest
    wanted = request.TopicRequest(name=topic, partition_indexes=[partition])
    (answered,) = connection.call(request(topics=[wanted]), 0, m.DescribeProducersResponse).topics
    (found,) = answered.partitions
    assert (answered.name, found.partition_index) == (topic, partition)
    return Error(found.error_code), {each.producer_id: each for each in found.active_producers}
