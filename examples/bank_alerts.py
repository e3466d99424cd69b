"""Bank alerts: a message for each transaction above the threshold that its user had set at that time.

Reads `transactions` and `thresholds`, both keyed by user. Writes `alerts`, keyed by user. What counts is the threshold
in force at the time of the transaction, in whatever order the two arrive: a threshold set later never alerts for the
past, and one that arrives late, but within `GRACE`, still counts from the time it was set. So a transaction is judged
when event time has moved `GRACE` beyond it. All thresholds are kept: there are few, and one may be in force for years.
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

TRANSACTIONS = "transactions"
THRESHOLDS = "thresholds"
ALERTS = "alerts"

GRACE = timedelta(seconds=60)
SETTINGS = {"spark.sql.streaming.multipleWatermarkPolicy": "max"}
"""Event time advances with whichever topic advances. Otherwise alerts would wait for the next threshold to be set."""

MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
SPACING = timedelta(seconds=2)
QUIET = timedelta(hours=1)
THRESHOLDS_OF_EVENTS = 0.2
TRANSACTION_SCHEMA = "id STRING NOT NULL, user STRING NOT NULL, cents BIGINT NOT NULL, time TIMESTAMP NOT NULL"
THRESHOLD_SCHEMA = "user STRING NOT NULL, cents BIGINT NOT NULL, time TIMESTAMP NOT NULL"


@dataclass(frozen=True)
class Transaction:
    id: str
    user: str
    cents: int
    time: datetime


@dataclass(frozen=True)
class Threshold:
    """For example: user 123 set 1000 at 12:00."""

    user: str
    cents: int
    time: datetime


def generate(seed: int, events: int) -> Iterator[Transaction | Threshold]:
    """Events in order of arrival, up to half of `GRACE` late. The last transaction comes after an hour of silence."""
    rng = random.Random(seed)
    users = [f"user-{number_}" for number_ in range(max(2, events // 25))]
    made: list[tuple[datetime, Transaction | Threshold]] = []
    for number_ in range(events - 1):
        time = MIDNIGHT + number_ * SPACING
        user, cents = rng.choice(users), rng.randint(1, 2_000) * 100
        is_threshold = rng.random() < THRESHOLDS_OF_EVENTS
        event = Threshold(user, cents, time) if is_threshold else Transaction(f"t{number_}", user, cents, time)
        made.append((time + GRACE / 2 * rng.random(), event))
    yield from (event for _, event in sorted(made, key=lambda arrival: arrival[0]))
    yield Transaction(f"t{events - 1}", users[0], 100, MIDNIGHT + events * SPACING + QUIET)


def alerts(transactions: DataFrame, thresholds: DataFrame) -> DataFrame:
    grace = f"{GRACE.total_seconds():.0f} seconds"
    spent = from_topic(transactions, TRANSACTION_SCHEMA).select("value.*").withWatermark("time", grace)
    limits = (
        from_topic(thresholds, THRESHOLD_SCHEMA)
        .selectExpr("value.user AS owner", "value.cents AS threshold", "value.time AS set_at")
        .withWatermark("set_at", grace)
    )
    in_force = F.max_by("threshold", "set_at").alias("threshold")
    return (
        spent.join(limits, (F.col("user") == F.col("owner")) & (F.col("set_at") <= F.col("time")))
        .groupBy("id", "user", "cents", "time")
        .agg(in_force)
        .where("cents > threshold")
    )


def main(argv: Sequence[str] | None = None) -> None:
    about = "alerts users of transactions above their threshold"
    arguments = parse_arguments("bank_alerts", about, events=10_000, argv=argv)
    create_topics(arguments.bootstrap, [TRANSACTIONS, THRESHOLDS, ALERTS])
    events = list(generate(arguments.seed, arguments.events))
    for topic, kind in ((TRANSACTIONS, Transaction), (THRESHOLDS, Threshold)):
        of_kind = (event for event in events if isinstance(event, kind))
        produce(arguments.bootstrap, topic, ((event.user, as_json(event), None) for event in of_kind))
    spark = barnabas.spark.session("bank alerts", master=arguments.master, settings=SETTINGS)
    found = alerts(
        read_stream(spark, arguments.bootstrap, TRANSACTIONS), read_stream(spark, arguments.bootstrap, THRESHOLDS)
    )
    output = to_topic(found, key="user")
    run([write_stream(output, arguments.bootstrap, ALERTS, arguments.checkpoint)], once=arguments.once)
    show(arguments.bootstrap)


def show(bootstrap: str) -> None:
    found = {(alert["time"], user, alert["id"]): alert for user, alert in read_json(bootstrap, ALERTS)}
    rows = [
        (*which, f"{alert['cents'] / 100:.2f}", f"{alert['threshold'] / 100:.2f}")
        for which, alert in sorted(found.items())[-10:]
    ]
    columns = [Column("time"), Column("user"), Column("transaction"), number("amount"), number("threshold")]
    print_table(columns, rows, title=f"The latest of {len(found)} alerts")


if __name__ == "__main__":
    main()
