"""The surge pricing of examples/, end to end."""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from examples.common import read_json, run
from examples.taxi_surge import REGIONS_PER_DEGREE, SURGE_MAX, Position, Topics, generate, load, pipeline

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


def positions(found: Iterable[Position]) -> list[tuple[str, str, float, float]]:
    return sorted(("taxi" if each.is_taxi else "user", each.id, each.latitude, each.longitude) for each in found)


def test_prices_follow_demand_and_supply_and_all_positions_are_kept(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    events = list(generate(SEED, EVENTS))
    topics = Topics(*(f"{topic}-{name}" for name in ("taxis", "users", "prices")))
    files = str(tmp_path / "positions")

    def kept() -> list[tuple[str, str, float, float]]:
        rows = spark.read.parquet(files).select("kind", "id", "latitude", "longitude").collect()
        return sorted((row.kind, row.id, row.latitude, row.longitude) for row in rows)

    load(node.bootstrap, topics, events)
    run(pipeline(spark, node.bootstrap, topics, files, str(tmp_path / "checkpoint")), once=True)

    told = read_json(node.bootstrap, topics.surge)
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

    assert kept() == positions(events)
    more = list(generate(SEED + 1, EVENTS))
    load(node.bootstrap, topics, more)
    _, keeping = pipeline(spark, node.bootstrap, topics, files, str(tmp_path / "another checkpoint"))
    run([keeping], once=True)
    assert kept() == positions([*events, *more]), "a second run adds to the files of the first"
