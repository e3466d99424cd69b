"""Requests in the log of a node, as lines of text and of JSON, for all requests and for slow ones."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from tests.nodes import Node
from tests.peers import wait_until

if TYPE_CHECKING:
    from pathlib import Path

LINE = re.compile(
    r"INFO    request +(\w+) v\d+, correlation id (\d+), client (\S+) at [\d.]+:\d+ on PLAINTEXT, (\d+) bytes: "
    r"([\d.]+) ms \(queue ([\d.]+), local ([\d.]+), remote ([\d.]+), response queue ([\d.]+), send ([\d.]+)\)"
)


class JsonNode(Node):
    def _words(self) -> list[str]:
        return [*super()._words(), "--log-format", "json"]


def make_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "asker"})
    admin.create_topics([NewTopic(name, 1)])[name].result(30)


def test_all_requests_are_logged_with_their_correlation_ids_and_times(tmp_path: Path) -> None:
    with Node(tmp_path / "data", settings={"barnabas.request.log.ms": "0"}, log_file=tmp_path / "log") as node:
        make_topic(node.bootstrap, "t")
        wait_until(lambda: "CreateTopics v" in (tmp_path / "log").read_text(), "the request is in the log")
    logged = {found[1]: found for found in LINE.finditer((tmp_path / "log").read_text())}
    assert {"ApiVersions", "Metadata", "CreateTopics"} <= logged.keys()
    created = logged["CreateTopics"]
    assert created[3] == "asker"
    total, *phases = (float(created[group]) for group in range(5, 11))
    assert abs(total - sum(phases)) < 0.01
    assert float(created[8]) > 0, "the controller was waited for"


def test_the_limit_is_changed_while_the_node_runs_and_slow_requests_alone_are_logged(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Node(tmp_path / "data", log_file=log) as node:
        make_topic(node.bootstrap, "before")
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for limit, topic in (("0", "all"), ("600000", "none")):
            setting = ConfigEntry("barnabas.request.log.ms", limit, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[setting])
            admin.incremental_alter_configs([resource])[resource].result(30)
            make_topic(node.bootstrap, topic)
    assert log.read_text().count("CreateTopics v") == 1


def test_a_log_of_json_has_an_object_in_each_line_with_the_fields_of_requests(tmp_path: Path) -> None:
    log = tmp_path / "log"
    settings = {"barnabas.request.log.ms": "0"}
    with JsonNode(tmp_path / "data", settings=settings, log_file=log) as node:
        make_topic(node.bootstrap, "t")
        wait_until(lambda: "CreateTopics" in log.read_text(), "the request is in the log")
    announced, *written = sorted(log.read_text().splitlines(), key=lambda line: line.startswith("{"))
    assert announced.startswith("barnabas ready: ")
    lines = [json.loads(line) for line in written]
    assert {"time", "level", "logger", "message"} <= set.intersection(*(set(line) for line in lines))
    (created,) = (line for line in lines if line.get("requestApiKeyName") == "CreateTopics")
    assert (created["logger"], created["clientId"], created["listener"]) == ("barnabas.request", "asker", "PLAINTEXT")
    assert created["correlationId"] > 0
    assert created["totalTimeMs"] >= created["remoteTimeMs"] > 0
    assert created["requestApiVersion"] >= 2
