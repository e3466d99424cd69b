"""Barnabas's metrics beside Apache Kafka's behind jmx_exporter, and in a Prometheus that has our rules.

Names and labels are compared, for figures of two nodes differ. Prometheus is Debian's (`prometheus`, with `promtool`).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from tests.peers import HOST, free_port, wait_until
from tools import apache_kafka, maven
from tools.make_dashboards import DASHBOARDS

from barnabas.testing.node_process import Node
from interop import toolchains

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPLOY = Path(__file__).parents[1] / "deploy" / "metrics"
RULES = Path(__file__).parent / "metrics" / "jmx_rules.yml"
EXPORTER = ("io.prometheus.jmx", "jmx_prometheus_javaagent", "1.0.1")
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? \S+")
LABEL = re.compile(r'(\w+)="(?:[^"\\]|\\.)*"')
LABELS_OF_KAFKAS_OWN = {"networkProcessor", "processor"}
"""They number Kafka's threads."""
OURS = ("barnabas_", "kafka_consumergroup_", "process_")
ONLY_HERE = {
    "kafka_coordinator_group_groupmetadatamanager_numgroupsassigning",
    "kafka_coordinator_group_groupmetadatamanager_numgroupsreconciling",
}
"""The states of KIP-848's groups, which Kafka has in one figure with a label."""

Names = dict[str, set[frozenset[str]]]
"""The names of metrics, each with the sets of labels that its samples have."""


@contextmanager
def worked_with(bootstrap: str) -> Iterator[None]:
    """A node that somebody writes to, and a group reads from."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce("topic", b"value")
    assert producer.flush(30) == 0
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["topic"])
    wait_until(lambda: consumer.poll(0.1), "the record comes")
    consumer.commit(asynchronous=False)
    yield
    consumer.close()


def got(port: int, path: str, **parameters: str) -> str:
    query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
    with urllib.request.urlopen(f"http://{HOST}:{port}{path}{query}", timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def names_in(text: str) -> Names:
    found: Names = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample is not None, line
        found.setdefault(sample[1], set()).add(frozenset(LABEL.findall(sample[2] or "")) - LABELS_OF_KAFKAS_OWN)
    return found


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port at which a node of Barnabas shows its metrics."""
    port = free_port()
    settings = {"barnabas.metrics.listener": f"{HOST}:{port}", "group.initial.rebalance.delay.ms": "0"}
    with Node(tmp_path_factory.mktemp("watched") / "data", settings=settings) as node, worked_with(node.bootstrap):
        yield port


def test_metrics_have_the_names_and_labels_that_jmx_exporter_gives_kafkas(watched: int) -> None:
    if (reason := apache_kafka.missing()) is not None:
        pytest.skip(f"not run: {reason}")
    try:
        jars = maven.ensure_jars("jmx-exporter", [EXPORTER], alone=True)
    except maven.MavenError as error:
        pytest.skip(f"not run: needs jmx_exporter: {error}")
    port = free_port()
    (agent,) = jars.glob("*.jar")
    flags = (*apache_kafka.TOOL_FLAGS, f"-javaagent:{agent}={HOST}:{port}:{RULES}")
    with apache_kafka.KafkaNode(flags=flags) as kafka, worked_with(kafka.bootstrap):
        theirs = names_in(got(port, "/metrics"))
    unknown = {
        (name, tuple(sorted(labels)))
        for name, of_samples in names_in(got(watched, "/metrics")).items()
        if not name.startswith(OURS) and name not in ONLY_HERE and not name.endswith("_sum")
        for labels in of_samples
        if labels not in theirs.get(name, ())
    }
    assert not unknown


@pytest.fixture(scope="module")
def prometheus(watched: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Prometheus that has seen the node twice, with the configuration in the tree."""
    folder = need_prometheus(tmp_path_factory.mktemp("prometheus"))
    text = (DEPLOY / "prometheus.yml").read_text().replace("127.0.0.1:9308", f"{HOST}:{watched}", 1)
    (folder / "prometheus.yml").write_text(text.replace("interval: 10s", "interval: 1s"))
    shutil.copy(DEPLOY / "alerts.yml", folder)
    port = free_port()
    options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["prometheus", *options, f"--web.listen-address={HOST}:{port}"], stdout=log, stderr=log
        )
    try:
        wait_until(lambda: has_seen_twice(port), f"it scrapes: {(folder / 'log')}", deadline_s=60, poll_s=0.2)
        yield port
    finally:
        process.terminate()
        process.wait()


def need_prometheus(folder: Path) -> Path:
    launch = toolchains.prepared(toolchains.PROMETHEUS)
    if isinstance(launch, toolchains.MissingError):
        pytest.skip(f"not run: {launch}")
    return folder


def has_seen_twice(port: int) -> bool:
    try:
        return any(float(each["value"][1]) >= 2 for each in asked(port, "count_over_time(up[1m])"))
    except (urllib.error.URLError, ConnectionError):
        return False


def asked(port: int, expression: str) -> list[dict[str, Any]]:
    """What Prometheus has found for an expression."""
    answer = json.loads(got(port, "/api/v1/query", query=expression))
    assert answer["status"] == "success", answer
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


def rules(port: int) -> list[dict[str, Any]]:
    groups = json.loads(got(port, "/api/v1/rules"))["data"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_promtool_accepts_rules_and_configuration(tmp_path: Path) -> None:
    need_prometheus(tmp_path)
    for command in (["check", "rules", "alerts.yml"], ["check", "config", "prometheus.yml"]):
        done = subprocess.run(["promtool", *command], cwd=DEPLOY, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "SUCCESS" in done.stdout


def test_promtool_finds_no_fault_with_what_a_node_tells(watched: int, tmp_path: Path) -> None:
    need_prometheus(tmp_path)
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=got(watched, "/metrics"), capture_output=True, text=True, check=False
    )
    # What it has to say against names is said against Kafka's: gauges whose names end with _count.
    complaints = [line for line in done.stderr.splitlines() if "barnabas_" in line or "parsing" in line]
    assert not complaints


def test_prometheus_scrapes_a_node_and_none_of_the_rules_fires(prometheus: int) -> None:
    assert [each["value"][1] for each in asked(prometheus, "up")] == ["1"]
    wait_until(lambda: "unknown" not in {rule["health"] for rule in rules(prometheus)}, "all rules have been evaluated")
    assert {rule["health"] for rule in rules(prometheus)} == {"ok"}
    assert [rule["name"] for rule in rules(prometheus) if rule["state"] == "firing"] == []


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)
def test_prometheus_has_an_answer_to_every_panel(prometheus: int, dashboard: Any) -> None:
    empty = []
    for row in dashboard.rows.values():
        for panel in row:
            for plot in panel.plots:
                found = asked(prometheus, re.sub(r"\$\w+", ".*", plot.expression))
                if not found and not any(word in plot.expression for word in ("errors", "follower", "stableoffset")):
                    empty.append((panel.title, plot.expression))
    assert not empty
