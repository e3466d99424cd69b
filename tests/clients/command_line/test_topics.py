"""`kafka-topics` on a real node. The expected texts are what Apache Kafka 4.3.1 printed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.clients.command_line.kafka_tool import KafkaTool, run_tool

if TYPE_CHECKING:
    from pathlib import Path

    from tests.peers import Peer

COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both.\n"
)
FOR_CONFIGS = " (To alter topic configurations, the kafka-configs tool can be used.)"
FAILED = "Error while executing topic command : "


@pytest.fixture
def topics(node: Peer, capsys: pytest.CaptureFixture[str]) -> KafkaTool:
    return KafkaTool("kafka-topics", node, capsys)


def test_a_topic_is_created_listed_described_and_deleted(topics: KafkaTool, topic: str) -> None:
    name = f"first_{topic}"

    created = topics.printed("--create", "--topic", name, "--partitions", "3", "--replication-factor", "1")
    assert created == f"{COLLISION_WARNING}Created topic {name}.\n"

    assert name in topics.printed("--list").splitlines()
    described = topics.printed("--describe", "--topic", name)
    assert re.sub(r"TopicId: [\w-]{22}\t", "TopicId: ID\t", described) == (
        f"Topic: {name}\tTopicId: ID\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: min.insync.replicas=1\n"
        f"\tTopic: {name}\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: \n"
        f"\tTopic: {name}\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: \n"
        f"\tTopic: {name}\tPartition: 2\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: \n"
    )

    assert topics.printed("--delete", "--topic", name) == ""
    assert name not in topics.printed("--list").splitlines()


def test_a_topic_that_is_there_is_a_failure_unless_that_is_asked_for(topics: KafkaTool, topic: str) -> None:
    topics.printed("--create", "--topic", topic)

    again = topics("--create", "--topic", topic)
    assert (again.code, again.out) == (1, f"{FAILED}Topic '{topic}' already exists.\n")
    assert topics("--create", "--topic", topic, "--if-not-exists") == (0, "", "")


def test_a_topic_that_is_not_there_is_a_failure_unless_that_is_asked_for(topics: KafkaTool, topic: str) -> None:
    for action in (["--describe"], ["--delete"], ["--alter", "--partitions", "2"]):
        missing = topics(*action, "--topic", topic)
        assert (missing.code, missing.out) == (1, f"{FAILED}Topic '{topic}' does not exist as expected\n")
        assert topics(*action, "--topic", topic, "--if-exists") == (0, "", "")


def test_settings_are_shown_as_configs_in_the_order_of_javas_tables(topics: KafkaTool, topic: str) -> None:
    settings = ["retention.ms=6", "segment.ms=7", "max.message.bytes=9", "segment.index.bytes=4096", "flush.ms=8"]
    topics.printed("--create", "--topic", topic, *(word for each in settings for word in ("--config", each)))

    described = topics.printed("--describe", "--topic", topic, "--topics-with-overrides")
    assert described.rpartition("\t")[2] == (
        "Configs: min.insync.replicas=1,flush.ms=8,retention.ms=6,max.message.bytes=9,segment.ms=7,"
        "segment.index.bytes=4096\n"
    )


def test_the_topic_of_committed_offsets_has_its_settings(topics: KafkaTool, node: Peer) -> None:
    from barnabas.client.client_settings import ClientSettings
    from barnabas.client.cluster import Cluster
    from barnabas.client.offset_queries import committed_offsets

    with Cluster.connect(ClientSettings.from_options({"bootstrap.servers": node.bootstrap})) as cluster:
        committed_offsets(cluster, "whoever")  # the first question about a group makes the topic

    described = topics.printed("--describe", "--topic", "__consumer_offsets", "--topics-with-overrides")
    assert "\tPartitionCount: 50\tReplicationFactor: 1\t" in described
    assert described.endswith(
        "Configs: compression.type=producer,min.insync.replicas=1,cleanup.policy=compact,segment.bytes=104857600\n"
    )
    assert "__consumer_offsets" not in topics.printed("--list", "--exclude-internal")


def test_partitions_are_added_but_never_taken_away(topics: KafkaTool, topic: str) -> None:
    topics.printed("--create", "--topic", topic, "--replica-assignment", "1,1")
    assert topics("--alter", "--topic", topic, "--partitions", "3") == (0, "", "")
    assert topics("--alter", "--topic", topic, "--partitions", "4", "--replica-assignment", "1,1,1,1").code == 0

    fewer = topics("--alter", "--topic", topic, "--partitions", "2")
    assert fewer.out == f"{FAILED}The topic {topic} currently has 4 partition(s); 2 would not be an increase.\n"
    assert "\tPartitionCount: 4\t" in topics.printed("--describe", "--topic", topic)


def test_a_topic_is_described_by_its_id(topics: KafkaTool, topic: str) -> None:
    topics.printed("--create", "--topic", topic)
    topic_id = topics.printed("--describe", "--topic", topic).split("\t")[1].removeprefix("TopicId: ")

    assert topics.printed("--describe", "--topic-id", topic_id).splitlines() == [
        f"Topic: {topic}\tTopicId: {topic_id}\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: min.insync.replicas=1",
        f"\tTopic: {topic}\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: N/A\tLastKnownElr: N/A",
    ]
    unknown = "AAAAAAAAAAAAAAAAAAAAAQ"
    assert (
        topics("--describe", "--topic-id", unknown).out == f"{FAILED}TopicId '{unknown}' does not exist as expected\n"
    )
    assert topics("--describe", "--topic-id", "short").out == f"{FAILED}Last unit does not have enough valid bits\n"


def test_topics_come_in_the_order_of_javas_tables(topics: KafkaTool) -> None:
    for name in ("first_topic", "other.topic", "plain"):
        topics.printed("--create", "--topic", name)

    shown = topics.printed("--describe", "--topics-with-overrides", "--topic", "first_topic,other.topic,plain")
    assert re.findall(r"Topic: (\S+)", shown) == ["other.topic", "first_topic", "plain"]
    topics.printed("--delete", "--topic", "first_topic|other.topic|plain")


def test_only_partitions_that_need_a_look_are_shown_where_that_is_asked_for(topics: KafkaTool, topic: str) -> None:
    topics.printed("--create", "--topic", topic)
    for report in ("under-replicated-partitions", "unavailable-partitions", "under-min-isr-partitions"):
        assert topics.printed("--describe", "--topic", topic, f"--{report}") == ""
    at_minimum = topics.printed("--describe", "--topic", topic, "--at-min-isr-partitions", "--unavailable-partitions")
    assert at_minimum == f"\tTopic: {topic}\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: \n"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--partitions", "0"], "The partitions must be greater than 0"),
        (["--replication-factor", "40000"], "The replication factor must be between 1 and 32767 inclusive"),
        (["--partitions", "x"], "Cannot parse argument 'x' of option partitions"),
        (["--topic", "y"], "Found multiple arguments for option topic, but you asked for only one"),
        (
            ["--replica-assignment", "1:1"],
            "Partition replica lists may not contain duplicate entries: 1",
        ),
        (["--replica-assignment", "1:2,1"], "Partition 1 has different replication factor: [1]"),
        (["--replica-assignment", "x"], 'For input string: "x"'),
        (
            ["--replica-assignment", "9"],
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            ["--config", "retention.ms="],
            'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".',
        ),
        (["--config", "foo=bar"], "Unknown topic config name: foo"),
        (["--config", "retention.ms=x"], "Invalid value x for configuration retention.ms: Not a number of type LONG"),
    ],
)
def test_what_a_topic_cannot_be_is_said_on_standard_output(
    topics: KafkaTool, topic: str, words: list[str], reason: str
) -> None:
    refused = topics("--create", "--topic", topic, *words)
    assert (refused.code, refused.out) == (1, f"{FAILED}{reason}\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "Command must include exactly one action: --list, --describe, --create, --alter or --delete"),
        (["--create"], 'Missing required argument "[topic]"'),
        (["--alter", "--topic", "x"], 'Missing required argument "[partitions]"'),
        (["--describe", "--if-exists"], "--topic or --topic-id is required to describe a topic"),
        (["--list", "--if-not-exists"], 'Option "[if-not-exists]" can\'t be used with option "[list]"'),
        (
            ["--create", "--topic", "x", "--replica-assignment", "1", "--partitions", "1"],
            'Option "[replica-assignment]" can\'t be used with option "[partitions]"',
        ),
        (
            ["--alter", "--topic", "x", "--config", "a=b"],
            'Option combination "[[bootstrap-server], [config]]" can\'t be used with option "[alter]"' + FOR_CONFIGS,
        ),
        (["--list", "--command-config", "/nonexistent"], "/nonexistent"),
    ],
)
def test_flags_that_make_no_sense_together_are_refused(topics: KafkaTool, words: list[str], complaint: str) -> None:
    refused = topics(*words)
    assert (refused.code, refused.out, refused.complaint) == (1, "", complaint)


def test_a_cluster_that_is_not_there_is_said_to_be_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hurried = tmp_path / "client.properties"
    hurried.write_text("default.api.timeout.ms=50\nrequest.timeout.ms=50\n")

    words = ["kafka-topics", "--list", "--command-config", str(hurried), "--bootstrap-server"]
    silent = run_tool(capsys, *words, "127.0.0.1:1")
    assert (silent.code, silent.out) == (
        1,
        f"{FAILED}Timed out waiting for a node assignment. Call: listTopics\n",
    )
    assert "is the broker running" in silent.err
    nowhere = run_tool(capsys, *words, "nonsense")
    assert (nowhere.code, nowhere.complaint) == (1, "Failed to create new KafkaAdminClient")


def test_flags_of_older_tools_do_what_they_did(
    node: Peer, topic: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.cli.kafka.older_flags.LOCAL_NODE", node.bootstrap)
    words = ["--topic", topic, "--create", "--partitions", "3", "--replication-factor", "1"]
    created = run_tool(capsys, "kafka-topics", "--zookeeper", "0.0.0.0:2181", *words)
    assert (created.code, created.out) == (0, f"Created topic {topic}.\n")
    assert "there is no ZooKeeper any more" in created.err
    assert topic in run_tool(capsys, "kafka-topics.sh", "--broker-list", node.bootstrap, "--list").lines
