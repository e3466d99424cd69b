"""The click stream of examples/, end to end."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from examples.click_stream import (
    LEAD,
    Click,
    Profile,
    Search,
    current_profiles,
    enrich,
    generate,
    generate_profiles,
    per_zip_code,
)
from examples.common import as_json, create_topics, produce, read_json, read_stream, run, write_stream

from barnabas.spark import to_topic

if TYPE_CHECKING:
    from collections.abc import Sequence
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


def test_clicks_meet_searches_and_profiles_and_are_counted_per_zip_code(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    names = ("clicks", "searches", "profiles", "enriched", "per-zip-code")
    clicks_topic, searches_topic, profiles_topic, enriched_topic, counts_topic = (f"{topic}-{name}" for name in names)
    create_topics(node.bootstrap, [f"{topic}-{name}" for name in names])
    events = list(generate(SEED, EVENTS))
    clicks = [event for event in events if isinstance(event, Click)]
    searches = [event for event in events if isinstance(event, Search)]
    profiles = list(generate_profiles(SEED, EVENTS))
    inputs: dict[str, Sequence[Any]] = {clicks_topic: clicks, searches_topic: searches, profiles_topic: profiles}
    for name, found in inputs.items():
        produce(node.bootstrap, name, ((each.user, as_json(each), None) for each in found))

    enriched = enrich(
        read_stream(spark, node.bootstrap, clicks_topic),
        read_stream(spark, node.bootstrap, searches_topic),
        current_profiles(spark, node.bootstrap, profiles_topic),
    )
    run(
        [write_stream(to_topic(enriched, key="user"), node.bootstrap, enriched_topic, str(tmp_path / "enriched"))],
        once=True,
    )
    counts = to_topic(per_zip_code(read_stream(spark, node.bootstrap, enriched_topic)), key="zip_code")
    run([write_stream(counts, node.bootstrap, counts_topic, str(tmp_path / "counts"))], once=True)

    def by_click(row: Enriched) -> tuple[str, str]:
        return row[0], row[3] or ""

    wanted = expected(clicks, searches, {profile.user: profile for profile in profiles})
    rows: list[Enriched] = [
        (value["id"], str(user), value["page"], value.get("terms"), value.get("zip_code"))
        for user, value in read_json(node.bootstrap, enriched_topic)
    ]
    assert sorted(rows, key=by_click) == sorted(wanted, key=by_click)
    assert {terms is None for *_, terms, _ in rows} == {True, False}
    assert {zip_code is None for *_, zip_code in rows} == {True, False}

    settled = {click.id: click.time for click in clicks[:-1]}
    per_minute: dict[tuple[str, datetime], set[str]] = defaultdict(set)
    for click_id, _, _, _, zip_code in rows:
        if zip_code is not None and click_id in settled:
            per_minute[zip_code, settled[click_id].replace(second=0, microsecond=0)].add(click_id)
    told = read_json(node.bootstrap, counts_topic)
    results = {(str(zip_code), datetime.fromisoformat(v["start"])): v["clicks"] for zip_code, v in told}
    assert len(told) == len(results), "a minute is told once"
    assert results == {minute: len(found) for minute, found in per_minute.items()}

    of_users = partitions(spark, node, [clicks_topic, searches_topic, profiles_topic, enriched_topic])
    assert all(len(found) == 1 for found in of_users.values()), "all of a user is in the same partition of each topic"
    assert len(set.union(*of_users.values())) > 1
