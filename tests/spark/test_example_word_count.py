"""The word count of examples/, end to end."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from examples.common import create_topics, produce, read_json, read_stream, run, write_stream
from examples.word_count import Line, count_words, generate

from barnabas.spark import to_topic

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.peers import Peer

SEED = 11
EVENTS = 300


def words(lines: Iterable[Line]) -> Counter[str]:
    return Counter(word for line in lines for word in re.findall("[a-z']+", line.text.lower()))


def test_the_last_count_of_each_word_is_how_often_it_was_said(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    lines = list(generate(SEED, EVENTS))
    create_topics(node.bootstrap, [f"{topic}-lines", f"{topic}-counts"])

    def count(said: list[Line]) -> dict[str | None, int]:
        """Goes on where it stopped before."""
        produce(node.bootstrap, f"{topic}-lines", ((None, line.text, None) for line in said))
        counts = to_topic(count_words(read_stream(spark, node.bootstrap, f"{topic}-lines")), key="word")
        run([write_stream(counts, node.bootstrap, f"{topic}-counts", str(tmp_path), mode="complete")], once=True)
        return {word: value["count"] for word, value in read_json(node.bootstrap, f"{topic}-counts")}

    assert count(lines[:200]) == words(lines[:200])
    assert count(lines[200:]) == words(lines)
    told = Counter(word for word, _ in read_json(node.bootstrap, f"{topic}-counts"))
    assert told == Counter([*words(lines[:200]), *words(lines)]), "each batch tells all counts once"


def test_the_same_seed_gives_the_same_lines() -> None:
    assert list(generate(SEED, 50)) == list(generate(SEED, 50))
    assert list(generate(SEED, 50)) != list(generate(SEED + 1, 50))
