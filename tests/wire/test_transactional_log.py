"""A partition with transactions in it, read and written over the wire: order, last stable offset, what was aborted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.wire.batches import TRANSACTIONAL, base_offsets, batch
from tests.wire.requests import EARLIEST, MAX_TIMESTAMP, create_topic, fetch_request, list_offsets_request, produce
from tests.wire.requests import produce_request as plain_request
from tests.wire.transactions import (
    PRODUCE_V2,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Producer,
    abort_for_next,
    await_end,
    commit_for_next,
    init,
    init_request,
    latest_offset,
    read,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.wire.connection import Connection
    from tests.wire.requests import Topic

    Connect = Callable[[], Connection]

BOTH_WAYS = pytest.mark.parametrize("version", [PRODUCE_V2, 13])


def transactional(producer: Producer, sequence: int, value: bytes = b"v") -> bytes:
    return batch(
        [value],
        attributes=TRANSACTIONAL,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
    )


def produce_request(producer: Producer, topic: Topic, records: bytes, version: int) -> m.ProduceRequest:
    request = plain_request(topic, records, version)
    request.transactional_id = producer.transactional_id
    return request


def others(connection: Connection, producer: Producer, count: int) -> list[Producer]:
    """More producers, with ids that follow the test's own."""
    return [init(connection, init_request(f"{producer.transactional_id}-{number}")) for number in range(count)]


@BOTH_WAYS
def test_batches_that_are_sent_ahead_stay_behind_the_one_that_begins_the_transaction(
    group_connect: Connect, group_connection: Connection, group_topic: Topic, producer: Producer, version: int
) -> None:
    """The first must be announced to the coordinator; those behind it are on the way already."""
    for _ in range(3):
        ahead = group_connect()
        start = latest_offset(group_connection, group_topic, READ_UNCOMMITTED)
        for sequence in range(20):
            ahead.send(produce_request(producer, group_topic, transactional(producer, sequence), version), version)
        answers = [ahead.receive(m.ProduceResponse, version) for _ in range(20)]
        assert [correlation_id for correlation_id, _ in answers] == list(range(1, 21))
        parts = [answer.responses[0].partition_responses[0] for _, answer in answers]
        assert [(Error(part.error_code), part.base_offset) for part in parts] == [
            (Error.NONE, start + sequence) for sequence in range(20)
        ]
        producer = commit_for_next(group_connection, producer)
        await_end(group_connection, producer.transactional_id)


def test_transactions_that_overlap_hold_readers_back_and_are_listed_as_they_end(
    group_connection: Connection, group_topic: Topic, producer: Producer
) -> None:
    """
    offset      0      1      2       3      4        5       6     7      8        9       10
    written     plain  a      b       c      b ends   plain   c     a ends c        c ends  plain
                                             aborted                aborted         aborted
    """
    a, (b, c) = producer, others(group_connection, producer, 2)
    connection, topic = group_connection, group_topic

    def seen(isolation_level: int = READ_COMMITTED, offset: int = 0) -> tuple[int, int, list[tuple[int, int]] | None]:
        found = read(connection, topic, isolation_level, offset=offset)
        return found.last_stable_offset, found.high_watermark, found.aborted

    produce(connection, topic, batch([b"plain"]))
    write(connection, a, topic, [b"a"], version=PRODUCE_V2)
    write(connection, b, topic, [b"b"], version=PRODUCE_V2)
    write(connection, c, topic, [b"c"], version=PRODUCE_V2)
    assert seen() == (1, 4, [])
    abort_for_next(connection, b)
    await_end(connection, b.transactional_id)
    assert seen() == (1, 5, [(b.id, 2)]), "listed, though beyond what may be read"
    assert seen(READ_UNCOMMITTED) == (1, 5, None)
    produce(connection, topic, batch([b"plain"]))
    write(connection, c, topic, [b"c"], sequence=1, version=PRODUCE_V2)
    abort_for_next(connection, a)
    await_end(connection, a.transactional_id)
    assert seen() == (3, 8, [(b.id, 2), (a.id, 1)])
    assert latest_offset(connection, topic, READ_COMMITTED) == 3
    write(connection, c, topic, [b"c"], sequence=2, version=PRODUCE_V2)
    abort_for_next(connection, c)
    await_end(connection, c.transactional_id)
    produce(connection, topic, batch([b"plain"]))

    in_order = [(b.id, 2), (a.id, 1), (c.id, 3)]
    assert seen() == (11, 11, in_order)
    for offset, aborted in {
        2: in_order,
        4: in_order,
        5: in_order[1:],
        7: in_order[1:],
        8: in_order[2:],
        9: in_order[2:],
        10: [],
    }.items():
        assert seen(offset=offset) == (11, 11, aborted)
    assert read(connection, topic, READ_COMMITTED).control_offsets == [4, 7, 9]


@pytest.mark.parametrize("uses_session", [False, True])
def test_a_reader_of_committed_records_is_not_woken_by_a_transaction_that_goes_on(
    group_connect: Connect, group_connection: Connection, group_topic: Topic, producer: Producer, uses_session: bool
) -> None:
    """It waits until its time is up, and is told how far the log has come."""
    write(group_connection, producer, group_topic, [b"a"], version=PRODUCE_V2)
    reader = group_connect()
    session = {"session_id": 0, "session_epoch": 0 if uses_session else -1}
    request = fetch_request(group_topic, 12, max_wait_ms=700, **session)
    request.isolation_level = READ_COMMITTED
    for start in (1, 3):
        reader.send(request, 12)
        for sequence in (start, start + 1):
            write(group_connection, producer, group_topic, [b"more"], sequence=sequence, version=PRODUCE_V2)
        _, answer = reader.receive(m.FetchResponse, 12)
        part = answer.responses[0].partitions[0]
        assert (part.high_watermark, part.last_stable_offset) == (start + 2, 0)
        assert base_offsets(part.records) == []
        if uses_session:
            request = fetch_request(group_topic, 12, max_wait_ms=700, session_id=answer.session_id, session_epoch=1)
            request.isolation_level = READ_COMMITTED


def test_a_session_tells_of_what_was_aborted_as_a_full_fetch_does(
    group_connection: Connection, group_topic: Topic, producer: Producer
) -> None:
    opening = fetch_request(group_topic, 12, session_epoch=0)
    opening.isolation_level = READ_COMMITTED
    session_id = group_connection.call(opening, 12, m.FetchResponse).session_id
    write(group_connection, producer, group_topic, [b"a"], version=PRODUCE_V2)
    abort_for_next(group_connection, producer)
    await_end(group_connection, producer.transactional_id)
    request = m.FetchRequest(session_id=session_id, session_epoch=1, isolation_level=READ_COMMITTED, max_bytes=1 << 20)
    part = group_connection.call(request, 12, m.FetchResponse).responses[0].partitions[0]
    assert base_offsets(part.records) == [0, 1]
    assert [(each.producer_id, each.first_offset) for each in part.aborted_transactions or []] == [(producer.id, 0)]


def test_times_are_looked_up_among_committed_records_only(
    group_connection: Connection, group_topic: Topic, producer: Producer
) -> None:
    minute_ago = int(time.time() * 1000) - 60_000
    produce(group_connection, group_topic, batch([b"plain"], timestamp_ms=minute_ago))
    write(group_connection, producer, group_topic, [b"open"], version=PRODUCE_V2)

    def found(timestamp: int, isolation_level: int) -> int:
        request = list_offsets_request(group_topic, timestamp)
        request.isolation_level = isolation_level
        return group_connection.call(request, 8, m.ListOffsetsResponse).topics[0].partitions[0].offset

    assert (found(minute_ago + 1, READ_UNCOMMITTED), found(minute_ago + 1, READ_COMMITTED)) == (1, -1)
    assert (found(minute_ago, READ_UNCOMMITTED), found(minute_ago, READ_COMMITTED)) == (0, 0)
    assert (found(EARLIEST, READ_UNCOMMITTED), found(EARLIEST, READ_COMMITTED)) == (0, 0)
    assert found(MAX_TIMESTAMP, READ_UNCOMMITTED) == 1


@BOTH_WAYS
def test_batches_of_two_transactional_producers_are_refused_together(
    group_connection: Connection, group_topic: Topic, producer: Producer, version: int
) -> None:
    (other,) = others(group_connection, producer, 1)
    request = produce_request(producer, group_topic, transactional(producer, 0), version)
    request.topic_data[0].partition_data.append(
        m.ProduceRequest.PartitionProduceData(index=1, records=transactional(other, 0))
    )
    answer = group_connection.call(request, version, m.ProduceResponse)
    errors = [Error(part.error_code) for part in answer.responses[0].partition_responses]
    assert errors == [Error.INVALID_PRODUCER_ID_MAPPING] * 2


@BOTH_WAYS
def test_a_partition_that_does_not_exist_says_so_whoever_else_a_request_has_batches_of(
    group_connection: Connection, group_topic: Topic, producer: Producer, version: int
) -> None:
    (other,) = others(group_connection, producer, 1)
    request = produce_request(producer, group_topic, transactional(producer, 0), version)
    request.topic_data[0].partition_data += [
        m.ProduceRequest.PartitionProduceData(index=77, records=transactional(other, 0)),
        m.ProduceRequest.PartitionProduceData(index=1, records=transactional(other, 0) * 2),
    ]
    answer = group_connection.call(request, version, m.ProduceResponse)
    errors = {part.index: Error(part.error_code) for part in answer.responses[0].partition_responses}
    assert errors == {0: Error.NONE, 77: Error.UNKNOWN_TOPIC_OR_PARTITION, 1: Error.INVALID_RECORD}


@BOTH_WAYS
def test_a_transactional_batch_without_a_transactional_id_refuses_the_whole_request(
    group_connection: Connection, group_topic: Topic, producer: Producer, version: int
) -> None:
    request = plain_request(group_topic, batch([b"plain"]), version)
    request.topic_data[0].partition_data.append(
        m.ProduceRequest.PartitionProduceData(index=1, records=transactional(producer, 0))
    )
    answer = group_connection.call(request, version, m.ProduceResponse)
    errors = [Error(part.error_code) for part in answer.responses[0].partition_responses]
    assert errors == [Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert latest_offset(group_connection, group_topic, READ_UNCOMMITTED) == 0


def test_an_aborted_transaction_is_listed_from_the_segment_that_has_its_marker(
    group_connection: Connection, topic: str, producer: Producer
) -> None:
    """Readers of an earlier segment need it as well."""
    created = create_topic(group_connection, topic, config={"segment.bytes": "1048576"})
    big = b"x" * 600_000
    write(group_connection, producer, created, [b"begins"], version=PRODUCE_V2)
    produce(group_connection, created, batch([big]))
    write(group_connection, producer, created, [big], sequence=1, version=PRODUCE_V2)
    produce(group_connection, created, batch([big]))
    abort_for_next(group_connection, producer)
    await_end(group_connection, producer.transactional_id)
    request = fetch_request(created, 12)
    request.isolation_level = READ_COMMITTED
    part = group_connection.call(request, 12, m.FetchResponse).responses[0].partitions[0]
    assert base_offsets(part.records) == [0, 1], "what the first segment holds"
    assert [(each.producer_id, each.first_offset) for each in part.aborted_transactions or []] == [(producer.id, 0)]
