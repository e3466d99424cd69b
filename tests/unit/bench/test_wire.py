"""The hand-made frames of the load, read by the codec: two implementations that share nothing agree."""

from __future__ import annotations

import pytest
from bench import wire

from barnabas.protocol import codec, headers
from barnabas.protocol import messages as m
from barnabas.protocol.batch import decode_records

TIMESTAMP_MS = 1_700_000_000_000
TOPICS = ["t", "requests", "x" * 200]


@pytest.mark.parametrize("topic", TOPICS)
def test_a_produce_frame_is_a_produce_request_of_one_partition(topic: str) -> None:
    batch = wire.record_batch([b"value"], TIMESTAMP_MS)
    frame = wire.produce_frame(topic, [3], batch)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = headers.parse_request_header(memoryview(frame), 4)
    assert (header.api_key, header.api_version, header.correlation_id) == (0, wire.PRODUCE_VERSION, 0)
    request = codec.decode(m.ProduceRequest, frame, header.api_version, header.body_offset)
    assert (request.transactional_id, request.acks) == (None, 1)
    assert [each.name for each in request.topic_data] == [topic]
    assert [each.index for each in request.topic_data[0].partition_data] == [3]
    assert request.topic_data[0].partition_data[0].records == batch


def test_a_correlation_id_goes_where_the_constant_says() -> None:
    frame = bytearray(wire.produce_frame("t", [0], b""))
    frame[wire.CORRELATION_AT : wire.CORRELATION_AT + 4] = (77).to_bytes(4, "big")
    assert headers.parse_request_header(memoryview(frame), 4).correlation_id == 77


@pytest.mark.parametrize("count", [1, 64, 200])
def test_a_record_batch_holds_its_values_in_order(count: int) -> None:
    values = [b"%d" % number * number for number in range(count)]
    found = decode_records(wire.record_batch(values, TIMESTAMP_MS))
    assert [each.value for each in found] == values
    assert [each.offset for each in found] == list(range(count))
    assert {each.timestamp for each in found} == {TIMESTAMP_MS}
    assert {each.key for each in found} == {None}


@pytest.mark.parametrize("topic", TOPICS)
def test_the_answer_to_a_produce_has_the_expected_length_and_place_of_the_error(topic: str) -> None:
    partition = m.ProduceResponse.PartitionProduceResponse(index=1, error_code=0x0102, base_offset=5)
    answer = m.ProduceResponse(
        responses=[m.ProduceResponse.TopicProduceResponse(name=topic, partition_responses=[partition])]
    )
    size, correlation, tags = bytes(4), bytes(4), bytes(1)
    frame = size + correlation + tags + codec.encode(answer, wire.PRODUCE_VERSION)
    reply = wire.ProduceReply.of(topic)
    assert len(frame) == reply.size_bytes
    assert frame[reply.error_at : reply.error_at + 2] == b"\x01\x02"
