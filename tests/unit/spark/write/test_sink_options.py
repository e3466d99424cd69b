"""The options of the sink: what they mean, and what is said of those that cannot be."""

from __future__ import annotations

import pickle

import pytest

from barnabas.protocol.compression import Codec
from barnabas.spark.raw_options import OptionError
from barnabas.spark.write.sink_options import Delivery, SinkOptions, parse_sink

BOOTSTRAP = {"kafka.bootstrap.servers": "localhost:9092"}


def parse(**more: str) -> SinkOptions:
    return parse_sink(BOOTSTRAP | {name.replace("_", "."): value for name, value in more.items()})


def test_rows_are_written_exactly_once_unless_told_otherwise() -> None:
    assert parse().delivery is Delivery.EXACTLY_ONCE
    assert parse(delivery="at_least_once").delivery is Delivery.AT_LEAST_ONCE


def test_settings_of_a_producer_have_their_effect() -> None:
    producer = parse(
        kafka_compression_type="zstd",
        kafka_compression_zstd_level="9",
        kafka_batch_size="65536",
        kafka_max_request_size="2097152",
        kafka_transactional_id="orders",
    ).producer
    assert (producer.codec, producer.level) == (Codec.ZSTD, 9)
    assert (producer.batch_bytes, producer.request_bytes_max) == (65_536, 2_097_152)
    assert producer.transactional_id == "orders"


def test_options_travel_to_tasks() -> None:
    assert pickle.loads(pickle.dumps(parse(topic="t"))) == parse(topic="t")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"tpoic": "t"}, "option tpoic is not known to the sink; did you mean topic?"),
        ({"topic": "a b"}, "option topic is 'a b', which is not a topic name"),
        ({"delivery": "once"}, "option delivery is 'once': it takes exactly_once or at_least_once"),
        ({"kafka.acks": "1"}, "option kafka.acks must be all with option delivery=exactly_once"),
        ({"kafka.acks": "0"}, "option kafka.acks is '0': it takes all or -1 or 1"),
        ({"kafka.enable.idempotence": "false"}, "option kafka.enable.idempotence must be true"),
        ({"kafka.compression.type": "brotli"}, "option kafka.compression.type is 'brotli': it takes none or gzip"),
        (
            {"kafka.compression.type": "gzip", "kafka.compression.gzip.level": "12"},
            "option kafka.compression.gzip.level",
        ),
        ({"kafka.batch.size": "lots"}, "option kafka.batch.size is 'lots': it takes a whole number"),
        ({"kafka.max.in.flight.requests.per.connection": "6"}, "option kafka.max.in.flight.requests.per.connection"),
        ({"kafka.value.serializer": "x"}, "option kafka.value.serializer cannot be set in a pipeline"),
        ({"path": "orders"}, "option path is 'orders', but rows go to topics, not to paths: use option topic"),
        ({"asyncProgressTrackingEnabled": "true"}, "option asyncProgressTrackingEnabled is true"),
        ({"delivery": "at_least_once", "markerTopic": "m"}, "option markerTopic is about markers"),
        ({"delivery": "at_least_once", "kafka.transactional.id": "m"}, "option kafka.transactional.id is set"),
    ],
)
def test_an_option_that_cannot_be_is_named(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError) as failure:
        parse_sink(BOOTSTRAP | given)
    assert str(failure.value).startswith(complaint)


def test_what_exactly_once_cannot_have_is_taken_at_least_once() -> None:
    assert parse(delivery="at_least_once", asyncProgressTrackingEnabled="true").delivery is Delivery.AT_LEAST_ONCE
    assert parse(asyncProgressTrackingEnabled="false").delivery is Delivery.EXACTLY_ONCE


def test_without_a_cluster_nothing_is_written() -> None:
    with pytest.raises(
        OptionError, match=r"kafka\.bootstrap\.servers is missing.*is kafka\.bootstrap\.server a misspelling of it"
    ):
        parse_sink({"kafka.bootstrap.server": "localhost:9092"})
