"""Requests that name hundreds of partitions are answered like any other, partition by partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_batch
from barnabas.protocol.errors import Error
from barnabas.protocol.record import Record
from tests.wire.connection import ClosedError, Connection
from tests.wire.requests import LATEST, Topic, create_topic, produce
from tests.wire.transactions import await_transactions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peers import Peer

COUNT = 700
"""More than are handled in one go."""
MISSING = 3
"""Partitions behind the last one, which do not exist."""


@pytest.fixture(scope="module")
def wide(node: Peer) -> Topic:
    with Connection(node.port) as connection:
        return create_topic(connection, "wide", COUNT)


def batch_of(index: int) -> bytes:
    return build_batch([Record(value=b"%d" % index)])


def produce_request(topic: Topic, version: int, *, acks: int = -1) -> m.ProduceRequest:
    request = m.ProduceRequest
    data = [request.PartitionProduceData(index=index, records=batch_of(index)) for index in range(COUNT + MISSING)]
    return request(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            request.TopicProduceData(name="" if version >= 13 else topic.name, topic_id=topic.id, partition_data=data)
        ],
    )


def ends(connection: Connection, topic: Topic) -> dict[int, int]:
    """Where each partition ends."""
    request = m.ListOffsetsRequest
    asked = [request.ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in range(COUNT)]
    topics = [request.ListOffsetsTopic(name=topic.name, partitions=asked)]
    answer = connection.call(request(replica_id=-1, topics=topics), 7, m.ListOffsetsResponse)
    return {each.partition_index: each.offset for each in answer.topics[0].partitions}


def fetch_request(topic: Topic, version: int, offsets: dict[int, int], **fields: int) -> m.FetchRequest:
    request = m.FetchRequest
    partitions = [
        request.FetchPartition(partition=index, fetch_offset=offsets.get(index, 0), partition_max_bytes=1000)
        for index in range(COUNT + MISSING)
    ]
    topics = [request.FetchTopic(topic="" if version >= 13 else topic.name, topic_id=topic.id, partitions=partitions)]
    fetch = request(min_bytes=1, max_bytes=50_000_000, session_epoch=-1, topics=topics)
    for name, value in fields.items():
        setattr(fetch, name, value)
    return fetch


def errors_by_partition(answers: list[tuple[int, int]]) -> dict[int, set[int]]:
    """Which partitions had each error."""
    by_error: dict[int, set[int]] = {}
    for index, error in answers:
        by_error.setdefault(error, set()).add(index)
    return by_error


AS_THEY_SHOULD_BE = {
    Error.NONE: set(range(COUNT)),
    Error.UNKNOWN_TOPIC_OR_PARTITION: set(range(COUNT, COUNT + MISSING)),
}


@pytest.mark.parametrize("version", [3, 8, 12, 13])
def test_batches_for_very_many_partitions_are_appended_and_found(
    connection: Connection, wide: Topic, version: int
) -> None:
    offsets = ends(connection, wide)
    produced = connection.call(produce_request(wide, version), version, m.ProduceResponse)
    (of_topic,) = produced.responses
    assert (
        errors_by_partition([(each.index, each.error_code) for each in of_topic.partition_responses])
        == AS_THEY_SHOULD_BE
    )
    assert {each.index: each.base_offset for each in of_topic.partition_responses if not each.error_code} == offsets
    fetched = connection.call(fetch_request(wide, max(version, 4), offsets), max(version, 4), m.FetchResponse)
    partitions = [each for answer in fetched.responses for each in answer.partitions]
    assert errors_by_partition([(each.partition_index, each.error_code) for each in partitions]) == AS_THEY_SHOULD_BE
    for each in partitions:
        if not each.error_code:
            assert bytes(each.records or b"")[61:] == batch_of(each.partition_index)[61:]


def test_unacknowledged_batches_that_fail_close_the_connection(connection: Connection, wide: Topic) -> None:
    connection.send(produce_request(wide, 12, acks=0), 12)
    with pytest.raises(ClosedError):
        connection.receive_frame()


def test_transactional_batches_without_a_transactional_id_are_refused_everywhere(
    connection: Connection, wide: Topic
) -> None:
    await_transactions(connection, "wide")
    request = produce_request(wide, 12)
    request.topic_data[0].partition_data[-1].records = build_batch(
        [Record(value=b"x")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    answer = connection.call(request, 12, m.ProduceResponse)
    errors = {each.error_code for each in answer.responses[0].partition_responses}
    assert errors == {Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


def test_a_session_of_very_many_partitions_tells_what_is_new(connect: Callable[[], Connection], wide: Topic) -> None:
    connection, producer = connect(), connect()
    offsets = ends(connection, wide)
    opened = connection.call(fetch_request(wide, 12, offsets, session_epoch=0), 12, m.FetchResponse)
    assert opened.error_code == Error.NONE
    assert opened.session_id > 0
    named = [each.partition_index for answer in opened.responses for each in answer.partitions]
    assert sorted(named) == list(range(COUNT + MISSING))
    fetch = fetch_request(wide, 12, offsets, session_id=opened.session_id, session_epoch=1, max_wait_ms=0)
    fetch.topics[0].partitions = fetch.topics[0].partitions[:COUNT]
    fetch.forgotten_topics_data = [
        m.FetchRequest.ForgottenTopic(topic=wide.name, partitions=list(range(COUNT, COUNT + MISSING)))
    ]
    assert connection.call(fetch, 12, m.FetchResponse).responses == []
    assert produce(producer, wide, batch_of(7), partition=COUNT - 1).error_code == Error.NONE
    fetch.session_epoch, fetch.max_wait_ms = 2, 30_000
    (news,) = connection.call(fetch, 12, m.FetchResponse).responses
    assert [each.partition_index for each in news.partitions] == [COUNT - 1]


def test_a_fetch_of_very_many_partitions_waits_for_the_first_that_grows(
    connect: Callable[[], Connection], wide: Topic
) -> None:
    connection, producer = connect(), connect()
    offsets = ends(connection, wide)
    fetch = fetch_request(wide, 12, offsets, max_wait_ms=30_000)
    fetch.topics[0].partitions = fetch.topics[0].partitions[:COUNT]
    correlation_id = connection.send(fetch, 12)
    assert produce(producer, wide, batch_of(5), partition=5).error_code == Error.NONE
    answered, answer = connection.receive(m.FetchResponse, 12)
    assert answered == correlation_id
    assert len(answer.responses[0].partitions) == COUNT
    assert [each.partition_index for each in answer.responses[0].partitions if each.records] == [5]
