"""Streaming reads of real topics in a real session: what comes, goes, and is lost while a query runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException

from barnabas.spark.read.topic_positions import TOPIC_IDS
from tests.peers import wait_until
from tests.spark.pipelines import Batches, run_to_end, running, source
from tests.spark.topics import LONG_AGO_MS, add_partitions, create_topic, delete_topic, expire, produce

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.peers import Peer


def last_offsets(checkpoint: Path) -> dict[str, dict[str, int]]:
    """How far the newest batch goes, by the checkpoint."""
    newest = max(
        (file for file in (checkpoint / "offsets").iterdir() if file.name.isdigit()), key=lambda f: int(f.name)
    )
    found: dict[str, dict[str, int]] = json.loads(newest.read_text().splitlines()[-1])
    assert found.pop(TOPIC_IDS).keys() == found.keys()
    return found


def wait_for(query: StreamingQuery, seen: Batches, values: list[str]) -> None:
    """Until the query has read these; if it fails first, that comes out."""

    def is_there() -> bool:
        if (failure := query.exception()) is not None:
            raise failure
        return sorted(seen.values) == sorted(values)

    wait_until(is_there, f"the query reads {values}", deadline_s=60)


def test_new_partitions_and_new_topics_are_read_from_their_start(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    create_topic(node, f"{topic}-a")
    produce(node, f"{topic}-a", ["one"])
    seen = Batches()
    rows = source(spark, node, subscribePattern=f"{topic}-.*", startingOffsets="earliest")
    with running(rows, seen, tmp_path) as query:
        wait_for(query, seen, ["one"])
        add_partitions(node, f"{topic}-a", 2)
        produce(node, f"{topic}-a", ["two"], 1)
        create_topic(node, f"{topic}-b")
        produce(node, f"{topic}-b", ["three", "four"])
        wait_for(query, seen, ["one", "two", "three", "four"])
        query.processAllAvailable()
        assert last_offsets(tmp_path) == {f"{topic}-a": {"0": 1, "1": 1}, f"{topic}-b": {"0": 2}}
        progress = query.lastProgress
        assert progress is not None
        assert json.loads(progress.sources[0].latestOffset) == last_offsets(tmp_path)


def test_a_query_starts_at_the_end_and_goes_on_where_it_stopped(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    create_topic(node, topic)
    produce(node, topic, ["before"])
    seen = Batches()
    with running(source(spark, node, subscribe=topic), seen, tmp_path) as query:
        wait_until(lambda: query.lastProgress is not None, "the query has put its start into the checkpoint")
        assert last_offsets(tmp_path) == {topic: {"0": 1}}
        produce(node, topic, ["during"])
        wait_for(query, seen, ["during"])
        query.processAllAvailable()
    produce(node, topic, ["while stopped"])
    run_to_end(source(spark, node, subscribe=topic), seen, tmp_path)
    assert seen.values == ["during", "while stopped"]


def test_a_query_that_fails_at_its_very_start_takes_up_from_there(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    create_topic(node, topic)
    produce(node, topic, ["before"])

    def fail(rows: DataFrame, batch_id: int) -> None:
        raise ValueError("not yet")

    with pytest.raises(StreamingQueryException, match="not yet"):
        run_to_end(source(spark, node, subscribe=topic), fail, tmp_path)
    produce(node, topic, ["meanwhile"])
    seen = Batches()
    run_to_end(source(spark, node, subscribe=topic), seen, tmp_path)
    assert seen.values == ["meanwhile"]


def test_what_is_available_now_is_read_in_batches_of_limited_size(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    create_topic(node, topic, partitions=2)
    produce(node, topic, range(20), 0)
    produce(node, topic, range(20, 30), 1)
    seen = Batches()
    rows = source(spark, node, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="12")

    def read_and_produce_more(rows: DataFrame, batch_id: int) -> None:
        seen(rows, batch_id)
        produce(node, topic, ["too late"], 0)

    run_to_end(rows, read_and_produce_more, tmp_path)
    assert sorted(map(int, seen.values)) == list(range(30))
    assert [len(batch) for batch in seen.batches[:2]] == [11, 11]
    assert sum(map(len, seen.batches)) == 30


def test_a_single_batch_takes_everything_whatever_the_limit(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    create_topic(node, topic)
    produce(node, topic, range(10))
    seen = Batches()
    rows = source(spark, node, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="3")
    with running(rows, seen, tmp_path, once=True) as query:
        query.awaitTermination()
    assert [len(batch) for batch in seen.batches] == [10]


@pytest.mark.parametrize(
    ("new", "complaint"),
    [
        (["new"], "it was read up to offset 2 and now ends at offset 1"),
        (["new", "newer", "newest"], "it was read up to offset 2, then the topic was deleted and recreated"),
    ],
    ids=["shorter", "longer"],
)
def test_a_topic_that_was_deleted_and_made_again_fails_each_start_of_a_query_or_is_read_from_its_start(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path, new: list[str], complaint: str
) -> None:
    create_topic(node, topic)
    produce(node, topic, ["old", "old too"])
    seen = Batches()
    run_to_end(source(spark, node, subscribe=topic, startingOffsets="earliest"), seen, tmp_path)
    delete_topic(node, topic)
    create_topic(node, topic)
    produce(node, topic, new)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=f"{topic}-0: {complaint}"):
            run_to_end(source(spark, node, subscribe=topic), seen, tmp_path)
    run_to_end(source(spark, node, subscribe=topic, failOnDataLoss="false"), seen, tmp_path)
    assert seen.values == ["old", "old too", *new]


def test_records_that_retention_took_fail_a_query_that_runs_or_are_skipped(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    create_topic(node, topic, retention_ms="-1")
    produce(node, topic, ["in time"], timestamp=LONG_AGO_MS)
    seen = Batches()
    run_to_end(source(spark, node, subscribe=topic, startingOffsets="earliest"), seen, tmp_path)
    produce(node, topic, ["too", "late", "now"], timestamp=LONG_AGO_MS)
    expire(node, topic)
    produce(node, topic, ["newer"])
    lost = f"{topic}-0: offsets 1 to 3 were to be read, but the log now starts at offset 4"
    with pytest.raises(StreamingQueryException, match=lost):
        run_to_end(source(spark, node, subscribe=topic), seen, tmp_path)
    run_to_end(source(spark, node, subscribe=topic, failOnDataLoss="false"), seen, tmp_path)
    assert seen.values == ["in time", "newer"]


def test_a_topic_that_is_deleted_while_it_is_read_is_done_without_where_loss_is_accepted(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    create_topic(node, f"{topic}-a")
    create_topic(node, f"{topic}-b")
    seen = Batches()
    options = {"subscribe": f"{topic}-a,{topic}-b", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    with running(source(spark, node, **options), seen, tmp_path) as query:
        produce(node, f"{topic}-a", ["one"])
        produce(node, f"{topic}-b", ["two"])
        wait_for(query, seen, ["one", "two"])
        delete_topic(node, f"{topic}-a")
        produce(node, f"{topic}-b", ["three"])
        wait_for(query, seen, ["one", "two", "three"])
        create_topic(node, f"{topic}-a")
        produce(node, f"{topic}-a", ["four"])
        wait_for(query, seen, ["one", "two", "three", "four"])


def test_a_query_lives_through_a_restart_of_the_broker(
    spark: SparkSession, fresh_node: Peer, topic: str, tmp_path: Path
) -> None:
    create_topic(fresh_node, topic)
    produce(fresh_node, topic, ["before"])
    seen = Batches()
    with running(source(spark, fresh_node, subscribe=topic, startingOffsets="earliest"), seen, tmp_path) as query:
        wait_for(query, seen, ["before"])
        fresh_node.kill()
        fresh_node.start()
        produce(fresh_node, topic, ["after"])
        wait_for(query, seen, ["before", "after"])


def test_only_what_is_committed_is_read_where_that_is_asked_for(
    spark: SparkSession, group_node: Peer, topic: str, transactional_id: str, tmp_path: Path
) -> None:
    node = group_node
    create_topic(node, topic)
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    for value, end in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value.encode())
        producer.flush(30)
        end(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)
    seen = Batches()
    level = {"kafka.isolation.level": "read_committed"}
    run_to_end(source(spark, node, subscribe=topic, startingOffsets="earliest", **level), seen, tmp_path)
    assert seen.values == ["committed"]
    assert last_offsets(tmp_path) == {topic: {"0": 4}}
    producer.abort_transaction(30)


def test_a_streaming_query_refuses_an_end(spark: SparkSession, node: Peer, topic: str, tmp_path: Path) -> None:
    with pytest.raises(
        StreamingQueryException, match="option endingOffsets cannot be used in a streaming query"
    ) as refused:
        run_to_end(source(spark, node, subscribe=topic, endingOffsets="latest"), Batches(), tmp_path)
    assert "UnboundLocalError" not in str(refused.value), "which PySpark adds to what a reader says while it is made"
