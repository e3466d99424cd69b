"""The stock statistics of examples/, end to end."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from examples.common import as_json, create_topics, produce, read_json, read_stream, run, write_stream
from examples.stock_statistics import (
    ADVANCE,
    GRACE,
    LATE_AFTER_GRACE_ASK,
    LATE_WITHIN_GRACE_ASK,
    OPENING,
    SYMBOLS,
    WINDOW,
    Trade,
    generate,
    statistics,
)

from barnabas.spark import to_topic

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.peers import Peer

SEED = 5
EVENTS = 400

Statistics = dict[tuple[str, datetime], tuple[float, float, int]]


def expected(trades: Iterable[Trade], closed_until: datetime) -> Statistics:
    """The same in plain Python: lowest, average and count for each symbol and window that has been closed."""
    asks = defaultdict(list)
    for trade in trades:
        start = OPENING + (trade.time - OPENING) // ADVANCE * ADVANCE
        while start + WINDOW > trade.time:
            asks[trade.symbol, start].append(trade.ask)
            start -= ADVANCE
    return {
        (symbol, start): (min(found), sum(found) / len(found), len(found))
        for (symbol, start), found in asks.items()
        if start + WINDOW <= closed_until
    }


def test_windows_count_late_trades_within_grace_and_drop_those_after(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    trades = list(generate(SEED, EVENTS))
    create_topics(node.bootstrap, [f"{topic}-trades", f"{topic}-statistics"])
    produce(node.bootstrap, f"{topic}-trades", ((trade.symbol, as_json(trade), None) for trade in trades))
    records = read_stream(spark, node.bootstrap, f"{topic}-trades", maxOffsetsPerTrigger=EVENTS // 4)
    output = to_topic(statistics(records), key="symbol")
    [query] = run([write_stream(output, node.bootstrap, f"{topic}-statistics", str(tmp_path))], once=True)

    found = read_json(node.bootstrap, f"{topic}-statistics")
    results: Statistics = {
        (str(symbol), datetime.fromisoformat(value["start"])): (value["min_ask"], value["avg_ask"], value["trades"])
        for symbol, value in found
    }
    assert len(found) == len(results), "a window is told once"
    last = max(trade.time for trade in trades)
    in_time = [trade for trade in trades if trade.ask != LATE_AFTER_GRACE_ASK]
    assert len(in_time) == len(trades) - 1
    wanted = expected(in_time, closed_until=last - GRACE)
    assert results.keys() == wanted.keys()
    for window, values in wanted.items():
        assert results[window] == pytest.approx(values)

    assert results[SYMBOLS[0], OPENING][0] == LATE_WITHIN_GRACE_ASK
    dropped = sum(operator.numRowsDroppedByWatermark for p in query.recentProgress for operator in p.stateOperators)
    assert dropped == WINDOW // ADVANCE, "the other late trade, in each of its windows"
