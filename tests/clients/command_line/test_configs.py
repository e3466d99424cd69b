"""`kafka-configs` and `kafka-client-metrics` on a real node. The expected texts are what Apache Kafka 4.3.1 printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.command_line.kafka_tool import KafkaTool, run_tool

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.with_confluent import ConfluentClient
    from tests.peers import Peer

MIN_IN_SYNC = (
    "  min.insync.replicas=2 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:min.insync.replicas=2, "
    "DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=1, DEFAULT_CONFIG:min.insync.replicas=1}"
)


@pytest.fixture
def configs(node: Peer, capsys: pytest.CaptureFixture[str]) -> KafkaTool:
    return KafkaTool("kafka-configs", node, capsys)


@pytest.fixture
def metrics(node: Peer, capsys: pytest.CaptureFixture[str]) -> KafkaTool:
    return KafkaTool("kafka-client-metrics", node, capsys)


@pytest.fixture
def made(confluent: ConfluentClient, topic: str) -> str:
    confluent.create_topic(topic)
    return topic


def test_a_setting_of_a_topic_is_added_described_and_deleted(
    configs: KafkaTool, node: Peer, made: str, capsys: pytest.CaptureFixture[str]
) -> None:
    of_topic = ("--entity-type", "topics", "--entity-name", made)
    assert configs.printed(*of_topic, "--describe") == f"Dynamic configs for topic {made} are:\n"

    added = configs.printed(*of_topic, "--alter", "--add-config", "min.insync.replicas=2")
    assert added == f"Completed updating config for topic {made}.\n"
    assert configs.printed(*of_topic, "--describe") == f"Dynamic configs for topic {made} are:\n{MIN_IN_SYNC}\n"
    topics = KafkaTool("kafka-topics", node, capsys)
    assert "Configs: min.insync.replicas=2\n" in topics.printed("--describe", "--topic", made)

    configs.printed(*of_topic, "--alter", "--delete-config", "min.insync.replicas")
    assert configs.printed("--topic", made, "--describe") == f"Dynamic configs for topic {made} are:\n"


def test_a_value_with_commas_stands_in_brackets(configs: KafkaTool, made: str) -> None:
    configs.printed("--topic", made, "--alter", "--add-config", "cleanup.policy=[compact,delete],segment.ms=5000")
    described = configs.printed("--topic", made, "--describe")
    assert "  cleanup.policy=compact,delete sensitive=false" in described
    assert "  segment.ms=5000 sensitive=false" in described


def test_settings_come_from_a_file(configs: KafkaTool, made: str, tmp_path: Path) -> None:
    file = tmp_path / "topic.properties"
    file.write_text("retention.ms=1000\nsegment.ms = 2000\n")
    configs.printed("--topic", made, "--alter", "--add-config-file", str(file))
    assert "  retention.ms=1000 " in configs.printed("--topic", made, "--describe")


def test_all_settings_of_a_topic_are_shown(configs: KafkaTool, made: str) -> None:
    heading, *lines = configs.printed("--topic", made, "--describe", "--all").splitlines()
    assert heading == f"All configs for topic {made} are:"
    names = [line.strip().partition("=")[0] for line in lines]
    assert names == sorted(names)
    assert "  retention.ms=604800000 sensitive=false synonyms={}" in lines


def test_brokers_and_their_defaults_have_settings(configs: KafkaTool) -> None:
    changed = configs.printed("--broker-defaults", "--alter", "--add-config", "log.cleaner.threads=1")
    assert changed == "Completed updating default config for brokers in the cluster.\n"
    described = configs.printed("--entity-type", "brokers", "--entity-default", "--describe")
    assert described.startswith("Default configs for brokers in the cluster are:\n  log.cleaner.threads=1 ")
    configs.printed("--entity-type", "brokers", "--entity-default", "--alter", "--delete-config", "log.cleaner.threads")
    assert configs.printed("--broker", "1", "--describe") == "Dynamic configs for broker 1 are:\n"


def test_loggers_have_levels(configs: KafkaTool) -> None:
    loggers = configs.printed("--broker-logger", "1", "--describe").splitlines()
    assert loggers[0] == "Dynamic configs for broker-logger 1 are:"
    name = loggers[1].strip().partition("=")[0]
    configs.printed("--broker-logger", "1", "--alter", "--add-config", f"{name}=DEBUG")
    assert f"  {name}=DEBUG sensitive=false synonyms={{}}" in configs.printed("--broker-logger", "1", "--describe")
    configs.printed("--broker-logger", "1", "--alter", "--delete-config", name)
    unknown = configs("--broker-logger", "1", "--alter", "--add-config", "nobody=DEBUG")
    assert (unknown.code, unknown.complaint) == (1, "Invalid broker logger(s): nobody")


def test_users_clients_and_addresses_have_quotas(configs: KafkaTool, topic: str) -> None:
    of_user = ("--entity-type", "users", "--entity-name", topic)
    quotas = "producer_byte_rate=12345678,consumer_byte_rate=1024"
    assert (
        configs.printed(*of_user, "--alter", "--add-config", quotas) == f"Completed updating config for user {topic}.\n"
    )
    of_both = (*of_user, "--entity-type", "clients", "--entity-default")
    configs.printed(*of_both, "--alter", "--add-config", "request_percentage=50.5")

    described = configs(*of_user, "--describe").out
    assert described == (
        f"Quota configs for user-principal '{topic}' are consumer_byte_rate=1024.0, producer_byte_rate=1.2345678E7\n"
    )
    assert configs.printed(*of_both, "--describe") == (
        f"Quota configs for user-principal '{topic}', the default client-id are request_percentage=50.5\n"
    )
    absent = configs(*of_user, "--alter", "--delete-config", "request_percentage")
    assert (absent.code, absent.complaint) == (1, "Invalid config(s): request_percentage")

    configs.printed("--ip", "192.0.2.7", "--alter", "--add-config", "connection_creation_rate=10")
    shown = configs.printed("--entity-type", "ips", "--describe")
    assert "Quota configs for ip '192.0.2.7' are connection_creation_rate=10.0\n" in shown


def test_groups_have_settings(configs: KafkaTool, group: str) -> None:
    missing = configs.printed("--group", group, "--describe")
    assert missing == f"The group '{group}' doesn't exist and doesn't have dynamic config.\n"
    configs.printed("--group", group, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    assert configs.printed("--group", group, "--describe") == (
        f"Dynamic configs for group {group} are:\n  consumer.session.timeout.ms=50000 sensitive=false synonyms="
        "{DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000, "
        "DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000}\n"
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["--topic", "absent", "--add-config", "retention.ms=1"],
            "UnknownTopicOrPartitionException: The topic 'absent' does not exist.",
        ),
        (
            ["--topic", "TOPIC", "--add-config", "foo=1"],
            "InvalidConfigurationException: Unknown topic config name: foo",
        ),
        (
            ["--topic", "TOPIC", "--add-config", "retention.ms=x"],
            "InvalidConfigurationException: Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            ["--user", "u", "--add-config", "producer_byte_rate=-1"],
            "InvalidRequestException: Quota producer_byte_rate must be greater than 0",
        ),
    ],
)
def test_what_the_cluster_refuses_is_said_with_the_command(
    configs: KafkaTool, node: Peer, made: str, words: list[str], reason: str
) -> None:
    words = ["--alter", *(made if word == "TOPIC" else word for word in words)]
    refused = configs(*words)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.splitlines() == [
        f"Error while executing config command with args '--bootstrap-server {node.bootstrap} {' '.join(words)}'",
        f"java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.{reason}",
    ]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "Command must include exactly one action: --describe, --alter"),
        (["--describe"], "At least one entity type must be specified"),
        (
            ["--describe", "--topic", "t", "--broker", "1"],
            "Only 'users' and 'clients' entity types may be specified together",
        ),
        (
            ["--describe", "--topic", "t", "--entity-default"],
            "--entity-{type,name,default} should not be used in conjunction with specific entity flags",
        ),
        (
            ["--describe", "--topic", "t", "--delete-config", "x"],
            'Option "[describe]" can\'t be used with option "[delete-config]"',
        ),
        (
            ["--alter", "--topic", "t"],
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter",
        ),
        (
            ["--alter", "--topic", "t", "--add-config", "retention.ms"],
            (
                "requirement failed: Invalid entity config: all configs to be added must be in the format "
                '"key=val" or  "key=[val1,val2]" to group values which contain commas.'
            ),
        ),
        (
            ["--describe", "--broker", "x"],
            "The entity name for brokers must be a valid integer broker id, but it is: x",
        ),
        (
            ["--alter", "--user", "u", "--add-config", "retention.ms=1"],
            (
                "Only quota and SCRAM credential configs can be added for 'users' using --bootstrap-server. "
                "Unexpected config names: Set(retention.ms)"
            ),
        ),
        (
            ["--alter", "--user", "u", "--add-config", "SCRAM-SHA-256=[iterations=1,password=x]"],
            "Iterations 1 is less than the minimum 4096 required for SCRAM-SHA-256",
        ),
    ],
)
def test_flags_that_make_no_sense_together_are_refused(configs: KafkaTool, words: list[str], complaint: str) -> None:
    refused = configs(*words)
    assert (refused.code, refused.out, refused.complaint) == (1, "", complaint)


def test_the_name_of_a_zookeeper_means_the_node_of_this_machine(
    node: Peer, made: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.cli.kafka.older_flags.LOCAL_NODE", node.bootstrap)
    words = ["--zookeeper", "127.0.0.1:2181", "--entity-type", "topics", "--entity-name", made, "--describe"]
    assert run_tool(capsys, "kafka-configs", *words).out == f"Dynamic configs for topic {made} are:\n"


def test_what_clients_report_is_set_described_and_deleted(metrics: KafkaTool, topic: str) -> None:
    words = ("--metrics", "org.apache.kafka.,a.", "--interval", "5000", "--match", "client_id=x")
    assert metrics.printed("--alter", "--name", topic, *words) == f"Altered client metrics config for {topic}.\n"
    assert sorted(metrics.printed("--describe", "--name", topic).splitlines()) == [
        "  interval.ms=5000",
        "  match=client_id=x",
        "  metrics=org.apache.kafka.,a.",
        f"Client metrics configs for {topic} are:",
    ]
    assert topic in metrics.printed("--list").splitlines()
    assert metrics.printed("--delete", "--name", topic) == f"Deleted client metrics config for {topic}.\n"
    gone = f"The client metric resource {topic} doesn't exist and doesn't have dynamic config.\n"
    assert metrics.printed("--describe", "--name", topic) == gone

    refused = metrics("--alter", "--name", topic, "--interval", "5")
    assert refused.code == 1
    assert refused.out.startswith("Error while executing client metrics command : ")
    assert metrics("--alter").complaint == "One of --name or --generate-name must be specified with --alter."
