"""`format("barnabas")` beside Spark's own `format("kafka")`, on a node of Barnabas and on one of Apache Kafka.

The same topics give the same rows, and the same rows give the same topics, whoever reads and whoever writes.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import Producer
from tests.peers import Peer, PeerKind, running
from tests.spark.topics import LONG_AGO_MS, create_topic
from tools import apache_kafka, spark_connector

import barnabas.spark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

OURS, SPARKS = "barnabas", "kafka"
PARTITIONS = 3
RECORDS = 120
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
READ = {"includeHeaders": "true"}
"""Both leave headers out otherwise."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    try:
        settings = spark_connector.settings()
    except spark_connector.ConnectorMissingError as error:
        pytest.skip(f"not run: {error}")
    folder = tmp_path_factory.mktemp("spark")
    told = {"spark.sql.shuffle.partitions": "2", "spark.local.dir": str(folder), **settings}
    session = barnabas.spark.session("interop", master="local[2]", settings=told)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    kind = cast("PeerKind", request.param)
    if kind == "kafka" and (reason := apache_kafka.missing()) is not None:
        pytest.skip(f"not run: {reason}")
    with running(kind, tmp_path_factory.mktemp(kind)) as peer:
        yield peer


@pytest.fixture(scope="module")
def filled(broker: Peer) -> str:
    """A topic with everything that a record can have, and what transactions left."""
    topic = "filled"
    create_topic(broker, topic, PARTITIONS, retention_ms="-1")
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 50})
        for number in range(RECORDS):
            producer.produce(
                topic,
                None if number % 10 == 0 else b"value %d of %s" % (number, codec.encode()),
                None if number % 7 == 0 else b"key %d" % number,
                partition=number % PARTITIONS,
                timestamp=LONG_AGO_MS + number,
                headers=[("codec", codec.encode()), ("none", None)] if number % 3 == 0 else None,
            )
        assert producer.flush(30) == 0
    for number, is_committed in enumerate((True, False, True)):
        writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"writer {number}"})
        writer.init_transactions(30)
        writer.begin_transaction()
        for partition in range(PARTITIONS):
            writer.produce(topic, b"of transaction %d" % number, partition=partition)
        assert writer.flush(30) == 0
        if is_committed:
            writer.commit_transaction(30)
        else:
            writer.abort_transaction(30)
    return topic


def servers(broker: Peer) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap}


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """In the order of their places; binary columns as what Python compares."""
    return sorted((_plain(row) for row in frame.collect()), key=lambda row: (row[2], row[3], row[4]))


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    return tuple(map(_plain, value)) if isinstance(value, (tuple, list)) else value


def read(spark: SparkSession, name: str, broker: Peer, **options: str) -> DataFrame:
    return spark.read.format(name).options(**servers(broker), **READ).options(**options).load()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="everything"),
        pytest.param({"kafka.isolation.level": "read_committed"}, id="what is committed"),
        pytest.param(
            {
                "startingOffsets": json.dumps({"filled": {"0": 7, "1": -2, "2": 30}}),
                "endingOffsets": json.dumps({"filled": {"0": 90, "1": -1, "2": 31}}),
            },
            id="from some offsets to others",
        ),
        pytest.param({"startingTimestamp": str(LONG_AGO_MS + 60)}, id="from a time on"),
        pytest.param({"minPartitions": "10"}, id="in many tasks"),
    ],
)
def test_both_read_the_same_rows(spark: SparkSession, broker: Peer, filled: str, options: dict[str, str]) -> None:
    theirs = read(spark, SPARKS, broker, subscribe=filled, **options)
    ours = read(spark, OURS, broker, subscribe=filled, **options)
    assert ours.schema.simpleString() == theirs.schema.simpleString()
    expected = rows_of(theirs)
    assert len(expected) > 1
    assert rows_of(ours) == expected


def test_both_stream_the_same_rows(spark: SparkSession, broker: Peer, filled: str, tmp_path: Path) -> None:
    found = {}
    for name in (SPARKS, OURS):
        options = {"subscribe": filled, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
        stream = spark.readStream.format(name).options(**servers(broker), **READ, **options).load()
        folder = tmp_path / name
        query = (
            stream.writeStream.format("parquet")
            .options(path=str(folder / "rows"), checkpointLocation=str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        found[name] = rows_of(spark.read.parquet(str(folder / "rows")))
    assert len(found[SPARKS]) > RECORDS
    assert found[OURS] == found[SPARKS]


def to_write(spark: SparkSession) -> DataFrame:
    """Rows with keys, whose partition follows from them, and rows that say their partition."""
    schema = "key BINARY, value BINARY, partition INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    keyed = [(b"key %d" % number, b"value %d" % number, None, None) for number in range(200)]
    placed = [(None, b"placed %d" % number, number % PARTITIONS, [("n", b"%d" % number)]) for number in range(50)]
    return spark.createDataFrame([*keyed, *placed, (b"gone", None, None, None)], schema)


def test_both_write_the_same_records(spark: SparkSession, broker: Peer, topic: str) -> None:
    rows = to_write(spark)
    names = {SPARKS: f"{topic}-sparks", OURS: f"{topic}-ours"}
    for name, target in names.items():
        create_topic(broker, target, PARTITIONS)
        rows.write.format(name).mode("append").options(**servers(broker), **READ, topic=target).save()
    for reader in (SPARKS, OURS):
        contents = {
            name: sorted(
                (row[3], row[0] or b"", row[1] or b"", row[-1] or ())
                for row in rows_of(read(spark, reader, broker, subscribe=target))
            )
            for name, target in names.items()
        }
        assert len(contents[SPARKS]) == rows.count()
        assert contents[OURS] == contents[SPARKS], f"as read by {reader}"


@pytest.mark.parametrize(("source", "sink"), list(itertools.product((OURS, SPARKS), repeat=2)))
def test_pipelines_of_both_carry_everything(
    spark: SparkSession, broker: Peer, filled: str, topic: str, tmp_path: Path, source: str, sink: str
) -> None:
    """Each as a source for each, in several batches, and none of them breaks off."""
    create_topic(broker, topic, PARTITIONS)
    options = {"subscribe": filled, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "200"}
    stream = spark.readStream.format(source).options(**servers(broker), **READ, **options).load()
    query = (
        stream.select("key", "value", "partition", "headers")
        .writeStream.format(sink)
        .options(**servers(broker), topic=topic, includeHeaders="true", checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    committed = {"kafka.isolation.level": "read_committed"}
    copied = [
        (row[3], row[0], row[1], row[-1]) for row in rows_of(read(spark, OURS, broker, subscribe=topic, **committed))
    ]
    original = [(row[3], row[0], row[1], row[-1]) for row in rows_of(read(spark, OURS, broker, subscribe=filled))]
    assert sorted(map(repr, copied)) == sorted(map(repr, original))
