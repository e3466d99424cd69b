"""`kafka-verifiable-producer` and `-consumer` on a real node. The lines are what Apache Kafka 4.3.1 prints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.command_line.kafka_tool import KafkaTool, run_tool

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.with_confluent import ConfluentClient
    from tests.peers import Peer

COMMAND_S = 60


@pytest.fixture
def producer(group_node: Peer, capsys: pytest.CaptureFixture[str]) -> KafkaTool:
    return KafkaTool("kafka-verifiable-producer", group_node, capsys)


@pytest.fixture
def consumer(group_node: Peer, capsys: pytest.CaptureFixture[str]) -> KafkaTool:
    return KafkaTool("kafka-verifiable-consumer", group_node, capsys)


def events(text: str) -> list[dict[str, Any]]:
    """What is on each line, without the time."""
    found = [json.loads(line) for line in text.splitlines()]
    assert all(isinstance(each.pop("timestamp"), int) for each in found)
    return found


def test_the_producer_tells_what_becomes_of_each_number(
    producer: KafkaTool, topic: str, group_confluent: ConfluentClient
) -> None:
    group_confluent.create_topic(topic)
    done = events(
        producer.printed("--topic", topic, "--max-messages", "3", "--repeating-keys", "2", "--value-prefix", "7")
    )
    assert done.pop().pop("avg_throughput") > 0
    assert done == [
        {"name": "startup_complete"},
        *(
            {
                "name": "producer_send_success",
                "key": str(number % 2),
                "value": f"7.{number}",
                "offset": number,
                "topic": topic,
                "partition": 0,
            }
            for number in range(3)
        ),
        {"name": "shutdown_complete"},
    ]  # fmt: skip


def test_the_producer_tells_of_records_that_are_refused(producer: KafkaTool) -> None:
    done = events(producer.printed("--topic", "not a topic", "--max-messages", "1"))
    assert done[1:-1] == [
        {
            "name": "producer_send_error",
            "topic": "not a topic",
            "key": None,
            "value": "0",
            "exception": "class org.apache.kafka.common.errors.InvalidTopicException",
            "message": "Invalid topics: [not a topic]",
        },
        {"name": "shutdown_complete"},
    ]
    assert (done[-1]["sent"], done[-1]["acked"]) == (1, 0)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_consumer_tells_what_it_is_given_reads_and_commits(
    producer: KafkaTool, consumer: KafkaTool, topic: str, group: str, protocol: str, group_confluent: ConfluentClient
) -> None:
    group_confluent.create_topic(topic)
    producer.printed("--topic", topic, "--max-messages", "5")
    done = events(
        consumer.printed(
            *("--topic", topic, "--group-id", group, "--group-protocol", protocol, "--max-messages", "4", "--verbose")
        )
    )
    place = {"topic": topic, "partition": 0}
    names = [each["name"] for each in done]
    assert names[:2] == ["startup_complete", "partitions_assigned"]
    assert names[-3:] == ["partitions_revoked", "shutdown_complete", "shutdown_requested"]
    assert done[1]["partitions"] == [place]
    records = [each for each in done if each["name"] == "record_data"]
    assert records == [
        {"name": "record_data", "key": None, "value": str(number), **place, "offset": number} for number in range(4)
    ]
    last = [each for each in done if each["name"] == "records_consumed"][-1]
    assert last["partitions"][-1]["maxOffset"] == 3
    commits = [each for each in done if each["name"] == "offsets_committed"]
    assert commits[-1] == {"name": "offsets_committed", "offsets": [{**place, "offset": 4}], "success": True}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_producer_that_is_ended_tells_what_it_did(group_node: Peer, topic: str, number: signal.Signals) -> None:
    words = ["kafka", "kafka-verifiable-producer", "--bootstrap-server", group_node.bootstrap, "--topic", topic]
    with subprocess.Popen(
        [sys.executable, "-m", "barnabas", *words, "--throughput", "100"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first = [process.stdout.readline() for _ in range(3)]
        os.kill(process.pid, number)
        rest = process.stdout.read()
        assert process.wait(COMMAND_S) == (143 if number == signal.SIGTERM else 130)
    done = events("".join(first) + rest)
    assert [each["name"] for each in done[-2:]] == ["shutdown_complete", "tool_data"]
    assert done[-1]["sent"] == done[-1]["acked"] == len(done) - 3


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ["--max-messages", "x"],
            "argument --max-messages: could not convert 'x' to Integer (For input string: \"x\")",
        ),
        (["--acks", "5"], "argument --acks: invalid choice: '5' (choose from {0,1,-1})"),
        (["--command-config", "/nonexistent"], "/nonexistent"),
        (["--bogus"], "unrecognized arguments: '--bogus'"),
        (
            ["--command-config", "x", "--producer.config", "x"],
            "Options --producer.config and --command-config are mutually exclusive.",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    producer: KafkaTool, topic: str, words: list[str], complaint: str
) -> None:
    refused = producer("--topic", topic, *words)
    assert (refused.code, refused.out, refused.complaint) == (1, "", f"verifiable-producer: error: {complaint}")


def test_a_consumer_that_cannot_be_is_refused(consumer: KafkaTool, topic: str, group: str) -> None:
    config = "org.apache.kafka.common.config.ConfigException: "
    no_constant = "java.lang.IllegalArgumentException: No enum constant"
    for words, complaint in (
        (["--group-protocol", "foo"], f"{no_constant} org.apache.kafka.clients.consumer.GroupProtocol.FOO"),
        (
            ["--group-protocol", "consumer", "--session-timeout", "7000"],
            f"{config}session.timeout.ms cannot be set when group.protocol=CONSUMER",
        ),
        (
            ["--assignment-strategy", "foo"],
            "org.apache.kafka.common.KafkaException: Failed to construct kafka consumer",
        ),
    ):
        refused = consumer("--topic", topic, "--group-id", group, *words)
        assert (refused.code, refused.out, refused.complaint) == (1, "", complaint)


def test_servers_that_are_none_are_refused(capsys: pytest.CaptureFixture[str], topic: str) -> None:
    refused = run_tool(capsys, "kafka-verifiable-producer", "--bootstrap-server", "nonsense", "--topic", topic)
    assert (refused.code, refused.out, refused.complaint) == (
        1,
        "",
        "org.apache.kafka.common.KafkaException: Failed to construct kafka producer",
    )


def test_without_arguments_the_help_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert not list(tmp_path.iterdir())
    for tool in ("kafka-verifiable-producer", "kafka-verifiable-consumer"):
        shown = run_tool(capsys, tool)
        assert (shown.code, shown.err) == (0, "")
        assert "--bootstrap-server" in shown.out
        assert run_tool(capsys, tool, "--help").code == 1
