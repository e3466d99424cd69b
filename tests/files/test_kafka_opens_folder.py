"""Apache Kafka starts on a folder that a node of Barnabas has left, and everything is there."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tools.apache_kafka import KafkaNode

from barnabas.protocol.errors import Error
from tests.clients.adapter import consume, values
from tests.clients.with_confluent import ConfluentClient
from tests.files.conftest import PARTITIONS
from tests.nodes import Node
from tests.peers import wait_until
from tests.wire.batches import batch
from tests.wire.connection import Connection
from tests.wire.requests import create_topic, fetch, produce

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


@pytest.mark.timeout(240)
def test_kafka_knows_the_last_batch_of_a_producer_and_what_comes_next(tmp_path: Path) -> None:
    """Our snapshots of producers hold more than Kafka reads."""
    with Node(tmp_path / "data") as node, Connection(node.port) as connection:
        topic = create_topic(connection, "t")
        sent = [batch([b"a"], producer_id=7, producer_epoch=0, base_sequence=sequence) for sequence in range(6)]
        assert [produce(connection, topic, each).base_offset for each in sent[:4]] == [0, 1, 2, 3]
    with KafkaNode(tmp_path / "data") as kafka, Connection(kafka.port) as connection:
        wait_until(lambda: fetch(connection, topic).error_code == Error.NONE, "the partition has a leader")
        assert produce(connection, topic, sent[5]).error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert [produce(connection, topic, each).base_offset for each in sent[3:]] == [3, 4, 5]
        assert "corrupt" not in kafka.log.lower()
