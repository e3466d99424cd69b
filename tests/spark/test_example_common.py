"""What the pipelines of examples/ share, and what keeps them apart."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from examples.common import parse_arguments, run

import barnabas.spark
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession

README = Path(__file__).parents[2] / "examples" / "README.md"


class SparkReachedError(Exception):
    """An example has made its topics, and asks for a session."""


def commands() -> dict[str, list[str]]:
    """The arguments with which each example is run."""
    found = re.findall(r"^    python -m examples\.(\w+) (.*)", README.read_text(), re.MULTILINE)
    return {name: told.split() for name, told in found}


def topics_of(name: str, told: Sequence[str], patch: pytest.MonkeyPatch) -> set[str]:
    """What an example makes before it starts Spark."""
    made: set[str] = set()
    example = import_module(f"examples.{name}")

    def create_topics(bootstrap: str, topics: Iterable[str], **settings: object) -> None:
        del bootstrap, settings
        made.update(topics)

    def session(*_: object, **__: object) -> None:
        raise SparkReachedError

    patch.setattr(example, "create_topics", create_topics)
    patch.setattr(example, "produce", lambda *_: 0)
    patch.setattr(barnabas.spark, "session", session)
    with pytest.raises(SparkReachedError):
        example.main(told)
    return made


def test_examples_share_no_topic_so_that_all_can_be_run_on_one_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = {
        name: topics_of(name, [*told, "--events=10", f"--checkpoint={tmp_path}"], monkeypatch)
        for name, told in commands().items()
    }
    assert len(made) == 9
    assert all(len(topics) >= 2 for topics in made.values())
    counts = Counter(topic for topics in made.values() for topic in topics)
    assert [topic for topic, count in counts.items() if count > 1] == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("hdfs://host:8020/checkpoint", "hdfs://host:8020/checkpoint"),
        ("s3a://bucket/checkpoint", "s3a://bucket/checkpoint"),
        ("file:/checkpoint", "file:/checkpoint"),
        ("/checkpoint", "/checkpoint"),
        ("checkpoint", os.path.join(os.getcwd(), "checkpoint")),
    ],
)
def test_a_checkpoint_may_be_a_uri(given: str, expected: str) -> None:
    assert parse_arguments("example", "tests", events=1, argv=["--checkpoint", given]).checkpoint == expected


def window(start: str, **numbers: float) -> dict[str, Any]:
    return {"start": start, **numbers}


@pytest.mark.parametrize(
    ("name", "results"),
    [
        ("stock_statistics", [("ACME", window("09:00", min_ask=2.0, avg_ask=3.0, trades=7))]),
        ("bank_alerts", [("user-1", {"id": "t1", "time": "09:00", "cents": 200, "threshold": 100})]),
        ("taxi_surge", [("1:2", window("09:00", demand=3, supply=1, factor=3.0))]),
        ("click_stream", [("10001", window("09:00", clicks=4)), ("10001", window("09:01", clicks=5))]),
        ("tweets", [("spark", {"minute": "09:00", "hashtag": "spark", "tweets": 3, "hashtags": ["spark"]})]),
    ],
)
def test_results_that_a_second_run_tells_again_are_shown_once(
    name: str,
    results: list[tuple[str, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    example = import_module(f"examples.{name}")
    topics = [example.Topics()] if hasattr(example, "Topics") else []

    def shown(times: int) -> str:
        monkeypatch.setattr(example, "read_json", lambda *_: results * times)
        example.show("localhost:9092", *topics)
        return capsys.readouterr().out

    once = shown(1)
    assert results[0][0] in once or "09:00" in once
    assert shown(2) == once


def test_ctrl_c_ends_queries_and_breaks_nothing_off(spark: SparkSession, tmp_path: Path) -> None:
    def press_when_it_runs() -> None:
        wait_until(lambda: len(spark.streams.active) == 1, "the query runs")
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    frame = spark.readStream.format("rate").load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    pressing = threading.Thread(target=press_when_it_runs)
    pressing.start()
    (query,) = run([writer], once=False)
    pressing.join()
    assert not query.isActive
    assert query.exception() is None
    assert signal.getsignal(signal.SIGINT) is before
