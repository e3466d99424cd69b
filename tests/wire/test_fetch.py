"""Fetch: how much, how soon, from where, and by which name."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.batches import base_offsets, batch
from tests.wire.connection import Connection
from tests.wire.requests import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    Topic,
    create_topic,
    fetch,
    fetch_request,
    list_offsets,
    produce,
    unknown_topic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peers import Peer


def test_a_fetch_gives_whole_batches_from_the_one_that_holds_the_offset(
    connection: Connection, wire_topic: Topic
) -> None:
    for n in range(5):
        produce(connection, wire_topic, batch([b"%d" % n] * 3))
    assert base_offsets(fetch(connection, wire_topic).records) == [0, 3, 6, 9, 12]
    assert base_offsets(fetch(connection, wire_topic, offset=7).records) == [6, 9, 12]
    answer = fetch(connection, wire_topic, offset=15)
    assert (answer.error_code, answer.high_watermark, answer.log_start_offset) == (Error.NONE, 15, 0)
    assert not answer.records


def test_limits_hold_except_for_the_first_batch(connection: Connection, wire_topic: Topic) -> None:
    for _ in range(10):
        produce(connection, wire_topic, batch([b"x" * 1_000]))
    size = len(batch([b"x" * 1_000]))
    assert base_offsets(fetch(connection, wire_topic, partition_max_bytes=1).records) == [0]
    assert base_offsets(fetch(connection, wire_topic, partition_max_bytes=3 * size).records) == [0, 1, 2]
    assert base_offsets(fetch(connection, wire_topic, max_bytes=1, offset=4).records) == [4]
    assert base_offsets(fetch(connection, wire_topic, max_bytes=2 * size, offset=4).records) == [4, 5]
    assert len(fetch(connection, wire_topic, partition_max_bytes=2 * size + 10).records or b"") <= 2 * size + 10


def test_the_whole_answer_is_limited_over_its_partitions(connection: Connection, topic: str) -> None:
    """Only the first partition with data may exceed the limit."""
    wide = create_topic(connection, topic, partitions=3)
    for partition in range(3):
        request = m.ProduceRequest
        data = request.PartitionProduceData(index=partition, records=batch([b"x" * 1_000]))
        topic_data = request.TopicProduceData(name=wide.name, partition_data=[data])
        connection.call(request(acks=-1, timeout_ms=1_000, topic_data=[topic_data]), 9, m.ProduceResponse)
    wanted = fetch_request(wide, 12, max_bytes=500)
    wanted.topics[0].partitions = [
        m.FetchRequest.FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1_048_576) for n in range(3)
    ]
    (answered,) = connection.call(wanted, 12, m.FetchResponse).responses
    assert [bool(each.records) for each in answered.partitions] == [True, False, False]
    assert {each.error_code for each in answered.partitions} == {Error.NONE}


def test_a_fetch_waits_for_data_no_longer_than_it_says(connection: Connection, wire_topic: Topic) -> None:
    started = time.monotonic()
    assert not fetch(connection, wire_topic, max_wait_ms=300).records
    assert 0.28 <= time.monotonic() - started < 5
    started = time.monotonic()
    assert not fetch(connection, wire_topic, max_wait_ms=10_000, min_bytes=0).records
    assert time.monotonic() - started < 5


def test_a_waiting_fetch_is_answered_as_soon_as_data_is_there(
    connect: Callable[[], Connection], connection: Connection, wire_topic: Topic
) -> None:
    waiting = connect()
    waiting.send(fetch_request(wire_topic, 12, max_wait_ms=25_000), 12)
    timer = threading.Timer(0.2, lambda: produce(connection, wire_topic, batch()))
    timer.start()
    started = time.monotonic()
    _, answer = waiting.receive(m.FetchResponse, 12)
    timer.join()
    assert base_offsets(answer.responses[0].partitions[0].records) == [0]
    assert time.monotonic() - started < 10


def test_a_waiting_fetch_counts_bytes_up_to_its_minimum(
    connect: Callable[[], Connection], connection: Connection, wire_topic: Topic
) -> None:
    size = len(batch([b"x" * 1_000]))
    waiting = connect()
    waiting.send(fetch_request(wire_topic, 12, max_wait_ms=25_000, min_bytes=3 * size), 12)
    for _ in range(3):
        produce(connection, wire_topic, batch([b"x" * 1_000]))
    _, answer = waiting.receive(m.FetchResponse, 12)
    assert base_offsets(answer.responses[0].partitions[0].records) == [0, 1, 2]


def test_a_fetch_that_waited_in_vain_for_its_minimum_gets_what_there_is(
    connection: Connection, wire_topic: Topic
) -> None:
    produce(connection, wire_topic, batch([b"x"]))
    answer = fetch(connection, wire_topic, max_wait_ms=50, min_bytes=1_000_000)
    assert base_offsets(answer.records) == [0]


def test_equal_fetches_sent_ahead_are_each_answered_in_order(
    connect: Callable[[], Connection], connection: Connection, wire_topic: Topic
) -> None:
    request = fetch_request(wire_topic, 12, max_wait_ms=200)
    for _ in range(2):
        sent = [connection.send(request, 12) for _ in range(5)]
        answers = [connection.receive(m.FetchResponse, 12) for _ in sent]
        assert [correlation_id for correlation_id, _ in answers] == sent
        assert all(not answer.responses[0].partitions[0].records for _, answer in answers)
    request = fetch_request(wire_topic, 12, max_wait_ms=25_000)
    sent = [connection.send(request, 12) for _ in range(3)]
    assert produce(connect(), wire_topic, batch()).error_code == Error.NONE
    answers = [connection.receive(m.FetchResponse, 12) for _ in sent]
    assert [correlation_id for correlation_id, _ in answers] == sent
    assert all(base_offsets(answer.responses[0].partitions[0].records) == [0] for _, answer in answers)


def test_a_waiting_fetch_is_told_when_its_topic_goes(
    connect: Callable[[], Connection], connection: Connection, wire_topic: Topic
) -> None:
    waiting = connect()
    waiting.send(fetch_request(wire_topic, 13, max_wait_ms=20_000), 13)
    request = m.DeleteTopicsRequest
    deleted = request(topics=[request.DeleteTopicState(name=wire_topic.name)], timeout_ms=10_000)
    connection.call(deleted, 6, m.DeleteTopicsResponse)
    _, answer = waiting.receive(m.FetchResponse, 13)
    codes = {each.error_code for topic in answer.responses for each in topic.partitions} | {answer.error_code}
    assert codes & {Error.UNKNOWN_TOPIC_ID, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NOT_LEADER_OR_FOLLOWER}


@pytest.mark.parametrize("offset", [-1, 2, 1_000_000, 2**62])
def test_an_offset_out_of_range_is_an_error(connection: Connection, wire_topic: Topic, offset: int) -> None:
    produce(connection, wire_topic, batch())
    answer = fetch(connection, wire_topic, offset=offset)
    assert Error(answer.error_code) == Error.OFFSET_OUT_OF_RANGE
    assert not answer.records


@pytest.mark.parametrize(
    ("version", "expected"), [(12, Error.UNKNOWN_TOPIC_OR_PARTITION), (13, Error.UNKNOWN_TOPIC_ID)]
)
def test_an_unknown_topic_is_an_error_of_its_own_by_name_and_by_id(
    connection: Connection, version: int, expected: Error
) -> None:
    assert Error(fetch(connection, unknown_topic(), version).error_code) == expected


def test_an_unknown_partition_is_an_error(connection: Connection, wire_topic: Topic) -> None:
    request = fetch_request(wire_topic, 12, partition=9)
    answer = connection.call(request, 12, m.FetchResponse).responses[0].partitions[0]
    assert Error(answer.error_code) == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_a_leader_epoch_of_the_future_is_unknown(connection: Connection, wire_topic: Topic) -> None:
    request = fetch_request(wire_topic, 12, leader_epoch=99)
    answer = connection.call(request, 12, m.FetchResponse).responses[0].partitions[0]
    assert Error(answer.error_code) == Error.UNKNOWN_LEADER_EPOCH


def test_a_leader_epoch_of_the_past_is_fenced(fresh_node: Peer, topic: str) -> None:
    with Connection(fresh_node.port) as connection:
        fenced = create_topic(connection, topic)
    fresh_node.stop()
    fresh_node.start()
    with Connection(fresh_node.port) as connection:
        wait_until(lambda: fetch(connection, fenced).error_code == Error.NONE, "the partition has a leader")
        request = fetch_request(fenced, 12, leader_epoch=0)
        answer = connection.call(request, 12, m.FetchResponse).responses[0].partitions[0]
        assert Error(answer.error_code) == Error.FENCED_LEADER_EPOCH


def test_a_session_that_nobody_opened_is_refused(connection: Connection, wire_topic: Topic) -> None:
    request = fetch_request(wire_topic, 12, session_id=123_456, session_epoch=7)
    answer = connection.call(request, 12, m.FetchResponse)
    assert Error(answer.error_code) == Error.FETCH_SESSION_ID_NOT_FOUND


def test_a_diverging_epoch_is_told(connection: Connection, wire_topic: Topic) -> None:
    """A reader that has fetched in an epoch which this log does not have learns where the two part."""
    produce(connection, wire_topic, batch([b"a", b"b"]))
    request = fetch_request(wire_topic, 12, offset=2)
    request.topics[0].partitions[0].last_fetched_epoch = 0
    request.topics[0].partitions[0].fetch_offset = 5
    answer = connection.call(request, 12, m.FetchResponse).responses[0].partitions[0]
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 2)


def test_offsets_by_special_times(connection: Connection, wire_topic: Topic) -> None:
    now_ms = int(time.time() * 1000)
    for timestamp_ms in (now_ms - 3_000, now_ms, now_ms - 1_000):
        produce(connection, wire_topic, batch([b"a", b"b"], timestamp_ms=timestamp_ms))
    found = {t: list_offsets(connection, wire_topic, t) for t in (EARLIEST, LATEST, EARLIEST_LOCAL, MAX_TIMESTAMP)}
    assert {t: each.error_code for t, each in found.items()} == dict.fromkeys(found, Error.NONE)
    assert (found[EARLIEST].offset, found[EARLIEST].timestamp) == (0, -1)
    assert (found[LATEST].offset, found[LATEST].timestamp) == (6, -1)
    assert (found[EARLIEST_LOCAL].offset, found[EARLIEST_LOCAL].timestamp) == (0, -1)
    assert (found[MAX_TIMESTAMP].offset, found[MAX_TIMESTAMP].timestamp) == (2, now_ms)
    for special in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        answer = list_offsets(connection, wire_topic, special)
        assert (answer.error_code, answer.offset) == (Error.NONE, -1)


def test_offsets_by_time_name_the_record_and_its_time(connection: Connection, wire_topic: Topic) -> None:
    base_ms = int(time.time() * 1000) - 100_000
    for n in range(5):
        produce(connection, wire_topic, batch([b"a"], timestamp_ms=base_ms + n * 1_000))
    answer = list_offsets(connection, wire_topic, base_ms + 1_500)
    assert (answer.offset, answer.timestamp) == (2, base_ms + 2_000)
    assert answer.leader_epoch == 0
    answer = list_offsets(connection, wire_topic, base_ms + 10_000)
    assert (answer.error_code, answer.offset, answer.timestamp) == (Error.NONE, -1, -1)


def test_offsets_by_time_on_an_empty_partition(connection: Connection, wire_topic: Topic) -> None:
    assert list_offsets(connection, wire_topic, 0).offset == -1
    assert list_offsets(connection, wire_topic, MAX_TIMESTAMP).offset == -1
    assert list_offsets(connection, wire_topic, LATEST).offset == 0


def test_where_an_epoch_ends(connection: Connection, wire_topic: Topic) -> None:
    produce(connection, wire_topic, batch([b"a", b"b"]))
    request = m.OffsetForLeaderEpochRequest
    for epoch, expected in ((0, (Error.NONE, 0, 2)), (7, (Error.NONE, -1, -1))):
        wanted = request.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
        topic = request.OffsetForLeaderTopic(topic=wire_topic.name, partitions=[wanted])
        answer = connection.call(request(replica_id=-1, topics=[topic]), 4, m.OffsetForLeaderEpochResponse)
        (found,) = answer.topics[0].partitions
        assert (found.error_code, found.leader_epoch, found.end_offset) == expected
