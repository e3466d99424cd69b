"""The click stream of examples/, end to end."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from examples.click_stream import (
    LEAD,
    NOON,
    ZIP_CODES,
    Click,
    Profile,
    Search,
    Topics,
    generate,
    generate_profiles,
    load,
    pipeline,
)
from examples.common import read_json, run

from tests.spark.test_sink_streaming import undo_last_commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.peers import Peer

SEED = 9
EVENTS = 300

Enriched = tuple[str, str, str, str | None, str | None]


def expected(clicks: Sequence[Click], searches: Sequence[Search], profiles: dict[str, Profile]) -> list[Enriched]:
    """The same in plain Python: click, user, page, terms of a search that led to it, zip code."""
    rows: list[Enriched] = []
    for click in clicks:
        zip_code = profiles[click.user].zip_code if click.user in profiles else None
        own = (search for search in searches if search.user == click.user)
        led_to: list[str | None] = [search.terms for search in own if click.time - LEAD <= search.time <= click.time]
        rows.extend((click.id, click.user, click.page, terms, zip_code) for terms in led_to or [None])
    return rows


def partitions(spark: SparkSession, node: Peer, topics: Sequence[str]) -> dict[str, set[int]]:
    """In which partitions a user is, over all of these topics."""
    source = spark.read.format("barnabas").option("kafka.bootstrap.servers", node.bootstrap)
    found: dict[str, set[int]] = defaultdict(set)
    for row in source.option("subscribe", ",".join(topics)).load().select("key", "partition").collect():
        found[bytes(row.key).decode()].add(row.partition)
    return found


def topics_of(test: str) -> Topics:
    return Topics(*(f"{test}-{name}" for name in ("clicks", "searches", "profiles", "enriched", "per-zip-code")))


def moved(profiles: Iterable[Profile]) -> list[Profile]:
    """All to a place where nobody was before."""
    return [replace(profile, zip_code="00501") for profile in profiles]


def per_minute(clicks: Iterable[tuple[datetime, str | None]]) -> Counter[tuple[str, datetime]]:
    """Clicks by zip code and minute, those without a zip code left out."""
    return Counter(
        (zip_code, time.replace(second=0, microsecond=0)) for time, zip_code in clicks if zip_code is not None
    )


def counts_of(node: Peer, topics: Topics) -> dict[tuple[str, datetime], int]:
    told = read_json(node.bootstrap, topics.per_zip_code)
    counts = {(str(zip_code), datetime.fromisoformat(v["start"])): v["clicks"] for zip_code, v in told}
    assert len(told) == len(counts), "a minute is told once"
    return counts


def test_clicks_meet_searches_and_profiles_and_are_counted_per_zip_code(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    topics = topics_of(topic)
    events = list(generate(SEED, EVENTS))
    clicks = [event for event in events if isinstance(event, Click)]
    searches = [event for event in events if isinstance(event, Search)]
    profiles = list(generate_profiles(SEED, EVENTS))
    load(node.bootstrap, topics, profiles, events)
    run(pipeline(spark, node.bootstrap, topics, str(tmp_path)), once=True)

    def by_click(row: Enriched) -> tuple[str, str]:
        return row[0], row[3] or ""

    wanted = expected(clicks, searches, {profile.user: profile for profile in profiles})
    rows: list[Enriched] = [
        (value["id"], str(user), value["page"], value.get("terms"), value.get("zip_code"))
        for user, value in read_json(node.bootstrap, topics.enriched)
    ]
    assert sorted(rows, key=by_click) == sorted(wanted, key=by_click)
    assert {terms is None for *_, terms, _ in rows} == {True, False}
    assert {zip_code is None for *_, zip_code in rows} == {True, False}

    zip_codes = {click_id: zip_code for click_id, *_, zip_code in rows}
    settled = clicks[:-1]
    assert counts_of(node, topics) == per_minute((click.time, zip_codes[click.id]) for click in settled)

    of_users = partitions(spark, node, [topics.clicks, topics.searches, topics.profiles, topics.enriched])
    assert all(len(found) == 1 for found in of_users.values()), "all of a user is in the same partition of each topic"
    assert len(set.union(*of_users.values())) > 1


def test_a_profile_that_changes_counts_for_the_clicks_of_the_next_batch(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    topics = topics_of(topic)
    ada = Profile("ada", "Ada", ZIP_CODES[0])
    enriching, _ = pipeline(spark, node.bootstrap, topics, str(tmp_path))
    for number, profile in enumerate([ada, *moved([ada])]):
        time = NOON + number * LEAD
        clicked: list[Click | Search] = [
            Search(ada.user, "gloves", time),
            Click(f"c{number}", ada.user, "gloves", time),
        ]
        load(node.bootstrap, topics, [profile], clicked)
        run([enriching], once=True)
    told = [(value["id"], value["zip_code"]) for _, value in read_json(node.bootstrap, topics.enriched)]
    assert sorted(set(told)) == [("c0", ZIP_CODES[0]), ("c1", moved([ada])[0].zip_code)]


def test_a_batch_that_finds_other_profiles_when_it_is_run_again_is_written_again_and_counted_once(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    topics = topics_of(topic)
    events, profiles = list(generate(SEED, EVENTS)), list(generate_profiles(SEED, EVENTS))
    load(node.bootstrap, topics, profiles, events)
    enriching, _ = pipeline(spark, node.bootstrap, topics, str(tmp_path))
    run([enriching], once=True)
    first = read_json(node.bootstrap, topics.enriched)

    undo_last_commit(tmp_path / "enriched")
    load(node.bootstrap, topics, moved(profiles), [])
    run(pipeline(spark, node.bootstrap, topics, str(tmp_path)), once=True)
    told = read_json(node.bootstrap, topics.enriched)
    assert len(first) < len(told) < 2 * len(first), "the last batch is there twice"

    last = {value["id"]: (datetime.fromisoformat(value["time"]), value.get("zip_code")) for _, value in told}
    assert len({zip_code for _, zip_code in last.values()}) > 2, "some moved before they were counted, some after"
    settled = [event.id for event in events[:-1] if isinstance(event, Click)]
    assert counts_of(node, topics) == per_minute(last[click_id] for click_id in settled)
