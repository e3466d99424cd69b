"""Records go in through each library and come out of each as they went in."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import pytest

from tests.clients.adapter import (
    CODECS,
    ClientError,
    Codec,
    ConsumerOptions,
    Delivery,
    Message,
    ProducerOptions,
    consume,
    values,
)

if TYPE_CHECKING:
    from typing import Literal

    from tests.clients.adapter import Client
    from tests.clients.with_confluent import ConfluentClient

MESSAGE_TOO_LARGE = 10
OFFSET_OUT_OF_RANGE = 1


def test_keys_values_headers_and_timestamps_come_back_as_they_were_sent(client: Client, topic: str) -> None:
    client.create_topic(topic)
    now_ms = int(time.time() * 1000)
    sent = [
        Message(b"value", b"key", (("a", b"1"), ("a", b"2"), ("empty", b"")), now_ms - 60_000),
        Message(None, b"tombstone", (), now_ms),
        Message(b"no key", None, (), now_ms + 1),
        Message(b"", b"", (), now_ms + 3),
        Message(bytes(range(256)), "ключ".encode(), (("имя", "значение".encode()),), now_ms + 4),
    ]
    assert client.produce(topic, sent) == [Delivery(0, offset) for offset in range(5)]
    received = consume(client, topic, 5)
    assert [(r.value, r.key, r.headers, r.timestamp_ms) for r in received] == [
        (m.value, m.key, m.headers, m.timestamp_ms) for m in sent
    ]
    assert [r.offset for r in received] == list(range(5))
    assert {r.timestamp_type for r in received} == {0}


def test_a_record_may_have_neither_key_nor_value_and_a_header_no_value(
    confluent: ConfluentClient, client: Client, topic: str
) -> None:
    confluent.create_topic(topic)
    confluent.produce(topic, [Message(None, None, (("absent", None), ("empty", b"")))])
    (received,) = consume(client, topic, 1)
    assert (received.key, received.value) == (None, None)
    assert received.headers == (("absent", None), ("empty", b""))


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_each_codec_come_back(client: Client, topic: str, codec: Codec) -> None:
    client.create_topic(topic)
    sent = [Message(b"%d " % n * 200, b"key-%d" % n) for n in range(500)]
    client.produce(topic, sent, options=ProducerOptions(codec=codec))
    received = consume(client, topic, 500)
    assert [(r.key, r.value) for r in received] == [(m.key, m.value) for m in sent]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_each_level_of_acknowledgement_stores_the_records(client: Client, topic: str, acks: Literal[0, 1, -1]) -> None:
    client.create_topic(topic)
    deliveries = client.produce(topic, values(20), options=ProducerOptions(acks=acks), partition=0)
    if acks != 0:
        assert [d.offset for d in deliveries] == list(range(20))
    assert [r.value for r in consume(client, topic, 20)] == [m.value for m in values(20)]


def test_an_idempotent_producer_stores_each_record_once_in_order(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, values(1_000), options=ProducerOptions(idempotent=True))
    assert [r.value for r in consume(client, topic, 1_000)] == [m.value for m in values(1_000)]
    assert client.offset_range(topic) == (0, 1_000)


def test_a_record_of_a_million_bytes_goes_through(client: Client, topic: str) -> None:
    client.create_topic(topic)
    large = Message(b"x" * 1_000_000)
    client.produce(topic, [large, Message(b"after")])
    assert [r.value for r in consume(client, topic, 2)] == [large.value, b"after"]


def test_a_batch_beyond_max_message_bytes_is_refused_and_the_next_goes_through(client: Client, topic: str) -> None:
    client.create_topic(topic, config={"max.message.bytes": "10000"})
    with pytest.raises(ClientError) as refused:
        client.produce(topic, [Message(b"x" * 20_000)])
    assert refused.value.code == MESSAGE_TOO_LARGE
    client.produce(topic, [Message(b"small")])
    assert [r.value for r in consume(client, topic, 1)] == [b"small"]


def test_a_record_beyond_every_fetch_limit_is_delivered_and_nobody_gets_stuck(client: Client, topic: str) -> None:
    client.create_topic(topic)
    sent = [Message(b"x" * 50_000 + b"%d" % n) for n in range(5)]
    for message in sent:
        client.produce(topic, [message])
    limits = ConsumerOptions(fetch_max_bytes=2_000, max_partition_bytes=1_000)
    assert [r.value for r in consume(client, topic, 5, options=limits)] == [m.value for m in sent]


def test_consuming_starts_at_any_offset(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, values(100))
    for start in (0, 1, 57, 99):
        assert consume(client, topic, 1, start=start)[0].offset == start
    with client.consumer(topic, 90) as consumer:
        assert [r.offset for r in consumer.receive(10)] == list(range(90, 100))
        consumer.seek(5)
        assert [r.offset for r in consumer.receive(3)] == [5, 6, 7]


def test_a_consumer_at_the_end_sees_only_what_comes_after(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, values(10))
    with client.consumer(topic, "end") as consumer:
        deadline = time.monotonic() + 30
        received = consumer.receive(1, deadline_s=0.2)
        for number in itertools.count():
            if received or time.monotonic() > deadline:
                break
            client.produce(topic, [Message(b"later-%d" % number)])
            received = consumer.receive(1, deadline_s=0.2)
    assert received
    assert received[0].offset >= 10
    assert (received[0].value or b"").startswith(b"later-")


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 0), ("latest", 10)])
def test_an_offset_out_of_range_follows_auto_offset_reset(
    client: Client, topic: str, reset: Literal["earliest", "latest"], expected: int
) -> None:
    client.create_topic(topic)
    client.produce(topic, values(10))
    with client.consumer(topic, 1_000, options=ConsumerOptions(out_of_range=reset)) as consumer:
        deadline = time.monotonic() + 30
        received = consumer.receive(1, deadline_s=1.0)
        while not received and time.monotonic() < deadline:
            client.produce(topic, [Message(b"later")])
            received = consumer.receive(1, deadline_s=0.5)
    assert received
    if reset == "earliest":
        assert received[0].offset == expected
    else:
        assert received[0].offset >= expected


def test_an_offset_out_of_range_is_an_error_where_no_reset_is_set(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, values(10))
    with client.consumer(topic, 1_000) as consumer, pytest.raises(ClientError) as refused:
        consumer.receive(1, deadline_s=10)
    assert refused.value.code == OFFSET_OUT_OF_RANGE or client.name == "confluent-kafka"


def test_the_position_is_found_by_time(client: Client, topic: str) -> None:
    client.create_topic(topic)
    base_ms = int(time.time() * 1000) - 100_000
    for n in range(10):
        client.produce(topic, [Message(b"%d" % n, timestamp_ms=base_ms + 1000 * n)])
    assert client.offset_for_time(topic, base_ms - 1) == 0
    assert client.offset_for_time(topic, base_ms) == 0
    assert client.offset_for_time(topic, base_ms + 1) == 1
    assert client.offset_for_time(topic, base_ms + 4_500) == 5
    assert client.offset_for_time(topic, base_ms + 9_000) == 9
    assert client.offset_for_time(topic, base_ms + 9_001) is None


def test_the_beginning_and_the_end_are_told(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    assert client.offset_range(topic, 1) == (0, 0)
    client.produce(topic, values(7), partition=1)
    assert client.offset_range(topic, 1) == (0, 7)
    assert client.offset_range(topic, 0) == (0, 0)


def test_what_one_library_wrote_every_other_reads(client: Client, confluent: ConfluentClient, topic: str) -> None:
    client.create_topic(topic)
    for codec in CODECS:
        client.produce(topic, values(10, prefix=codec), options=ProducerOptions(codec=codec))
    expected = [m.value for codec in CODECS for m in values(10, prefix=codec)]
    assert [r.value for r in consume(confluent, topic, 50)] == expected
    assert [r.value for r in consume(client, topic, 50)] == expected


def test_log_append_time_is_the_brokers_clock(client: Client, topic: str) -> None:
    client.create_topic(topic, config={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    client.produce(topic, [Message(b"old", timestamp_ms=before_ms - 86_400_000)])
    (received,) = consume(client, topic, 1)
    assert received.timestamp_type == 1
    assert before_ms - 1 <= received.timestamp_ms <= int(time.time() * 1000) + 1
