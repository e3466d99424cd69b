"""A start that is refused leaves the folder as it was; one bad partition costs that partition, not the node."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from barnabas.client.broker_connection import Connection
from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_batch
from barnabas.protocol.errors import Error
from barnabas.protocol.record import Record
from tests.nodes import Node, NodeError

if TYPE_CHECKING:
    from pathlib import Path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def create(node: Node, *names: str) -> None:
    topic = m.CreateTopicsRequest.CreatableTopic
    with Connection(node.host, node.port) as connection:
        request = m.CreateTopicsRequest(
            topics=[topic(name=name, num_partitions=1, replication_factor=1) for name in names], timeout_ms=10_000
        )
        response: m.CreateTopicsResponse = connection.send(request)
    assert [Error(result.error_code) for result in response.topics] == [Error.NONE] * len(names)


def produce(node: Node, topic: str) -> Error:
    data = m.ProduceRequest.TopicProduceData(
        name=topic,
        partition_data=[m.ProduceRequest.PartitionProduceData(index=0, records=build_batch([Record(b"value")]))],
    )
    with Connection(node.host, node.port) as connection:
        response: m.ProduceResponse = connection.send(
            m.ProduceRequest(acks=1, timeout_ms=5_000, topic_data=[data]), version=12
        )
    return Error(response.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_start_refused_for_its_quorum_state_changes_nothing(tmp_path: Path, ending: str) -> None:
    node = Node(tmp_path / "data")
    node.start()
    create(node, "t")
    assert produce(node, "t") is Error.NONE
    getattr(node, ending)()
    (node.data_dir / "__cluster_metadata-0" / "quorum-state").write_text("no JSON at all")
    before = contents(node.data_dir)
    with pytest.raises(NodeError):
        node.start()
    node.kill()
    assert contents(node.data_dir) == before


def test_a_folder_with_data_but_without_meta_properties_is_refused_and_not_formatted(tmp_path: Path) -> None:
    node = Node(tmp_path / "data")
    node.start()
    create(node, "t")
    node.stop()
    (node.data_dir / "meta.properties").unlink()
    before = contents(node.data_dir)
    with pytest.raises(NodeError, match=r"meta\.properties"):
        node.start()
    node.kill()
    assert contents(node.data_dir) == before


def test_a_log_that_cannot_be_opened_is_offline_and_the_others_are_served(tmp_path: Path) -> None:
    node = Node(tmp_path / "data")
    node.start()
    create(node, "good", "bad")
    node.stop()
    damaged = node.data_dir / "bad-0" / "partition.metadata"
    damaged.write_bytes(b"\xff not a topic id")
    node.start()
    assert produce(node, "good") is Error.NONE
    assert produce(node, "bad") is Error.KAFKA_STORAGE_ERROR
    node.stop()
    assert damaged.read_bytes() == b"\xff not a topic id"
    assert not (node.data_dir / ".kafka_cleanshutdown").exists()


def test_a_topic_whose_folder_is_taken_is_offline_until_the_place_is_free(tmp_path: Path) -> None:
    node = Node(tmp_path / "data")
    node.start()
    (node.data_dir / "taken-0").write_text("somebody's notes")
    create(node, "taken", "free")
    assert produce(node, "free") is Error.NONE
    assert produce(node, "taken") is Error.KAFKA_STORAGE_ERROR
    (node.data_dir / "taken-0").unlink()
    error = Error.KAFKA_STORAGE_ERROR
    while error is Error.KAFKA_STORAGE_ERROR:
        error = produce(node, "taken")
    assert error is Error.NONE
    node.stop()


def test_a_second_signal_ends_a_node_at_once(tmp_path: Path) -> None:
    node = Node(tmp_path / "data")
    node.start()
    os.kill(node.pid, signal.SIGTERM)
    assert node.end(signal.SIGINT) == 1
