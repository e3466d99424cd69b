"""Clients of librdkafka push their metrics, and these are kept in files that people can read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer

from barnabas.protocol.config_resources import ResourceType
from tests.peers import wait_until
from tests.wire.connection import Connection
from tests.wire.test_config_resources import SET, change

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import MakeNode

CUMULATIVE = 2
"""AGGREGATION_TEMPORALITY_CUMULATIVE of OTLP: totals since the client began."""


def pushes(folder: Path) -> list[Any]:
    return [json.loads(file.read_text()) for file in folder.glob("*.json")]


def labels(push: Any) -> dict[str, str]:
    resource = push["resourceMetrics"][0]
    return {each["key"]: each["value"].get("stringValue", "") for each in resource["resource"]["attributes"]}


def values(push: Any) -> dict[str, float]:
    """The newest value of each metric."""
    found = {}
    scopes = [scope for resource in push["resourceMetrics"] for scope in resource["scopeMetrics"]]
    for metric in [metric for scope in scopes for metric in scope["metrics"]]:
        points = (metric.get("sum") or metric["gauge"])["dataPoints"]
        found[metric["name"]] = float(points[-1].get("asInt") or points[-1].get("asDouble", 0))
    return found


def connections_created(push: Any) -> tuple[int, int, int]:
    """The value of the counter, when it was taken, and whether it is a difference (1) or a total (2)."""
    (counter,) = [
        metric["sum"]
        for resource in push["resourceMetrics"]
        for scope in resource["scopeMetrics"]
        for metric in scope["metrics"]
        if metric["name"] == "org.apache.kafka.producer.connection.creation.total"
    ]
    (point,) = counter["dataPoints"]
    return int(point["asInt"]), int(point["timeUnixNano"]), counter["aggregationTemporality"]


def test_the_newest_push_counts_what_was_counted_before_it(make_node: MakeNode, tmp_path: Path, topic: str) -> None:
    """Earlier pushes are not kept: if each held what is new in it, their counts would be lost."""
    folder = tmp_path / "metrics"
    node = make_node({"barnabas.client.telemetry.dir": str(folder)})
    with Connection(node.port) as connection:
        settings = {"metrics": (SET, "org.apache.kafka.producer.connection."), "interval.ms": (SET, "200")}
        assert change(connection, ResourceType.CLIENT_METRICS, "connections", dict(settings)).error_code == 0
    producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
    producer.produce(topic, b"v")
    producer.flush(5)
    wait_until(lambda: pushes(folder), "the producer has pushed")
    (first,) = pushes(folder)
    created, taken_at, _ = connections_created(first)
    assert created >= 1
    seen = {taken_at}

    def has_pushed_again() -> bool:
        (newest,) = pushes(folder)
        now_created, taken_at, temporality = connections_created(newest)
        assert now_created >= created
        assert temporality == CUMULATIVE
        seen.add(taken_at)
        return len(seen) >= 4

    wait_until(has_pushed_again, "the producer has pushed three times more, without another connection")
    producer.flush(5)


def test_a_producer_and_a_consumer_push_what_is_asked_of_them(make_node: MakeNode, tmp_path: Path, topic: str) -> None:
    folder = tmp_path / "metrics"
    node = make_node({"barnabas.client.telemetry.dir": str(folder)})
    with Connection(node.port) as connection:
        settings = {"metrics": (SET, "org.apache.kafka."), "interval.ms": (SET, "200"), "match": (SET, "client_id=p.*")}
        assert change(connection, ResourceType.CLIENT_METRICS, "every", dict(settings)).error_code == 0
    common = {"bootstrap.servers": node.bootstrap, "log_level": 0}
    producer = Producer({**common, "client.id": "producing"})
    other = Producer({**common, "client.id": "another"})
    consumer = Consumer({**common, "client.id": "polling", "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])

    def names_by_client() -> dict[str, set[str]]:
        """A metric has a value in every push, or only when something has happened."""
        found: dict[str, set[str]] = {}
        for each in pushes(folder):
            found.setdefault(labels(each)["client_id"], set()).update(values(each))
        return found

    def is_measured() -> bool:
        producer.produce(topic, b"v")
        producer.flush(5)
        other.produce(topic, b"v")
        other.flush(5)
        consumer.poll(0.05)
        names = names_by_client()
        return names.keys() == {"producing", "polling"} and all(
            f"org.apache.kafka.{kind}.connection.creation.total" in names[client]
            for client, kind in (("producing", "producer"), ("polling", "consumer"))
        )

    wait_until(is_measured, "both clients have pushed their metrics")
    (of_producer,) = [each for each in pushes(folder) if labels(each)["client_id"] == "producing"]
    assert labels(of_producer)["client_software_name"] == "confluent-kafka-python"
    assert labels(of_producer)["client_source_address"] == "127.0.0.1"
    consumer.close()
