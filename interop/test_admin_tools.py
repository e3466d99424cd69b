"""Kafka's tools that look after brokers: folders, records that are to go, features, quotas, loggers, moves."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from tests.clients.adapter import ProducerOptions, values
from tests.clients.with_confluent import ConfluentClient
from tests.peers import running, wait_until
from tools import apache_kafka

from interop.conftest import SETTINGS
from interop.kafka_tools import KafkaTools

if TYPE_CHECKING:
    from pathlib import Path

    from tests.peers import Peer, PeerKind


@pytest.fixture
def filled(tools: KafkaTools, topic: str) -> str:
    """A topic whose only partition has ten records."""
    client = ConfluentClient(tools.bootstrap)
    client.create_topic(topic)
    client.produce(topic, values(10))
    return topic


def test_kafka_log_dirs_shows_where_partitions_are(tools: KafkaTools, peer: Peer, filled: str) -> None:
    printed = tools.run("kafka-log-dirs", "--describe", "--topic-list", filled)
    (broker,) = json.loads(printed.splitlines()[-1])["brokers"]
    (folder,) = broker["logDirs"]
    assert (broker["broker"], folder["logDir"], folder["error"]) == (1, str(peer.data_dir), None)
    (partition,) = folder["partitions"]
    assert partition["partition"] == f"{filled}-0"
    assert (partition["size"] > 0, partition["offsetLag"], partition["isFuture"]) == (True, 0, False)


def test_kafka_reassign_partitions_moves_a_replica_to_another_folder(
    request: pytest.FixtureRequest, topic: str, tmp_path: Path
) -> None:
    folders = [str(tmp_path / name) for name in ("one", "two")]
    kind: PeerKind = request.config.getoption("--peer")
    with running(kind, tmp_path, SETTINGS | {"log.dirs": ",".join(folders)}) as two_folders:
        tools = KafkaTools(two_folders.bootstrap)
        client = ConfluentClient(tools.bootstrap)
        client.create_topic(topic)
        client.produce(topic, values(10))

        def home() -> str:
            described = json.loads(tools.run("kafka-log-dirs", "--describe", "--topic-list", topic).splitlines()[-1])
            (broker,) = described["brokers"]
            (found,) = (each["logDir"] for each in broker["logDirs"] if each["partitions"])
            return str(found)

        (target,) = {*folders} - {home()}
        plan = tmp_path / "plan.json"
        moved = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [target]}
        plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
        of_plan = ("--reassignment-json-file", str(plan))
        throttle = ("--replica-alter-log-dirs-throttle", "10000000")
        started = tools.run("kafka-reassign-partitions", *of_plan, "--execute", *throttle)
        assert f"Successfully started moving log directory to {target} for replica {topic}-0 with broker 1" in started
        completed = f"Reassignment of replica {topic}-0-1 completed successfully."
        wait_until(
            lambda: completed in tools.run("kafka-reassign-partitions", *of_plan, "--verify"), "the move is completed"
        )
        assert home() == target
        assert client.offset_range(topic) == (0, 10)


def test_kafka_dump_log_reads_what_was_compressed_anew(tools: KafkaTools, peer: Peer, topic: str) -> None:
    client = ConfluentClient(tools.bootstrap)
    client.create_topic(topic, config={"compression.type": "zstd"})
    client.produce(topic, values(10), options=ProducerOptions(codec="lz4", linger_ms=100))
    dumped = apache_kafka.dump_log(peer.data_dir / f"{topic}-0" / f"{0:020}.log")
    assert set(re.findall(r"compresscodec: (\w+) .*isvalid: (\w+)", dumped)) == {("zstd", "true")}
    assert len(re.findall(r"\| offset: ", dumped)) == 10


def test_kafka_delete_records_deletes_up_to_an_offset(tools: KafkaTools, filled: str, tmp_path: Path) -> None:
    offsets = tmp_path / "offsets.json"
    wanted = {"partitions": [{"topic": filled, "partition": 0, "offset": 4}], "version": 1}
    offsets.write_text(json.dumps(wanted))
    printed = tools.run("kafka-delete-records", "--offset-json-file", str(offsets))
    assert f"partition: {filled}-0\tlow_watermark: 4" in printed
    assert ConfluentClient(tools.bootstrap).offset_range(filled) == (4, 10)


def test_kafka_features_describes_lowers_and_raises(tools: KafkaTools) -> None:
    described = tools.run("kafka-features", "describe")
    assert re.search(
        r"Feature: metadata.version\s+SupportedMinVersion: 3.3-IV3\s+.*FinalizedVersionLevel: 4.3-IV0", described
    )
    assert "was downgraded" in tools.run("kafka-features", "downgrade", "--feature", "streams.version=0")
    assert "was upgraded" in tools.run("kafka-features", "upgrade", "--feature", "streams.version=1")
    refused = tools.attempt("kafka-features", "upgrade", "--feature", "streams.version=7")
    assert refused.returncode == 1
    assert "only supports versions 0-1" in refused.stdout + refused.stderr


def test_kafka_configs_sets_quotas_of_users_and_clients(tools: KafkaTools, topic: str) -> None:
    of_both = ("--entity-type", "users", "--entity-name", topic, "--entity-type", "clients", "--entity-name", "c")
    tools.run("kafka-configs", "--alter", *of_both, "--add-config", "producer_byte_rate=1024,request_percentage=50")
    described = tools.run("kafka-configs", "--describe", *of_both)
    assert "producer_byte_rate=1024.0" in described
    tools.run("kafka-configs", "--alter", *of_both, "--delete-config", "producer_byte_rate")
    described = tools.run("kafka-configs", "--describe", *of_both)
    assert "producer_byte_rate" not in described
    assert "request_percentage=50.0" in described


def test_kafka_configs_sets_the_levels_of_loggers(tools: KafkaTools, request: pytest.FixtureRequest) -> None:
    kind: PeerKind = request.config.getoption("--peer")
    logger = "kafka.server.KafkaApis" if kind == "kafka" else "barnabas.broker"
    of_broker = ("--entity-type", "broker-loggers", "--entity-name", "1")
    tools.run("kafka-configs", "--alter", *of_broker, "--add-config", f"{logger}=DEBUG")
    assert f"{logger}=DEBUG" in tools.run("kafka-configs", "--describe", *of_broker)
    tools.run("kafka-configs", "--alter", *of_broker, "--delete-config", logger)
    assert f"{logger}=DEBUG" not in tools.run("kafka-configs", "--describe", *of_broker)


def test_kafka_client_metrics_stores_subscriptions(tools: KafkaTools, topic: str) -> None:
    tools.run(
        "kafka-client-metrics", "--alter", "--name", topic, "--metrics", "org.apache.kafka.", "--interval", "5000"
    )
    described = tools.run("kafka-client-metrics", "--describe", "--name", topic)
    assert "interval.ms=5000" in described
    assert "metrics=org.apache.kafka." in described
    assert topic in tools.run("kafka-client-metrics", "--list").split()
    tools.run("kafka-client-metrics", "--delete", "--name", topic)
    assert topic not in tools.run("kafka-client-metrics", "--list").split()


def test_kafka_reassign_partitions_finds_nothing_to_move_on_one_node(
    tools: KafkaTools, filled: str, tmp_path: Path
) -> None:
    assert "No partition reassignments found." in tools.run("kafka-reassign-partitions", "--list")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": filled, "partition": 0, "replicas": [1]}]}))
    tools.run("kafka-reassign-partitions", "--reassignment-json-file", str(plan), "--execute")
    verified = tools.run("kafka-reassign-partitions", "--reassignment-json-file", str(plan), "--verify")
    assert f"Reassignment of partition {filled}-0 is completed." in verified
