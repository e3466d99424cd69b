"""Isolation levels that do not exist, and partitions that are named twice, in Fetch and ListOffsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.wire.batches import base_offsets, batch
from tests.wire.requests import (
    FETCH_BY_ID,
    LATEST,
    Topic,
    create_topic,
    fetch,
    fetch_request,
    list_offsets_request,
    produce,
    unknown_topic,
)

if TYPE_CHECKING:
    from tests.wire.connection import Connection

FIRST_WITH_TOP_LEVEL_ERROR = 7
NO_SUCH_LEVEL = 2
UNKNOWN_SESSION = 4711


def fetch_of(version: int, *named: tuple[Topic, int, int], level: int = 0) -> m.FetchRequest:
    """A fetch that names one (topic, partition, offset) after the other."""
    request = fetch_request(named[0][0], version)
    request.isolation_level = level
    request.topics = [
        each
        for topic, partition, offset in named
        for each in fetch_request(topic, version, partition=partition, offset=offset).topics
    ]
    return request


def answered(connection: Connection, request: m.FetchRequest, version: int) -> list[tuple[str, list[tuple[int, int]]]]:
    """By topic, in the order of the answer: partitions and their errors."""
    return [
        (topic.topic, [(each.partition_index, each.error_code) for each in topic.partitions])
        for topic in connection.call(request, version, m.FetchResponse).responses
    ]


@pytest.mark.parametrize(
    ("version", "level"),
    [(version, NO_SUCH_LEVEL) for version in (4, 5, 6, 7, 11, 12, 13, 18)] + [(12, 7), (12, 127), (12, -1)],
)
def test_a_fetch_at_an_isolation_level_that_does_not_exist_fails_as_a_whole(
    connection: Connection, wire_topic: Topic, version: int, level: int
) -> None:
    produce(connection, wire_topic, batch([b"a"]))
    for _ in range(2):
        answer = connection.call(fetch_of(version, (wire_topic, 0, 0), level=level), version, m.FetchResponse)
        if version >= FIRST_WITH_TOP_LEVEL_ERROR:
            assert (answer.error_code, answer.session_id) == (Error.UNKNOWN_SERVER_ERROR, 0)
        if version >= FETCH_BY_ID:
            assert answer.responses == []
        else:
            (topic,) = answer.responses
            (partition,) = topic.partitions
            assert (topic.topic, partition.partition_index) == (wire_topic.name, 0)
            assert partition.error_code == Error.UNKNOWN_SERVER_ERROR
            assert (partition.high_watermark, partition.last_stable_offset, partition.log_start_offset) == (-1, -1, -1)
            assert partition.aborted_transactions == []
            assert bytes(partition.records or b"") == b""
    assert base_offsets(fetch(connection, wire_topic).records) == [0], "the connection is still good"


def test_a_fetch_that_fails_as_a_whole_is_answered_in_its_own_words(connection: Connection, wire_topic: Topic) -> None:
    """With all that it names, be it unknown or named twice, and the session that it speaks of."""
    named = [(unknown_topic(), 0, 0), (wire_topic, 0, 0), (wire_topic, 9, 0), (wire_topic, 0, 1)]
    request = fetch_of(12, *named, level=NO_SUCH_LEVEL)
    failed = Error.UNKNOWN_SERVER_ERROR
    assert answered(connection, request, 12) == [(topic.name, [(partition, failed)]) for topic, partition, _ in named]
    request.session_id = UNKNOWN_SESSION
    assert connection.call(request, 12, m.FetchResponse).session_id == UNKNOWN_SESSION


@pytest.mark.parametrize("version", [4, 12, 17])
def test_a_fetch_of_what_does_not_exist_does_not_look_at_its_isolation_level(
    connection: Connection, wire_topic: Topic, version: int
) -> None:
    unknown = Error.UNKNOWN_TOPIC_ID if version >= FETCH_BY_ID else Error.UNKNOWN_TOPIC_OR_PARTITION
    request = fetch_of(version, (unknown_topic(), 0, 0), (wire_topic, 9, 0), level=NO_SUCH_LEVEL)
    answer = connection.call(request, version, m.FetchResponse)
    assert answer.error_code == Error.NONE
    partitions = [each for topic in answer.responses for each in topic.partitions]
    assert [each.error_code for each in partitions] == [unknown, Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert [each.aborted_transactions for each in partitions] == [[], []]
    request.topics = []
    answer = connection.call(request, version, m.FetchResponse)
    assert (answer.error_code, answer.responses) == (Error.NONE, [])


def test_an_unknown_session_is_told_before_an_unknown_isolation_level(
    connection: Connection, wire_topic: Topic
) -> None:
    request = fetch_request(wire_topic, 17, session_id=UNKNOWN_SESSION, session_epoch=1)
    request.isolation_level = NO_SUCH_LEVEL
    assert connection.call(request, 17, m.FetchResponse).error_code == Error.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("session_epoch", [0, -1], ids=["begins another", "ends it"])
def test_a_full_fetch_is_answered_whatever_session_it_leaves(
    connection: Connection, wire_topic: Topic, session_epoch: int
) -> None:
    produce(connection, wire_topic, batch([b"a"]))
    request = fetch_request(wire_topic, 12, session_id=UNKNOWN_SESSION, session_epoch=session_epoch)
    answer = connection.call(request, 12, m.FetchResponse)
    assert answer.error_code == Error.NONE
    assert base_offsets(answer.responses[0].partitions[0].records) == [0]


@pytest.mark.parametrize("version", [4, 12, 17])
def test_a_partition_that_is_asked_for_twice_is_answered_once_as_its_last_mention_says(
    connection: Connection, wire_topic: Topic, version: int
) -> None:
    for value in (b"a", b"b"):
        produce(connection, wire_topic, batch([value]))
    apart = fetch_of(version, (wire_topic, 0, 0), (wire_topic, 0, 1))
    together = fetch_request(wire_topic, version)
    together.topics[0].partitions = [each.partitions[0] for each in apart.topics]
    for request in (apart, together):
        (topic,) = connection.call(request, version, m.FetchResponse).responses
        (partition,) = topic.partitions
        assert base_offsets(partition.records) == [1]


def test_partitions_are_answered_in_the_order_of_their_first_mention_and_unknown_ones_last(
    connection: Connection, topic: str
) -> None:
    one, two = (create_topic(connection, f"{topic}-{n}", partitions=2) for n in range(2))
    nowhere = unknown_topic()
    request = fetch_of(
        12, (nowhere, 0, 0), (one, 0, 0), (one, 1, 0), (two, 0, 0), (one, 0, 0), (one, 9, 0), (two, 1, 0)
    )
    assert answered(connection, request, 12) == [
        (one.name, [(0, Error.NONE), (1, Error.NONE)]),
        (two.name, [(0, Error.NONE), (1, Error.NONE)]),
        (nowhere.name, [(0, Error.UNKNOWN_TOPIC_OR_PARTITION)]),
        (one.name, [(9, Error.UNKNOWN_TOPIC_OR_PARTITION)]),
    ]
    back_and_forth = fetch_of(12, (one, 0, 0), (two, 0, 0), (one, 1, 0))
    assert [name for name, _ in answered(connection, back_and_forth, 12)] == [one.name, two.name, one.name]


def test_a_topic_without_partitions_is_not_answered(connection: Connection, wire_topic: Topic) -> None:
    request = fetch_request(wire_topic, 12)
    request.topics[0].partitions = []
    assert connection.call(request, 12, m.FetchResponse).responses == []
    listing = list_offsets_request(wire_topic, LATEST)
    listing.topics[0].partitions = []
    assert connection.call(listing, 11, m.ListOffsetsResponse).topics == []


@pytest.mark.parametrize(("version", "level"), [(2, NO_SUCH_LEVEL), (11, NO_SUCH_LEVEL), (11, 7), (11, 127), (11, -1)])
def test_offsets_at_an_isolation_level_that_does_not_exist_cannot_be_listed(
    connection: Connection, wire_topic: Topic, version: int, level: int
) -> None:
    """Of no partition, be it unknown or named twice."""
    request = list_offsets_request(wire_topic, LATEST)
    request.isolation_level = level
    for topic in (wire_topic, unknown_topic()):
        request.topics += list_offsets_request(topic, LATEST).topics
    answer = connection.call(request, version, m.ListOffsetsResponse)
    found = [(topic.name, each) for topic in answer.topics for each in topic.partitions]
    assert [name for name, _ in found] == [wire_topic.name, wire_topic.name, unknown_topic().name]
    for _, each in found:
        assert (each.error_code, each.offset, each.timestamp) == (Error.UNKNOWN_SERVER_ERROR, -1, -1)


def test_offsets_of_a_partition_that_is_named_twice_are_refused_once(connection: Connection, wire_topic: Topic) -> None:
    request = list_offsets_request(wire_topic, LATEST)
    request.topics += list_offsets_request(wire_topic, LATEST).topics
    (topic,) = connection.call(request, 11, m.ListOffsetsResponse).topics
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(0, Error.INVALID_REQUEST)]
