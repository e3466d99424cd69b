"""Incremental fetch sessions: what was said once need not be said again, and is not told again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID
from tests.peers import wait_until
from tests.wire.batches import base_offsets, batch
from tests.wire.requests import FETCH_BY_ID, Topic, create_topic, produce

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.wire.connection import Connection

VERSIONS = (7, 11, 12, 13, 18)
FINAL, INITIAL = -1, 0


class Reader:
    """A client of one session, which counts its epochs."""

    def __init__(self, connection: Connection, topic: Topic, version: int) -> None:
        self.connection = connection
        self.topic = topic
        self.version = version
        self.session_id = 0
        self.epoch = INITIAL

    def fetch(
        self,
        offsets: dict[int, int] | None = None,
        forget: tuple[int, ...] = (),
        max_wait_ms: int = 0,
        max_bytes: int = 1 << 25,
    ) -> m.FetchResponse:
        """Names these partitions with their offsets, forgets those, and goes one epoch further if that is answered."""
        request = m.FetchRequest
        by_id = self.version >= FETCH_BY_ID
        name, topic_id = ("", self.topic.id) if by_id else (self.topic.name, ZERO_UUID)
        named = [
            request.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
            for partition, offset in (offsets or {}).items()
        ]
        answer = self.connection.call(
            request(
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=max_bytes,
                session_id=self.session_id,
                session_epoch=self.epoch,
                topics=[request.FetchTopic(topic=name, topic_id=topic_id, partitions=named)] if named else [],
                forgotten_topics_data=[request.ForgottenTopic(topic=name, topic_id=topic_id, partitions=list(forget))]
                if forget
                else [],
            ),
            self.version,
            m.FetchResponse,
        )
        if answer.error_code == Error.NONE:
            self.session_id = answer.session_id
            self.epoch += 1
        return answer


def told(answer: m.FetchResponse) -> dict[int, list[int]]:
    """By partition of the answer, the base offsets of its batches."""
    assert answer.error_code == Error.NONE
    return {
        partition.partition_index: base_offsets(partition.records)
        for topic in answer.responses
        for partition in topic.partitions
    }


@pytest.fixture
def three(connection: Connection, topic: str) -> Topic:
    """A topic of three partitions."""
    return create_topic(connection, topic, partitions=3)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_in_a_session_holds_only_what_is_new(connection: Connection, three: Topic, version: int) -> None:
    reader = Reader(connection, three, version)
    first = reader.fetch({0: 0, 1: 0, 2: 0})
    assert first.session_id > 0
    assert told(first) == {0: [], 1: [], 2: []}
    assert told(reader.fetch()) == {}
    produce(connection, three, batch(), partition=1)
    again = reader.fetch()
    assert again.session_id == first.session_id
    assert told(again) == {1: [0]}
    assert told(reader.fetch()) == {1: [0]}, "the reader has not moved on"
    assert told(reader.fetch({1: 1})) == {}


def test_partitions_come_and_go(connection: Connection, three: Topic) -> None:
    for partition in range(3):
        produce(connection, three, batch(), partition=partition)
    reader = Reader(connection, three, 13)
    assert told(reader.fetch({0: 0})) == {0: [0]}
    assert told(reader.fetch({2: 0}, forget=(0,))) == {2: [0]}
    assert told(reader.fetch({1: 0})).keys() == {1, 2}
    assert told(reader.fetch({2: 1})).keys() == {1}


def test_a_partition_that_had_records_goes_to_the_end_of_the_line(connection: Connection, three: Topic) -> None:
    reader = Reader(connection, three, 12)
    reader.fetch({0: 0, 1: 0, 2: 0})
    for partition in range(3):
        produce(connection, three, batch([b"x" * 1_000]), partition=partition)
    reader.fetch(max_bytes=1)  # Tells of every new high watermark, beside the records of one partition.
    served = [list(told(reader.fetch(max_bytes=1))) for _ in range(6)]
    assert served == [[1], [2], [0], [1], [2], [0]]


def test_a_waiting_fetch_of_a_session_is_answered_with_the_partition_that_grew(
    connect: Callable[[], Connection], connection: Connection, three: Topic
) -> None:
    reader = Reader(connection, three, 13)
    reader.fetch({0: 0, 1: 0, 2: 0})
    request = m.FetchRequest(
        max_wait_ms=25_000, min_bytes=1, max_bytes=1 << 20, session_id=reader.session_id, session_epoch=1
    )
    connection.send(request, 13)
    produce(connect(), three, batch(), partition=2)
    _, answer = connection.receive(m.FetchResponse, 13)
    assert told(answer) == {2: [0]}


def test_a_wait_in_vain_is_answered_with_nothing(connection: Connection, three: Topic) -> None:
    reader = Reader(connection, three, 13)
    reader.fetch({0: 0})
    answer = reader.fetch(max_wait_ms=50)
    assert (answer.error_code, answer.responses) == (Error.NONE, [])
    assert answer.session_id == reader.session_id


def test_an_epoch_out_of_turn_is_refused_and_the_session_goes_on(connection: Connection, three: Topic) -> None:
    reader = Reader(connection, three, 12)
    reader.fetch({0: 0})
    reader.epoch = 5
    refused = reader.fetch()
    assert (refused.error_code, refused.session_id, refused.responses) == (Error.INVALID_FETCH_SESSION_EPOCH, 0, [])
    reader.epoch = 1
    assert told(reader.fetch()) == {}
    reader.epoch = 1
    assert reader.fetch().error_code == Error.INVALID_FETCH_SESSION_EPOCH


def test_a_full_fetch_closes_the_session_that_it_names(connection: Connection, three: Topic) -> None:
    reader = Reader(connection, three, 12)
    session_id = reader.fetch({0: 0}).session_id
    reader.epoch = FINAL
    assert reader.fetch({0: 0}).session_id == 0
    reader.session_id, reader.epoch = session_id, 1
    assert reader.fetch().error_code == Error.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_of_names_is_not_one_of_ids(connection: Connection, three: Topic) -> None:
    reader = Reader(connection, three, 12)
    reader.fetch({0: 0})
    reader.version = 13
    assert reader.fetch().error_code == Error.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_without_partitions_is_closed(connection: Connection, three: Topic) -> None:
    reader = Reader(connection, three, 12)
    session_id = reader.fetch({0: 0}).session_id
    answer = reader.fetch(forget=(0,))
    assert (answer.error_code, answer.session_id) == (Error.NONE, 0)
    reader.session_id, reader.epoch = session_id, 2
    assert reader.fetch().error_code == Error.FETCH_SESSION_ID_NOT_FOUND


def test_an_error_is_told_every_time_and_its_end_once(connection: Connection, three: Topic) -> None:
    reader = Reader(connection, three, 12)
    first = reader.fetch({0: 7})
    assert first.responses[0].partitions[0].error_code == Error.OFFSET_OUT_OF_RANGE
    assert reader.fetch().responses[0].partitions[0].error_code == Error.OFFSET_OUT_OF_RANGE
    assert told(reader.fetch({0: 0})) == {0: []}
    assert told(reader.fetch()) == {}


def test_a_topic_made_after_the_session_is_found_by_it(connection: Connection, topic: str) -> None:
    missing = Topic(topic, ZERO_UUID)
    reader = Reader(connection, missing, 12)
    assert reader.fetch({0: 0}).responses[0].partitions[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    produced = create_topic(connection, topic)
    produce(connection, produced, batch())
    wait_until(lambda: told(reader.fetch()).get(0) == [0], "the session finds the new topic")
