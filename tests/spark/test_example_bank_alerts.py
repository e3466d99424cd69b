"""The alerts of a bank in examples/, end to end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from examples.bank_alerts import GRACE, SETTINGS, Threshold, Transaction, alerts, generate
from examples.common import as_json, create_topics, produce, read_json, read_stream, run, write_stream

from barnabas.spark import to_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.peers import Peer

SEED = 7
EVENTS = 250


@pytest.fixture
def _settings(spark: SparkSession) -> Iterator[None]:
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield
    for name in SETTINGS:
        spark.conf.unset(name)


def expected(events: Sequence[Transaction | Threshold]) -> dict[str, tuple[str, int, int]]:
    """The same in plain Python, over events in the order of their times."""
    in_force: dict[str, int] = {}
    found = {}
    for event in sorted(events, key=lambda event: event.time):
        if isinstance(event, Threshold):
            in_force[event.user] = event.cents
        elif event.cents > in_force.get(event.user, event.cents):
            found[event.id] = (event.user, event.cents, in_force[event.user])
    return found


@pytest.mark.usefixtures("_settings")
def test_the_threshold_of_the_time_of_a_transaction_decides(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    transactions, thresholds, output = (f"{topic}-{name}" for name in ("transactions", "thresholds", "alerts"))
    create_topics(node.bootstrap, [transactions, thresholds, output])

    def go_on(events: Sequence[Transaction | Threshold]) -> dict[str, tuple[str, int, int]]:
        """Lets the query, which remembers what it has read before, read these too."""
        for name, kind in ((transactions, Transaction), (thresholds, Threshold)):
            of_kind = (event for event in events if isinstance(event, kind))
            produce(node.bootstrap, name, ((event.user, as_json(event), None) for event in of_kind))
        found = alerts(read_stream(spark, node.bootstrap, transactions), read_stream(spark, node.bootstrap, thresholds))
        run([write_stream(to_topic(found, key="user"), node.bootstrap, output, str(tmp_path))], once=True)
        told = read_json(node.bootstrap, output)
        results = {alert["id"]: (str(user), alert["cents"], alert["threshold"]) for user, alert in told}
        assert len(told) == len(results), "an alert is sent once"
        return results

    *events, last = generate(SEED, EVENTS)
    early, late = events[: EVENTS // 2], events[EVENTS // 2 :]
    judged_until = max(event.time for event in early) - GRACE
    judged = {event.id for event in early if isinstance(event, Transaction) and event.time < judged_until}
    wanted = expected(events)
    first = go_on(early)
    assert first
    assert first == {each: alert for each, alert in wanted.items() if each in judged}

    # Thresholds of one cent at the end: for all that was before them, they change nothing.
    assert isinstance(last, Transaction)
    lowered = [Threshold(user, 1, last.time + GRACE) for user in {event.user for event in events}]
    spent = replace(last, id="spent", cents=2, time=last.time + 2 * GRACE)
    closing = replace(last, id="closing", cents=1, time=last.time + 4 * GRACE)
    results = go_on([*late, last, *lowered, spent, closing])
    assert results == wanted | {"spent": (last.user, 2, 1)}
    assert results == expected([*events, last, *lowered, spent, closing])
