"""The controller's folder in Apache Kafka's hands, and Kafka's in the controller's."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tools import apache_kafka

from barnabas.log.folder.meta_properties import MetaProperties, write_meta_properties
from barnabas.metadata.image import ConfigOperation
from barnabas.ports import SystemDisk
from barnabas.protocol import messages as m
from barnabas.protocol.uuids import from_text, to_text
from barnabas.raft.folder.metadata_log import metadata_folder
from tests.peers import wait_until
from tests.unit.controller.cluster import CLUSTER_ID
from tests.unit.controller.nodes import DIRECTORY, QUIET, format_folder, join, running

if TYPE_CHECKING:
    from barnabas.metadata.image import MetadataImage

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("apache_kafka_runs")]

TOPICS = ("alpha", "beta.gamma")


async def write_folder(folder: Path) -> MetadataImage:
    """A folder with topics and settings, whose log begins with a snapshot, stopped cleanly."""
    disk = SystemDisk()
    format_folder(disk, str(folder))
    write_meta_properties(disk, str(folder), MetaProperties(CLUSTER_ID, 1, DIRECTORY))
    for limits in (QUIET._replace(snapshot_bytes=500, retention_bytes=1), QUIET):
        async with running(disk, str(folder), limits=limits) as node:
            lifecycle = node.lifecycle()
            await join(lifecycle)
            for name in TOPICS:
                await node.create_topic(name, 3)
            request = m.IncrementalAlterConfigsRequest
            config = request.AlterableConfig(name="retention.ms", config_operation=ConfigOperation.SET, value="123456")
            resource = request.AlterConfigsResource(resource_type=2, resource_name=TOPICS[0], configs=[config])
            await node.channel.send(request(resources=[resource]))
            await node.channel.send(m.AllocateProducerIdsRequest(broker_id=1, broker_epoch=lifecycle.epoch))
            await lifecycle.stop()
    return node.image


def test_kafkas_tools_read_the_log_and_the_snapshots_without_complaint(tmp_path: Path) -> None:
    asyncio.run(write_folder(tmp_path))
    folder = Path(metadata_folder(str(tmp_path)))
    snapshots, segments = sorted(folder.glob("*.checkpoint")), sorted(folder.glob("*.log"))
    assert int(snapshots[-1].name[:20]) >= int(segments[0].stem) > 0
    dumped = apache_kafka.dump_log(*segments, *snapshots, cluster_metadata=True)
    assert "isvalid: false" not in dumped
    assert not re.search(r"(?i)exception|could not|error at|skipped", dumped)
    for expected in ('"name":"alpha"', "SnapshotFooter", "KRaftVoters", "LeaderChange", "PRODUCER_IDS_RECORD"):
        assert expected in dumped
    # The shell runs its command as soon as it has read the snapshot, which may be before it shows what it has read.
    wait_until(
        lambda: topics_in_shell(snapshots[-1]) == list(TOPICS), "Kafka's shell lists the topics", deadline_s=90.0
    )


def topics_in_shell(snapshot: Path) -> list[str]:
    shell = "org.apache.kafka.shell.MetadataShell"
    shown = apache_kafka.run_tool(shell, "--snapshot", str(snapshot), "ls", "/image/topics/byName")
    assert shown.returncode == 0, shown
    return shown.stdout.split()


def test_apache_kafka_starts_on_a_cleanly_stopped_folder_and_what_it_writes_is_read_back(tmp_path: Path) -> None:
    ours = asyncio.run(write_folder(tmp_path))
    with apache_kafka.KafkaNode(tmp_path) as kafka:
        command = ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", kafka.bootstrap)
        listed = apache_kafka.run_tool(*command, "--describe").stdout
        made = ("--create", "--topic", "made.by.kafka", "--partitions", "4", "--config", "segment.ms=777777")
        apache_kafka.run_tool(*command, *made)
        described = apache_kafka.run_tool(*command, "--describe", "--topic", "made.by.kafka").stdout
        kafka.stop()
    for topic in ours.topics:
        assert f"TopicId: {to_text(topic.topic_id)}\tPartitionCount: 3\tReplicationFactor: 1" in listed
    assert "retention.ms=123456" in listed
    assert listed.count("Leader: 1") == 6

    theirs = asyncio.run(image_of_a_start(tmp_path))
    assert {topic.name for topic in theirs.topics} == {*TOPICS, "made.by.kafka"}
    made_by_kafka = theirs.topics.get("made.by.kafka")
    assert made_by_kafka is not None
    assert made_by_kafka.topic_id == from_text(described.split("TopicId: ")[1][:22])
    assert len(made_by_kafka.partitions) == 4
    assert all(partition.directories == (DIRECTORY,) for partition in made_by_kafka.partitions)
    assert theirs.configs.of_topic("made.by.kafka") == {"segment.ms": "777777"}
    assert theirs.configs.of_topic(TOPICS[0]) == ours.configs.of_topic(TOPICS[0])
    assert theirs.features == ours.features
    assert theirs.next_producer_id >= ours.next_producer_id


async def image_of_a_start(folder: Path) -> MetadataImage:
    async with running(SystemDisk(), str(folder)) as node:
        return node.image
