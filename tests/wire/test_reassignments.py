"""What a cluster of one broker answers to requests to move partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from tests.wire.connection import Connection
    from tests.wire.requests import Topic

UNKNOWN = Error.UNKNOWN_TOPIC_OR_PARTITION
BAD = Error.INVALID_REPLICA_ASSIGNMENT


def alter(
    connection: Connection,
    wanted: dict[str, dict[int, list[int] | None]],
    version: int = 1,
    *,
    timeout_ms: int = 30_000,
    may_change_factor: bool = True,
) -> m.AlterPartitionReassignmentsResponse:
    request = m.AlterPartitionReassignmentsRequest
    topics = [
        request.ReassignableTopic(
            name=name,
            partitions=[
                request.ReassignablePartition(partition_index=index, replicas=replicas)
                for index, replicas in partitions.items()
            ],
        )
        for name, partitions in wanted.items()
    ]
    asked = request(topics=topics, timeout_ms=timeout_ms, allow_replication_factor_change=may_change_factor)
    return connection.call(asked, version, m.AlterPartitionReassignmentsResponse)


def outcomes(answer: m.AlterPartitionReassignmentsResponse) -> dict[tuple[str, int], tuple[int, str | None]]:
    return {
        (topic.name, each.partition_index): (each.error_code, each.error_message)
        for topic in answer.responses
        for each in topic.partitions
    }


def under_way(
    connection: Connection, wanted: dict[str, list[int]] | None = None
) -> dict[tuple[str, int], m.ListPartitionReassignmentsResponse.OngoingPartitionReassignment]:
    request = m.ListPartitionReassignmentsRequest
    topics = None
    if wanted is not None:
        topics = [
            request.ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
            for name, indexes in wanted.items()
        ]
    answer = connection.call(request(topics=topics), 0, m.ListPartitionReassignmentsResponse)
    assert (answer.error_code, answer.error_message) == (Error.NONE, None)
    return {(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions}


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("index", "replicas", "error", "why"),
    [
        (0, [1], Error.NONE, None),
        (0, None, Error.NO_REASSIGNMENT_IN_PROGRESS, None),
        (0, [2], BAD, "The manual partition assignment includes broker 2, but no such broker is registered."),
        (0, [1, 2], BAD, "The manual partition assignment includes broker 2, but no such broker is registered."),
        (0, [-1], BAD, "The manual partition assignment includes broker -1, but no such broker is registered."),
        (0, [], BAD, "The manual partition assignment includes an empty replica list."),
        (0, [1, 1], BAD, "The manual partition assignment includes the broker 1 more than once."),
        (7, [1], UNKNOWN, "Unable to find partition {}:7."),
        (-1, None, UNKNOWN, "Unable to find partition {}:-1."),
    ],
)
def test_a_partition_stays_where_it_is(
    connection: Connection,
    wire_topic: Topic,
    version: int,
    index: int,
    replicas: list[int] | None,
    error: Error,
    why: str | None,
) -> None:
    answer = alter(connection, {wire_topic.name: {index: replicas}}, version)
    assert (answer.error_code, answer.error_message) == (Error.NONE, None)
    message = None if why is None else why.format(wire_topic.name)
    assert outcomes(answer) == {(wire_topic.name, index): (error, message)}
    assert under_way(connection) == {}


def test_a_topic_that_does_not_exist_is_refused_and_the_rest_is_done(connection: Connection, wire_topic: Topic) -> None:
    answer = alter(connection, {"no-such-topic": {0: [1]}, wire_topic.name: {0: [1]}}, may_change_factor=False)
    assert outcomes(answer) == {
        ("no-such-topic", 0): (UNKNOWN, "Unable to find a topic named no-such-topic."),
        (wire_topic.name, 0): (Error.NONE, None),
    }
    assert not answer.allow_replication_factor_change


def test_without_any_time_the_controller_is_not_asked(connection: Connection, wire_topic: Topic) -> None:
    answer = alter(connection, {wire_topic.name: {0: [1]}}, timeout_ms=0)
    assert answer.error_code == Error.REQUEST_TIMED_OUT
    assert outcomes(answer) == {(wire_topic.name, 0): (Error.REQUEST_TIMED_OUT, None)}


def test_nothing_is_listed_for_what_does_not_exist(connection: Connection, wire_topic: Topic) -> None:
    assert under_way(connection, {}) == {}
    assert under_way(connection, {"no-such-topic": [0], wire_topic.name: [0, 7, -1]}) == {}


def test_very_many_topics_may_be_asked_for_at_once(connection: Connection, wire_topic: Topic) -> None:
    """More than are read in one go."""
    assert (
        under_way(connection, {wire_topic.name: [0], **{f"no-topic-{number}": [0, 1] for number in range(2000)}}) == {}
    )
