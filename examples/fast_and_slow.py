"""Ingestion in two layers: one topic feeds both live counts and files that contain everything.

Reads `page_views`, keyed by user. The fast layer writes `live_counts`, keyed by page: how often a page was viewed in a
minute, as soon as a view has arrived that is `LATENESS` younger than the end of that minute. It then forgets the
minute: a view that arrives even later is not counted.

The slow layer writes all views to Parquet files, including late ones. Counts from the files are exact, but only as far
as the files go; `merged` answers from the files as far as they go, and with live counts after that.

Each layer has a consumer group of its own, so that tools that show consumer lag tell how far behind each of them is.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F  # noqa: N812 (so it is called everywhere)

import barnabas.spark
from barnabas.cli.output import Column, number, print_table
from barnabas.spark import from_topic, to_topic
from examples.common import as_json, create_topics, parse_arguments, produce, read_json, read_stream, run, write_stream
from examples.files import write_parquet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
LATENESS = timedelta(minutes=1)
DELAY_MAX = timedelta(seconds=20)
FAST_BATCH = 1_000
"""After an outage, live counts should advance soon, and not only when the whole backlog has been counted."""
PAGES = ("/", "/basket", "/help", "/item/1", "/item/2")
SCHEMA = "user STRING NOT NULL, page STRING NOT NULL, time TIMESTAMP NOT NULL"

Counts: TypeAlias = dict[tuple[datetime, str], int]
"""Views by minute and page."""


@dataclass(frozen=True)
class Topics:
    views: str = "page_views"
    live: str = "live_counts"


@dataclass(frozen=True)
class View:
    user: str
    page: str
    time: datetime


def generate(seed: int, events: int) -> Iterator[View]:
    """Views in order of arrival, up to `DELAY_MAX` after they happened. The last one arrives an hour late."""
    rng = random.Random(seed)
    now = START + timedelta(hours=1)
    for _ in range(events - 1):
        now += timedelta(milliseconds=rng.randrange(20, 180))
        yield View(f"user-{rng.randrange(20)}", rng.choice(PAGES), now - rng.random() * DELAY_MAX)
    yield View("user-in-a-tunnel", PAGES[0], now - timedelta(hours=1))


def group(topics: Topics, layer: str) -> dict[str, str]:
    return {"kafka.group.id": f"{topics.views}-{layer}"}


def views_of(records: DataFrame) -> DataFrame:
    return from_topic(records, SCHEMA).select("value.*")


def live_counts(views: DataFrame) -> DataFrame:
    recent = views.withWatermark("time", f"{LATENESS.seconds} seconds")
    counted = recent.groupBy(F.window("time", "1 minute"), "page").agg(F.count("*").alias("views"))
    return counted.select(F.col("window.start").alias("minute"), "page", "views")


def fast_layer(spark: SparkSession, bootstrap: str, topics: Topics, checkpoint: str) -> DataStreamWriter:
    records = read_stream(spark, bootstrap, topics.views, **group(topics, "fast"), maxOffsetsPerTrigger=FAST_BATCH)
    counts = to_topic(live_counts(views_of(records)), key=F.col("page"))
    return write_stream(counts, bootstrap, topics.live, f"{checkpoint}/fast")


def slow_layer(spark: SparkSession, bootstrap: str, topics: Topics, folder: str) -> DataStreamWriter:
    """Each trigger writes a file per partition: one trigger per minute is soon enough without too many files."""
    records = read_stream(spark, bootstrap, topics.views, **group(topics, "slow"))
    return write_parquet(views_of(records), folder).trigger(processingTime="1 minute")


def counts_of(spark: SparkSession, folder: str) -> Counts:
    """Counts from the files."""
    minute = F.window("time", "1 minute")["start"].cast("long")
    rows = spark.read.parquet(folder).groupBy(minute.alias("minute"), "page").count().collect()
    return {(datetime.fromtimestamp(row.minute, UTC), row.page): row["count"] for row in rows}


def live_counts_of(bootstrap: str, topics: Topics) -> Counts:
    rows = (value for _, value in read_json(bootstrap, topics.live))
    return {(datetime.fromisoformat(row["minute"]), row["page"]): row["views"] for row in rows}


def merged(slow: Counts, live: Counts) -> Counts:
    """Counts from the files, except for their newest minutes: there, the live counts may be more complete."""
    newest = max((minute for minute, _ in slow), default=START)
    return slow | {at: views for at, views in live.items() if at[0] >= newest - LATENESS}


def load(bootstrap: str, topics: Topics, views: Iterable[View]) -> None:
    create_topics(bootstrap, [topics.views, topics.live])
    produce(bootstrap, topics.views, ((view.user, as_json(view), None) for view in views))


def main(argv: Sequence[str] | None = None) -> None:
    about = "counts page views live, and keeps all of them in Parquet files"
    arguments = parse_arguments(
        "fast_and_slow", about, events=5_000, folders={"parquet": "folder for the Parquet files"}, argv=argv
    )
    topics, folder = Topics(), arguments.extra.parquet
    load(arguments.bootstrap, topics, generate(arguments.seed, arguments.events))
    spark = barnabas.spark.session("fast and slow", master=arguments.master)
    fast = fast_layer(spark, arguments.bootstrap, topics, arguments.checkpoint)
    slow = slow_layer(spark, arguments.bootstrap, topics, folder)
    run([fast, slow], once=arguments.once)
    show(counts_of(spark, folder), live_counts_of(arguments.bootstrap, topics))


def show(slow: Counts, live: Counts) -> None:
    known = sorted(merged(slow, live).items())
    rows = [
        (f"{minute:%H:%M}", page, views, live.get((minute, page), 0), slow.get((minute, page), 0))
        for (minute, page), views in known[:1] + known[1:][-15:]
    ]
    columns = [Column("minute"), Column("page"), number("views"), number("live"), number("in files")]
    print_table(columns, rows, title="The oldest and the newest minutes")


if __name__ == "__main__":
    main()
