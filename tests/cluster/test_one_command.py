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
from confluent_kafka.cimpl import NewTopic

from tests.cluster.clusters import (
    DEADLINE_S,
    WHOLE_S,
    consume,
    create_topic,
    is_whole_at,
    produce,
    topics,
    wait_until,
)
from tests.nodes import Node

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


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 0


def refusal(folder: Path, *words: str) -> str:
    """What the command says when it does not start, in one line."""
    done = subprocess.run(
        [*(sys.executable, "-m", "barnabas", "start", "--nodes", "3", "--data-dir", str(folder)), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def take_over(data: Path, node_ids: list[int]) -> None:
    """Has these nodes lead the partitions of one that is gone, as docs/cluster.md says."""
    settings = {"unclean.leader.election.enable": "true"}
    nodes = [
        Node(data / f"node-{node_id}", config_file=data / f"node-{node_id}.properties", settings=settings)
        for node_id in node_ids
    ]
    try:
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait_until_ready()
        client = AdminClient({"bootstrap.servers": nodes[0].bootstrap, "log_level": 0})
        wait_until(lambda: leaders(client) <= {*node_ids}, "the nodes that are left lead all partitions")
        for node in nodes:
            node.send(signal.SIGTERM)
        for node in nodes:
            node.wait_until_stopped()
    finally:
        for node in nodes:
            node.kill()


def leaders(client: AdminClient) -> set[int]:
    found = client.list_topics(timeout=DEADLINE_S).topics.values()
    return {partition.leader for topic in found for partition in topic.partitions.values()}


def files_below(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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


def test_a_node_whose_folder_is_gone_is_not_formatted_anew_but_may_be_replaced(
    tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    """Two voters that have forgotten everything would elect each other, and the third would throw its data away."""
    data = tmp_path / "data"
    process, bootstrap = start(processes, data)
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    client.create_topics([NewTopic("orders", 1, 3)])["orders"].result(DEADLINE_S)
    produce(bootstrap, "orders", [b"one", b"two"])
    stop(process)

    # The one that stopped last is the only one in sync: that it is lost is the worst case.
    last = int(re.findall(r"node-(\d) \| barnabas broker stopped", (tmp_path / "console.log").read_text())[-1])
    others = [node_id for node_id in (1, 2, 3) if node_id != last]
    other = data / f"node-{others[0]}"
    (data / f"node-{last}").rename(tmp_path / "lost")
    other.rename(tmp_path / "away")
    other.mkdir()
    before = files_below(data)
    said = refusal(data)
    for node_id in (last, others[0]):
        assert f"{data}/node-{node_id} of node {node_id}" in said
    assert "are empty or gone: mount or restore them" in said
    assert "of 3 voters only 1 would be left, which is no majority" in said
    assert files_below(data) == before

    other.rmdir()
    (tmp_path / "away").rename(other)
    before = files_below(data)
    said = refusal(data)
    assert f"{data}/node-{last} of node {last} is empty or gone: mount or restore it" in said
    assert files_below(data) == before
    advised = re.search(r"only then format it anew, without a vote: `barnabas ([^`]+)`", said)
    assert advised is not None, said

    take_over(data, others)
    subprocess.run([sys.executable, "-m", "barnabas", *advised[1].split()], check=True, timeout=DEADLINE_S)
    _, again = start(processes, data)
    assert again == bootstrap
    wait_until(lambda: is_whole_at(bootstrap.split(",")[last - 1]), "the new node has all replicas", WHOLE_S)
    assert consume(bootstrap, "orders", 2) == [b"one", b"two"]
