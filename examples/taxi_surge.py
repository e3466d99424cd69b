"""Surge pricing of a taxi company: rides cost more where many users wait and there are few taxis.

Reads `taxi_position` and `user_position`, which are kept for only an hour. Writes `surge_pricing`, keyed by region: for
each region and minute, how many users wait (demand), how many taxis are there (supply), and the price factor. All
positions are also kept in Parquet files, by kind and day, for later analysis.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (so it is called everywhere)

import barnabas.spark
from barnabas.cli.output import Column as TableColumn
from barnabas.cli.output import number, print_table
from barnabas.spark import from_topic, to_topic
from examples.common import as_json, create_topics, parse_arguments, produce, read_json, read_stream, run, write_stream
from examples.files import write_parquet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

RETENTION_MS = 3_600_000

WINDOW = "1 minute"
GRACE = "30 seconds"
REGIONS_PER_DEGREE = 20
SURGE_MAX = 3.0
SCHEMA = "id STRING NOT NULL, latitude DOUBLE NOT NULL, longitude DOUBLE NOT NULL, time TIMESTAMP NOT NULL"

MORNING = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
DURATION = timedelta(minutes=10)
CITY = (48.80, 2.25)
CITY_DEGREES = 0.15


@dataclass(frozen=True)
class Topics:
    taxis: str = "taxi_position"
    users: str = "user_position"
    surge: str = "surge_pricing"


@dataclass(frozen=True)
class Position:
    id: str
    latitude: float
    longitude: float
    time: datetime

    @property
    def is_taxi(self) -> bool:
        return self.id.startswith("taxi")


def generate(seed: int, events: int) -> Iterator[Position]:
    """Ten minutes of a morning: taxis are all over the city, and users crowd in the centre."""
    rng = random.Random(seed)
    fleet, crowd = max(1, events // 20), max(1, events // 10)
    for number_ in range(events):
        if rng.random() < 0.4:
            who, spread = f"taxi-{rng.randrange(fleet)}", rng.random
        else:
            who, spread = f"user-{rng.randrange(crowd)}", lambda: rng.betavariate(4, 4)
        latitude, longitude = (round(start + CITY_DEGREES * spread(), 5) for start in CITY)
        yield Position(who, latitude, longitude, MORNING + DURATION * number_ / events)


def region(latitude: str, longitude: str) -> Column:
    """A square on the map, named after the coordinates of its south-western corner."""
    return F.concat_ws(":", *(F.floor(F.col(axis) * REGIONS_PER_DEGREE) for axis in (latitude, longitude)))


def positions(records: DataFrame, taxis: str) -> DataFrame:
    kind = F.when(F.col("topic") == taxis, "taxi").otherwise("user")
    return from_topic(records, SCHEMA).select(kind.alias("kind"), "value.*")


def surge(found: DataFrame) -> DataFrame:
    def distinct(kind: str) -> Column:
        return F.size(F.collect_set(F.when(F.col("kind") == kind, F.col("id"))))

    factor = F.col("demand") / F.greatest("supply", F.lit(1))
    return (
        found.withWatermark("time", GRACE)
        .groupBy(region("latitude", "longitude").alias("region"), F.window("time", WINDOW).alias("window"))
        .agg(distinct("user").alias("demand"), distinct("taxi").alias("supply"))
        .select("region", F.col("window.start").alias("start"), "demand", "supply", bounded(factor).alias("factor"))
    )


def bounded(factor: Column) -> Column:
    return F.round(F.least(F.greatest(factor, F.lit(1.0)), F.lit(SURGE_MAX)), 2)


def pipeline(
    spark: SparkSession, bootstrap: str, topics: Topics, folder: str, checkpoint: str
) -> list[DataStreamWriter]:
    found = positions(read_stream(spark, bootstrap, topics.taxis, topics.users), topics.taxis)
    prices = to_topic(surge(found), key="region")
    return [
        write_stream(prices, bootstrap, topics.surge, f"{checkpoint}/surge"),
        write_parquet(found, folder, partition_by=["kind"]),
    ]


def load(bootstrap: str, topics: Topics, events: Iterable[Position]) -> None:
    create_topics(bootstrap, [topics.taxis, topics.users], retention_ms=str(RETENTION_MS))
    create_topics(bootstrap, [topics.surge])
    found = list(events)
    for topic, is_taxi in ((topics.taxis, True), (topics.users, False)):
        of_kind = (each for each in found if each.is_taxi == is_taxi)
        produce(bootstrap, topic, ((each.id, as_json(each), None) for each in of_kind))


def main(argv: Sequence[str] | None = None) -> None:
    folders = {"parquet": "folder for all positions as Parquet files"}
    about = "prices taxi rides by supply and demand"
    arguments = parse_arguments("taxi_surge", about, events=20_000, folders=folders, argv=argv)
    topics = Topics()
    load(arguments.bootstrap, topics, generate(arguments.seed, arguments.events))
    spark = barnabas.spark.session("taxi surge", master=arguments.master)
    writers = pipeline(spark, arguments.bootstrap, topics, arguments.extra.parquet, arguments.checkpoint)
    run(writers, once=arguments.once)
    show(arguments.bootstrap, topics)


def show(bootstrap: str, topics: Topics) -> None:
    prices = {(value["start"], region): value for region, value in read_json(bootstrap, topics.surge)}
    newest = max((start for start, _ in prices), default=None)
    last = sorted((-price["factor"], which, price) for which, price in prices.items() if which[0] == newest)
    rows = [(*which, price["demand"], price["supply"], price["factor"]) for _, which, price in last]
    columns = [TableColumn("from"), TableColumn("region"), number("demand"), number("supply"), number("factor")]
    print_table(columns, rows, title="Prices by region in the last closed window")


if __name__ == "__main__":
    main()
