"""Word count: how often each word has occurred so far.

Reads `lines`, whose values are plain text. Writes `word_counts`, keyed by word: each count replaces the one before it,
so the topic is compacted, and the last record of a word is its count. Spark has no update mode for Python sinks: every
batch writes the counts of all words (complete mode), which is fine for a vocabulary, but not for millions of users.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (so it is called everywhere)

import barnabas.spark
from barnabas.cli.output import Column, number, print_table
from barnabas.spark import to_topic
from examples.common import create_topics, parse_arguments, produce, read_json, read_stream, run, write_stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

LINES = "lines"
COUNTS = "word_counts"
WORDS_PER_LINE_MAX = 12
TEXT = (
    "the broker keeps what the producer sends until the consumer has read it and the log's end moves on with every "
    "batch so a stream has no end and a table is where the stream has come to"
)


@dataclass(frozen=True)
class Line:
    text: str


def generate(seed: int, events: int) -> Iterator[Line]:
    """Sentences made of the words of that text, with capitals and punctuation in the way."""
    rng = random.Random(seed)
    for _ in range(events):
        words = rng.choices(TEXT.split(), k=rng.randint(1, WORDS_PER_LINE_MAX))
        yield Line(rng.choice((" ", ", ", "  ")).join(words).capitalize() + rng.choice(".!?"))


def count_words(lines: DataFrame) -> DataFrame:
    words = F.explode(F.split(F.lower(F.col("value").cast("string")), "[^\\p{L}']+"))
    return lines.select(words.alias("word")).where("word != ''").groupBy("word").count()


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parse_arguments("word_count", "counts the words of a stream of lines", events=10_000, argv=argv)
    create_topics(arguments.bootstrap, [LINES])
    create_topics(arguments.bootstrap, [COUNTS], cleanup_policy="compact")
    produce(
        arguments.bootstrap, LINES, ((None, line.text, None) for line in generate(arguments.seed, arguments.events))
    )
    spark = barnabas.spark.session("word count", master=arguments.master)
    counts = to_topic(count_words(read_stream(spark, arguments.bootstrap, LINES)), key="word")
    run([write_stream(counts, arguments.bootstrap, COUNTS, arguments.checkpoint, mode="complete")], once=arguments.once)
    show(arguments.bootstrap)


def show(bootstrap: str) -> None:
    counts = {word: value["count"] for word, value in read_json(bootstrap, COUNTS)}
    ranked = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
    print_table([Column("word"), number("count")], ranked[:10], title="The most frequent words")


if __name__ == "__main__":
    main()
