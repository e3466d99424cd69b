"""Tweets: the popular ones, and the hashtags that trend in them, minute by minute.

Reads `tweets`, keyed by user. Writes
`popular_tweets`, keyed by user: tweets with more than 10 likes or more than 10 replies;
`hashtags_per_minute`, keyed by hashtag: how many popular tweets of a minute contain it;
`trending`, keyed by minute: the most frequent hashtags.

A minute is counted when it is over, that is, when a popular tweet has arrived that is `LATENESS` younger than its end.
So each count is written once, and is final. Tweets arrive out of order, but never by more than that.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (so it is called everywhere)

import barnabas.spark
from barnabas.cli.output import Column, print_table
from barnabas.spark import from_topic, to_topic
from examples.common import (
    as_json,
    create_topics,
    parse_arguments,
    produce,
    read_json,
    read_stream,
    run,
    write_stream,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
LATENESS = timedelta(seconds=30)
POPULAR_ABOVE = 10
"""Likes or replies."""
TREND_LENGTH = 3
USERS = ("ada", "bela", "chen", "dora", "emil")
HASHTAGS = ("kafka", "spark", "python", "parquet", "arrow", "jvm", "rust")
SCHEMA = (
    "id BIGINT NOT NULL, user STRING NOT NULL, text STRING NOT NULL, likes INT NOT NULL, replies INT NOT NULL, "
    "time TIMESTAMP NOT NULL"
)


@dataclass(frozen=True)
class Tweet:
    id: int
    user: str
    text: str
    likes: int
    replies: int
    time: datetime


@dataclass(frozen=True)
class Topics:
    tweets: str = "tweets"
    popular: str = "popular_tweets"
    hashtags: str = "hashtags_per_minute"
    trending: str = "trending"


def generate(seed: int, events: int) -> Iterator[Tweet]:
    """Tweets of a few users, one every few seconds, each up to 20 seconds late."""
    rng = random.Random(seed)
    now = START
    for number in range(events):
        now += timedelta(milliseconds=rng.randrange(200, 4_000))
        # Some hashtags are used far more often than others, in upper or lower case, and sometimes twice in a tweet.
        tags = [HASHTAGS[int(len(HASHTAGS) * rng.random() ** 2)] for _ in range(rng.randrange(4))]
        words = [f"#{tag.title() if rng.random() < 0.3 else tag}" for tag in tags]
        yield Tweet(
            id=number,
            user=rng.choice(USERS),
            text=" ".join(["news", *words]),
            likes=int(rng.expovariate(1 / 9)),
            replies=int(rng.expovariate(1 / 5)),
            time=now - timedelta(milliseconds=rng.randrange(20_000)),
        )


def popular_tweets(tweets: DataFrame) -> DataFrame:
    return tweets.where((F.col("likes") > POPULAR_ABOVE) | (F.col("replies") > POPULAR_ABOVE))


def hashtags_per_minute(tweets: DataFrame) -> DataFrame:
    """A tweet counts once for each of its hashtags, however often and in whatever case they occur."""
    words = F.regexp_extract_all(F.lower("text"), F.lit(r"#([\p{L}\p{N}_]+)"))
    return (
        tweets.withWatermark("time", f"{LATENESS.seconds} seconds")
        .select("time", F.explode(F.array_distinct(words)).alias("hashtag"))
        .groupBy(F.window("time", "1 minute"), "hashtag")
        .agg(F.count("*").alias("tweets"))
    )


def trending_hashtags(hashtags: DataFrame) -> DataFrame:
    """The most frequent hashtags of a minute, equally frequent ones in alphabetical order."""
    ranked = F.array_sort(F.collect_list(F.struct((-F.col("tweets")).alias("rank"), "hashtag")))
    return hashtags.groupBy(F.window("window", "1 minute")).agg(
        F.slice(ranked, 1, TREND_LENGTH)["hashtag"].alias("hashtags")
    )


def pipeline(spark: SparkSession, bootstrap: str, topics: Topics, checkpoint: str) -> list[DataStreamWriter]:
    tweets = from_topic(read_stream(spark, bootstrap, topics.tweets), SCHEMA).select("value.*")
    popular = popular_tweets(tweets)
    hashtags = hashtags_per_minute(popular)
    trending = trending_hashtags(hashtags)
    minute = F.col("window.start").alias("minute")
    outputs = {
        topics.popular: to_topic(popular, key=F.col("user")),
        topics.hashtags: to_topic(hashtags.select("hashtag", minute, "tweets"), key=F.col("hashtag")),
        topics.trending: to_topic(trending.select(minute, "hashtags"), key=F.col("minute")),
    }
    return [write_stream(rows, bootstrap, topic, f"{checkpoint}/{topic}") for topic, rows in outputs.items()]


def load(bootstrap: str, topics: Topics, tweets: Iterable[Tweet]) -> None:
    create_topics(bootstrap, [topics.tweets, topics.popular, topics.hashtags, topics.trending])
    produce(bootstrap, topics.tweets, ((tweet.user, as_json(tweet), None) for tweet in tweets))


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parse_arguments("tweets", "finds popular tweets and trending hashtags", events=5_000, argv=argv)
    topics = Topics()
    load(arguments.bootstrap, topics, generate(arguments.seed, arguments.events))
    spark = barnabas.spark.session("tweets", master=arguments.master)
    writers = pipeline(spark, arguments.bootstrap, topics, arguments.checkpoint)
    run(writers, once=arguments.once)
    show(arguments.bootstrap, topics)


def show(bootstrap: str, topics: Topics) -> None:
    counted = [row for _, row in read_json(bootstrap, topics.hashtags)]
    tweets = {(row["minute"], row["hashtag"]): row["tweets"] for row in counted}
    trends = {row["minute"]: row["hashtags"] for _, row in read_json(bootstrap, topics.trending)}
    rows = [
        (minute, ", ".join(f"#{hashtag} ({tweets[minute, hashtag]})" for hashtag in hashtags))
        for minute, hashtags in sorted(trends.items())[-10:]
    ]
    print_table([Column("minute"), Column("trending")], rows, title="Trending hashtags of the last minutes")


if __name__ == "__main__":
    main()
