"""The hand-written reading and writing of Produce agrees with the codec, in every version."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.api.produce.produce_lanes import NO_TAGS, Lane, find_lane_end
from barnabas.broker.api.produce.produce_wire import (
    FIRST_FLEXIBLE_VERSION,
    FIRST_VERSION_WITH_TOPIC_IDS,
    PartitionAnswer,
    ProduceRequest,
    encode_answer,
    parse_classic,
    parse_flexible,
)
from barnabas.log.append_batches import Appended
from barnabas.net.large_requests import TooMuchAtOnceError
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.codec import DecodeError
from barnabas.protocol.uuids import Uuid

VERSIONS = range(3, 14)
TOPIC_ID = Uuid(bytes(range(16)))

names = st.text(st.sampled_from("abc.-_"), min_size=1, max_size=200)
partitions = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.binary(max_size=300)), max_size=4)
requests = st.builds(
    lambda transactional_id, acks, timeout_ms, topics: (transactional_id, acks, timeout_ms, topics),
    st.none() | st.text(max_size=200),
    st.sampled_from([-1, 0, 1]),
    st.integers(0, 2**31 - 1),
    st.lists(st.tuples(names, partitions), max_size=3),
)


def parse(body: bytes, version: int) -> ProduceRequest:
    reader = parse_flexible if version >= FIRST_FLEXIBLE_VERSION else parse_classic
    return reader(memoryview(body), 0, version)


def as_message(request: tuple[str | None, int, int, list[tuple[str, list[tuple[int, bytes]]]]]) -> m.ProduceRequest:
    transactional_id, acks, timeout_ms, topics = request
    return m.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            m.ProduceRequest.TopicProduceData(
                name=name,
                topic_id=TOPIC_ID,
                partition_data=[
                    m.ProduceRequest.PartitionProduceData(index=index, records=records) for index, records in batches
                ],
            )
            for name, batches in topics
        ],
    )


def encoded(message: m.ProduceRequest, version: int) -> bytes:
    for topic in message.topic_data:
        topic.name, topic.topic_id = (
            ("", TOPIC_ID) if version >= FIRST_VERSION_WITH_TOPIC_IDS else (topic.name, Uuid(bytes(16)))
        )
    return codec.encode(message, version)


@given(requests, st.sampled_from(VERSIONS))
def test_a_request_is_read_as_the_codec_writes_it(
    request: tuple[str | None, int, int, list[tuple[str, list[tuple[int, bytes]]]]], version: int
) -> None:
    found = parse(encoded(as_message(request), version), version)
    transactional_id, acks, timeout_ms, named = request
    topics = [(name, batches) for name, batches in named if batches]  # the others are not answered either
    assert (found.transactional_id, found.acks, found.timeout_ms) == (transactional_id, acks, timeout_ms)
    assert [[(index, bytes(batch)) for index, batch in batches] for _, batches in found.topics] == [
        batches for _, batches in topics
    ]
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    assert [topic for topic, _ in found.topics] == [TOPIC_ID if by_id else name.encode() for name, _ in topics]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_at_any_byte_is_malformed(version: int) -> None:
    body = encoded(as_message(("tx", -1, 1000, [("topic", [(0, b"0123456789"), (7, b"")])])), version)
    for end in range(len(body)):
        with pytest.raises((DecodeError, struct.error, IndexError)):
            parse(body[:end], version)


@given(st.binary(max_size=200), st.sampled_from(VERSIONS))
def test_random_bytes_are_read_within_bounds_or_refused(body: bytes, version: int) -> None:
    try:
        parse(body, version)
    except (DecodeError, TooMuchAtOnceError, struct.error, IndexError):
        return


def answer(index: int, error: int, message: str | None) -> PartitionAnswer:
    one = PartitionAnswer(index)
    one.error, one.message = error, message
    one.base_offset, one.log_append_time, one.log_start = 12345678901, 1700000000000, 7
    return one


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_is_what_the_codec_reads(version: int) -> None:
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    topic = TOPIC_ID if by_id else b"topic"
    frame = encode_answer(version, 42, [(topic, [answer(0, 0, None), answer(9, 87, "no" * 100)])])
    size, correlation_id = struct.unpack_from(">ii", frame)
    assert (size, correlation_id) == (len(frame) - 4, 42)
    response = codec.decode(m.ProduceResponse, frame, version, 9 if version >= FIRST_FLEXIBLE_VERSION else 8)
    (answered,) = response.responses
    assert (answered.topic_id if by_id else answered.name.encode()) == topic
    good, bad = answered.partition_responses
    assert (good.index, good.error_code, good.base_offset) == (0, 0, 12345678901)
    assert good.log_append_time_ms == 1700000000000
    assert good.log_start_offset == (7 if version >= 5 else -1)
    assert (bad.index, bad.error_code) == (9, 87)
    assert bad.error_message == ("no" * 100 if version >= 8 else None)


@pytest.mark.parametrize("version", range(FIRST_FLEXIBLE_VERSION, 14))
def test_a_lane_answers_with_the_bytes_of_the_long_way(version: int) -> None:
    topic = TOPIC_ID if version >= FIRST_VERSION_WITH_TOPIC_IDS else b"topic"
    long_way = PartitionAnswer(3)
    long_way.base_offset, long_way.log_append_time, long_way.log_start = 100, -1, 5
    lane = Lane(topic, 3, 1, 1000, None, version, has_transactional_id=False)  # type: ignore[arg-type]
    assert lane.encode(42, Appended(100, 109, -1, 5, False)) == encode_answer(version, 42, [(topic, [long_way])])


@given(requests, st.sampled_from(VERSIONS))
def test_only_a_request_of_one_batch_without_a_transaction_has_a_lane(
    request: tuple[str | None, int, int, list[tuple[str, list[tuple[int, bytes]]]]], version: int
) -> None:
    body = encoded(as_message(request), version)
    end = find_lane_end(memoryview(body), 0, version)
    transactional_id, _, _, topics = request
    is_simple = transactional_id is None and len(topics) == 1 and len(topics[0][1]) == 1
    if not end:
        return
    if is_simple:
        batch = topics[0][1][0][1]
        assert body.endswith(batch + NO_TAGS)
        assert struct.unpack_from(">i", body, end - 4)[0] == topics[0][1][0][0]
