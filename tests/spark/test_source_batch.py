"""Batch reads of real topics in a real session."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from tests.clients.committed import read_committed
from tests.spark.topics import create_topic, produce

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tests.peers import Peer

NOON_MS = 1_714_564_800_000
PUSHING = "spark.sql.python.filterPushdown.enabled"


def load(spark: SparkSession, node: Peer, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": node.bootstrap, **options}
    return spark.read.format("barnabas").options(**given).load()


@pytest.fixture(params=["true"])
def pushing(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether Spark is told to push filters; the tests that need it off say so."""
    before = spark.conf.get(PUSHING)
    assert before is not None
    spark.conf.set(PUSHING, request.param)
    yield
    spark.conf.set(PUSHING, before)


def test_a_record_has_the_columns_of_sparks_own_source(spark: SparkSession, node: Peer, topic: str) -> None:
    create_topic(node, topic, partitions=2, retention_ms="-1")
    produce(node, topic, ["first"], 1, key=b"k", timestamp=NOON_MS, headers=[("trace", b"\x01"), ("none", None)])
    produce(node, topic, ["second"], 1, timestamp=NOON_MS + 1)
    rows = load(spark, node, subscribe=topic, includeHeaders="true")
    first, second = rows.orderBy("offset").collect()
    noon = datetime.fromtimestamp(NOON_MS / 1000, UTC).astimezone().replace(tzinfo=None)
    assert first.asDict(recursive=True) == {
        "key": b"k",
        "value": b"first",
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": noon,
        "timestampType": 0,
        "headers": [{"key": "trace", "value": b"\x01"}, {"key": "none", "value": None}],
    }
    assert (second.key, second.value, second.offset, second.headers) == (None, b"second", 1, None)
    assert load(spark, node, subscribe=topic).columns == rows.columns[:-1]


def test_a_query_runs_as_many_tasks_as_ranges_are_cut_into(spark: SparkSession, node: Peer, topic: str) -> None:
    create_topic(node, topic, partitions=2)
    for partition in (0, 1):
        produce(node, topic, range(100), partition)
    rows = load(spark, node, subscribe=topic, minPartitions="4")
    assert rows.rdd.getNumPartitions() == 4
    assert rows.selectExpr("count(*)", "count(distinct partition, offset)", "sum(cast(value as string))").first() == (
        200,
        200,
        9_900,
    )


def test_an_empty_topic_has_no_rows(spark: SparkSession, node: Peer, topic: str) -> None:
    create_topic(node, topic)
    assert load(spark, node, subscribe=topic).count() == 0


@pytest.mark.usefixtures("pushing")
def test_filters_are_pushed_where_spark_is_told_to(spark: SparkSession, node: Peer, topic: str) -> None:
    create_topic(node, topic, partitions=3)
    for partition in range(3):
        produce(node, topic, range(10), partition)
    rows = load(spark, node, subscribe=topic).where("partition = 1 and offset >= 5 and value > '6'")
    assert rows.rdd.getNumPartitions() == 1
    assert [row.value for row in rows.orderBy("offset").collect()] == [b"7", b"8", b"9"]
    plan = rows._jdf.queryExecution().executedPlan().toString()
    assert "offset" not in plan.partition("Filter")[2].partition("\n")[0]
    recent = load(spark, node, subscribe=topic).where("timestamp > current_timestamp() - interval 1 hour")
    assert recent.count() == 30


@pytest.mark.usefixtures("pushing")
@pytest.mark.parametrize("pushing", ["false"], indirect=True)
def test_filters_are_applied_by_spark_where_it_is_not_told_to_push_them(
    spark: SparkSession, node: Peer, topic: str
) -> None:
    create_topic(node, topic, partitions=2)
    produce(node, topic, range(10), 1)
    rows = load(spark, node, subscribe=topic)
    assert rows.where("partition = 1 and offset >= 5").count() == 5
    assert rows.count() == 10


def test_what_is_wrong_is_said_before_any_data_moves(spark: SparkSession, node: Peer, topic: str) -> None:
    create_topic(node, topic)
    for options, said in (
        ({"subscribed": topic}, "option subscribed is not known to the source; did you mean subscribe?"),
        ({"subscribe": topic, "minPartitions": "none"}, "option minPartitions is 'none'"),
    ):
        with pytest.raises(AnalysisException) as raised:
            load(spark, node, **options)
        assert said in str(raised.value)
    for options, said in (
        ({"subscribe": topic, "startingOffsets": "latest"}, "option startingOffsets is latest"),
        ({"subscribe": f"{topic}x"}, f"option subscribe names '{topic}x', which the cluster does not have"),
    ):
        with pytest.raises(AnalysisException) as raised:
            load(spark, node, **options).collect()
        assert said in str(raised.value)


def test_the_columns_are_not_for_the_user_to_choose(spark: SparkSession, node: Peer, topic: str) -> None:
    given = {"kafka.bootstrap.servers": node.bootstrap, "subscribe": topic}
    with pytest.raises(AnalysisException, match="a topic always has the columns struct<key:binary"):
        spark.read.format("barnabas").schema("value string").options(**given).load().collect()


@pytest.fixture
def name(spark: SparkSession) -> Iterator[str]:
    """Of a table or a view, which is gone after the test."""
    yield "from_sql"
    spark.catalog.dropTempView("from_sql")
    spark.sql("DROP TABLE IF EXISTS from_sql")


def in_sql(spark: SparkSession, statement: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in spark.sql(statement).collect()]


def test_a_view_in_sql_reads_a_topic(spark: SparkSession, node: Peer, topic: str, name: str) -> None:
    create_topic(node, topic)
    produce(node, topic, range(3))
    options = f"'kafka.bootstrap.servers' '{node.bootstrap}', 'subscribe' '{topic}'"
    in_sql(spark, f"CREATE TEMPORARY VIEW {name} USING barnabas OPTIONS ({options})")
    assert in_sql(spark, f"SELECT count(*) FROM {name}") == [(3,)]


def test_a_view_in_sql_writes_a_topic(spark: SparkSession, node: Peer, topic: str, name: str) -> None:
    create_topic(node, topic)
    options = f"'kafka.bootstrap.servers' '{node.bootstrap}', 'topic' '{topic}'"
    in_sql(spark, f"CREATE TEMPORARY VIEW {name} (key STRING, value STRING) USING barnabas OPTIONS ({options})")
    in_sql(spark, f"INSERT INTO {name} SELECT 'k', 'v'")
    assert [(each.key, each.value) for each in read_committed(node.bootstrap, topic, 1)] == [(b"k", b"v")]


def test_a_table_of_the_catalog_needs_the_options_with_each_query(
    spark: SparkSession, node: Peer, topic: str, name: str
) -> None:
    create_topic(node, topic)
    produce(node, topic, range(3))
    given = {"kafka.bootstrap.servers": node.bootstrap, "subscribe": topic}
    options = ", ".join(f"'{option}' '{value}'" for option, value in given.items())
    create = f"CREATE TABLE {name} USING barnabas OPTIONS"
    in_sql(spark, f"{create} ({options}) COMMENT 'what is ordered' TBLPROPERTIES ('team' = 'red')")
    # Spark has a reader made with the options of the query alone: those of the table are for its columns only.
    with pytest.raises(AnalysisException, match="queries do not see the options of CREATE TABLE"):
        in_sql(spark, f"SELECT count(*) FROM {name}")
    again = ", ".join(f"'{option}' = '{value}'" for option, value in given.items())
    assert in_sql(spark, f"SELECT count(*) FROM {name} WITH ({again})") == [(3,)]
    in_sql(spark, f"DROP TABLE {name}")
    with pytest.raises(AnalysisException, match="option subscribed is not known to the source"):
        in_sql(spark, f"{create} ({options}, 'subscribed' '{topic}')")


def test_rows_are_inserted_into_a_table_with_the_options_of_the_sink(
    spark: SparkSession, node: Peer, topic: str, name: str
) -> None:
    create_topic(node, topic)
    in_sql(spark, f"CREATE TABLE {name} (key STRING, value STRING) USING barnabas")
    options = f"'kafka.bootstrap.servers' = '{node.bootstrap}', 'topic' = '{topic}'"
    in_sql(spark, f"INSERT INTO {name} WITH ({options}) SELECT 'k', 'v'")
    assert [(each.key, each.value) for each in read_committed(node.bootstrap, topic, 1)] == [(b"k", b"v")]
