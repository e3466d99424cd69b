"""The benchmark's own clients send and read what they say they do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from bench.loads import consume, produce, requests, session_fetches
from bench.loads.consume import ConsumeLoad
from bench.loads.produce import CHUNK_RECORDS, ProduceLoad
from bench.loads.requests import RequestsLoad
from bench.loads.session_fetches import SessionLoad
from bench.topics import fresh_topic

from barnabas.cli.kafka.loads.librdkafka import Chunk, LibrdkafkaError, Producer

if TYPE_CHECKING:
    from tests.peers import Peer


@pytest.mark.parametrize(("codec", "partitions"), [("none", 1), ("lz4", 4), ("zstd", 7)])
def test_a_produce_load_leaves_as_many_records_as_it_counts(node: Peer, codec: str, partitions: int) -> None:
    wanted = 20 * CHUNK_RECORDS
    with fresh_topic(node.bootstrap, partitions) as topic:
        load = ProduceLoad(
            node.bootstrap, os.getpid(), topic.name, partitions, 100, "all", codec, seconds=60, records_max=wanted
        )
        figures = produce.run(load)
        assert topic.record_count() == figures["records_total"] > figures["units"]
        assert figures["units"] >= wanted
        read = ConsumeLoad(node.bootstrap, os.getpid(), topic.name, partitions, topic.record_count(), seconds=0.001)
        assert consume.run(read)["units"] == topic.record_count()


def test_a_request_of_several_batches_leaves_one_in_each_partition(node: Peer) -> None:
    with fresh_topic(node.bootstrap, 5) as topic:
        load = RequestsLoad("127.0.0.1", node.port, os.getpid(), topic.name, 5, 100, 2, 3, seconds=0.1, batches=5)
        assert requests.run(load)["units"] == topic.record_count() > 0


def test_a_session_fetches_each_record_that_is_written(node: Peer) -> None:
    with fresh_topic(node.bootstrap, 20) as topic:
        load = SessionLoad("127.0.0.1", node.port, os.getpid(), topic.name, topic.id(), 20, seconds=0.2)
        assert session_fetches.run(load)["units"] == topic.record_count() > 0


def test_a_setting_that_librdkafka_does_not_know_is_named(node: Peer) -> None:
    with pytest.raises(LibrdkafkaError, match=r"no\.such\.setting"):
        Producer({"bootstrap.servers": node.bootstrap, "no.such.setting": "1"}, "t")


def test_records_for_a_partition_that_is_not_there_are_refused(node: Peer) -> None:
    with fresh_topic(node.bootstrap, 1) as topic:
        producer = Producer({"bootstrap.servers": node.bootstrap}, topic.name)
        producer.produce(Chunk([b"value"]), 0)
        producer.flush(30)
        with pytest.raises(LibrdkafkaError, match="1 of 1"):
            producer.produce(Chunk([b"value"]), 5)
        producer.close()
