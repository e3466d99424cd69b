"""DescribeTopicPartitions: pages of partitions in the order of topic names."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.api.admin.topic_partitions import describe_topic_partitions
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.unit.broker.api.stand_ins import a_broker, a_config, a_partition, a_topic, an_image, caller

Page = list[tuple[str, list[int]]]


def ask(
    *names: str, cursor: tuple[str, int] | None = None, limit: int = 2000, server_limit: int = 2000
) -> m.DescribeTopicPartitionsResponse:
    async def answer() -> m.DescribeTopicPartitionsResponse:
        config = a_config(max_request_partition_size_limit=str(server_limit))
        broker = a_broker(an_image([a_topic("b", 3), a_topic("c", 1), a_topic("a", 2)]), config=config)
        request = m.DescribeTopicPartitionsRequest(
            topics=[m.DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor and m.DescribeTopicPartitionsRequest.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )
        response = await describe_topic_partitions(broker.admin, request, caller(0))
        return codec.decode(m.DescribeTopicPartitionsResponse, codec.encode(response, 0), 0)

    return asyncio.run(answer())


def page(response: m.DescribeTopicPartitionsResponse) -> Page:
    return [(topic.name or "", [p.partition_index for p in topic.partitions]) for topic in response.topics]


def next_page(response: m.DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


def test_all_topics_come_in_the_order_of_their_names() -> None:
    response = ask()
    assert page(response) == [("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]
    assert next_page(response) is None


@pytest.mark.parametrize("limit", range(1, 8))
def test_pages_that_follow_their_cursors_make_up_the_whole(limit: int) -> None:
    described: list[tuple[str, int]] = []
    cursor: tuple[str, int] | None = None
    while True:
        response = ask(cursor=cursor, limit=limit)
        partitions = [(name, index) for name, indexes in page(response) for index in indexes]
        assert 1 <= len(partitions) <= limit
        described += partitions
        cursor = next_page(response)
        if cursor is None:
            break
    assert described == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


def test_a_page_that_ends_with_a_topic_points_at_the_next_name_even_if_nobody_knows_it() -> None:
    response = ask("a", "zz", limit=2)
    assert page(response) == [("a", [0, 1])]
    assert next_page(response) == ("zz", 0)


def test_the_broker_limits_a_page_too() -> None:
    response = ask(server_limit=1)
    assert page(response) == [("a", [0])]
    assert next_page(response) == ("a", 1)


def test_a_limit_below_one_is_one() -> None:
    assert page(ask(limit=0)) == [("a", [0])]


def test_named_topics_that_do_not_exist_are_answered_with_an_error() -> None:
    errors = {topic.name: topic.error_code for topic in ask("a", "nobody", "no/slash").topics}
    assert errors == {
        "a": Error.NONE,
        "no/slash": Error.INVALID_TOPIC_EXCEPTION,
        "nobody": Error.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_cursor_behind_the_last_partition_finds_nothing() -> None:
    response = ask("a", cursor=("a", 7))
    assert page(response) == [("a", [])]
    assert next_page(response) is None


@pytest.mark.parametrize("cursor", [("zz", 0), ("a", -1)])
def test_a_cursor_must_stand_on_a_partition_of_a_topic_that_is_asked_for(cursor: tuple[str, int]) -> None:
    response = ask("a", cursor=cursor)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", Error.INVALID_REQUEST)]


def test_replicas_that_may_lead_are_listed() -> None:
    async def answer() -> m.DescribeTopicPartitionsResponse:
        partition = a_partition(leader=-1, replicas=(1, 2, 3), isr=())._replace(elr=(2,), last_known_elr=(3,))
        broker = a_broker(an_image([a_topic("t")._replace(partitions=(partition,))]))
        return await describe_topic_partitions(broker.admin, m.DescribeTopicPartitionsRequest(), caller(0))

    (partition,) = asyncio.run(answer()).topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (Error.NONE, -1)
    assert list(partition.eligible_leader_replicas or ()) == [2]
    assert list(partition.last_known_elr or ()) == [3]
    assert list(partition.offline_replicas) == [2, 3]
