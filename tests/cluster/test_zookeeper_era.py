"""Three files of the ZooKeeper era that name the same `zookeeper.connect` form one cluster."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from interop.kafka_tools import KafkaTools

from barnabas.testing.several_nodes import reserved_port
from tests.clients.adapter import Message, consume
from tests.clients.conftest import LIBRARIES
from tests.clients.with_confluent import ConfluentClient
from tests.cluster.clusters import wait_until
from tests.nodes import Node

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOUNDER = "is the only voter of this cluster"
PARTITIONS = 6
COMMAND_S = 60


class Era:
    """Nodes 0 to 2, each of a file as people had them."""

    def __init__(self, folder: Path) -> None:
        meeting, *self._reservations = [reserved_port() for _ in range(4)]
        meeting_port = meeting.getsockname()[1]
        meeting.close()  # the nodes look whether anybody has it
        ports = [each.getsockname()[1] for each in self._reservations]
        self.nodes = [era_node(folder, number, port, meeting_port) for number, port in enumerate(ports)]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def founders(self) -> list[Node]:
        return [node for node in self.nodes if FOUNDER in node.log_text()]

    def start(self) -> None:
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_until_ready()

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
        for reservation in self._reservations:
            reservation.close()


def era_node(folder: Path, number: int, port: int, meeting_port: int) -> Node:
    file = folder / f"server{number}.properties"
    file.write_text(
        f"broker.id={number}\nlisteners=PLAINTEXT://:{port}\nlog.dirs={folder / f'logs-{number}'}\n"
        f"zookeeper.connect=localhost:{meeting_port}\nnum.partitions=1\nbroker.session.timeout.ms=1500\n"
        "broker.heartbeat.interval.ms=200\n"
    )
    return Node(folder / f"logs-{number}", port=port, config_file=file)


@pytest.fixture(scope="module")
def era(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Era]:
    made = Era(tmp_path_factory.mktemp("era"))
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_three_files_form_one_cluster_and_each_partition_is_on_all_three(era: Era) -> None:
    """Each node leads two partitions, as in Kafka not always in the same order; records come in through all addresses,
    and are read through another by every library."""
    assert len(era.founders) == 1
    assert "a single point of failure" in era.founders[0].log_text()
    client = ConfluentClient(era.bootstrap)
    found = client._admin().list_topics(timeout=30)
    assert sorted(found.brokers) == [0, 1, 2]
    client.create_topic("many_reps", PARTITIONS, replication_factor=3)
    wait_until(lambda: "many_reps" in client.topic_names(), "the topic is there")
    partitions = client._admin().list_topics("many_reps", timeout=30).topics["many_reps"].partitions
    leaders = [partitions[number].leader for number in range(PARTITIONS)]
    assert sorted(leaders[:3]) == sorted(leaders[3:]) == [0, 1, 2]
    assert [sorted(partitions[number].replicas) for number in range(PARTITIONS)] == [[0, 1, 2]] * PARTITIONS
    for partition in range(PARTITIONS):
        client.produce("many_reps", [Message(b"through all")], partition=partition)
        ConfluentClient(era.nodes[0].bootstrap).produce("many_reps", [Message(b"through one")], partition=partition)
    for library in LIBRARIES:
        reader = library(era.nodes[2].bootstrap)
        for partition in range(PARTITIONS):
            values = [record.value for record in consume(reader, "many_reps", 2, partition=partition)]
            assert values == [b"through all", b"through one"]


def barnabas(*words: str, given: str = "") -> list[str]:
    """The lines that a command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", *words],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_tutorials_commands_make_fill_and_read_a_topic_of_the_three(era: Era) -> None:
    """As they are typed; where records go in and come out, by our own commands."""
    topic = ("--topic", "many_by_hand")
    everybody = ("kafka", "kafka-topics", "--bootstrap-server", era.bootstrap)
    assert barnabas(*everybody, "--create", *topic, "--partitions", "6", "--replication-factor", "3")[-1] == (
        "Created topic many_by_hand."
    )
    head, *lines = barnabas(*everybody, "--describe", *topic)
    assert ("PartitionCount: 6" in head, "ReplicationFactor: 3" in head) == (True, True)
    rows = [dict(re.findall(r"(\w+): (\S+)", line)) for line in lines]
    assert [row["Partition"] for row in rows] == [str(number) for number in range(PARTITIONS)]
    leaders = [row["Leader"] for row in rows]
    assert sorted(leaders[:3]) == sorted(leaders[3:]) == ["0", "1", "2"]
    for row in rows:
        assert sorted(row["Replicas"].split(",")) == sorted(row["Isr"].split(",")) == ["0", "1", "2"]
    barnabas("produce", "many_by_hand", "--bootstrap-server", era.bootstrap, given="one\ntwo\nthree\n")
    barnabas("produce", "many_by_hand", "--bootstrap-server", era.nodes[0].bootstrap, given="four\nfive\n")
    last = ("--bootstrap-server", era.nodes[2].bootstrap)
    assert sorted(barnabas("consume", "many_by_hand", *last, "--exit-at-end")) == sorted(
        ["one", "two", "three", "four", "five"]
    )
    old = ("kafka", "kafka-topics.sh", "--list", "--bootstrap-server", era.nodes[1].bootstrap)
    assert "many_by_hand" in barnabas(*old)


@pytest.mark.usefixtures("apache_kafka_runs")
def test_kafkas_own_tools_make_fill_and_read_a_topic_of_the_three(era: Era) -> None:
    everybody, first, last = (
        KafkaTools(address) for address in (era.bootstrap, era.nodes[0].bootstrap, era.nodes[2].bootstrap)
    )
    create = ("--create", "--topic", "by_tools", "--partitions", "6", "--replication-factor", "3")
    everybody.run("kafka-topics", *create)
    lines = everybody.run("kafka-topics", "--describe", "--topic", "by_tools").splitlines()
    rows = [dict(re.findall(r"(\w+): (\S+)", line)) for line in lines if "Leader: " in line]
    leaders = [row["Leader"] for row in rows]
    assert sorted(leaders[:3]) == sorted(leaders[3:]) == ["0", "1", "2"]
    for row in rows:
        assert sorted(row["Replicas"].split(",")) == sorted(row["Isr"].split(",")) == ["0", "1", "2"]
    everybody.run("kafka-console-producer", "--topic", "by_tools", input="one\ntwo\nthree\n")
    first.run("kafka-console-producer", "--topic", "by_tools", input="four\nfive\n")
    read = ("--topic", "by_tools", "--from-beginning", "--max-messages", "5")
    assert sorted(last.run("kafka-console-consumer", *read).split()) == sorted(["one", "two", "three", "four", "five"])


def test_a_broker_that_comes_back_before_the_founder_waits_for_it(era: Era) -> None:
    """It founds no second cluster."""
    client = ConfluentClient(era.bootstrap)
    client.create_topic("many", PARTITIONS)
    wait_until(lambda: "many" in client.topic_names(), "the topic is there")
    for partition in range(PARTITIONS):
        client.produce("many", [Message(b"here")], partition=partition)
    (founder,) = era.founders
    others = [node for node in era.nodes if node is not founder]
    for node in era.nodes:
        node.kill()
    for node in others:
        node.launch()
    wait_until(lambda: all("no answer from the metadata quorum" in node.log_text() for node in others), "they wait")
    founder.start()
    for node in others:
        node.wait_until_ready()
    assert era.founders == [founder]
    for partition in range(PARTITIONS):
        assert [record.value for record in consume(client, "many", 1, partition=partition)] == [b"here"]
