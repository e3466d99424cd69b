"""The logs and metrics of examples/, end to end."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from examples.common import read_topic, run
from examples.logs_to_parquet import LATENESS, Garbled, LogLine, Metric, Topics, generate, load, pipeline

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.peers import Peer

SEED = 5
EVENTS = 400


def times_and(table: DataFrame, time: str, *columns: str) -> list[tuple[object, ...]]:
    """Rows with their time as Python has it, whatever the time zone of this machine."""
    rows = table.selectExpr(f"unix_micros({time})", *columns).collect()
    since = datetime(1970, 1, 1, tzinfo=UTC)
    return sorted((since + timedelta(microseconds=row[0]), *row[1:]) for row in rows)


def test_all_that_hosts_send_is_in_tables_and_errors_are_counted_per_service_and_minute(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    sent = list(generate(SEED, EVENTS))
    lines = [each for each in sent if isinstance(each, LogLine)]
    topics = Topics(*(f"{topic}-{name}" for name in ("logs", "metrics", "dead")))
    load(node.bootstrap, topics, sent)
    tables, checkpoint = tmp_path / "tables", tmp_path / "checkpoint"
    run(pipeline(spark, node.bootstrap, topics, str(tables), str(checkpoint)), once=True)

    logs = spark.read.parquet(str(tables / "logs"))
    assert times_and(logs, "time", "host", "service", "level", "message") == sorted(
        (line.time, line.host, line.service, line.level, line.message) for line in lines
    )
    metrics = spark.read.parquet(str(tables / "metrics"))
    assert times_and(metrics, "time", "host", "cpu_percent", "memory_bytes") == sorted(
        (each.time, each.host, each.cpu_percent, each.memory_bytes) for each in sent if isinstance(each, Metric)
    )

    closed_until = max(line.time for line in lines) - LATENESS
    minutes = [(line.time.replace(second=0, microsecond=0), line) for line in lines]
    closed = [(minute, line) for minute, line in minutes if minute + timedelta(minutes=1) <= closed_until]
    counts = Counter((minute, line.service) for minute, line in closed)
    errors = Counter((minute, line.service) for minute, line in closed if line.level == "ERROR")
    assert 0 < len(errors) < len(counts)
    assert len(closed) < len(lines)
    assert times_and(spark.read.parquet(str(tables / "errors")), "minute", "service", "errors", "lines") == sorted(
        (minute, service, errors[minute, service], count) for (minute, service), count in counts.items()
    )

    garbled = sorted((each.host, each.text) for each in sent if isinstance(each, Garbled))
    assert garbled
    assert sorted((host, text) for host, text, _ in read_topic(node.bootstrap, topics.dead)) == garbled


def test_the_same_seed_gives_the_same_events() -> None:
    assert list(generate(SEED, 50)) == list(generate(SEED, 50))
    assert list(generate(SEED, 50)) != list(generate(SEED + 1, 50))
