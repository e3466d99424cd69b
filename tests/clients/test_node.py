"""The process: how it starts, refuses to start, listens and ends, through the `Node` that users' tests have, too."""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.testing.node_process import Node, NodeError
from tests.clients.adapter import consume, values
from tests.clients.with_confluent import ConfluentClient
from tests.peers import HOST, free_port, wait_until
from tests.wire.connection import Connection

if TYPE_CHECKING:
    from pathlib import Path


def meta_properties(node: Node) -> dict[str, str]:
    lines = (node.data_dir / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def test_a_node_formats_its_folder_serves_and_stops_cleanly(tmp_path: Path, topic: str) -> None:
    with Node(tmp_path / "data") as node:
        client = ConfluentClient(node.bootstrap)
        client.produce(topic, values(3))
        assert len(consume(client, topic, 3)) == 3
    assert not node.is_running
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_node_keeps_its_port_and_its_ids_over_restarts(tmp_path: Path) -> None:
    with Node(tmp_path / "data") as node:
        port, ids = node.port, meta_properties(node)
        node.restart()
        assert (node.port, meta_properties(node)) == (port, ids)
        node.kill()
        node.start()
        assert (node.port, meta_properties(node)) == (port, ids)
    assert len(ids["cluster.id"]) == len(ids["directory.id"]) == 22


def test_settings_are_passed_on(tmp_path: Path, topic: str) -> None:
    with Node(tmp_path / "data", settings={"num.partitions": "4"}) as node:
        client = ConfluentClient(node.bootstrap)
        client.produce(topic, values(1))
        assert client.partition_count(topic) == 4
        node.restart({"num.partitions": "6"})
        client = ConfluentClient(node.bootstrap)
        client.produce(f"{topic}-b", values(1))
        assert client.partition_count(f"{topic}-b") == 6


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_either_signal_stops_a_node_that_has_clients(tmp_path: Path, topic: str, number: signal.Signals) -> None:
    with Node(tmp_path / "data") as node:
        client = ConfluentClient(node.bootstrap)
        client.create_topic(topic)
        with client.consumer(topic, "beginning") as consumer:
            assert consumer.receive(1, deadline_s=0.3) == []
            assert node.end(number) == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_folder_serves_one_node_at_a_time(tmp_path: Path, topic: str) -> None:
    with Node(tmp_path / "data") as first:
        with pytest.raises(NodeError, match="data") as refused:
            Node(tmp_path / "data", log_file=tmp_path / "second.log").start()
        assert "Traceback" not in str(refused.value)
        ConfluentClient(first.bootstrap).create_topic(topic)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(NodeError, match=f"{HOST}:{port}") as refused:
            Node(tmp_path / "data", port=port).start()
    assert "Traceback" not in str(refused.value)


def test_a_folder_of_another_node_is_refused(tmp_path: Path) -> None:
    with Node(tmp_path / "data") as node:
        before = meta_properties(node)
    with pytest.raises(NodeError, match=r"node\.id"):
        Node(tmp_path / "data", settings={"node.id": "7"}).start()
    with Node(tmp_path / "data") as node:
        assert meta_properties(node) == before


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (
            {
                "listeners": "SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
                "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name": "SSL",
            },
            "SSL",
        ),
        ({"listeners": "PLAINTEXT://0.0.0.0:0,CONTROLLER://127.0.0.1:0"}, "advertised.listeners"),
        ({"num.partitions": "many"}, "num.partitions"),
        ({"log.segment.bytes": "7"}, "log.segment.bytes"),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path: Path, settings: dict[str, str], named: str) -> None:
    with pytest.raises(NodeError, match=named) as refused:
        Node(tmp_path / "data", settings=settings).start()
    assert "Traceback" not in str(refused.value)
    assert not (tmp_path / "data" / "meta.properties").exists(), "a node that is refused leaves no folder behind"


def test_an_unknown_setting_warns_with_the_nearest_name(tmp_path: Path) -> None:
    with Node(tmp_path / "data", settings={"num.partition": "3"}) as node:
        (warning,) = [line for line in node.log_text().splitlines() if "num.partition" in line]
        assert "num.partitions" in warning


def test_each_listener_names_itself(tmp_path: Path) -> None:
    """A client that came in by one listener is sent to that one, not to another it may not reach."""
    inside, outside = free_port(), free_port()
    settings = {
        "listeners": f"INSIDE://{HOST}:{inside},OUTSIDE://{HOST}:{outside},CONTROLLER://{HOST}:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    with Node(tmp_path / "data", settings=settings, port=inside) as node:
        assert "INSIDE" in node.log_text()
        for port in (inside, outside):
            with Connection(port) as connection:
                (broker,) = connection.call(m.MetadataRequest(topics=[]), 12, m.MetadataResponse).brokers
                assert (broker.host, broker.port) == (HOST, port)
                (broker2,) = connection.call(m.DescribeClusterRequest(), 1, m.DescribeClusterResponse).brokers
                assert (broker2.host, broker2.port) == (HOST, port)


def test_a_node_that_dies_is_noticed(tmp_path: Path) -> None:
    with Node(tmp_path / "data") as node:
        node.end(signal.SIGKILL)
        assert not node.is_running
        with pytest.raises(NodeError, match="not running"):
            node.stop()
        node.start()
        wait_until(lambda: ConfluentClient(node.bootstrap).topic_names() == set(), "the node serves again")
