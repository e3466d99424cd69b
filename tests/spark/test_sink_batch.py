"""DataFrames written to topics in a real session: every column, and what is refused before any row moves."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pytest
from aiokafka.partitioner import murmur2
from pyspark.errors import PySparkException

from tests.clients.committed import read_committed
from tests.clients.with_confluent import ConfluentClient
from tests.spark.topics import create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.peers import Peer

PARTITIONS = 3
NOON = datetime.datetime(2024, 5, 17, 12, tzinfo=datetime.UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def write(rows: DataFrame, node: Peer, **options: str) -> None:
    given = {name.replace("_", "."): value for name, value in options.items()}
    rows.write.format("barnabas").mode("append").options(**{"kafka.bootstrap.servers": node.bootstrap, **given}).save()


@pytest.mark.parametrize("kind", ["string", "binary"])
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_every_column_arrives(spark: SparkSession, node: Peer, topic: str, kind: str, delivery: str) -> None:
    create_topic(node, topic, PARTITIONS, retention_ms="-1")
    schema = (
        "key string, value string, headers array<struct<key:string,value:string>>, topic string, partition int, "
        "timestamp timestamp"
    )
    rows = spark.createDataFrame(
        [
            ("a", "named", [("h", "1"), ("h", None)], topic, 2, NOON),
            (None, None, [], topic, 1, NOON + datetime.timedelta(milliseconds=1)),
            ("b", "by key", None, topic, None, NOON),
        ],
        schema,
    ).selectExpr(
        f"cast(key as {kind}) key",
        f"cast(value as {kind}) value",
        f"cast(headers as array<struct<key:{kind},value:{kind}>>) headers",
        "topic",
        "partition",
        "timestamp",
    )
    write(rows, node, delivery=delivery)
    found = read_committed(node.bootstrap, topic, PARTITIONS)
    by_key = (murmur2(b"b") & 0x7FFFFFFF) % PARTITIONS
    expected = [
        (2, b"a", b"named", (("h", b"1"), ("h", None)), NOON_MS),
        (1, None, None, (), NOON_MS + 1),
        (by_key, b"b", b"by key", (), NOON_MS),
    ]
    assert sorted((each.partition, each.key, each.value, each.headers, each.timestamp_ms) for each in found) == sorted(
        expected, key=lambda each: (each[0], each[1] or b"")
    )


def test_many_rows_of_several_tasks_arrive_once_and_leave_no_marker_of_a_task(
    spark: SparkSession, node: Peer, topic: str
) -> None:
    create_topic(node, topic, PARTITIONS)
    rows = spark.range(20_000).repartition(4).selectExpr("cast(id % 100 as string) key", "cast(id as string) value")
    write(rows, node, topic=topic, kafka_compression_type="lz4", kafka_transactional_id=f"{topic}-writes")
    found = read_committed(node.bootstrap, topic, PARTITIONS)
    assert sorted(int(each.value or b"") for each in found) == list(range(20_000))
    assert all(each.partition == (murmur2(each.key) & 0x7FFFFFFF) % PARTITIONS for each in found)
    groups = [group for group in ConfluentClient(node.bootstrap).group_names() if group.startswith(f"{topic}-writes")]
    assert groups == [f"{topic}-writes-batch"], "only that the write has ended, for attempts that come too late"


@pytest.mark.parametrize(
    ("columns", "options", "complaint"),
    [
        ("id as key", {}, "column key is of type bigint"),
        ("'v' as key", {}, "column value is missing"),
        ("'v' as value", {"topic": ""}, "option topic is empty"),
        ("'v' as value", {"tpoic": "x"}, "option tpoic is not known to the sink; did you mean topic?"),
        (
            "'v' as value",
            {"topic": "nowhere"},
            "option topic names topic 'nowhere', which does not exist: create it first",
        ),
        ("'v' as value", {"path": "orders"}, "rows go to topics, not to paths: use option topic"),
        ("'v' as value", {"kafka.acks": "1"}, "option kafka.acks must be all"),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_row_moves(
    spark: SparkSession, node: Peer, topic: str, columns: str, options: dict[str, str], complaint: str
) -> None:
    create_topic(node, topic)
    with pytest.raises(PySparkException) as failure:
        write(spark.range(1).selectExpr(columns), node, **{"topic": topic, **options})
    assert complaint in str(failure.value)
    assert read_committed(node.bootstrap, topic) == []


def test_a_topic_is_not_overwritten(spark: SparkSession, node: Peer, topic: str) -> None:
    create_topic(node, topic)
    rows = spark.range(1).selectExpr("cast(id as string) value").write.format("barnabas").mode("overwrite")
    with pytest.raises(PySparkException, match="rows can only be appended to a topic"):
        rows.options(**{"kafka.bootstrap.servers": node.bootstrap, "topic": topic}).save()
