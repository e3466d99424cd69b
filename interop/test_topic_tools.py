"""Kafka's tools that make, fill, read and describe topics."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.api import APIS, ApiKey

if TYPE_CHECKING:
    from interop.kafka_tools import KafkaTools


@pytest.fixture
def made_topic(tools: KafkaTools, topic: str) -> str:
    tools.run("kafka-topics", "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=86400000")
    return topic


def json_lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_kafka_topics_makes_describes_enlarges_and_deletes(tools: KafkaTools, made_topic: str) -> None:
    assert made_topic in tools.run("kafka-topics", "--list").splitlines()
    tools.run("kafka-topics", "--alter", "--topic", made_topic, "--partitions", "3")
    described = tools.run("kafka-topics", "--describe", "--topic", made_topic)
    assert re.search(rf"Topic: {made_topic}\tTopicId: \S{{22}}\tPartitionCount: 3\tReplicationFactor: 1", described)
    assert "retention.ms=86400000" in described
    assert re.search(rf"Topic: {made_topic}\tPartition: 2\tLeader: 1\tReplicas: 1\tIsr: 1\t", described)
    again = tools.attempt("kafka-topics", "--create", "--topic", made_topic)
    assert again.returncode == 1
    assert f"Topic '{made_topic}' already exists." in again.stdout
    tools.run("kafka-topics", "--delete", "--topic", made_topic)
    gone = tools.attempt("kafka-topics", "--describe", "--topic", made_topic)
    assert f"Topic '{made_topic}' does not exist as expected" in gone.stdout


def test_kafka_configs_describes_and_changes_topics_and_brokers(tools: KafkaTools, made_topic: str) -> None:
    of_topic = ("--entity-type", "topics", "--entity-name", made_topic)
    tools.run("kafka-configs", *of_topic, "--alter", "--add-config", "retention.ms=1000000,segment.bytes=1048576")
    tools.run("kafka-configs", *of_topic, "--alter", "--delete-config", "segment.bytes")
    described = tools.run("kafka-configs", *of_topic, "--describe")
    assert "retention.ms=1000000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000000}" in described
    assert "segment.bytes" not in described
    of_broker = ("--entity-type", "brokers", "--entity-name", "1")
    tools.run("kafka-configs", *of_broker, "--alter", "--add-config", "log.cleaner.threads=2")
    described = tools.run("kafka-configs", *of_broker, "--describe")
    assert "log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2" in described
    tools.run("kafka-configs", *of_broker, "--alter", "--delete-config", "log.cleaner.threads")


def test_console_producer_and_consumer_move_lines(tools: KafkaTools, made_topic: str) -> None:
    lines = [f"key-{i}:line {i}" for i in range(50)]
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tools.run("kafka-console-producer", "--topic", made_topic, *keyed, input="\n".join(lines))
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
    read = ("--from-beginning", "--max-messages", "50")
    assert sorted(tools.run("kafka-console-consumer", "--topic", made_topic, *read, *shown).splitlines()) == sorted(
        lines
    )


def test_kafka_get_offsets_tells_the_ends_of_what_the_performance_test_wrote(
    tools: KafkaTools, made_topic: str
) -> None:
    load = ("--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    printed = tools.run("kafka-producer-perf-test", "--topic", made_topic, *load)
    assert printed.splitlines()[-1].startswith("20000 records sent")
    ends = dict(re.findall(rf"{made_topic}:(\d):(\d+)", tools.run("kafka-get-offsets", "--topic", made_topic)))
    assert sum(map(int, ends.values())) == 20_000
    starts = tools.run("kafka-get-offsets", "--topic", made_topic, "--time", "earliest")
    assert starts.split() == [f"{made_topic}:0:0", f"{made_topic}:1:0"]


def test_kafka_broker_api_versions_finds_every_api_usable(tools: KafkaTools) -> None:
    usable = re.findall(
        r"^\t(\w+)\((\d+)\): .* \[usable: (\d+)\]", tools.run("kafka-broker-api-versions"), re.MULTILINE
    )
    versions = {int(key): int(version) for _, key, version in usable}
    for key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.END_TXN):
        assert versions[key] == APIS[key].max_version


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_verifiable_consumer_gets_what_the_verifiable_producer_sent(
    tools: KafkaTools, made_topic: str, group: str, protocol: str
) -> None:
    sent = json_lines(tools.run("kafka-verifiable-producer", "--topic", made_topic, "--max-messages", "200"))
    assert [each["value"] for each in sent if each["name"] == "producer_send_success"] == [str(i) for i in range(200)]
    assert (sent[-1]["sent"], sent[-1]["acked"]) == (200, 200)
    options = ("--topic", made_topic, "--group-id", group, "--group-protocol", protocol, "--reset-policy", "earliest")
    received = json_lines(tools.run("kafka-verifiable-consumer", *options, "--max-messages", "200", "--verbose"))
    values = [str(each["value"]) for each in received if each["name"] == "record_data"]
    assert sorted(values, key=int) == [str(i) for i in range(200)]
    commits = [each for each in received if each["name"] == "offsets_committed"]
    assert commits
    assert all(each["success"] for each in commits)
