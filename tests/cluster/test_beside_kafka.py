"""Brokers and controllers of Apache Kafka in one cluster with ours: each forwards to the other's controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tools.apache_kafka import KafkaNode

from barnabas.config.properties import format_properties
from barnabas.log.folder.meta_properties import read_meta_properties
from barnabas.ports import SystemDisk
from tests.cluster.clusters import (
    DEADLINE_S,
    QUICK,
    consume,
    create_topic,
    format_folder,
    produce,
    topics,
    wait_until,
)
from tests.nodes import Cluster, Node

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("apache_kafka_runs"), pytest.mark.timeout(120)]


def test_a_broker_of_kafka_joins_our_quorum_and_has_topics_created(tmp_path: Path) -> None:
    with Cluster(tmp_path / "ours", settings=QUICK) as cluster:
        servers = ",".join(f"127.0.0.1:{voter.port}" for voter in cluster.layout.voters)
        kafka = KafkaNode(tmp_path / "kafka")
        kafka.properties |= {
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://127.0.0.1:{kafka.port}",
            "controller.quorum.bootstrap.servers": servers,
        }
        config = tmp_path / "kafka.properties"
        settings = {**kafka.properties, "node.id": "10", "log.dirs": str(tmp_path / "kafka")}
        config.write_text(format_properties({**settings, "controller.listener.names": "CONTROLLER"}))
        format_folder(config, cluster.layout.cluster_id, "--no-initial-controllers")
        with kafka:
            client = client_of(kafka.bootstrap)
            create_topic(client, "through-kafka", 8)
            wait_until(lambda: topics(client).get("through-kafka") == 8, "the topic on Kafka's broker")
            wait_until(lambda: topics(client_of(cluster[1].bootstrap)).get("through-kafka") == 8, "the topic on ours")
            leaders = leaders_of(client, "through-kafka")
            assert 10 in leaders
            ours = next(leader for leader in leaders if leader != 10)
            for partition in (leaders.index(10), leaders.index(ours)):
                produce(cluster[2].bootstrap, "through-kafka", [b"one", b"two"], partition)
                assert consume(kafka.bootstrap, "through-kafka", 2, partition) == [b"one", b"two"]
            kafka.stop()
            # Its coordinator may be stopped while it loads the partitions of groups, and calls that an error.
            complaints = [
                line for line in kafka.log.splitlines() if "ERROR" in line and "CoordinatorRuntime" not in line
            ]
            assert complaints == [], kafka.log


def test_our_broker_joins_kafkas_quorum_and_has_topics_created(tmp_path: Path) -> None:
    with KafkaNode(tmp_path / "kafka") as kafka:
        meta = read_meta_properties(SystemDisk(), str(tmp_path / "kafka"))
        assert meta is not None
        config = tmp_path / "ours.properties"
        settings = {
            "process.roles": "broker",
            "node.id": "10",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{kafka.controller_port}",
            "log.dirs": str(tmp_path / "ours"),
            **QUICK,
        }
        config.write_text(format_properties(settings))
        format_folder(config, meta.cluster_id, "--no-initial-controllers")
        with Node(tmp_path / "ours", config_file=config) as node:
            client = client_of(node.bootstrap)
            create_topic(client, "through-ours", 4)
            assert topics(client)["through-ours"] == 4
            leaders = leaders_of(client, "through-ours")
            theirs = next(leader for leader in leaders if leader != 10)
            for partition in (leaders.index(10), leaders.index(theirs)):
                produce(kafka.bootstrap, "through-ours", [b"one", b"two"], partition)
                assert consume(node.bootstrap, "through-ours", 2, partition) == [b"one", b"two"]
            with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
                create_topic(client, "through-ours", 4)
            client.delete_topics(["through-ours"])["through-ours"].result(DEADLINE_S)
            assert "through-ours" not in topics(client)


def client_of(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def leaders_of(client: AdminClient, topic: str) -> list[int]:
    """The leader of each partition."""
    partitions = client.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
    return [partitions[number].leader for number in sorted(partitions)]
