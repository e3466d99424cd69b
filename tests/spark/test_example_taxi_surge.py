"""The surge pricing of examples/, end to end."""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from examples.common import as_json, create_topics, produce, read_json, read_stream, run, write_stream
from examples.taxi_surge import REGIONS_PER_DEGREE, SURGE_MAX, Position, generate, keep, positions, surge

from barnabas.spark import to_topic

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.peers import Peer

SEED = 3
EVENTS = 400
MINUTE = timedelta(minutes=1)
GRACE = timedelta(seconds=30)

Prices = dict[tuple[str, datetime], tuple[int, int, float]]


def expected(found: Iterable[Position], closed_until: datetime) -> Prices:
    """The same in plain Python: distinct users and taxis of each region and minute, and the bounded factor."""
    there = defaultdict(set)
    for each in found:
        region = ":".join(str(math.floor(axis * REGIONS_PER_DEGREE)) for axis in (each.latitude, each.longitude))
        there[region, each.time.replace(second=0, microsecond=0)].add(each.id)
    prices = {}
    for (region, start), ids in there.items():
        supply = sum(name.startswith("taxi") for name in ids)
        demand = len(ids) - supply
        if start + MINUTE <= closed_until:
            prices[region, start] = (demand, supply, min(max(demand / max(supply, 1), 1.0), SURGE_MAX))
    return prices


def test_prices_follow_demand_and_supply_and_all_positions_are_kept(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    events = list(generate(SEED, EVENTS))
    taxis, users, prices = (f"{topic}-{name}" for name in ("taxis", "users", "prices"))
    create_topics(node.bootstrap, [taxis, users, prices])
    for name, is_taxi in ((taxis, True), (users, False)):
        found = (each for each in events if each.is_taxi == is_taxi)
        produce(node.bootstrap, name, ((each.id, as_json(each), None) for each in found))
    rows = positions(read_stream(spark, node.bootstrap, taxis, users), taxis)
    output = to_topic(surge(rows), key="region")
    writers = [
        write_stream(output, node.bootstrap, prices, str(tmp_path / "surge")),
        keep(rows, str(tmp_path / "positions"), str(tmp_path / "keep")),
    ]
    run(writers, once=True)

    told = read_json(node.bootstrap, prices)
    results = {
        (str(region), datetime.fromisoformat(value["start"])): (value["demand"], value["supply"], value["factor"])
        for region, value in told
    }
    assert len(told) == len(results), "a region has one price in a window"
    wanted = expected(events, closed_until=max(each.time for each in events) - GRACE)
    assert results.keys() == wanted.keys()
    for place, price in wanted.items():
        assert results[place] == pytest.approx(price, abs=0.005)
    assert {1.0, SURGE_MAX} < {factor for *_, factor in results.values()}, "none, some and the most"

    kept = spark.read.parquet(str(tmp_path / "positions")).select("kind", "id", "latitude", "longitude", "time")
    assert sorted((row.kind, row.id, row.latitude, row.longitude) for row in kept.collect()) == sorted(
        ("taxi" if each.is_taxi else "user", each.id, each.latitude, each.longitude) for each in events
    )
