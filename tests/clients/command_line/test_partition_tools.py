"""`kafka-get-offsets`, `-delete-records`, `-log-dirs` and `-replica-verification` on a real node, as Kafka's print."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.clients.adapter import Message
from tests.clients.command_line.kafka_tool import KafkaTool, run_tool
from tests.clients.with_confluent import ConfluentClient

if TYPE_CHECKING:
    from pathlib import Path

    from tests.peers import Peer

DEADLINE_S = 30


@pytest.fixture
def filled(node: Peer, topic: str) -> str:
    """A topic of two partitions with five records, all in the first."""
    client = ConfluentClient(node.bootstrap)
    client.create_topic(topic, partitions=2)
    client.produce(topic, [Message(b"value %d" % number) for number in range(5)], partition=0)
    return topic


@pytest.fixture
def offsets(node: Peer, capsys: pytest.CaptureFixture[str]) -> KafkaTool:
    return KafkaTool("kafka-get-offsets", node, capsys)


def test_ends_and_starts_of_partitions_are_shown(offsets: KafkaTool, filled: str) -> None:
    assert offsets.printed("--topic", filled) == f"{filled}:0:5\n{filled}:1:0\n"
    assert offsets.printed("--topic", filled, "--time", "earliest") == f"{filled}:0:0\n{filled}:1:0\n"
    assert offsets.printed("--topic-partitions", f"{filled}:0-1", "--time", "-1") == f"{filled}:0:5\n"
    assert offsets.printed("--topic", filled, "--time", "1") == f"{filled}:0:0\n"


def test_the_class_that_tutorials_name_does_the_same(
    node: Peer, filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for class_name in ("kafka.tools.GetOffsetShell", "org.apache.kafka.tools.GetOffsetShell"):
        words = ("--broker-list", node.bootstrap, "--topic", filled, "--time", "-1", "--offsets", "1")
        done = run_tool(capsys, "kafka-run-class", class_name, *words)
        assert (done.code, done.out) == (0, f"{filled}:0:5\n{filled}:1:0\n")


def test_what_matches_nothing_or_makes_no_sense_is_a_failure(offsets: KafkaTool, filled: str) -> None:
    expected = {
        ("--topic", "none"): "Could not match any topic-partitions with the specified filters",
        ("--topic", filled, "--partitions", "x"): (
            "--partitions expects a comma separated list of numeric partition ids, but received: x"
        ),
        ("--topic", filled, "--topic-partitions", filled): (
            "--topic-partitions cannot be used with --topic or --partitions"
        ),
        ("--topic-partitions", "a:0:1"): ("org.apache.kafka.tools.TerseException: Invalid rule specification: a:0:1"),
        ("--nonsense",): "nonsense is not a recognized option",
    }
    for words, complaint in expected.items():
        done = offsets(*words)
        assert (done.code, done.out, done.err) == (1, "", f"Error occurred: {complaint}\n")


def test_the_oldest_records_are_deleted_up_to_the_offsets_in_a_file(
    node: Peer, offsets: KafkaTool, filled: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deleting = KafkaTool("kafka-delete-records", node, capsys)
    file = tmp_path / "offsets.json"
    wanted = [{"topic": filled, "partition": 0, "offset": 3}, {"topic": filled, "partition": 1, "offset": 7}]
    file.write_text(json.dumps({"partitions": wanted, "version": 1}))
    assert deleting.printed("--offset-json-file", str(file)) == (
        "Executing records delete operation\nRecords delete operation completed:\n"
        f"partition: {filled}-0\tlow_watermark: 3\n"
        f"partition: {filled}-1\terror: org.apache.kafka.common.errors.OffsetOutOfRangeException: "
        "The requested offset is not within the range of offsets maintained by the server.\n"
    )
    assert offsets.printed("--topic", filled, "--time", "-2") == f"{filled}:0:3\n{filled}:1:0\n"

    file.write_text("offsets")
    refused = deleting("--offset-json-file", str(file))
    assert (refused.code, refused.err) == (1, "The input string is not a valid JSON\n")


def test_a_partition_that_is_not_there_does_not_keep_others_from_being_cut(
    node: Peer, filled: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "offsets.json"
    wanted = [{"topic": filled, "partition": 9, "offset": 3}, {"topic": filled, "partition": 0, "offset": -1}]
    file.write_text(json.dumps({"partitions": wanted}))
    printed = KafkaTool("kafka-delete-records", node, capsys).printed("--offset-json-file", str(file))
    assert printed.endswith(
        f"partition: {filled}-9\terror: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: "
        f"This server does not host this topic-partition.\npartition: {filled}-0\tlow_watermark: 5\n"
    )


def test_folders_are_shown_with_what_is_in_them(node: Peer, filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    folders = KafkaTool("kafka-log-dirs", node, capsys)
    *told, shown = folders.printed("--describe", "--topic-list", filled, "--broker-list", "1").splitlines()
    assert told == [
        "Querying brokers for log directories information",
        "Received log directory information from brokers 1",
    ]
    (broker,) = json.loads(shown)["brokers"]
    (folder,) = broker["logDirs"]
    assert (broker["broker"], folder["logDir"], folder["error"]) == (1, str(node.data_dir), None)
    sizes = {each["partition"]: each["size"] for each in folder["partitions"]}
    assert sizes.keys() == {f"{filled}-0", f"{filled}-1"}
    assert sizes[f"{filled}-0"] > sizes[f"{filled}-1"] == 0

    unknown = folders("--describe", "--broker-list", "1,7")
    assert (unknown.code, unknown.err) == (
        1,
        "ERROR: The given brokers do not exist from --broker-list: 7. Current existent brokers: 1\n",
    )


def test_replicas_are_compared_until_somebody_ends_it(
    node: Peer, filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--broker-list", node.bootstrap, "--topics-include", filled, "--time", "-2", "--max-wait-ms", "10"]
    tool = [sys.executable, "-m", "barnabas", "kafka", "replica-verification", *words, "--report-interval-ms", "1"]
    with subprocess.Popen(tool, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        started, report = running.stdout.readline(), running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, complaint = running.communicate(timeout=DEADLINE_S)
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}: "
    assert re.fullmatch(rf"{moment}verification process is started\n", started)
    # Up to five records, though the partition with the largest name may be the other one.
    assert re.fullmatch(
        rf"{moment}max lag is 0 for partition {filled}-[01] at offset [05] among 2 partitions\n", report
    )
    assert "Traceback" not in complaint

    none = run_tool(capsys, "kafka-replica-verification", "--broker-list", node.bootstrap, "--topics-include", "none")
    assert none.code == 1
    assert none.err.splitlines()[-1].startswith("No topics found.")
