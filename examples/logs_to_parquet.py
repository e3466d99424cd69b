"""Logs and metrics of many hosts in Parquet files, and the errors of each service, minute by minute.

Reads `logs`, keyed by host: lines like
    2026-03-02T09:00:01.250000+00:00 web-3 checkout ERROR "card declined"
and `metrics`, keyed by host: JSON objects. Writes, in a folder, the Parquet tables
`logs` and `metrics`: everything that was sent, partitioned by day;
`errors`: how many errors and lines a service had in a minute, once that minute is over;
and to the topic `logs.dead` the lines that cannot be parsed, unchanged, with the reason in a header.

A minute is over when a line has arrived that is `LATENESS` younger than its end: hosts send their lines in bundles.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (so it is called everywhere)

import barnabas.spark
from barnabas.cli.output import Column, number, print_table
from barnabas.spark import dead_letters, from_topic
from examples.common import as_json, create_topics, parse_arguments, produce, read_stream, run, write_stream
from examples.files import write_parquet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
LATENESS = timedelta(seconds=30)
BUNDLE = timedelta(seconds=10)
HOSTS = tuple(f"web-{at}" for at in range(6))
MESSAGES = {
    "checkout": ("paid", "card declined", 'no such voucher: "SPRING"'),
    "search": ("found", "index is being rebuilt", "too many words"),
    "login": ("welcome", "wrong password", "token expired"),
}
LEVELS = ("INFO", "WARN", "ERROR")
LINE = "time TIMESTAMP NOT NULL, host STRING NOT NULL, service STRING NOT NULL, level STRING NOT NULL, message STRING"
LINE_OPTIONS = {"sep": " "}
METRIC = "time TIMESTAMP NOT NULL, host STRING NOT NULL, cpu_percent DOUBLE, memory_bytes BIGINT"


@dataclass(frozen=True)
class Topics:
    logs: str = "logs"
    metrics: str = "metrics"
    dead: str = "logs.dead"


@dataclass(frozen=True)
class LogLine:
    time: datetime
    host: str
    service: str
    level: str
    message: str

    def __str__(self) -> str:
        message = self.message.replace('"', '""')
        return f'{self.time.isoformat(timespec="microseconds")} {self.host} {self.service} {self.level} "{message}"'


@dataclass(frozen=True)
class Garbled:
    """What a host sends if it crashes in the middle of a line."""

    host: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Metric:
    time: datetime
    host: str
    cpu_percent: float
    memory_bytes: int


def generate(seed: int, events: int) -> Iterator[LogLine | Garbled | Metric]:
    """Events in the order in which they are sent, up to `BUNDLE` after the time that they contain."""
    rng = random.Random(seed)
    now = START
    for _ in range(events):
        now += timedelta(milliseconds=rng.randrange(100, 2_000))
        time, host = now - rng.random() * BUNDLE, rng.choice(HOSTS)
        service = rng.choice(tuple(MESSAGES))
        kind = rng.choices((0, 1, 2), (6, 2, 2))[0]
        line = LogLine(time, host, service, LEVELS[kind], MESSAGES[service][kind])
        fate = rng.random()
        if fate < 0.2:
            yield Metric(time, host, round(rng.uniform(0, 100), 1), rng.randrange(1 << 34))
        elif fate < 0.23:
            yield Garbled(host, str(line)[: rng.randrange(1, 40)])
        else:
            yield line


def errors_per_minute(lines: DataFrame) -> DataFrame:
    return (
        lines.withWatermark("time", f"{LATENESS.seconds} seconds")
        .groupBy("service", F.window("time", "1 minute"))
        .agg(F.count_if(F.col("level") == "ERROR").alias("errors"), F.count("*").alias("lines"))
        .select(F.col("window.start").alias("minute"), "service", "errors", "lines")
    )


def pipeline(
    spark: SparkSession, bootstrap: str, topics: Topics, folder: str, checkpoint: str
) -> list[DataStreamWriter]:
    logs = from_topic(
        read_stream(spark, bootstrap, topics.logs), LINE, format="csv", options=LINE_OPTIONS, malformed="mark"
    )
    lines = logs.where("malformed IS NULL").select("value.*")
    metrics = from_topic(read_stream(spark, bootstrap, topics.metrics), METRIC).select("value.*")
    return [
        write_parquet(lines, f"{folder}/logs"),
        write_parquet(metrics, f"{folder}/metrics"),
        write_parquet(errors_per_minute(lines), f"{folder}/errors", time="minute"),
        write_stream(dead_letters(logs, topics.dead), bootstrap, topics.dead, f"{checkpoint}/dead"),
    ]


def load(bootstrap: str, topics: Topics, events: Iterable[LogLine | Garbled | Metric]) -> None:
    create_topics(bootstrap, [topics.logs, topics.metrics, topics.dead])
    sent = list(events)
    produce(bootstrap, topics.metrics, ((each.host, as_json(each), None) for each in sent if isinstance(each, Metric)))
    produce(bootstrap, topics.logs, ((each.host, str(each), None) for each in sent if not isinstance(each, Metric)))


def main(argv: Sequence[str] | None = None) -> None:
    about = "keeps logs and metrics in Parquet files, and counts the errors of each service and minute"
    arguments = parse_arguments(
        "logs_to_parquet", about, events=10_000, folders={"parquet": "folder for the Parquet tables"}, argv=argv
    )
    topics = Topics()
    load(arguments.bootstrap, topics, generate(arguments.seed, arguments.events))
    spark = barnabas.spark.session("logs to Parquet", master=arguments.master)
    folder = arguments.extra.parquet
    writers = pipeline(spark, arguments.bootstrap, topics, folder, arguments.checkpoint)
    run(writers, once=arguments.once)
    show(spark, folder)


def show(spark: SparkSession, folder: str) -> None:
    worst = spark.read.parquet(f"{folder}/errors").orderBy(F.desc("errors"), "minute", "service").limit(10)
    columns = [Column("minute"), Column("service"), number("errors"), number("lines")]
    print_table(columns, worst.drop("day").collect(), title="The minutes with the most errors")


if __name__ == "__main__":
    main()
