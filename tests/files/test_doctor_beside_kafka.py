"""What `barnabas doctor` says of Apache Kafka is what Apache Kafka does: with the file that it writes, and with folders
that are damaged."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tools.apache_kafka import KafkaFailedError, KafkaNode

from barnabas.cli import doctor_command
from tests.clients.adapter import Message, consume, values
from tests.clients.with_confluent import ConfluentClient
from tests.nodes import Node
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.kafka

RECORDS = 20
GARBAGE = b"\xff garbage\n"


@pytest.fixture(scope="module")
def origin(apache_kafka_runs: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("doctor") / "data"
    with Node(path) as node:
        client = ConfluentClient(node.bootstrap)
        client.create_topic("t", partitions=2, config={"retention.ms": "-1"})
        client.produce("t", values(RECORDS), partition=0)
    return path


@pytest.fixture
def folder(origin: Path, tmp_path: Path) -> Path:
    shutil.copytree(origin, tmp_path / "data")
    return tmp_path / "data"


def report_of(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    doctor_command.run(["--data-dir", str(folder), "--json", *words])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.timeout(240)
def test_a_folder_goes_to_kafka_with_one_command_and_comes_back(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    report = report_of(folder, capsys, "--kafka-properties", str(file))
    assert report["opens"] == {"barnabas": "opens", "apache_kafka": "opens"}
    with KafkaNode(folder, config_file=file) as kafka:
        client = ConfluentClient(kafka.bootstrap)
        wait_until(lambda: "t" in client.topic_names(), "Kafka has loaded the metadata")
        received = consume(client, "t", RECORDS, partition=0)
        assert [each.value for each in received] == [each.value for each in values(RECORDS)]
        assert client.produce("t", values(5, prefix="kafka"), partition=0)[0].offset == RECORDS
        client.produce("t", values(3, prefix="kafka"), partition=1)
    assert report_of(folder, capsys, "--deep")["findings"] == []
    with Node(folder) as node:
        client = ConfluentClient(node.bootstrap)
        received = consume(client, "t", RECORDS + 5, partition=0)
        assert [each.value for each in received] == [
            *(each.value for each in values(RECORDS)),
            *(each.value for each in values(5, prefix="kafka")),
        ]
        assert [each.value for each in consume(client, "t", 3, partition=1)] == [
            each.value for each in values(3, prefix="kafka")
        ]
        client.produce("t", values(1))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("end", [KafkaNode.stop, KafkaNode.kill])
def test_nothing_is_found_in_a_compacted_topic_that_kafka_wrote_and_never_cleaned(
    apache_kafka_runs: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], end: Callable[[KafkaNode], None]
) -> None:
    folder = tmp_path / "data"
    with KafkaNode(folder) as kafka:
        client = ConfluentClient(kafka.bootstrap)
        client.create_topic("t", config={"cleanup.policy": "compact"})
        client.produce("t", [Message(b"%d" % number, b"key") for number in range(RECORDS)])
        end(kafka)
    report = report_of(folder, capsys, "--deep")
    assert report["findings"] == []
    assert report["opens"] == {"barnabas": "opens", "apache_kafka": "opens"}
    (described,) = report["folders"]
    assert described["checkpoints"].get("cleaner-offset-checkpoint", 0) == 0
    (partition,) = described["partitions"]
    assert (partition["log_start_offset"], partition["log_end_offset"]) == (0, RECORDS)


def foreign_folder(folder: Path) -> None:
    (folder / "lost+found").mkdir()


def leader_epochs(folder: Path) -> None:
    (folder / "t-0" / "leader-epoch-checkpoint").write_bytes(GARBAGE)


def partition_metadata(folder: Path) -> None:
    (folder / "t-0" / "partition.metadata").write_bytes(GARBAGE)


def quorum_state(folder: Path) -> None:
    (folder / "__cluster_metadata-0" / "quorum-state").write_bytes(GARBAGE)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("damage", [foreign_folder, leader_epochs, partition_metadata, quorum_state])
def test_a_folder_of_which_it_is_said_that_kafka_refuses_it_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    damage(folder)
    assert report_of(folder, capsys)["opens"]["apache_kafka"] == "refuses"
    kafka = KafkaNode(folder)
    try:
        with pytest.raises(KafkaFailedError, match="Kafka ended with 1 at start"):
            kafka.start()
    finally:
        kafka.close()


@pytest.mark.timeout(240)
def test_a_damaged_metadata_log_of_which_it_is_said_that_kafka_loses_topics_loses_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = folder / "__cluster_metadata-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[12 + int.from_bytes(data[8:12]) + 70] ^= 0xFF
    log.write_bytes(data)
    assert report_of(folder, capsys)["opens"] == {"barnabas": "refuses", "apache_kafka": "loses"}
    with KafkaNode(folder) as kafka:
        assert ConfluentClient(kafka.bootstrap).topic_names() == set()
    assert not (folder / "t-0").exists()
