"""The video pipeline of examples/, end to end."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from examples.common import read_json, read_topic, run
from examples.video import CATALOGUE, FINISHED_FROM, Position, Topics, generate, load, pipeline

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.peers import Peer

SEED = 3
EVENTS = 400


def newest_reports(reports: list[Position]) -> dict[str, Position]:
    """By user and show."""
    newest: dict[str, Position] = {}
    for report in sorted(reports, key=lambda report: report.time):
        newest[f"{report.user}/{report.show}"] = report
    return newest


def profiles_of(reports: list[Position]) -> dict[str, dict[str, Any]]:
    seconds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    seen: defaultdict[str, set[str]] = defaultdict(set)
    for report in reports:
        seconds[report.user][report.genre] += report.watched_s
        seen[report.user].add(report.show)
    return {
        user: {
            "user": user,
            "watched_s": genres.total(),
            "favourite": min(genres, key=lambda genre: (-genres[genre], genre)),
            "seen": sorted(seen[user]),
        }
        for user, genres in seconds.items()
    }


def test_users_go_on_where_they_stopped_and_are_shown_what_they_like(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    reports = list(generate(SEED, EVENTS))
    topics = Topics(*(f"{topic}-{name}" for name in ("positions", "resume", "profiles", "recommendations")))
    raw, checkpoint = str(tmp_path / "raw"), str(tmp_path / "checkpoint")
    writers = pipeline(spark, node.bootstrap, topics, raw, checkpoint)

    early, late = reports[: EVENTS * 3 // 4], reports[EVENTS * 3 // 4 :]
    load(node.bootstrap, topics, early)
    run([writers[0]], once=True)
    load(node.bootstrap, topics, late)
    run(writers, once=True)

    newest = newest_reports(reports)
    unfinished = {
        place: report for place, report in newest.items() if report.position_s < FINISHED_FROM * report.length_s
    }
    assert 0 < len(unfinished) < len(newest)
    told = [(str(key), value) for key, value, _ in read_topic(node.bootstrap, topics.resume_points)]
    points = {place: json.loads(value) for place, value in dict(told).items() if value is not None}
    assert {place: (point["position_s"], datetime.fromisoformat(point["time"])) for place, point in points.items()} == {
        place: (report.position_s, report.time) for place, report in unfinished.items()
    }
    # A batch tells only of what was reported in it.
    assert newest_reports(late).keys() < newest.keys()
    assert Counter(place for place, _ in told) == Counter([*newest_reports(early), *newest_reports(late)])

    profiles = profiles_of(reports)
    assert dict(read_json(node.bootstrap, topics.profiles)) == profiles
    assert dict(read_json(node.bootstrap, topics.recommendations)) == {
        user: {"user": user, "shows": sorted(set(CATALOGUE[profile["favourite"]]) - set(profile["seen"]))}
        for user, profile in profiles.items()
    }

    kept = spark.read.parquet(raw).selectExpr("user", "show", "position_s", "unix_millis(time)").collect()
    assert sorted(map(tuple, kept)) == sorted(
        (report.user, report.show, report.position_s, int(report.time.timestamp() * 1000)) for report in reports
    )


def test_the_same_seed_gives_the_same_reports_some_of_them_out_of_order() -> None:
    reports = list(generate(SEED, EVENTS))
    assert reports == list(generate(SEED, EVENTS))
    assert reports != list(generate(SEED + 1, EVENTS))
    assert len(reports) == EVENTS
    places = defaultdict(list)
    for report in reports:
        places[report.user, report.show].append(report.time)
    assert any(later < earlier for times in places.values() for earlier, later in pairwise(times))
