"""Replicas are equal, byte by byte: as Kafka's verification of replicas sees them while three nodes run, and in the
folders that they leave behind, which Kafka's tools read."""

from __future__ import annotations

import re
import select
import struct
import subprocess
import time
from typing import TYPE_CHECKING, cast

import pytest
from tests.clients.adapter import values
from tests.clients.with_confluent import ConfluentClient
from tests.peers import wait_until
from tools import apache_kafka

from interop import kafka_tools
from interop.clusters import DEADLINE_S, leader_of, running_cluster, wait_until_in_sync, without
from interop.conftest import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.peers import PeerKind

    from interop.clusters import ThreeNodes

TOPIC, PARTITIONS, RECORDS = "replicated", 3, 200
BATCH_HEAD = struct.Struct(">qi")
"""The first offset of a batch, and the length of what follows."""
METADATA = "__cluster_metadata-0"


@pytest.fixture(scope="module")
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    """A cluster of its own, because it will be stopped. Its leaders changed between records, some of which are
    transactional, and some aborted."""
    if (reason := apache_kafka.missing()) is not None:
        pytest.skip(f"not run: {reason}")
    kind = cast("PeerKind", request.config.getoption("--peer"))
    settings = {**SETTINGS, "metadata.log.max.record.bytes.between.snapshots": "1000"}
    with running_cluster(kind, tmp_path_factory.mktemp("replicas"), settings) as cluster:
        client = ConfluentClient(cluster.bootstrap)
        client.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        write(client)
        with without(cluster, leader_of(cluster, TOPIC)):
            write(client)
        write(client)
        yield cluster


def write(client: ConfluentClient) -> None:
    for partition in range(PARTITIONS):
        client.produce(TOPIC, values(RECORDS), partition=partition)
    producer = client.transactional_producer("writer")
    for end in (producer.commit, producer.abort):
        producer.begin()
        for partition in range(PARTITIONS):
            producer.send(TOPIC, values(2), partition)
        end()
    producer.close()


def test_kafkas_verification_finds_no_difference_between_replicas(filled: ThreeNodes) -> None:
    """The tool reads what every replica has up to the high watermark, and never ends by itself."""
    words = (
        "--broker-list",
        filled.bootstrap,
        "--topics-include",
        TOPIC,
        "--time",
        "-2",
        "--report-interval-ms",
        "200",
    )
    command = [*apache_kafka.java_command(), kafka_tools.MAIN_CLASSES["kafka-replica-verification"], *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as tool:
        try:
            lines = lines_until(tool, re.compile(rf"max lag is 0 for partition {TOPIC}-\d"))
        finally:
            tool.kill()
    assert re.search(rf"max lag is 0 for partition {TOPIC}-\d at offset \d+ among {PARTITIONS} partitions", lines[-1])
    assert not [line for line in lines if "different" in line or "Error" in line or "Exception" in line]


def lines_until(tool: subprocess.Popen[str], wanted: re.Pattern[str]) -> list[str]:
    assert tool.stdout is not None
    lines: list[str] = []
    deadline = time.monotonic() + DEADLINE_S
    while not (lines and wanted.search(lines[-1])):
        ready, _, _ = select.select([tool.stdout], [], [], max(0.0, deadline - time.monotonic()))
        line = tool.stdout.readline() if ready else ""
        assert line, f"the tool said no more than:\n{''.join(lines)}"
        lines.append(line)
    return lines


@pytest.fixture(scope="module")
def folders(filled: ThreeNodes) -> dict[int, Path]:
    """The data folders of all nodes, after a clean stop."""
    wait_until_in_sync(filled)
    filled.stop()
    return {node_id: node.data_dir for node_id, node in filled.nodes.items()}


def test_replicas_are_equal_up_to_the_high_watermark(folders: dict[int, Path]) -> None:
    marks = {node_id: high_watermarks(folder) for node_id, folder in folders.items()}
    partitions = sorted({name for of_node in marks.values() for name in of_node})
    assert [f"{TOPIC}-{number}" for number in range(PARTITIONS)] == [p for p in partitions if p.startswith(TOPIC)]
    for name in partitions:
        end = min(of_node.get(name, 0) for of_node in marks.values())
        logs = [log_up_to(folder / name, end) for folder in folders.values()]
        assert logs[0] == logs[1] == logs[2], name
        if name.startswith(TOPIC):
            assert end > 3 * RECORDS
            assert len(logs[0]) > 0


def test_replicas_of_the_metadata_are_equal(folders: dict[int, Path]) -> None:
    """As far as all of them have got: the last to stop may have written more."""
    logs = [log_of(folder / METADATA) for folder in folders.values()]
    shortest = min(map(len, logs))
    assert shortest > 0
    assert len({log[:shortest] for log in logs}) == 1


def test_kafka_dump_log_reads_the_same_records_on_every_node(folders: dict[int, Path]) -> None:
    dumps = [apache_kafka.dump_log(*sorted((folder / f"{TOPIC}-0").glob("*.log"))) for folder in folders.values()]
    records = [re.findall(r"offset: (\d+) .*payload: (value-\d+)", dump) for dump in dumps]
    assert len(records[0]) == 3 * (RECORDS + 2 * 2)
    assert records[0] == records[1] == records[2]
    end = int(records[0][-1][0])
    epochs = [leader_epochs(folder / f"{TOPIC}-0", end) for folder in folders.values()]
    assert len(epochs[0]) > 1, "there was one leader only"
    assert epochs[0] == epochs[1] == epochs[2]


def test_kafka_metadata_shell_shows_the_cluster_on_every_node(folders: dict[int, Path]) -> None:
    """The shell runs its command as soon as it has read the snapshot, which may be before it shows what it has read."""
    for folder in folders.values():
        snapshot = max((folder / METADATA).glob("*.checkpoint"))
        wait_until(
            lambda snapshot=snapshot: in_shell(snapshot, "/image/topics/byName") >= {TOPIC},  # type: ignore[misc]
            "Kafka's shell lists the topic",
            DEADLINE_S,
        )
        assert in_shell(snapshot, "/image/cluster/brokers") <= {"1", "2", "3"}


def in_shell(snapshot: Path, path: str) -> set[str]:
    shown = kafka_tools.attempt("kafka-metadata-shell", "--snapshot", str(snapshot), "ls", path)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    return set(shown.stdout.split())


def high_watermarks(folder: Path) -> dict[str, int]:
    rows = (folder / "replication-offset-checkpoint").read_text().splitlines()[2:]
    return {f"{topic}-{number}": int(offset) for topic, number, offset in (row.rsplit(" ", 2) for row in rows)}


def leader_epochs(folder: Path, end: int) -> list[tuple[int, int]]:
    """Epochs and their first offsets. One without records is known to its leader only."""
    rows = (folder / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    return [(int(epoch), int(start)) for epoch, start in map(str.split, rows) if int(start) <= end]


def log_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.glob("*.log")))


def log_up_to(folder: Path, end: int) -> bytes:
    """The batches before an offset."""
    log, position = log_of(folder), 0
    while position < len(log):
        first_offset, length = BATCH_HEAD.unpack_from(log, position)
        if first_offset >= end:
            break
        position += BATCH_HEAD.size + length
    return log[:position]
