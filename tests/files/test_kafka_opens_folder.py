"""Apache Kafka starts on a folder that a node of Barnabas has left, and everything is there."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tools.apache_kafka import KafkaNode

from barnabas.testing.node_process import Node
from tests.clients.adapter import consume, values
from tests.clients.with_confluent import ConfluentClient
from tests.files.conftest import PARTITIONS
from tests.peers import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.files.conftest import Folder

pytestmark = pytest.mark.kafka


def check(client: ConfluentClient, folder: Folder) -> None:
    """Topics, settings and records are those that were written."""
    names = client.topic_names()
    assert folder.topic in names
    assert "deleted" not in names
    assert client.partition_count(folder.topic) == PARTITIONS
    config = client.topic_config(folder.topic)
    assert {name: config[name] for name in folder.config} == folder.config
    for partition, expected in enumerate(folder.values):
        received = consume(client, folder.topic, len(expected), partition=partition)
        assert [r.value for r in received] == expected
        assert {r.headers for r in received} == {(("h", b"v"),)}


@pytest.mark.timeout(240)
def test_kafka_serves_the_topics_settings_and_records_of_a_cleanly_stopped_folder(
    folder: Folder, tmp_path: Path
) -> None:
    """And goes on writing to them; its log has nothing to say but what it always says."""
    shutil.copytree(folder.path, tmp_path / "data")
    with KafkaNode(tmp_path / "data") as kafka:
        client = ConfluentClient(kafka.bootstrap)
        wait_until(lambda: folder.topic in client.topic_names(), "Kafka has loaded the metadata")
        check(client, folder)
        end = len(folder.values[0])
        assert client.produce(folder.topic, values(5), partition=0)[0].offset == end
        client.create_topic("made-by-kafka")
        log = kafka.log
    assert "Error" not in log
    assert "Exception" not in log


@pytest.mark.timeout(240)
def test_barnabas_goes_on_where_kafka_left_off(folder: Folder, tmp_path: Path) -> None:
    """There and back again: what Kafka added to the folder is served as well."""
    shutil.copytree(folder.path, tmp_path / "data")
    with KafkaNode(tmp_path / "data") as kafka:
        client = ConfluentClient(kafka.bootstrap)
        wait_until(lambda: folder.topic in client.topic_names(), "Kafka has loaded the metadata")
        client.produce(folder.topic, values(5), partition=1)
    with Node(tmp_path / "data") as node:
        client = ConfluentClient(node.bootstrap)
        end = len(folder.values[1])
        received = consume(client, folder.topic, 5, start=end, partition=1)
        assert [r.value for r in received] == [m.value for m in values(5)]
        check(client, folder)
