"""Streaming queries into topics in a real session: each row once, when tasks fail and when drivers come back."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import udf

from barnabas.client.client_settings import ClientSettings
from barnabas.client.pool import borrowed, close_idle
from barnabas.spark import forget_output
from barnabas.spark.write.exactly_once import Output, identity_of_checkpoint
from barnabas.spark.write.marker_store import read_batch
from tests.clients.committed import read_committed
from tests.clients.with_confluent import ConfluentClient
from tests.spark.pipelines import source
from tests.spark.topics import create_topic, produce

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.peers import Peer

PARTITIONS = 2


@pytest.fixture
def topics(node: Peer, topic: str) -> tuple[str, str]:
    """An input, filled, and an output."""
    for name in (f"{topic}-in", f"{topic}-out"):
        create_topic(node, name, PARTITIONS)
    fill(node, f"{topic}-in", 0, 100)
    return f"{topic}-in", f"{topic}-out"


def fill(node: Peer, topic: str, start: int, end: int) -> None:
    for partition in range(PARTITIONS):
        produce(node, topic, range(start + partition, end, PARTITIONS), partition)


def values(spark: SparkSession, node: Peer, topic: str) -> DataFrame:
    rows = source(spark, node, subscribe=topic, startingOffsets="earliest")
    return rows.selectExpr("cast(value as string) value")


def run(rows: DataFrame, node: Peer, topic: str, checkpoint: Path, **options: str) -> None:
    """Write what is available now."""
    given = {
        "kafka.bootstrap.servers": node.bootstrap,
        "topic": topic,
        "checkpointLocation": str(checkpoint),
        **options,
    }
    query = rows.writeStream.format("barnabas").options(**given).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def undo_last_commit(checkpoint: Path) -> None:
    """As if the driver had died before it noted the last batch as done."""
    newest = max(
        (file for file in (checkpoint / "commits").iterdir() if file.name.isdigit()), key=lambda f: int(f.name)
    )
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


def written(node: Peer, topic: str) -> list[int]:
    return sorted(int(each.value or b"") for each in read_committed(node.bootstrap, topic, PARTITIONS))


def test_a_batch_that_a_driver_runs_again_is_written_once(
    spark: SparkSession, node: Peer, topics: tuple[str, str], tmp_path: Path
) -> None:
    read, write = topics
    rows = values(spark, node, read)
    run(rows, node, write, tmp_path)
    assert written(node, write) == list(range(100))
    undo_last_commit(tmp_path)
    fill(node, read, 100, 150)
    run(rows, node, write, tmp_path)
    assert written(node, write) == list(range(150))
    identity = identity_of_checkpoint(str(tmp_path))
    groups = {group for group in ConfluentClient(node.bootstrap).group_names() if group.startswith(identity)}
    assert groups == {f"{identity}-batch", f"{identity}-task-0", f"{identity}-task-1"}
    assert forget_output({"kafka.bootstrap.servers": node.bootstrap, "checkpointLocation": str(tmp_path)}) == 3
    close_idle()


def test_each_start_of_a_query_is_told_from_the_others(
    spark: SparkSession, node: Peer, topics: tuple[str, str], tmp_path: Path
) -> None:
    read, write = topics
    output = Output(identity_of_checkpoint(str(tmp_path)), (write, 0), 0)
    settings = ClientSettings.from_options({"bootstrap.servers": node.bootstrap})
    start_ids = set()
    for start in (100, 110):
        run(values(spark, node, read), node, write, tmp_path)
        with borrowed(settings) as cluster:
            found = read_batch(cluster, output)
        assert found is not None
        assert found.start_id not in ("", found.run.query_id)
        start_ids.add(found.start_id)
        fill(node, read, start, start + 10)
    assert len(start_ids) == 2
    close_idle()


def test_a_task_that_fails_on_its_way_is_done_again_as_a_whole(
    spark: SparkSession, node: Peer, topics: tuple[str, str], tmp_path: Path
) -> None:
    read, write = topics
    has_failed = tmp_path / "has failed"

    @udf("string", useArrow=False)
    def failing_once(value: str) -> str:
        if value == "71" and not has_failed.exists():
            has_failed.touch()
            raise RuntimeError("a row that cannot be computed")
        return value

    rows = values(spark, node, read)
    failing = rows.select(failing_once(rows["value"]).alias("value"))
    with pytest.raises(StreamingQueryException, match="a row that cannot be computed"):
        run(failing, node, write, tmp_path / "checkpoint")
    assert set(written(node, write)) <= set(range(0, 100, 2)), "of the task that failed, nothing is to be seen"
    run(failing, node, write, tmp_path / "checkpoint")
    assert written(node, write) == list(range(100))


def test_a_lost_checkpoint_is_noticed(spark: SparkSession, node: Peer, topics: tuple[str, str], tmp_path: Path) -> None:
    read, write = topics
    rows = values(spark, node, read)
    run(rows, node, write, tmp_path / "checkpoint")
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(StreamingQueryException, match="the checkpoint was lost"):
        run(rows, node, write, tmp_path / "checkpoint")
    assert written(node, write) == list(range(100))
    run(rows, node, write, tmp_path / "checkpoint", onLostCheckpoint="restart")
    assert written(node, write) == sorted([*range(100), *range(100)])


def test_rows_may_be_written_at_least_once(
    spark: SparkSession, node: Peer, topics: tuple[str, str], tmp_path: Path
) -> None:
    read, write = topics
    run(values(spark, node, read), node, write, tmp_path, delivery="at_least_once")
    assert written(node, write) == list(range(100))
    identity = identity_of_checkpoint(str(tmp_path))
    assert not any(group.startswith(identity) for group in ConfluentClient(node.bootstrap).group_names())
