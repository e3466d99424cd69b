"""A compacted topic with three replicas: each node cleans its own, and the last of each key outlives a leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from barnabas.log.folder.checkpoints import FIRST_DIRTY_OFFSETS, TopicPartition, read_offsets
from barnabas.log.segments.segment_scan import scan
from barnabas.ports import SystemDisk
from barnabas.protocol.batch import decode_records
from tests.clients.with_confluent import ConfluentClient
from tests.cluster.clusters import (
    QUICK,
    WHOLE_S,
    create_replicated,
    in_sync,
    leader_of,
    running,
    wait_until,
)
from tests.nodes import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DISK = SystemDisk()
SEGMENT_BYTES = 1 << 20
KEYS = 40
ROUND_RECORDS = 6_000
"""About three segments."""
PADDING = b"." * 500
CONFIG: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": str(SEGMENT_BYTES),
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": "0",
    "file_delete_delay_ms": "0",
    "min_insync_replicas": "2",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, settings={**QUICK, "log.cleaner.backoff.ms": "100"}) as started:
        yield started


class Load:
    """Gives the same keys one number after the other."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._topic = topic
        self._sent = 0
        self._failures: list[str] = []
        self.last: dict[bytes | None, bytes | None] = {}

    def write_round(self) -> None:
        """Returns when all is acknowledged."""
        for number in range(self._sent, self._sent + ROUND_RECORDS):
            key, value = b"%d" % (number % KEYS), b"%d:" % number + PADDING
            self._producer.produce(self._topic, value, key, 0, on_delivery=lambda error, _: self._note(error))
            self._producer.poll(0)
            self.last[key] = value
        self._sent += ROUND_RECORDS
        assert self._producer.flush(60) == 0
        assert self._failures == []

    def _note(self, error: object) -> None:
        if error is not None:
            self._failures.append(str(error))


def is_clean(cluster: Cluster, node_id: int, topic: str) -> bool:
    """Whether a node has cleaned all but the active segment of its replica."""
    data_dir = cluster[node_id].data_dir
    active = max(int(file.stem) for file in (data_dir / f"{topic}-0").glob("*.log"))
    return (
        active > 0 and read_offsets(DISK, str(data_dir / FIRST_DIRTY_OFFSETS)).get(TopicPartition(topic, 0)) == active
    )


def stored(cluster: Cluster, node_id: int, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of a node's replica, in their order."""
    return [
        (record.key, record.value)
        for file in sorted((cluster[node_id].data_dir / f"{topic}-0").glob("*.log"))
        for _, _, batch in scan(DISK, str(file), 0, file.stat().st_size)
        for record in decode_records(batch)
    ]


def require_clean_everywhere(cluster: Cluster, topic: str, load: Load) -> None:
    for node_id in cluster.running:
        wait_until(lambda node_id=node_id: is_clean(cluster, node_id, topic), f"the replica of {node_id} is clean")  # type: ignore[misc]
        records = stored(cluster, node_id, topic)
        assert dict(records) == load.last
        assert len(records) < ROUND_RECORDS, "at most the active segment is as it was written"


def read(cluster: Cluster, topic: str) -> dict[bytes | None, bytes | None]:
    """The last value of each key, as a consumer sees it."""
    client = ConfluentClient(running(cluster))
    _, end = client.offset_range(topic)
    last: dict[bytes | None, bytes | None] = {}
    with client.consumer(topic, "beginning") as consumer:
        offset = -1
        while offset < end - 1:
            for received in consumer.receive(1):
                last[received.key], offset = received.value, received.offset
    return last


def test_every_replica_is_cleaned_and_the_last_of_each_key_outlives_a_leader(cluster: Cluster, topic: str) -> None:
    create_replicated(cluster, topic, 1, **CONFIG)
    load = Load(running(cluster), topic)
    load.write_round()
    require_clean_everywhere(cluster, topic, load)

    victim = leader_of(cluster, topic)
    cluster.kill(victim)
    load.write_round()
    assert leader_of(cluster, topic) not in (victim, -1)
    assert read(cluster, topic) == load.last
    require_clean_everywhere(cluster, topic, load)

    cluster.start_node(victim)
    wait_until(lambda: in_sync(cluster, topic) == [3], "the killed node is back in sync", WHOLE_S)
    load.write_round()
    require_clean_everywhere(cluster, topic, load)
    assert read(cluster, topic) == load.last
