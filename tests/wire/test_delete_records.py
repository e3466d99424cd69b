"""DeleteRecords moves the start of a log, and refuses what Kafka refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.batches import batch
from tests.wire.requests import EARLIEST, LATEST, Topic, create_topic, fetch, list_offsets, produce

if TYPE_CHECKING:
    from tests.wire.connection import Connection

NEWEST = 2
NONE_YET = -1
ALL = -1


def delete(
    connection: Connection,
    offsets: list[tuple[str, int, int]],
    version: int = NEWEST,
    timeout_ms: int = 30_000,
) -> dict[tuple[str, int], tuple[int, int]]:
    """The error and the low watermark of each partition."""
    request = m.DeleteRecordsRequest
    topics = [
        request.DeleteRecordsTopic(
            name=name, partitions=[request.DeleteRecordsPartition(partition_index=index, offset=offset)]
        )
        for name, index, offset in offsets
    ]
    answer = connection.call(request(topics=topics, timeout_ms=timeout_ms), version, m.DeleteRecordsResponse)
    return {
        (topic.name, partition.partition_index): (partition.error_code, partition.low_watermark)
        for topic in answer.topics
        for partition in topic.partitions
    }


def delete_one(connection: Connection, topic: Topic, offset: int, version: int = NEWEST) -> tuple[int, int]:
    (outcome,) = delete(connection, [(topic.name, 0, offset)], version).values()
    return outcome


@pytest.fixture
def filled(connection: Connection, wire_topic: Topic) -> Topic:
    """A topic whose only partition has five batches of one record."""
    for _ in range(5):
        assert produce(connection, wire_topic, batch([b"one"])).error_code == Error.NONE
    return wire_topic


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_the_log_starts_at_the_offset_from_then_on(connection: Connection, filled: Topic, version: int) -> None:
    assert delete_one(connection, filled, 3, version) == (Error.NONE, 3)
    assert list_offsets(connection, filled, EARLIEST).offset == 3
    assert list_offsets(connection, filled, LATEST).offset == 5
    assert fetch(connection, filled, offset=2).error_code == Error.OFFSET_OUT_OF_RANGE
    assert fetch(connection, filled, offset=3).log_start_offset == 3


def test_an_offset_before_the_start_changes_nothing(connection: Connection, filled: Topic) -> None:
    delete_one(connection, filled, 3)
    assert delete_one(connection, filled, 1) == (Error.NONE, 3)


def test_all_that_is_committed_goes_without_an_offset(connection: Connection, filled: Topic) -> None:
    assert delete_one(connection, filled, ALL) == (Error.NONE, 5)
    assert produce(connection, filled, batch([b"one"])).base_offset == 5
    assert list_offsets(connection, filled, EARLIEST).offset == 5


@pytest.mark.parametrize("offset", [6, 1 << 40, -2])
def test_an_offset_beyond_the_high_watermark_or_without_a_meaning_is_refused(
    connection: Connection, filled: Topic, offset: int
) -> None:
    assert delete_one(connection, filled, offset) == (Error.OFFSET_OUT_OF_RANGE, NONE_YET)
    assert list_offsets(connection, filled, EARLIEST).offset == 0


def test_what_does_not_exist_is_refused_and_the_rest_is_done(connection: Connection, filled: Topic) -> None:
    outcomes = delete(connection, [("no-such-topic", 0, 0), (filled.name, 7, 0), (filled.name, 0, 2), ("", 0, 0)])
    unknown = (Error.UNKNOWN_TOPIC_OR_PARTITION, NONE_YET)
    assert outcomes == {
        ("no-such-topic", 0): unknown,
        (filled.name, 7): unknown,
        (filled.name, 0): (Error.NONE, 2),
        ("", 0): unknown,
    }


def test_a_partition_that_is_named_twice_is_answered_once(connection: Connection, filled: Topic) -> None:
    assert delete(connection, [(filled.name, 0, 2), (filled.name, 0, 3)]) == {(filled.name, 0): (Error.NONE, 3)}


def test_records_of_a_topic_that_is_only_compacted_stay(connection: Connection, topic: str) -> None:
    compacted = create_topic(connection, topic, config={"cleanup.policy": "compact"})
    assert delete_one(connection, compacted, 0) == (Error.POLICY_VIOLATION, NONE_YET)
    both = create_topic(connection, f"{topic}-both", config={"cleanup.policy": "compact,delete"})
    assert delete_one(connection, both, 0) == (Error.NONE, 0)


def test_records_of_an_internal_topic_stay(connection: Connection) -> None:
    name = "__consumer_offsets"

    def exists() -> bool:
        found = connection.call(m.FindCoordinatorRequest(key="any"), 3, m.FindCoordinatorResponse)
        return found.error_code == Error.NONE

    wait_until(exists, "the topic of groups is there")
    assert delete(connection, [(name, 0, 0)]) == {(name, 0): (Error.INVALID_TOPIC_EXCEPTION, NONE_YET)}


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_what_is_done_at_once_needs_no_time(connection: Connection, filled: Topic, timeout_ms: int) -> None:
    assert delete(connection, [(filled.name, 0, 1)], timeout_ms=timeout_ms) == {(filled.name, 0): (Error.NONE, 1)}


def test_a_large_request_is_answered_like_a_small_one(connection: Connection, filled: Topic) -> None:
    outcomes = delete(connection, [(filled.name, index, 4) for index in range(2000)])
    assert outcomes[filled.name, 0] == (Error.NONE, 4)
    assert {outcomes[filled.name, index] for index in range(1, 2000)} == {(Error.UNKNOWN_TOPIC_OR_PARTITION, NONE_YET)}
