"""The process that is killed: Spark, reading tweets and writing the popular ones, each exactly once.

It runs one query of `examples/tweets` with a consumer group, so that its lag can be seen from outside, and continues
from its checkpoint when it is started again.
"""

from __future__ import annotations

import argparse
import signal
import threading
from typing import Final

from pyspark.sql import functions as F  # noqa: N812 (so it is called everywhere)

import barnabas.spark
from barnabas.spark import from_topic, to_topic
from examples.common import read_stream, write_stream
from examples.tweets import SCHEMA, Topics, popular_tweets

GROUP: Final = "demo-pipeline"
TWEETS_PER_BATCH: Final = 6_000
"""Small batches, so that there is something to see, and something unfinished to kill."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.demo.pipeline")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--checkpoint", required=True)
    given = parser.parse_args()
    is_asked_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_asked_to_stop.set())

    topics = Topics()
    spark = barnabas.spark.session("demo")
    source = {"kafka.group.id": GROUP, "maxOffsetsPerTrigger": TWEETS_PER_BATCH}
    tweets = from_topic(read_stream(spark, given.bootstrap, topics.tweets, **source), SCHEMA).select("value.*")
    rows = to_topic(popular_tweets(tweets), key=F.col("user"))
    query = write_stream(rows, given.bootstrap, topics.popular, given.checkpoint).start()
    while query.isActive and not is_asked_to_stop.wait(0.1):
        pass
    query.stop()
    if (failure := query.exception()) is not None:
        raise failure
    spark.stop()


if __name__ == "__main__":
    main()
