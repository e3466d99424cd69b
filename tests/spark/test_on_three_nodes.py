"""A streaming query from one replicated topic into another, while a node of the cluster is killed: each row once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.client.pool import close_idle
from tests.clients.committed import read_committed
from tests.cluster.clusters import QUICK, create_replicated, leader_of, make_whole
from tests.nodes import Cluster
from tests.peers import wait_until
from tests.spark.pipelines import source
from tests.spark.topics import produce

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

PARTITIONS = 3
SOURCE, SINK = "read-from", "written-to"
DEADLINE_S = 90.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {**QUICK, "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with Cluster(tmp_path / "cluster", settings=settings) as started:
        yield started
        close_idle()


def written(cluster: Cluster) -> list[int]:
    return sorted(int(each.value or b"") for each in read_committed(cluster.bootstrap, SINK, PARTITIONS))


def fill(cluster: Cluster, start: int, end: int) -> None:
    for partition in range(PARTITIONS):
        produce(cluster, SOURCE, range(start + partition, end, PARTITIONS), partition)


def test_a_pipeline_lives_through_the_kill_of_a_node_and_writes_each_row_once(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """The node leads a partition that is read, one that is written, and coordinates the sink's transactions."""
    for name in (SOURCE, SINK):
        create_replicated(cluster, name, assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]], min_insync_replicas="2")
    fill(cluster, 0, 100)
    rows = source(spark, cluster, subscribe=SOURCE, startingOffsets="earliest")
    values = rows.selectExpr("cast(value as string) value")
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "topic": SINK,
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }
    query = values.writeStream.format("barnabas").options(**options).trigger(processingTime="200 milliseconds").start()
    try:
        wait_until(lambda: len(written(cluster)) >= 100, "the first rows are written", DEADLINE_S)
        victim = leader_of(cluster, "__transaction_state")
        cluster.kill(victim)
        fill(cluster, 100, 200)
        wait_until(lambda: query.exception() is not None or len(written(cluster)) >= 200, "rows flow on", DEADLINE_S)
        assert query.exception() is None
        cluster.start_node(victim)
        fill(cluster, 200, 250)
        query.processAllAvailable()
    finally:
        query.stop()
    make_whole(cluster)
    assert written(cluster) == list(range(250))
