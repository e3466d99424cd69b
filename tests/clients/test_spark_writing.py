"""Rows written as a task of Spark does it: each is there once, whatever happens to the task, its twin or the broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2

from barnabas.client.pool import borrowed, close_idle
from barnabas.protocol.errors import KafkaError
from barnabas.spark.write import sink_transactions
from barnabas.spark.write.delivery import Outcome, write_at_least_once
from barnabas.spark.write.exactly_once import MarkerError, Run, task_name
from barnabas.spark.write.sink_transactions import FencedError, Protocol
from tests.clients.adapter import CODECS, Codec
from tests.clients.committed import read_committed
from tests.clients.proxy import HOST, CuttingProxy
from tests.clients.with_confluent import ConfluentClient
from tests.clients.writes import PARTITIONS, QUERY, RUN, numbers, plan, rows, write_by, write_once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import MakeNode
    from tests.peers import Peer

pytestmark = pytest.mark.usefixtures("no_connections_from_before")

NOW_MS = time.time_ns() // 1_000_000
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])


@pytest.mark.parametrize("codec", CODECS)
def test_all_columns_arrive(node: Peer, output: str, codec: Codec) -> None:
    lists = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, []] * 100
    batch = pa.record_batch(
        {
            "key": pa.array([b"key", None, b""] * 100),
            "value": pa.array([b"value", b"", None] * 100),
            "headers": pa.array(lists, pa.list_(HEADER)),
            "timestamp": pa.array([NOW_MS * 1_000 + n * 1_000 for n in range(300)], pa.timestamp("us", tz="UTC")),
            "partition": pa.array([n % PARTITIONS for n in range(300)], pa.int32()),
        }
    )
    written = plan(node.bootstrap, topic=output, delivery="at_least_once", kafka_compression_type=codec)
    assert write_at_least_once(written, [batch]) == Outcome(300, was_written_before=False)
    found = read_committed(node.bootstrap, output, PARTITIONS)
    headers = [(("a", b"1"), ("a", None)), (), ()]
    expected = [
        (n % 3, [b"key", None, b""][n % 3], [b"value", b"", None][n % 3], headers[n % 3], NOW_MS + n)
        for n in sorted(range(300), key=lambda n: n % 3)
    ]
    assert [(each.partition, each.key, each.value, each.headers, each.timestamp_ms) for each in found] == expected


@pytest.mark.parametrize("acks", ["all", "1"])
def test_keys_decide_the_partition_as_everywhere(node: Peer, output: str, acks: str) -> None:
    write_at_least_once(plan(node.bootstrap, topic=output, delivery="at_least_once", kafka_acks=acks), [rows(0, 500)])
    found = read_committed(node.bootstrap, output, PARTITIONS)
    assert numbers(found) == list(range(500))
    assert all(each.partition == (murmur2(each.key) & 0x7FFFFFFF) % PARTITIONS for each in found)


def test_rows_go_to_the_topics_that_they_name(node: Peer, confluent: ConfluentClient, output: str) -> None:
    confluent.create_topic(f"{output}-b")
    batch = pa.record_batch({"value": ["1", "2", "3"], "topic": [output, f"{output}-b", output]})
    write_by(plan(node.bootstrap, kafka_transactional_id=output), RUN, [batch])
    assert numbers(read_committed(node.bootstrap, output, PARTITIONS)) == [1, 3]
    assert numbers(read_committed(node.bootstrap, f"{output}-b")) == [2]


def test_small_tasks_of_one_process_write_as_one_producer(node: Peer, output: str) -> None:
    written = plan(node.bootstrap, topic=output, delivery="at_least_once")
    for start in range(0, 50, 10):
        write_at_least_once(written, [rows(start, start + 10)])
    assert numbers(read_committed(node.bootstrap, output, PARTITIONS)) == list(range(50))


def test_many_batches_are_under_way_at_a_time_and_stay_in_order(node: Peer, output: str) -> None:
    written = plan(node.bootstrap, topic=output, delivery="at_least_once", kafka_batch_size="1024")
    write_at_least_once(written, [rows(start, start + 2_000) for start in range(0, 10_000, 2_000)])
    found = read_committed(node.bootstrap, output, PARTITIONS)
    by_partition = [[int(each.value or b"") for each in found if each.partition == p] for p in range(PARTITIONS)]
    assert sum(map(len, by_partition)) == 10_000
    assert all(of_partition == sorted(of_partition) for of_partition in by_partition)


@pytest.mark.parametrize("protocol", Protocol, ids=lambda protocol: protocol.name)
def test_a_batch_that_is_run_again_is_written_once(
    node: Peer, output: str, protocol: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_transactions, "protocol_of", lambda _: protocol)
    for batch_id in range(3):
        run, batches = Run(QUERY, batch_id), [rows(batch_id * 10, batch_id * 10 + 10)]
        assert write_once(node, output, run, batches) == Outcome(10, was_written_before=False)
        assert write_once(node, output, run, batches) == Outcome(10, was_written_before=True)
    assert numbers(read_committed(node.bootstrap, output, PARTITIONS)) == list(range(30))


def test_the_cluster_says_which_version_of_transactions_it_has(node: Peer) -> None:
    with borrowed(plan(node.bootstrap).settings) as cluster:
        assert sink_transactions.protocol_of(cluster) is Protocol.V2


@pytest.mark.parametrize("protocol", Protocol, ids=lambda protocol: protocol.name)
def test_a_task_that_fails_leaves_nothing_and_its_next_attempt_writes_all(
    node: Peer, output: str, protocol: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_transactions, "protocol_of", lambda _: protocol)
    monkeypatch.setattr("barnabas.spark.write.delivery.CHUNK_ROWS", 10)

    def failing() -> Iterator[pa.RecordBatch]:
        yield rows(0, 10)
        yield rows(10, 20)
        raise RuntimeError("a row that cannot be computed")

    with pytest.raises(RuntimeError, match="a row that cannot be computed"):
        write_once(node, output, RUN, failing())
    assert read_committed(node.bootstrap, output, PARTITIONS) == []
    assert write_once(node, output, RUN, [rows(0, 30)]) == Outcome(30, was_written_before=False)
    assert numbers(read_committed(node.bootstrap, output, PARTITIONS)) == list(range(30))


@pytest.mark.parametrize("protocol", Protocol, ids=lambda protocol: protocol.name)
def test_a_twin_that_is_overtaken_is_fenced(
    node: Peer, output: str, protocol: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_transactions, "protocol_of", lambda _: protocol)
    monkeypatch.setattr("barnabas.spark.write.delivery.CHUNK_ROWS", 10)

    def slow() -> Iterator[pa.RecordBatch]:
        yield rows(0, 10)
        assert write_once(node, output, RUN, [rows(0, 20)]) == Outcome(20, was_written_before=False)
        yield rows(10, 20)

    with pytest.raises(FencedError, match=f"transactional id {task_name(output, 0)} was taken over"):
        write_once(node, output, RUN, slow())
    assert numbers(read_committed(node.bootstrap, output, PARTITIONS)) == list(range(20))


def test_tasks_are_written_apart_from_each_other(node: Peer, output: str) -> None:
    for task in range(3):
        write_once(node, output, RUN, [rows(task * 10, task * 10 + 10)], task)
    assert write_once(node, output, RUN, [rows(10, 20)], 1).was_written_before
    assert numbers(read_committed(node.bootstrap, output, PARTITIONS)) == list(range(30))


def test_the_order_of_rows_may_differ_when_they_are_the_same(node: Peer, output: str) -> None:
    write_once(node, output, RUN, [rows(0, 10), rows(10, 20)])
    assert write_once(node, output, RUN, [rows(10, 20), rows(0, 10)]).was_written_before


@pytest.mark.parametrize("again", [[], [(0, 9)], [(1, 11)]], ids=["none", "fewer", "others"])
def test_other_rows_than_the_first_time_are_an_error(node: Peer, output: str, again: list[tuple[int, int]]) -> None:
    write_once(node, output, RUN, [rows(0, 10)])
    with pytest.raises(MarkerError, match=f"task 0 of batch 0 of query {QUERY} was run again with"):
        write_once(node, output, RUN, [rows(*bounds) for bounds in again])
    assert numbers(read_committed(node.bootstrap, output, PARTITIONS)) == list(range(10))


def test_a_task_without_rows_needs_no_transaction(node: Peer, confluent: ConfluentClient, output: str) -> None:
    assert write_once(node, output, RUN, []) == Outcome(0, was_written_before=False)
    assert task_name(output, 0) not in confluent.group_names()


def test_another_query_with_the_same_identity_must_say_that_it_means_it(node: Peer, output: str) -> None:
    write_once(node, output, Run(QUERY, 0), [rows(0, 10)])
    with pytest.raises(MarkerError, match=f"query {QUERY} has written up to batch 0 .* batch 0 of query other"):
        write_once(node, output, Run("other", 0), [rows(0, 10)])
    write_once(node, output, Run("other", 0), [rows(0, 10)], onLostCheckpoint="restart")
    assert numbers(read_committed(node.bootstrap, output, PARTITIONS)) == sorted([*range(10), *range(10)])


def test_a_transaction_timeout_that_brokers_refuse_is_said_of_the_option(node: Peer, output: str) -> None:
    with pytest.raises(KafkaError, match=r"kafka\.transaction\.timeout\.ms is 900000000"):
        write_once(node, output, RUN, [rows(0, 1)], kafka_transaction_timeout_ms="900000000")


def test_a_batch_that_the_topic_does_not_take_is_said_with_its_partition(
    node: Peer, confluent: ConfluentClient, topic: str
) -> None:
    confluent.create_topic(topic, config={"max.message.bytes": "2000"})
    with pytest.raises(KafkaError, match=rf"{topic}-0: Produce at .*: lower option kafka\.batch\.size"):
        write_once(node, topic, RUN, [rows(0, 1_000)])
    write_once(node, topic, RUN, [rows(0, 1_000)], kafka_batch_size="2000")
    assert numbers(read_committed(node.bootstrap, topic)) == list(range(1_000))


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_broker_that_dies_and_comes_back_is_only_a_delay(
    fresh_node: Peer, topic: str, delivery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ConfluentClient(fresh_node.bootstrap).create_topic(topic, PARTITIONS)
    monkeypatch.setattr("barnabas.spark.write.delivery.CHUNK_ROWS", 100)

    def interrupted() -> Iterator[pa.RecordBatch]:
        for start in range(0, 2_000, 100):
            yield rows(start, start + 100)
            if start == 1_000:
                fresh_node.kill()
                fresh_node.start()

    written = plan(fresh_node.bootstrap, topic=topic, delivery=delivery)
    if delivery == "exactly_once":
        write_by(written, RUN, interrupted())
    else:
        write_at_least_once(written, interrupted())
    assert numbers(read_committed(fresh_node.bootstrap, topic, PARTITIONS)) == list(range(2_000))


def test_cut_connections_neither_lose_nor_repeat_rows(
    make_node: MakeNode, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.spark.write.delivery.CHUNK_ROWS", 100)
    with CuttingProxy(seed=5, request_bytes=(2_000, 40_000), response_bytes=(1_000, 3_000)) as proxy:
        node = make_node({"advertised.listeners": f"PLAINTEXT://{HOST}:{proxy.port}"})
        proxy.target_port = node.port
        proxy.calm()
        bootstrap = f"{HOST}:{proxy.port}"
        ConfluentClient(bootstrap).create_topic(topic, PARTITIONS)
        written = plan(bootstrap, topic=topic, kafka_batch_size="1024", kafka_max_request_size="4096")
        write_by(written, Run(QUERY, 0), [rows(0, 10)])
        close_idle()
        proxy.unleash()
        for batch_id in range(1, 6):
            run, start = Run(QUERY, batch_id), batch_id * 1_000
            write_by(written, run, (rows(at, at + 100) for at in range(start, start + 1_000, 100)))
        assert proxy.cuts > 5
        proxy.calm()
        assert numbers(read_committed(bootstrap, topic, PARTITIONS)) == [*range(10), *range(1_000, 6_000)]
