"""Where Apache Kafka comes from, with a Maven of a few lines of shell, and one real node."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from bench.nodes import APACHE_KAFKA
from tools import apache_kafka

if TYPE_CHECKING:
    from pathlib import Path

FAKE_MAVEN = """#!/bin/sh
echo run >> "{runs}"
for argument; do
    case "$argument" in -DoutputDirectory=*) folder="${{argument#*=}}" ;; esac
done
mkdir -p "$folder"
sleep 0.3
echo jar > "$folder/a.jar"
"""
FAILING_MAVEN = """#!/bin/sh
echo "[ERROR] Could not resolve org.apache.kafka:kafka_2.13"
exit 1
"""
RESOLVE = "from tools import apache_kafka; print((apache_kafka.ensure_jars() / 'a.jar').read_text())"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for programs that come before those of the machine, and an empty cache."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def _install(programs: Path, name: str, text: str) -> None:
    (programs / name).write_text(text)
    (programs / name).chmod(0o755)


def test_two_runs_at_once_resolve_the_jars_once_and_both_see_them_whole(programs: Path, tmp_path: Path) -> None:
    _install(programs, "mvn", FAKE_MAVEN.format(runs=tmp_path / "runs"))
    command = [sys.executable, "-c", RESOLVE]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [each.communicate()[0].strip() for each in both] == ["jar", "jar"]
    assert (tmp_path / "runs").read_text() == "run\n"


def test_a_failed_resolution_says_why_and_leaves_nothing_behind(programs: Path, tmp_path: Path) -> None:
    _install(programs, "mvn", FAILING_MAVEN)
    with pytest.raises(apache_kafka.KafkaUnavailableError, match=r"Could not resolve org\.apache\.kafka"):
        apache_kafka.ensure_jars()
    assert [each.name for each in (tmp_path / "cache").rglob("*") if each.is_file()] == ["lock"]


def test_without_maven_the_message_names_it(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(apache_kafka.KafkaUnavailableError, match="Maven"):
        apache_kafka.ensure_jars()


@pytest.mark.parametrize(
    ("java", "complaint"),
    [
        (None, "Java 17 or newer: `java -version` failed"),
        ("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n", 'found: openjdk version "11.0.2"'),
    ],
)
def test_what_is_missing_is_said_in_one_line(
    programs: Path, monkeypatch: pytest.MonkeyPatch, java: str | None, complaint: str
) -> None:
    monkeypatch.setenv("PATH", str(programs) if java is None else f"{programs}:/usr/bin:/bin")
    if java is not None:
        _install(programs, "java", java)
    reason = apache_kafka.find_missing()
    assert reason is not None
    assert complaint in reason
    assert "\n" not in reason


@pytest.mark.kafka
@pytest.mark.usefixtures("apache_kafka_runs")
def test_a_node_keeps_its_port_and_its_records_over_a_restart(tmp_path: Path) -> None:
    with apache_kafka.KafkaNode(tmp_path / "data") as node:
        address = node.bootstrap
        sent = apache_kafka.run_tool(
            "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", address, "--topic", "t", input="a\nb\n"
        )
        assert sent.returncode == 0, sent.stderr
        node.stop()
        shown = apache_kafka.dump_log(node.data_dir / "t-0" / f"{0:020}.log")
        assert "payload: a" in shown
        assert "payload: b" in shown
        node.start()
        assert node.bootstrap == address
        pid = node.pid
    assert not (tmp_path / "data" / "server.properties").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.kafka
@pytest.mark.usefixtures("apache_kafka_runs")
def test_only_the_benchmark_has_the_flags_of_kafkas_own_start_script(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()  # nothing is started, and so nothing formatted
    with APACHE_KAFKA.make(tmp_path) as node:
        assert isinstance(node, apache_kafka.KafkaNode)
        assert node.flags == apache_kafka.SERVER_FLAGS
    with contextlib.closing(apache_kafka.KafkaNode(tmp_path)) as oracle:
        assert oracle.flags == apache_kafka.TOOL_FLAGS


@pytest.mark.kafka
@pytest.mark.usefixtures("apache_kafka_runs")
@pytest.mark.timeout(240)
def test_a_cluster_forms_a_quorum_and_goes_on_without_one_of_its_nodes(tmp_path: Path) -> None:
    properties_of = {2: {"broker.rack": "second"}}
    cluster = apache_kafka.KafkaCluster(
        tmp_path, properties={"default.replication.factor": "3"}, properties_of=properties_of
    )
    with cluster:
        pids = cluster.pids
        assert cluster.running == [*pids] == [1, 2, 3]
        quorum = ("--bootstrap-controller", cluster.bootstrap_controllers, "describe", "--status")
        status = apache_kafka.run_tool("org.apache.kafka.tools.MetadataQuorumCommand", *quorum).stdout
        assert cluster.cluster_id in status
        assert re.findall(r'"id": (\d)', status) == ["1", "2", "3"], status
        cluster.kill(2)
        assert cluster.running == [1, 3]
        sent = apache_kafka.run_tool(
            "org.apache.kafka.tools.ConsoleProducer",
            "--bootstrap-server",
            cluster.bootstrap,
            "--topic",
            "t",
            input="a\n",
        )
        assert sent.returncode == 0, sent.stderr
        cluster.start_node(2)
        assert cluster.pids[2] != pids[2]
        pids = cluster.pids
    for pid in pids.values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["node-1", "node-2", "node-3"]
