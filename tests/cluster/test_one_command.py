"""`barnabas start --nodes 3`: three nodes by one command, which stops brokers before their quorum."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from tests.cluster.clusters import DEADLINE_S, consume, create_topic, produce, topics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    """Supervisors that a test starts; their nodes die with them."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        with process:
            process.kill()


def start(processes: list[subprocess.Popen[str]], folder: Path) -> tuple[subprocess.Popen[str], str]:
    """The command, and where its nodes serve clients."""
    with (folder.parent / "console.log").open("a") as console:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "barnabas", "start"),
                *("--nodes", "3", "--data-dir", str(folder), "--listen", "127.0.0.1:0"),
            ],
            stdout=subprocess.PIPE,
            stderr=console,
            text=True,
        )
    processes.append(process)
    assert process.stdout is not None
    line = process.stdout.readline()
    ready = re.fullmatch(r"barnabas ready: (\S+)\n", line)
    assert ready is not None, line + (folder.parent / "console.log").read_text()
    return process, ready[1]


def commit(bootstrap: str, topic: str, partition: int, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "log_level": 0})
    try:
        consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
    finally:
        consumer.close()


def replicas_and_min_isr(client: AdminClient, topic: str) -> tuple[set[int], str | None]:
    """How many replicas the partitions of a topic have, and how many of them must be in sync."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    config = client.describe_configs([resource])[resource].result(DEADLINE_S)
    partitions = client.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions.values()
    return {len(partition.replicas) for partition in partitions}, config["min.insync.replicas"].value


def test_three_nodes_serve_keep_what_they_have_and_stop_in_order(
    tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    process, bootstrap = start(processes, tmp_path / "data")
    servers = bootstrap.split(",")
    assert len(servers) == 3
    client = AdminClient({"bootstrap.servers": servers[1], "log_level": 0})
    create_topic(client, "orders", 3)
    produce(servers[0], "orders", [b"one", b"two"], 2)
    assert consume(servers[2], "orders", 2, 2) == [b"one", b"two"]
    commit(servers[1], "orders", 2, 2)
    assert replicas_and_min_isr(client, "__consumer_offsets") == ({3}, "2")
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 0
    console = (tmp_path / "console.log").read_text()
    assert console.count("stopped cleanly") == 3
    assert "without the controller's consent" not in console
    brokers_down = [place.start() for place in re.finditer("barnabas broker stopped", console)]
    assert len(brokers_down) == 3
    assert max(brokers_down) < console.index("SIGTERM: stopping", console.index("barnabas broker stopped"))
    _, again = start(processes, tmp_path / "data")
    assert again == bootstrap
    assert topics(AdminClient({"bootstrap.servers": servers[2], "log_level": 0})) == {"orders": 3}
    assert consume(servers[0], "orders", 2, 2) == [b"one", b"two"]
