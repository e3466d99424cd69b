"""Nodes started, asked and stopped by scripts as `barnabas kafka home` writes them, typed as in tutorials."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from barnabas.cli.main import main
from barnabas.testing.several_nodes import reserved_port
from tests.clients.adapter import Message, consume
from tests.clients.command_line.kafka_tool import run_tool
from tests.clients.with_confluent import ConfluentClient
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.peers import Peer

    Type = Callable[..., subprocess.CompletedProcess[str]]

COMMAND_S: Final = 60
START_S: Final = 60
OLD_PORTS: Final = (9092, 9093)
"""As the files of a home have them."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as Kafka's archive unpacks to."""
    folder = tmp_path_factory.mktemp("of kafka") / "home"
    assert main(["kafka", "home", str(folder)]) == 0
    return folder


@pytest.fixture
def typed(home: Path) -> Type:
    """Types a command in that folder."""

    def run(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=home, input=given, capture_output=True, text=True, check=False, timeout=COMMAND_S
        )

    return run


@pytest.fixture
def server_log(home: Path) -> Iterator[Path]:
    """Where a node in the background logs. A test that fails does not leave its node behind."""
    log = home / "logs" / "kafkaServer.out"
    yield log
    for pid in pids_in(home):
        os.kill(pid, signal.SIGKILL)


def pids_in(folder: Path) -> list[int]:
    """The nodes that were started in a folder."""
    from barnabas.cli.kafka.server.server_stop import running_servers

    return [each.pid for each in running_servers() if os.path.realpath(f"/proc/{each.pid}/cwd") == str(folder)]


def test_a_tutorial_runs_from_the_first_command_to_the_last(
    home: Path, typed: Type, server_log: Path, tmp_path: Path
) -> None:
    reservations = [reserved_port() for _ in OLD_PORTS]
    ports = [each.getsockname()[1] for each in reservations]
    bootstrap = f"localhost:{ports[0]}"
    # The only thing not as printed: ports and folder, as other tests run beside this one.
    file = home / "config" / "server.properties"
    text = file.read_text().replace("/tmp/kraft-combined-logs", str(tmp_path / "data"))
    for old, port in zip(OLD_PORTS, ports, strict=True):
        text = text.replace(str(old), str(port))
    node_id = str(200_000 + ports[0])
    file.write_text(text.replace("node.id=1\n", f"node.id={node_id}\n"))

    assert typed("bin/zookeeper-server-start.sh", "config/zookeeper.properties").returncode == 0
    cluster_id = typed("bin/kafka-storage.sh", "random-uuid").stdout.strip()
    format_it = ("format", "--standalone", "-t", cluster_id, "-c", "config/server.properties")
    formatted = typed("bin/kafka-storage.sh", *format_it)
    assert formatted.stdout.splitlines()[-1] == (
        f"Formatting dynamic metadata voter directory {tmp_path / 'data'} with metadata.version 4.3-IV0."
    )
    assert typed("bin/kafka-storage.sh", *format_it).stderr == (
        f"Log directory {tmp_path / 'data'} is already formatted. "
        "Use --ignore-formatted to ignore this directory and format the others.\n"
    )

    override = ("--override", "num.partitions=3")
    started = typed("bin/kafka-server-start.sh", "-daemon", "config/server.properties", *override)
    assert (started.returncode, started.stdout) == (0, "")
    wait_until(lambda: "barnabas ready" in server_log.read_text(), "the node is ready", START_S)

    assert typed(
        "bin/kafka-topics.sh", "--create", "--topic", "quickstart", "--bootstrap-server", bootstrap
    ).stdout == ("Created topic quickstart.\n")
    described = typed("bin/kafka-topics.sh", "--describe", "--topic", "quickstart", "--bootstrap-server", bootstrap)
    assert "PartitionCount: 3" in described.stdout
    shell = typed("bin/zookeeper-shell.sh", f"localhost:{ports[1]}", "ls", "/brokers/ids")
    assert shell.stdout.splitlines()[-1] == f"[{node_id}]"
    info = typed("bin/kafka-storage.sh", "info", "-c", "config/server.properties")
    assert f"cluster.id={cluster_id}" in info.stdout

    assert typed("bin/kafka-server-stop.sh", f"--node-id={node_id}").returncode == 0
    wait_until(lambda: "stopped cleanly" in server_log.read_text(), "the node has stopped", START_S)
    assert typed("bin/zookeeper-server-stop.sh").returncode == 0
    for each in reservations:
        each.close()


class Era:
    """Three files of the ZooKeeper era, each started by `kafka-server-start FILE`."""

    def __init__(self, home: Path, folder: Path) -> None:
        reservations = [reserved_port() for _ in range(4)]
        meeting, *self.ports = [each.getsockname()[1] for each in reservations]
        reservations[0].close()  # the nodes look whether anybody has it
        self._reservations = reservations[1:]
        self.meeting = f"localhost:{meeting}"
        self._processes = []
        for number, port in enumerate(self.ports):
            file = folder / f"server{number}.properties"
            file.write_text(
                f"broker.id={number}\nlisteners=PLAINTEXT://:{port}\nlog.dirs={folder / f'logs-{number}'}\n"
                f"zookeeper.connect={self.meeting}\n"
            )
            with (folder / f"{number}.log").open("wb") as log:
                self._processes.append(
                    subprocess.Popen([home / "bin" / "kafka-server-start.sh", file], stdout=log, stderr=log)
                )
        logs = [folder / f"{number}.log" for number in range(3)]
        wait_until(lambda: all("barnabas ready" in log.read_text() for log in logs), "all are ready", START_S)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"localhost:{port}" for port in self.ports)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for each in self._reservations:
            each.close()


def test_three_files_of_the_zookeeper_era_form_one_cluster(home: Path, typed: Type, tmp_path: Path) -> None:
    era = Era(home, tmp_path)
    try:
        topic = ("--topic", "many_reps")
        create = ("--create", *topic, "--partitions", "6", "--replication-factor", "3")
        assert typed("bin/kafka-topics.sh", "--bootstrap-server", era.bootstrap, *create).returncode == 0
        described = typed("bin/kafka-topics.sh", "--bootstrap-server", era.bootstrap, "--describe", *topic).stdout
        rows = [dict(re.findall(r"(\w+): (\S+)", line)) for line in described.splitlines()[1:]]
        leaders = [row["Leader"] for row in rows]
        assert sorted(leaders[:3]) == sorted(leaders[3:]) == ["0", "1", "2"]
        assert [sorted(row["Replicas"].split(",")) for row in rows] == [["0", "1", "2"]] * 6

        through_all, through_one = ConfluentClient(era.bootstrap), ConfluentClient(f"localhost:{era.ports[0]}")
        for partition in range(6):
            through_all.produce("many_reps", [Message(b"through all")], partition=partition)
            through_one.produce("many_reps", [Message(b"through one")], partition=partition)
        reader = ConfluentClient(f"localhost:{era.ports[2]}")
        for partition in range(6):
            values = [record.value for record in consume(reader, "many_reps", 2, partition=partition)]
            assert values == [b"through all", b"through one"]

        shell = typed("bin/zookeeper-shell.sh", era.meeting, "ls", "/brokers/ids")
        assert shell.stdout.splitlines()[-1] == "[0, 1, 2]"
    finally:
        era.close()


def test_the_zookeeper_shell_shows_brokers_topics_and_the_controller(
    node: Peer, topic: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing where it is pointed at, so the node of this machine is asked."""
    monkeypatch.setattr("barnabas.cli.kafka.server.zookeeper_shell.LOCAL_NODE", node.bootstrap)
    ConfluentClient(node.bootstrap).create_topic(topic)

    def shown(*words: str) -> str:
        done = run_tool(capsys, "zookeeper-shell", "localhost:1", *words)
        assert (done.code, done.lines[0]) == (0, "Connecting to localhost:1")
        return done.lines[-1]

    assert shown("ls", "/brokers/ids") == "[1]"
    assert topic in shown("ls", "/brokers/topics")
    assert json.loads(shown("get", "/controller"))["brokerid"] == 1
    assert json.loads(shown("get", "/brokers/ids/1"))["port"] == node.port
    assert json.loads(shown("get", f"/brokers/topics/{topic}"))["partitions"] == {"0": [1]}
    missing = run_tool(capsys, "zookeeper-shell", "localhost:1", "ls", "/brokers/nothing")
    assert (missing.code, missing.complaint) == (1, "Node does not exist: /brokers/nothing")


def test_a_tool_runs_by_the_name_of_its_class(node: Peer, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    ConfluentClient(node.bootstrap).create_topic(topic)
    for name in ("kafka.admin.TopicCommand", "org.apache.kafka.tools.TopicCommand"):
        listed = run_tool(capsys, "kafka-run-class", "-loggc", name, "--list", "--bootstrap-server", node.bootstrap)
        assert topic in listed.lines
    unknown = run_tool(capsys, "kafka-run-class", "org.example.Main")
    assert (unknown.code, unknown.complaint) == (1, "Error: Could not find or load main class org.example.Main")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["kafka-server-start"], "USAGE: kafka-server-start [-daemon] server.properties [--override property=value]*"),
        (["kafka-server-start", "x", "y"], "Found non argument parameters: y"),
        (["kafka-server-start", "x", "--bogus"], "bogus is not a recognized option"),
        (["kafka-server-start", "/nonexistent"], "barnabas: cannot read /nonexistent: No such file or directory"),
        (["kafka-run-class"], "USAGE: kafka-run-class [-daemon] [-name servicename] [-loggc] classname [opts]"),
    ],
)
def test_what_cannot_be_started_is_said_in_one_line(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = run_tool(capsys, *words)
    assert refused.code == 1
    assert (refused.out + refused.err).splitlines()[0] == complaint
