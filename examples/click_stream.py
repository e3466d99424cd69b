"""Click stream: clicks with the searches that led to them and the profiles of their users; then clicks per zip code.

Reads `click_stream_clicks`, `click_stream_searches` and `click_stream_profiles`, all keyed by user and with the same
number of partitions, so that everything about a user is in the same partition of each. Writes `enriched_clicks`, keyed
by user: a record for each click and each search by the same user within `LEAD` before it, or for the click alone if
there was no search, with the user's current profile. A second query reads these and writes `clicks_per_zip_code`,
keyed by zip code: the number of clicks in each minute.

The topic of profiles is compacted: the last record of a user is the profile, and a tombstone deletes it.

`enriched_clicks` is written at least once. A batch that is run again after an interruption may find that profiles have
changed: its rows are then not the same as before, which exactly-once delivery requires. So a click may be there twice,
with the old profile and then with the new one. The counts, which are written exactly once, use the last one.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (so it is called everywhere)

import barnabas.spark
from barnabas.cli.output import Column, number, print_table
from barnabas.spark import from_topic, to_topic
from examples.common import as_json, create_topics, parse_arguments, produce, read_json, read_stream, run, write_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

LEAD = timedelta(seconds=10)
GRACE = "30 seconds"
GRACE_OF_COUNTS = "2 minutes"
"""A click without a search is written when no search can come any more: `GRACE` later than others, plus a batch or
two."""
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
class Topics:
    clicks: str = "click_stream_clicks"
    searches: str = "click_stream_searches"
    profiles: str = "click_stream_profiles"
    enriched: str = "enriched_clicks"
    per_zip_code: str = "clicks_per_zip_code"


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
    """Three quarters of the users have a profile. A quarter have moved, and their last profile counts."""
    rng = random.Random(seed)
    users = user_count(events)
    for number_ in range(users * 3 // 4):
        yield Profile(f"user-{number_}", f"Name {number_}", rng.choice(ZIP_CODES))
    for number_ in range(users // 4):
        yield Profile(f"user-{number_}", f"Name {number_}", rng.choice(ZIP_CODES))


def generate(seed: int, events: int) -> Iterator[Click | Search]:
    """Users who search and click. After an hour of silence, one more search and click complete all windows before."""
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
    """The current state of the table that the topic represents."""
    topics = spark.read.format("barnabas").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    newest = from_topic(topics.load(), PROFILE_SCHEMA).groupBy("key").agg(F.max_by("value", "offset").alias("profile"))
    return newest.select(F.col("key").alias("owner"), "profile.name", "profile.zip_code")


def with_searches(clicks: DataFrame, searches: DataFrame) -> DataFrame:
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
    return clicked.join(searched, led_to, "left_outer").drop("searcher")


def with_profiles(clicks: DataFrame, profiles: DataFrame) -> DataFrame:
    return clicks.join(profiles, F.col("user") == F.col("owner"), "left_outer").drop("owner")


def write_enriched(bootstrap: str, topics: Topics) -> Callable[[DataFrame, int], None]:
    """Loads profiles for each batch: a table that is loaded once is planned once, and would never show changes."""

    def write(clicks: DataFrame, batch_id: int) -> None:
        del batch_id
        profiles = current_profiles(clicks.sparkSession, bootstrap, topics.profiles)
        rows = to_topic(with_profiles(clicks, profiles), key="user").write.format("barnabas")
        rows = rows.option("kafka.bootstrap.servers", bootstrap).option("topic", topics.enriched)
        rows.option("delivery", "at_least_once").mode("append").save()

    return write


def per_zip_code(enriched: DataFrame) -> DataFrame:
    """Each click counts once, with its last record. All records of a user, and so of a click, are in one partition, in
    order."""
    clicks = (
        from_topic(enriched, ENRICHED_SCHEMA)
        .select("value.*", "offset")
        .withWatermark("time", GRACE_OF_COUNTS)
        .groupBy("id", F.window("time", WINDOW))
        .agg(F.max_by("zip_code", "offset").alias("zip_code"))
        .where("zip_code IS NOT NULL")
    )
    counts = clicks.groupBy("zip_code", F.window("window", WINDOW).alias("window")).agg(F.count("*").alias("clicks"))
    return counts.select("zip_code", F.col("window.start").alias("start"), "clicks")


def pipeline(spark: SparkSession, bootstrap: str, topics: Topics, checkpoint: str) -> list[DataStreamWriter]:
    """The second query reads what the first one has written."""
    clicks = with_searches(read_stream(spark, bootstrap, topics.clicks), read_stream(spark, bootstrap, topics.searches))
    enriching = clicks.writeStream.foreachBatch(write_enriched(bootstrap, topics))
    counts = per_zip_code(read_stream(spark, bootstrap, topics.enriched))
    return [
        enriching.option("checkpointLocation", f"{checkpoint}/enriched"),
        write_stream(to_topic(counts, key="zip_code"), bootstrap, topics.per_zip_code, f"{checkpoint}/per-zip-code"),
    ]


def load(bootstrap: str, topics: Topics, profiles: Iterable[Profile], events: Iterable[Click | Search]) -> None:
    create_topics(bootstrap, [topics.clicks, topics.searches, topics.enriched, topics.per_zip_code])
    create_topics(bootstrap, [topics.profiles], cleanup_policy="compact")
    produce(bootstrap, topics.profiles, ((profile.user, as_json(profile), None) for profile in profiles))
    found = list(events)
    for topic, kind in ((topics.clicks, Click), (topics.searches, Search)):
        of_kind = (event for event in found if isinstance(event, kind))
        produce(bootstrap, topic, ((event.user, as_json(event), None) for event in of_kind))


def main(argv: Sequence[str] | None = None) -> None:
    about = "enriches clicks with searches and profiles, and counts them per zip code"
    arguments = parse_arguments("click_stream", about, events=10_000, argv=argv)
    topics = Topics()
    profiles = generate_profiles(arguments.seed, arguments.events)
    load(arguments.bootstrap, topics, profiles, generate(arguments.seed, arguments.events))
    spark = barnabas.spark.session("click stream", master=arguments.master)
    run(pipeline(spark, arguments.bootstrap, topics, arguments.checkpoint), once=arguments.once)
    show(arguments.bootstrap, topics)


def show(bootstrap: str, topics: Topics) -> None:
    counts = {(str(zip_code), value["start"]): value for zip_code, value in read_json(bootstrap, topics.per_zip_code)}
    totals: Counter[str] = Counter()
    for (zip_code, _), value in counts.items():
        totals[zip_code] += value["clicks"]
    print_table([Column("zip code"), number("clicks")], sorted(totals.items()), title="Clicks per zip code")


if __name__ == "__main__":
    main()
