"""Video: where users resume watching, what they like, and what to show them next.

Reads `show_position`, keyed by user: what players report while a show is watched. Writes
`resume_points`, keyed by user and show: the newest position; a show that was watched to the end is deleted;
`video_profiles`, keyed by user: seconds watched, favourite genre, shows seen;
`recommendations`, keyed by user and derived from the profiles: unseen shows of the user's favourite genre.
Each of these records replaces the one before it, so the topics are compacted. All reports are kept in Parquet files.

Reports arrive out of order if a player was offline. The newest one is the one with the latest time in it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (so it is called everywhere)

import barnabas.spark
from barnabas.cli.output import Column, number, print_table
from barnabas.spark import from_topic, to_topic
from examples.common import as_json, create_topics, parse_arguments, produce, read_json, read_stream, run, write_stream
from examples.files import write_parquet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PARTITIONS = 4
"""There are many users, and everything is computed for each of them separately."""
EVENING = datetime(2026, 3, 2, 20, tzinfo=UTC)
REPORT_EVERY_S = 30
FINISHED_FROM = 0.95
"""Nobody wants to resume at the credits."""

CATALOGUE = {
    "crime": ("Cold Harbour", "Fourth Witness", "Low Tide", "Night Shift", "The Ledger", "Unmarked"),
    "comedy": ("Flatmates", "Half Past Monday", "Late Fees", "Odd Socks", "Plan C", "Small Print"),
    "nature": ("Deep Blue", "Dunes", "Far North", "Rainforest", "Riverbed", "Under the Ice"),
}
LENGTH_S = {show: 300 + 30 * at for at, show in enumerate(show for shows in CATALOGUE.values() for show in shows)}
SCHEMA = (
    "user STRING NOT NULL, show STRING NOT NULL, genre STRING NOT NULL, position_s INT NOT NULL, "
    "length_s INT NOT NULL, watched_s INT NOT NULL, time TIMESTAMP NOT NULL"
)
PROFILE = "user STRING NOT NULL, watched_s BIGINT, favourite STRING, seen ARRAY<STRING>"


@dataclass(frozen=True)
class Topics:
    positions: str = "show_position"
    resume_points: str = "resume_points"
    profiles: str = "video_profiles"
    recommendations: str = "recommendations"


@dataclass(frozen=True)
class Position:
    """A player's report: its position, and how many seconds it has played since the last report."""

    user: str
    show: str
    genre: str
    position_s: int
    length_s: int
    watched_s: int
    time: datetime


def generate(seed: int, events: int) -> Iterator[Position]:
    """Users who continue a show, begin another, or skip ahead. Some neighbouring reports are swapped."""
    rng = random.Random(seed)
    users = [f"user-{at}" for at in range(max(2, events // 40))]
    genres = {user: rng.choice(tuple(CATALOGUE)) for user in users}
    watching: dict[str, str] = {}
    positions_s: defaultdict[tuple[str, str], int] = defaultdict(int)
    held_up: Position | None = None
    for at in range(events):
        user = rng.choice(users)
        genre = genres[user] if rng.random() < 0.7 else rng.choice(tuple(CATALOGUE))
        show = watching.get(user)
        if show is None or rng.random() < 0.1:
            show = watching[user] = rng.choice(CATALOGUE[genre])
        skipped_s = rng.choice((0, 0, 60, 180))
        before_s = positions_s[user, show]
        position_s = positions_s[user, show] = min(LENGTH_S[show], before_s + skipped_s + REPORT_EVERY_S)
        report = Position(
            user,
            show,
            next(name for name, shows in CATALOGUE.items() if show in shows),
            position_s,
            LENGTH_S[show],
            min(REPORT_EVERY_S, position_s - before_s),
            EVENING + timedelta(seconds=at),
        )
        if position_s == LENGTH_S[show]:
            del watching[user], positions_s[user, show]
        if held_up is None and at + 1 < events and rng.random() < 0.1:
            held_up = report
            continue
        yield report
        if held_up is not None:
            yield held_up
            held_up = None


def newest_positions(positions: DataFrame) -> DataFrame:
    """The newest position for each user and show; `resume` is null if there is nothing left to watch."""
    newest = F.max_by(F.struct("position_s", "length_s", "time"), "time")
    is_finished = F.col("newest.position_s") >= FINISHED_FROM * F.col("newest.length_s")
    resume = F.struct("user", "show", "newest.position_s", "newest.time")
    grouped = changed(positions, ["user", "show"], newest.alias("newest"))
    return grouped.select("user", "show", F.when(~is_finished, resume).alias("resume"))


def profiles(positions: DataFrame) -> DataFrame:
    """The favourite genre is the one watched longest; of equals, the first in alphabetical order."""

    def ranked(genre: str) -> SparkColumn:
        watched_s = F.sum(F.when(F.col("genre") == genre, F.col("watched_s")).otherwise(0))
        return F.struct((-watched_s).alias("rank"), F.lit(genre).alias("genre"))

    return changed(
        positions,
        ["user"],
        F.sum("watched_s").alias("watched_s"),
        F.array_min(F.array(*map(ranked, CATALOGUE)))["genre"].alias("favourite"),
        F.array_sort(F.collect_set("show")).alias("seen"),
    )


def changed(rows: DataFrame, keys: list[str], *aggregates: SparkColumn) -> DataFrame:
    """Aggregates for complete mode, reduced in each batch to those that have new rows.

    This does what update mode does, which Spark does not support for Python sinks; the price is that each batch goes
    through all aggregates. `current_timestamp` is the same throughout a batch, even if the batch is run again. If the
    clock is set back, some rows are written again, but none is left out.
    """
    read = rows.withColumn("read_at", F.current_timestamp())
    grouped = read.groupBy(*keys).agg(*aggregates, F.max("read_at").alias("changed_at"))
    return grouped.where(F.col("changed_at") >= F.current_timestamp()).drop("changed_at")


def recommendations(profiles: DataFrame, catalogue: DataFrame) -> DataFrame:
    unseen = F.array_sort(F.array_except("shows", "seen"))
    liked = profiles.join(F.broadcast(catalogue), F.col("favourite") == F.col("genre"))
    return liked.select("user", unseen.alias("shows"))


def pipeline(
    spark: SparkSession, bootstrap: str, topics: Topics, folder: str, checkpoint: str
) -> list[DataStreamWriter]:
    """In such an order that each query finds its input when those before it have ended."""
    positions = from_topic(read_stream(spark, bootstrap, topics.positions), SCHEMA).select("value.*")
    resume = to_topic(newest_positions(positions), key=F.concat_ws("/", "user", "show"), value="resume")
    likes = to_topic(profiles(positions), key=F.col("user"))

    known = from_topic(read_stream(spark, bootstrap, topics.profiles), PROFILE).select("value.*")
    catalogue = spark.createDataFrame(list(CATALOGUE.items()), "genre STRING, shows ARRAY<STRING>")
    unseen = to_topic(recommendations(known, catalogue), key=F.col("user"))
    return [
        write_stream(resume, bootstrap, topics.resume_points, f"{checkpoint}/resume_points", mode="complete"),
        write_stream(likes, bootstrap, topics.profiles, f"{checkpoint}/profiles", mode="complete"),
        write_stream(unseen, bootstrap, topics.recommendations, f"{checkpoint}/recommendations"),
        write_parquet(positions, folder),
    ]


def load(bootstrap: str, topics: Topics, reports: Iterable[Position]) -> None:
    create_topics(bootstrap, [topics.positions], partitions=PARTITIONS)
    compacted = [topics.resume_points, topics.profiles, topics.recommendations]
    create_topics(bootstrap, compacted, partitions=PARTITIONS, cleanup_policy="compact")
    produce(bootstrap, topics.positions, ((report.user, as_json(report), None) for report in reports))


def main(argv: Sequence[str] | None = None) -> None:
    about = "tracks where users are in their shows, what they like, and what to show them next"
    arguments = parse_arguments(
        "video", about, events=5_000, folders={"parquet": "folder for all reports as Parquet files"}, argv=argv
    )
    topics = Topics()
    load(arguments.bootstrap, topics, generate(arguments.seed, arguments.events))
    spark = barnabas.spark.session("video", master=arguments.master)
    writers = pipeline(spark, arguments.bootstrap, topics, arguments.extra.parquet, arguments.checkpoint)
    run(writers, once=arguments.once)
    show(arguments.bootstrap, topics)


def show(bootstrap: str, topics: Topics) -> None:
    likes = dict(read_json(bootstrap, topics.profiles))
    unseen = {user: ", ".join(row["shows"]) for user, row in read_json(bootstrap, topics.recommendations)}
    rows = [
        (user, profile["watched_s"], profile["favourite"], unseen.get(user, ""))
        for user, profile in sorted(likes.items(), key=lambda item: -item[1]["watched_s"])[:10]
    ]
    columns = [Column("user"), number("watched s"), Column("favourite"), Column("next")]
    print_table(columns, rows, title="Users who watch the most")


if __name__ == "__main__":
    main()
