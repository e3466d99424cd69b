"""A folder that a node of Barnabas wrote: every kind of file, then a clean stop."""

from __future__ import annotations

import fcntl
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.clients.adapter import CODECS, Message, ProducerOptions
from tests.clients.with_confluent import ConfluentClient
from tests.nodes import Node
from tests.peers import wait_until

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS = 2
RECORDS_OF_EACH_CODEC = 400
STORED_WITH = {"uncompressed": "none", "gzip": "gzip", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"}
"""A `compression.type`, and how Kafka's tools call the codec. Each has a topic of its own."""
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
}


class Folder(NamedTuple):
    """What was written, and where."""

    path: Path
    topic: str
    config: dict[str, str]
    values: list[list[bytes | None]]
    """The values in each partition, in order."""


def checkpoints(data_dir: Path) -> list[Path]:
    """The snapshots of the metadata log, the oldest first."""
    return sorted((data_dir / "__cluster_metadata-0").glob("*.checkpoint"))


@pytest.fixture(scope="session")
def folder(apache_kafka_runs: None, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Folder:
    """Topics with records of every codec, several segments, producers, two runs, and snapshots of the metadata. To be
    read only: all test processes share one."""
    shared = tmp_path_factory.getbasetemp() if worker_id == "master" else tmp_path_factory.getbasetemp().parent
    known = shared / "folder.pickle"
    with (shared / "folder.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not known.exists():
            known.write_bytes(pickle.dumps(_make_folder(shared / "folder" / "data")))
        made: Folder = pickle.loads(known.read_bytes())
    return made


def _make_folder(path: Path) -> Folder:
    topic, config = "kept", {"segment.bytes": "1048576", "retention.ms": "-1", "cleanup.policy": "delete"}
    written: list[list[bytes | None]] = [[] for _ in range(PARTITIONS)]
    node = Node(path, settings=SETTINGS)
    for run in range(2):
        node.start()
        try:
            client = ConfluentClient(node.bootstrap)
            if run == 0:
                client.create_topic(topic, partitions=PARTITIONS, config=config)
                _write_recompressed(client)
                client.create_topic("deleted")
                client.delete_topic("deleted")
            _write(client, topic, run, written)
            _provoke_snapshots(client, path, run)
            node.stop()
        finally:
            node.kill()
    return Folder(path, topic, config, written)


def _write(client: ConfluentClient, topic: str, run: int, written: list[list[bytes | None]]) -> None:
    """To all partitions at once: every idempotent producer of librdkafka takes half a second to get its id."""

    def write(partition: int) -> None:
        for codec in CODECS:
            messages = [
                Message(f"{run} {codec} {n} {_noise(n)}".encode(), b"key-%d" % n, (("h", b"v"),))
                for n in range(RECORDS_OF_EACH_CODEC)
            ]
            options = ProducerOptions(codec=codec, idempotent=True)
            client.produce(topic, messages, partition=partition, options=options)
            written[partition] += [message.value for message in messages]

    with ThreadPoolExecutor(PARTITIONS) as writers:
        list(writers.map(write, range(PARTITIONS)))


def _write_recompressed(client: ConfluentClient) -> None:
    for stored_with in STORED_WITH:
        client.create_topic(f"stored-{stored_with}", config={"compression.type": stored_with, "retention.ms": "-1"})
        for codec in CODECS:
            client.produce(f"stored-{stored_with}", recompressed(codec), options=ProducerOptions(codec=codec))


def recompressed(codec: str) -> list[Message]:
    """What was written with this codec to each topic that has one of its own."""
    return [Message(f"{codec} {n} {'x' * n}".encode(), b"key-%d" % n, (("h", b"v"),)) for n in range(50)]


def _noise(seed: int) -> str:
    """A thousand characters that no codec makes much shorter than half."""
    return random.Random(seed).randbytes(500).hex()


def _provoke_snapshots(client: ConfluentClient, path: Path, run: int) -> None:
    """Change the metadata until a snapshot of it is written."""
    before = checkpoints(path)
    numbers = iter(range(10_000))

    def is_written() -> bool:
        client.create_topic(f"small-{run}-{next(numbers)}", config={"retention.ms": "1000000"})
        return checkpoints(path) != before

    wait_until(is_written, "a snapshot of the metadata is written")
