"""`metadata.log.dir`: the metadata log in a folder of its own, where no partitions go."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tools.apache_kafka import KafkaNode

from barnabas.log.folder.meta_properties import META_PROPERTIES, MetaProperties, read_meta_properties
from barnabas.ports import SystemDisk
from tests.clients.adapter import consume, values
from tests.clients.with_confluent import ConfluentClient
from tests.nodes import Node, NodeError
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

METADATA_LOG = "__cluster_metadata-0"


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    return tmp_path / "metadata"


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [tmp_path / "first", tmp_path / "second"]


@pytest.fixture
def settings(metadata: Path, folders: list[Path]) -> dict[str, str]:
    return {"metadata.log.dir": str(metadata), "log.dirs": ",".join(map(str, folders))}


@pytest.fixture
def node(tmp_path: Path, settings: dict[str, str]) -> Iterator[Node]:
    node = Node(tmp_path / "none", settings=settings, log_file=tmp_path / "node.log")
    node.start()
    yield node
    node.kill()


def identity(folder: Path) -> MetaProperties:
    meta = read_meta_properties(SystemDisk(), str(folder))
    assert meta is not None
    return meta


def partition_folders(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir() if each.is_dir()}


def test_the_folder_has_an_identity_and_a_lock_of_its_own_and_takes_no_partitions(
    node: Node, metadata: Path, folders: list[Path], topic: str
) -> None:
    client = ConfluentClient(node.bootstrap)
    client.create_topic(topic, partitions=4)
    client.produce(topic, values(3), partition=0)
    assert partition_folders(metadata) == {METADATA_LOG}
    assert set.union(*map(partition_folders, folders)) == {f"{topic}-{index}" for index in range(4)}
    identities = [identity(folder) for folder in (metadata, *folders)]
    assert len({each.directory_id for each in identities}) == 3
    assert len({(each.cluster_id, each.node_id) for each in identities}) == 1
    with pytest.raises(NodeError, match=f"{metadata} is in use by another process"):
        Node(folders[0].with_name("other"), settings={"metadata.log.dir": str(metadata)}).start()

    node.restart()
    received = consume(ConfluentClient(node.bootstrap), topic, 3, partition=0)
    assert [record.value for record in received] == [message.value for message in values(3)]
    node.stop()
    assert not (metadata / ".kafka_cleanshutdown").exists()
    assert [identity(folder) for folder in (metadata, *folders)] == identities


def test_a_metadata_log_that_was_left_elsewhere_is_not_begun_anew(
    node: Node, metadata: Path, folders: list[Path]
) -> None:
    node.stop()
    elsewhere = metadata.with_name("elsewhere")
    with pytest.raises(NodeError, match=f"{elsewhere}, where its metadata log should be, is new"):
        node.start({"metadata.log.dir": str(elsewhere)})
    assert not (elsewhere / META_PROPERTIES).exists()

    (metadata / METADATA_LOG).rename(folders[1] / METADATA_LOG)
    with pytest.raises(NodeError, match=f"{folders[1]} contains the metadata log"):
        node.start({"metadata.log.dir": str(metadata)})


def test_a_node_does_not_start_without_a_folder_for_partitions_though_its_metadata_log_is_well(
    node: Node, folders: list[Path]
) -> None:
    node.stop()
    for folder in folders:
        shutil.rmtree(folder)
        folder.write_text("no folder")
    with pytest.raises(NodeError, match=r"none of the folders in log\.dirs can be used"):
        node.start()


@pytest.mark.kafka
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("apache_kafka_runs")
def test_apache_kafka_reads_and_writes_the_same_folders(
    node: Node, metadata: Path, settings: dict[str, str], topic: str
) -> None:
    client = ConfluentClient(node.bootstrap)
    client.create_topic(topic, partitions=4)
    for partition in range(4):
        client.produce(topic, values(3), partition=partition)
    node.stop()
    with KafkaNode(metadata, properties=settings) as kafka:
        client = ConfluentClient(kafka.bootstrap)
        wait_until(lambda: topic in client.topic_names(), "Kafka has loaded the metadata")
        for partition in range(4):
            assert len(consume(client, topic, 3, partition=partition)) == 3
            client.produce(topic, values(2), partition=partition)
    node.start()
    client = ConfluentClient(node.bootstrap)
    for partition in range(4):
        assert len(consume(client, topic, 5, partition=partition)) == 5
