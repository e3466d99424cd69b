"""Click stream: what users click, with what they searched for just before and who they are; then clicks per zip code.

Reads `clicks`, `searches` and `profiles`, all keyed by user and with as many partitions, so that all of a user is in
the same partition of each. Writes `enriched_clicks`, keyed by user: a record for each click and each search of the same
user in the `LEAD` before it, or the click alone if there was none, with the profile as it is by then. A second query
reads those again and writes `clicks_per_zip_code`, keyed by zip code: the clicks of each minute.

`profiles` is compacted: the last record of a user is the profile, and one without a value deletes it.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (so it is called everywhere)

import barnabas.spark
from barnabas.cli.output import Column, number, print_table
from barnabas.spark import from_topic, to_topic
from examples.common import as_json, create_topics, parse_arguments, produce, read_json, read_stream, run, write_stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

CLICKS = "clicks"
SEARCHES = "searches"
PROFILES = "profiles"
ENRICHED = "enriched_clicks"
PER_ZIP_CODE = "clicks_per_zip_code"

LEAD = timedelta(seconds=10)
GRACE = "30 seconds"
WINDOW = "1 minute"
CLICK_SCHEMA = "id STRING NOT NULL, user STRING NOT NULL, page STRING NOT NULL, time TIMESTAMP NOT NULL"
SEARCH_SCHEMA = "user STRING NOT NULL, terms STRING NOT NULL, time TIMESTAMP NOT NULL"
PROFILE_SCHEMA = "user STRING NOT NULL, name STRING NOT NULL, zip_code STRING NOT NULL"
ENRICHED_SCHEMA = "id STRING NOT NULL, zip_code STRING, time TIMESTAMP NOT NULL"

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
SPACING = timedelta(milliseconds=700)
QUIET = timedelta(hours=1)
PAGES = ("mountain bikes", "road bikes", "helmets", "gloves", "pumps")
ZIP_CODES = ("94301", "94302", "10001", "60601")


@dataclass(frozen=True)
class Click:
    id: str
    user: str
    page: str
    time: datetime


@dataclass(frozen=True)
class Search:
    user: str
    terms: str
    time: datetime


@dataclass(frozen=True)
class Profile:
    user: str
    name: str
    zip_code: str


def generate_profiles(seed: int, events: int) -> Iterator[Profile]:
    """Three quarters of the users have one, and a quarter of those have moved: their last profile counts."""
    rng = random.Random(seed)
    users = user_count(events)
    for number_ in range(users * 3 // 4):
        yield Profile(f"user-{number_}", f"Name {number_}", rng.choice(ZIP_CODES))
    for number_ in range(users // 4):
        yield Profile(f"user-{number_}", f"Name {number_}", rng.choice(ZIP_CODES))


def generate(seed: int, events: int) -> Iterator[Click | Search]:
    """Users who search and click. After an hour of quiet one more search and click let all before them be settled."""
    rng = random.Random(seed)
    for number_ in range(events - 2):
        user, page = f"user-{rng.randrange(user_count(events))}", rng.choice(PAGES)
        time = NOON + number_ * SPACING
        yield Search(user, page, time) if rng.random() < 0.4 else Click(f"c{number_}", user, page, time)
    end = NOON + events * SPACING + QUIET
    yield Search("user-0", PAGES[0], end)
    yield Click(f"c{events - 1}", "user-0", PAGES[0], end + SPACING)


def user_count(events: int) -> int:
    return max(4, events // 20)


def current_profiles(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """The table behind the topic. A query that joins it reads it anew for each batch."""
    topics = spark.read.format("barnabas").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    newest = from_topic(topics.load(), PROFILE_SCHEMA).groupBy("key").agg(F.max_by("value", "offset").alias("profile"))
    return newest.select(F.col("key").alias("owner"), "profile.name", "profile.zip_code")


def enrich(clicks: DataFrame, searches: DataFrame, profiles: DataFrame) -> DataFrame:
    clicked = from_topic(clicks, CLICK_SCHEMA).select("value.*").withWatermark("time", GRACE)
    searched = (
        from_topic(searches, SEARCH_SCHEMA)
        .selectExpr("value.user AS searcher", "value.terms", "value.time AS searched_at")
        .withWatermark("searched_at", GRACE)
    )
    led_to = (
        (F.col("searcher") == F.col("user"))
        & (F.col("searched_at") <= F.col("time"))
        & (F.col("searched_at") >= F.col("time") - F.expr(f"INTERVAL {LEAD.seconds} SECONDS"))
    )
    return (
        clicked.join(searched, led_to, "left_outer")
        .join(profiles, F.col("user") == F.col("owner"), "left_outer")
        .select("id", "user", "page", "time", "terms", "searched_at", "name", "zip_code")
    )


def per_zip_code(enriched: DataFrame) -> DataFrame:
    clicks = F.size(F.collect_set("id")).alias("clicks")
    return (
        from_topic(enriched, ENRICHED_SCHEMA)
        .select("value.*")
        .where("zip_code IS NOT NULL")
        .withWatermark("time", GRACE)
        .groupBy("zip_code", F.window("time", WINDOW).alias("window"))
        .agg(clicks)
        .select("zip_code", F.col("window.start").alias("start"), "clicks")
    )


def main(argv: Sequence[str] | None = None) -> None:
    about = "enriches clicks with searches and profiles, and counts them per zip code"
    arguments = parse_arguments("click_stream", about, events=10_000, argv=argv)
    bootstrap = arguments.bootstrap
    create_topics(bootstrap, [CLICKS, SEARCHES, ENRICHED, PER_ZIP_CODE])
    create_topics(bootstrap, [PROFILES], cleanup_policy="compact")
    produce(
        bootstrap,
        PROFILES,
        ((profile.user, as_json(profile), None) for profile in generate_profiles(arguments.seed, arguments.events)),
    )
    events = list(generate(arguments.seed, arguments.events))
    for topic, kind in ((CLICKS, Click), (SEARCHES, Search)):
        of_kind = (event for event in events if isinstance(event, kind))
        produce(bootstrap, topic, ((event.user, as_json(event), None) for event in of_kind))

    spark = barnabas.spark.session("click stream", master=arguments.master)
    enriched = enrich(
        read_stream(spark, bootstrap, CLICKS),
        read_stream(spark, bootstrap, SEARCHES),
        current_profiles(spark, bootstrap, PROFILES),
    )
    enriching = write_stream(
        to_topic(enriched, key="user"), bootstrap, ENRICHED, os.path.join(arguments.checkpoint, "enriched")
    )
    counts = to_topic(per_zip_code(read_stream(spark, bootstrap, ENRICHED)), key="zip_code")
    counting = write_stream(counts, bootstrap, PER_ZIP_CODE, os.path.join(arguments.checkpoint, "per-zip-code"))
    # What is there now for the second is what the first has written.
    for stage in [[enriching], [counting]] if arguments.once else [[enriching, counting]]:
        run(stage, once=arguments.once)
    show(bootstrap)


def show(bootstrap: str) -> None:
    totals: dict[str, int] = {}
    for zip_code, value in read_json(bootstrap, PER_ZIP_CODE):
        totals[str(zip_code)] = totals.get(str(zip_code), 0) + value["clicks"]
    print_table([Column("zip code"), number("clicks")], sorted(totals.items()), title="Clicks per zip code")


if __name__ == "__main__":
    main()
