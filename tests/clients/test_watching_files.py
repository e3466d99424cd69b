"""What `deploy/metrics` asks for is what a node tells."""

from __future__ import annotations

import contextlib
import http.client
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from tools.make_dashboards import CHOICES, DASHBOARDS

from tests.nodes import Node
from tests.peers import HOST, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.make_dashboards import Dashboard

ALERTS = Path(__file__).parents[2] / "deploy" / "metrics" / "alerts.yml"
RULE = re.compile(
    r"- alert: (\w+)\n +expr: (.+)\n(?: +for: \w+\n)? +labels: \{severity: (?:critical|warning)\}\n"
    r" +annotations:\n +summary: \"(.+)\"\n +description: \"(.+)\"\n"
)
"""How each of them is written. That Prometheus reads them, too, is checked in interop."""
METRIC = re.compile(r"\b(?:kafka|barnabas|process)_\w+")
OF_SEVERAL_NODES = {"barnabas_follower_max_lag"}
"""What a node on its own has no figures of."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all metrics of a node that has been worked with."""
    port = free_port()
    settings = {"barnabas.metrics.listener": f"{HOST}:{port}", "group.initial.rebalance.delay.ms": "0"}
    with Node(tmp_path_factory.mktemp("told") / "data", settings=settings) as node, worked_with(node.bootstrap):
        return {line.split("{")[0].split(" ")[0] for line in lines(port) if not line.startswith("#")}


@contextlib.contextmanager
def worked_with(bootstrap: str) -> Iterator[None]:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("topic", b"value")
    producer.commit_transaction()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["topic"])
    wait_until(lambda: consumer.poll(0.1), "the record comes")
    consumer.commit(asynchronous=False)
    yield
    consumer.close()


def lines(port: int) -> list[str]:
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    connection.request("GET", "/metrics")
    return connection.getresponse().read().decode().splitlines()


def test_every_metric_of_an_alert_is_told(told: set[str]) -> None:
    text = ALERTS.read_text()
    rules = RULE.findall(text)
    assert len(rules) == text.count("- alert:") >= 15
    for name, expression, _, description in rules:
        of_prometheus = re.search(r"\bup\b", expression)
        assert METRIC.search(expression) or of_prometheus, name
        assert set(METRIC.findall(expression)) <= told, name
        assert set(METRIC.findall(description)) <= told | OF_SEVERAL_NODES, name


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)
def test_every_metric_of_a_dashboard_is_told(told: set[str], dashboard: Dashboard) -> None:
    plots = [plot.expression for row in dashboard.rows.values() for panel in row for plot in panel.plots]
    for text in (*plots, *CHOICES.values()):
        named = set(METRIC.findall(text))
        assert named, text
        assert named <= told | OF_SEVERAL_NODES, text
