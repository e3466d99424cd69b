"""Surge pricing of a taxi company: what a ride costs more where many wait and few taxis are.

Reads `taxi_position` and `user_position`, which are kept for an hour only. Writes `surge_pricing`, keyed by region: for
each region and window of a minute how many users wait (demand), how many taxis are there (supply), and the factor on
the price. All positions are also kept as Parquet files, by kind and day, for those who analyse them later.
"""

from __future__ import annotations

import os
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TAXIS = "taxi_position"
USERS = "user_position"
SURGE = "surge_pricing"
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
class Position:
    id: str
    latitude: float
    longitude: float
    time: datetime

    @property
    def is_taxi(self) -> bool:
        return self.id.startswith("taxi")


def generate(seed: int, events: int) -> Iterator[Position]:
    """Ten minutes of a morning: taxis stand all over the city, and users crowd in the middle of it."""
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
    """A square on the map, named by the numbers of its south-western corner."""
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


def keep(found: DataFrame, folder: str, checkpoint: str) -> DataStreamWriter:
    days = found.withColumn("day", F.to_date("time"))
    files = days.writeStream.format("parquet").partitionBy("kind", "day").option("path", folder)
    return files.option("checkpointLocation", checkpoint)


def main(argv: Sequence[str] | None = None) -> None:
    folders = {"parquet": "folder in which all positions are kept"}
    about = "prices taxi rides by demand and supply"
    arguments = parse_arguments("taxi_surge", about, events=20_000, folders=folders, argv=argv)
    create_topics(arguments.bootstrap, [TAXIS, USERS], retention_ms=str(RETENTION_MS))
    create_topics(arguments.bootstrap, [SURGE])
    events = list(generate(arguments.seed, arguments.events))
    for topic, is_taxi in ((TAXIS, True), (USERS, False)):
        of_kind = (each for each in events if each.is_taxi == is_taxi)
        produce(arguments.bootstrap, topic, ((each.id, as_json(each), None) for each in of_kind))
    spark = barnabas.spark.session("taxi surge", master=arguments.master)
    found = positions(read_stream(spark, arguments.bootstrap, TAXIS, USERS), TAXIS)
    output = to_topic(surge(found), key="region")
    writers = [
        write_stream(output, arguments.bootstrap, SURGE, os.path.join(arguments.checkpoint, "surge")),
        keep(found, arguments.extra.parquet, os.path.join(arguments.checkpoint, "keep")),
    ]
    run(writers, once=arguments.once)
    show(arguments.bootstrap)


def show(bootstrap: str) -> None:
    prices = [value | {"region": region} for region, value in read_json(bootstrap, SURGE)]
    newest = max((price["start"] for price in prices), default=None)
    last = sorted((price for price in prices if price["start"] == newest), key=lambda price: -price["factor"])
    rows = [[price[name] for name in ("start", "region", "demand", "supply", "factor")] for price in last]
    columns = [TableColumn("from"), TableColumn("region"), number("demand"), number("supply"), number("factor")]
    print_table(columns, rows, title="Prices by region, in the last closed window")


if __name__ == "__main__":
    main()
