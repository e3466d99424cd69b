"""The tweets of examples/, end to end."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from examples.common import read_json, run
from examples.tweets import LATENESS, Topics, Tweet, generate, load, pipeline

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.peers import Peer

SEED = 7
EVENTS = 400


def counted(popular: list[Tweet]) -> Counter[tuple[datetime, str]]:
    """Tweets per minute and hashtag, of the minutes that are over."""
    closed_until = max(tweet.time for tweet in popular) - LATENESS
    minutes = ((tweet.time.replace(second=0, microsecond=0), tweet.text.lower()) for tweet in popular)
    return Counter(
        (minute, hashtag)
        for minute, text in minutes
        if minute + timedelta(minutes=1) <= closed_until
        for hashtag in set(re.findall(r"#(\w+)", text))
    )


def test_popular_tweets_are_kept_and_their_hashtags_counted_and_ranked_per_minute(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    topics = Topics(*(f"{topic}-{name}" for name in ("tweets", "popular", "hashtags", "trending")))
    load(node.bootstrap, topics, generate(SEED, EVENTS))
    run(pipeline(spark, node.bootstrap, topics, str(tmp_path)), once=True)

    popular = [tweet for tweet in generate(SEED, EVENTS) if tweet.likes > 10 or tweet.replies > 10]
    assert any(tweet.likes <= 10 for tweet in popular)
    assert any(tweet.replies <= 10 for tweet in popular)
    kept = read_json(node.bootstrap, topics.popular)
    assert sorted((key, row["id"]) for key, row in kept) == sorted((tweet.user, tweet.id) for tweet in popular)

    expected = counted(popular)
    assert len({minute for minute, _ in expected}) > 5
    hashtags = [row for _, row in read_json(node.bootstrap, topics.hashtags)]
    assert len(hashtags) == len(expected), "a minute of a hashtag is told once"
    assert {(datetime.fromisoformat(row["minute"]), row["hashtag"]): row["tweets"] for row in hashtags} == expected

    trends = [row for _, row in read_json(node.bootstrap, topics.trending)]
    assert len(trends) == len({minute for minute, _ in expected})
    ranked = sorted(expected, key=lambda at: (-expected[at], at[1]))
    assert {datetime.fromisoformat(row["minute"]): row["hashtags"] for row in trends} == {
        minute: [hashtag for of, hashtag in ranked if of == minute][:3] for minute, _ in expected
    }


def test_the_same_seed_gives_the_same_tweets() -> None:
    assert list(generate(SEED, 50)) == list(generate(SEED, 50))
    assert list(generate(SEED, 50)) != list(generate(SEED + 1, 50))
