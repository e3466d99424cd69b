"""Stock statistics: lowest ask, average ask and number of trades per symbol, in 5-minute windows starting every minute.

Reads `trades`, keyed by symbol. Writes `stock_statistics`, keyed by symbol: one record for each window, when it is
closed. A window stays open for `GRACE` after its end, in event time, not by any clock: a trade that arrives before it
is closed is counted, a later one is dropped.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (so it is called everywhere)

import barnabas.spark
from barnabas.cli.output import Column, number, print_table
from barnabas.spark import from_topic, to_topic
from examples.common import as_json, create_topics, parse_arguments, produce, read_json, read_stream, run, write_stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

TRADES = "trades"
STATISTICS = "stock_statistics"
BATCHES = 10
"""Lateness shows only between batches: within a batch, all trades arrive at the same moment."""

WINDOW = timedelta(minutes=5)
ADVANCE = timedelta(minutes=1)
GRACE = timedelta(minutes=10)

SYMBOLS = ("ACME", "GLOBEX", "HOOLI", "INITECH", "UMBRELLA")
OPENING = datetime(2026, 3, 2, tzinfo=UTC)
DURATION = timedelta(minutes=30)
LATE_AT = OPENING + timedelta(minutes=2)
HELD_UP_UNTIL = OPENING + timedelta(minutes=10)
LATE_WITHIN_GRACE_ASK = 2.0
LATE_AFTER_GRACE_ASK = 1.0
SCHEMA = "symbol STRING NOT NULL, ask DOUBLE NOT NULL, time TIMESTAMP NOT NULL"


@dataclass(frozen=True)
class Trade:
    symbol: str
    ask: float
    time: datetime


def generate(seed: int, events: int) -> Iterator[Trade]:
    """Half an hour of trading in order, except for two trades of 00:02, which the network held up.

    One arrives at 00:10, the other when trading is over. Both are cheaper than all others, so that the lowest ask shows
    which of them was counted.
    """
    rng = random.Random(seed)
    prices = {symbol: rng.uniform(20, 200) for symbol in SYMBOLS}
    is_late_one_due = True
    for number_ in range(events):
        time = OPENING + DURATION * number_ / events
        if is_late_one_due and time >= HELD_UP_UNTIL:
            is_late_one_due = False
            yield Trade(SYMBOLS[0], LATE_WITHIN_GRACE_ASK, LATE_AT)
        symbol = rng.choice(SYMBOLS)
        prices[symbol] = max(10.0, prices[symbol] + rng.gauss(0, 0.5))
        yield Trade(symbol, round(prices[symbol], 2), time)
    yield Trade(SYMBOLS[0], LATE_AFTER_GRACE_ASK, LATE_AT)


def statistics(records: DataFrame) -> DataFrame:
    trades = from_topic(records, SCHEMA).select("value.*").withWatermark("time", spark_interval(GRACE))
    window = F.window("time", spark_interval(WINDOW), spark_interval(ADVANCE))
    return (
        trades.groupBy("symbol", window.alias("window"))
        .agg(F.min("ask").alias("min_ask"), F.avg("ask").alias("avg_ask"), F.count("*").alias("trades"))
        .select("symbol", F.col("window.start").alias("start"), "min_ask", "avg_ask", "trades")
    )


def spark_interval(length: timedelta) -> str:
    return f"{length.total_seconds():.0f} seconds"


def main(argv: Sequence[str] | None = None) -> None:
    about = "computes statistics on stock trades in sliding windows"
    arguments = parse_arguments("stock_statistics", about, events=10_000, argv=argv)
    create_topics(arguments.bootstrap, [TRADES, STATISTICS])
    trades = generate(arguments.seed, arguments.events)
    produce(arguments.bootstrap, TRADES, ((trade.symbol, as_json(trade), None) for trade in trades))
    spark = barnabas.spark.session("stock statistics", master=arguments.master)
    batch_size = max(1, arguments.events // BATCHES)
    records = read_stream(spark, arguments.bootstrap, TRADES, maxOffsetsPerTrigger=batch_size)
    output = to_topic(statistics(records), key="symbol")
    run([write_stream(output, arguments.bootstrap, STATISTICS, arguments.checkpoint)], once=arguments.once)
    show(arguments.bootstrap)


def show(bootstrap: str) -> None:
    found = {value["start"]: value for symbol, value in read_json(bootstrap, STATISTICS) if symbol == SYMBOLS[0]}
    rows = [
        (start, SYMBOLS[0], f"{value['min_ask']:.2f}", f"{value['avg_ask']:.2f}", value["trades"])
        for start, value in sorted(found.items())
    ]
    columns = [Column("from"), Column("symbol"), number("min ask"), number("avg ask"), number("trades")]
    print_table(columns, rows, title=f"Windows of {WINDOW.seconds // 60} minutes, for one of {len(SYMBOLS)} symbols")


if __name__ == "__main__":
    main()
