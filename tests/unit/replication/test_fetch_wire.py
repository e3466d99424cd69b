"""The hand-written bytes of a follower's Fetch are those of the codec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.uuids import Uuid
from barnabas.replication.fetch_wire import (
    VERSION,
    AskedPartition,
    FetchLimits,
    by_topic,
    read_answer,
    write_request,
)
from barnabas.replication.follower import EpochEnd

INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(-1, 2**63 - 1)
TOPIC_IDS = st.binary(min_size=16, max_size=16)
ASKED = st.builds(AskedPartition, INT32, INT32, INT64, INT32, INT64)


@given(
    st.dictionaries(TOPIC_IDS, st.lists(ASKED, max_size=3), max_size=3),
    st.dictionaries(TOPIC_IDS, st.lists(INT32, max_size=3), max_size=3),
    INT32,
    INT32,
)
def test_requests_are_those_of_the_codec(
    topics: dict[bytes, list[AskedPartition]], forgotten: dict[bytes, list[int]], session_id: int, session_epoch: int
) -> None:
    body = write_request(
        FetchLimits(500, 1, 10_000_000, 1_000_000), session_id, session_epoch, topics, forgotten, 3, 77
    )
    request = codec.decode(m.FetchRequest, body, VERSION)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10_000_000)
    assert (request.session_id, request.session_epoch) == (session_id, session_epoch)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (3, 77)
    assert {
        bytes(topic.topic_id): [
            AskedPartition(
                each.partition,
                each.current_leader_epoch,
                each.fetch_offset,
                each.last_fetched_epoch,
                each.log_start_offset,
            )
            for each in topic.partitions
        ]
        for topic in request.topics
    } == topics
    assert all(each.partition_max_bytes == 1_000_000 for topic in request.topics for each in topic.partitions)
    assert {bytes(each.topic_id): list(each.partitions) for each in request.forgotten_topics_data} == forgotten
    assert codec.encode(request, VERSION) == body


def an_answer(records: bytes, *, diverging: EpochEnd | None = None, leader: int = -1, aborted: int = 0) -> bytes:
    partition = m.FetchResponse.PartitionData(
        partition_index=7,
        error_code=3,
        high_watermark=40,
        last_stable_offset=39,
        log_start_offset=5,
        records=records,
        aborted_transactions=[
            m.FetchResponse.AbortedTransaction(producer_id=1, first_offset=2) for _ in range(aborted)
        ],
    )
    if diverging is not None:
        partition.diverging_epoch = m.FetchResponse.EpochEndOffset(
            epoch=diverging.epoch, end_offset=diverging.end_offset
        )
    if leader >= 0:
        partition.current_leader = m.FetchResponse.LeaderIdAndEpoch(leader_id=leader, leader_epoch=9)
    topic = m.FetchResponse.FetchableTopicResponse(topic_id=Uuid(b"t" * 16), partitions=[partition, partition])
    return codec.encode(m.FetchResponse(session_id=11, responses=[topic]), VERSION)


@given(
    st.binary(max_size=300),
    st.none() | st.builds(EpochEnd, INT32, INT64),
    st.integers(-1, 5),
    st.integers(0, 200),
)
def test_answers_are_those_of_the_codec(records: bytes, diverging: EpochEnd | None, leader: int, aborted: int) -> None:
    answer = read_answer(memoryview(an_answer(records, diverging=diverging, leader=leader, aborted=aborted)))
    assert (answer.error, answer.session_id) == (0, 11)
    for _ in range(2):
        fetched = next(answer.partitions)
        assert (fetched.topic_id, fetched.partition, fetched.error) == (b"t" * 16, 7, 3)
        assert (fetched.high_watermark, fetched.log_start_offset) == (40, 5)
        assert fetched.diverging == (None if diverging == EpochEnd(-1, -1) else diverging)
        assert fetched.records == records
    assert next(answer.partitions, None) is None


def test_records_are_not_copied() -> None:
    body = bytearray(an_answer(b"r" * 100))
    fetched = next(read_answer(memoryview(body)).partitions)
    at = body.index(b"r" * 100)
    body[at] = ord("X")
    assert fetched.records[0] == ord("X")


def test_an_answer_that_breaks_off_anywhere_is_refused() -> None:
    whole = an_answer(b"r" * 10, diverging=EpochEnd(1, 2))
    for size in range(len(whole) - 1):
        with pytest.raises(DecodeError):
            list(read_answer(memoryview(whole)[:size]).partitions)


def test_indexes_are_grouped_by_topic() -> None:
    assert by_topic([(b"a", 1), (b"b", 2), (b"a", 3)]) == {b"a": [1, 3], b"b": [2]}
