"""SIGKILL for the node and its cleaners in turn, at random points of compaction under load: what was acknowledged and
is the last of its key is there.

The load is slower than the cleaners, and between two rounds of kills each log is cleaned once: so kills meet logs that
were cleaned and swapped before, and not one that only grows.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from enum import Enum
from itertools import cycle, islice
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from bench import procfs

from barnabas.log.folder.checkpoints import FIRST_DIRTY_OFFSETS, TopicPartition, read_offsets
from barnabas.log.segments.file_names import CLEANED, DELETED, SWAP
from barnabas.ports import SystemDisk
from barnabas.ports.processes import STREAM_NICENESS
from tests.clients.adapter import ProducerOptions
from tests.clients.with_confluent import ConfluentClient, producer_config
from tests.nodes import Node
from tests.peers import SETTINGS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARTITIONS = 2
KEYS = 50
TOMBSTONE_EVERY = 7
KILLS_SHORT, KILLS_FULL = 3, 100
"""Of each kind."""

CLEANER_S_MAX = 0.5
"""How long a cleaner is left to work at most before it or its node is killed. It has begun to write by then."""
RECORDS_PER_SECOND = 1_000
PENDING_MAX = 2_000
PADDING = b"." * 500
CLEANING_OFTEN = {
    **SETTINGS,
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.threads": "2",
    "log.cleaner.io.max.bytes.per.second": "5000000",  # so that kills meet a cleaning, and it outruns the load
    "log.segment.delete.delay.ms": "100",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1000",
}


class Moment(Enum):
    """How far the cleaning has got that a kill is to meet."""

    AT_WORK = "a cleaner at work"
    WRITING = "a new segment that is written"
    SWAPPING = "a segment that takes the place of others"


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "data", settings=CLEANING_OFTEN)
    node.start()
    yield node
    node.kill()


class KeyedLoad:
    """An idempotent producer that gives the same keys one number after the other, in every partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        config = producer_config(bootstrap, ProducerOptions(idempotent=True, linger_ms=1))
        self._producer = confluent_kafka.Producer(config | {"message.timeout.ms": 0})
        self._topic = topic
        self._is_over = threading.Event()
        self._begun = time.monotonic()
        self.sent = 0
        self.acknowledged = 0
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def await_progress(self) -> None:
        before = self.acknowledged
        wait_until(lambda: self.acknowledged > before, "records are acknowledged")

    def finish(self, deadline_s: float) -> None:
        """Stop sending and wait until everything is acknowledged."""
        self._is_over.set()
        self._thread.join()
        left = self._producer.flush(deadline_s)
        assert left == 0, f"{left} records were never acknowledged"

    def _run(self) -> None:
        while not self._is_over.is_set():
            is_ahead = self.sent >= (time.monotonic() - self._begun) * RECORDS_PER_SECOND
            if is_ahead or len(self._producer) >= PENDING_MAX:
                self._producer.poll(0.001)
                continue
            key, value = record(self.sent)
            for partition in range(PARTITIONS):
                self._producer.produce(self._topic, value, key, partition=partition, on_delivery=self._note)
            self.sent += 1
            self._producer.poll(0)

    def _note(self, error: confluent_kafka.KafkaError | None, _message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failures.append(error.str())
        self.acknowledged += 1


def record(number: int) -> tuple[bytes, bytes | None]:
    """Key and value of the record with this number. Some keys are deleted now and then."""
    key, turn = number % KEYS, number // KEYS
    if key % 5 == 0 and turn % TOMBSTONE_EVERY == 0:
        return b"%d" % key, None
    return b"%d" % key, b"%d:" % number + PADDING


def kill_in_cleaning(node: Node, folders: list[Path], moment: Moment, chance: random.Random) -> None:
    """Kills the node while it cleans."""
    if moment is Moment.AT_WORK:
        wait_until(lambda: cleaners_of(node.pid), "a cleaner is at work", poll_s=0.001)
        time.sleep(chance.uniform(0, CLEANER_S_MAX))  # the random point of the kill
    else:
        marks = (CLEANED,) if moment is Moment.WRITING else (SWAP, DELETED)
        before = marked_files(folders, marks)
        wait_until(lambda: marked_files(folders, marks) - before, f"there is {moment.value}", poll_s=0.0005)
    node.kill()


def marked_files(folders: list[Path], marks: tuple[str, ...]) -> set[str]:
    return {f"{folder}/{name}" for folder in folders for name in os.listdir(folder) if name.endswith(marks)}


def break_cleaning_off(node: Node, chance: random.Random) -> None:
    """Kills a cleaner of the node at a random point of its work. One that is done before that, or that was done when it
    was killed, is none that counts: the next one is tried."""
    before = broken_off(node)

    def is_broken_off() -> bool:
        for pid in cleaners_of(node.pid):
            time.sleep(chance.uniform(0, CLEANER_S_MAX))  # the random point of the kill
            if pid in cleaners_of(node.pid):
                os.kill(pid, signal.SIGKILL)
                return broken_off(node) > before
        return broken_off(node) > before

    wait_until(is_broken_off, "a cleaning is broken off by a kill", poll_s=0.005)


def await_cleanings(node: Node, topic: str) -> None:
    """Each log is cleaned to the end once more, whoever died before."""
    before = cleaned(node, topic)
    wait_until(
        lambda: all(count > before[partition] for partition, count in cleaned(node, topic).items()),
        "each log is cleaned",
        120,
    )


def cleaned(node: Node, topic: str) -> dict[int, int]:
    """How often each log was cleaned to the end, in all lives of the node."""
    lines = node.log_file.read_text()
    return {partition: lines.count(f"{topic}-{partition} compacted up to") for partition in range(PARTITIONS)}


def broken_off(node: Node) -> int:
    """How many cleanings the node, in all its lives, says were broken off by the kill of their cleaner."""
    return node.log_file.read_text().count("clean_log, was ended by SIGKILL")


def cleaners_of(node_pid: int) -> list[int]:
    """The worker processes of a node that compact, which give way to all others."""
    niceness = niceness_of(node_pid)
    assert niceness is not None
    return [
        pid
        for pid in procfs.descendants(node_pid)
        if procfs.is_alive(pid) and niceness_of(pid) == niceness + STREAM_NICENESS
    ]


def niceness_of(pid: int) -> int | None:
    """None of a process that is gone."""
    try:
        return os.getpriority(os.PRIO_PROCESS, pid)
    except ProcessLookupError:
        return None


@pytest.mark.timeout(3_600)
def test_the_last_of_each_key_outlives_kills_of_node_and_cleaners(
    victim: Node, topic: str, is_chaos_full: bool
) -> None:
    ConfluentClient(victim.bootstrap).create_topic(topic, partitions=PARTITIONS, config=COMPACTED)
    folders = [victim.data_dir / f"{topic}-{partition}" for partition in range(PARTITIONS)]
    chance = random.Random(16)
    load = KeyedLoad(victim.bootstrap, topic)
    kills = KILLS_FULL if is_chaos_full else KILLS_SHORT
    for moment in islice(cycle(Moment), kills):
        load.await_progress()
        kill_in_cleaning(victim, folders, moment, chance)
        victim.start()
        load.await_progress()
        break_cleaning_off(victim, chance)
        await_cleanings(victim, topic)
    load.finish(60)
    print(
        f"{kills} kills of the node and {broken_off(victim)} of cleaners;"
        f" cleanings that were completed, by partition: {cleaned(victim, topic)}"
    )
    assert load.failures == []
    assert broken_off(victim) >= kills
    client = ConfluentClient(victim.bootstrap)
    for partition in range(PARTITIONS):
        name = TopicPartition(topic, partition)
        wait_until(lambda name=name: is_clean(victim.data_dir, name), "the log is clean", 120)  # type: ignore[misc]
        check(client, topic, partition, load.sent)


def is_clean(data_dir: Path, name: TopicPartition) -> bool:
    """Whether all but the active segment is."""
    active = max(int(file.stem) for file in (data_dir / str(name)).glob("*.log"))
    return read_offsets(SystemDisk(), str(data_dir / FIRST_DIRTY_OFFSETS)).get(name) == active


def check(client: ConfluentClient, topic: str, partition: int, sent: int) -> None:
    start, end = client.offset_range(topic, partition)
    assert (start, end) == (0, sent), "no record was written twice"
    last: dict[bytes | None, tuple[int, bytes | None]] = {}
    received_before = -1
    count = 0
    with client.consumer(topic, "beginning", partition=partition) as consumer:
        while received_before < end - 1:
            (received,) = consumer.receive(1)
            assert received.offset > received_before
            assert (received.key, received.value) == record(received.offset)
            last[received.key] = (received.offset, received.value)
            received_before = received.offset
            count += 1
    assert count < sent, "the log was compacted"
    for number in range(max(sent - KEYS, 0), sent):
        key, value = record(number)
        if value is not None:
            assert last[key] == (number, value)
        else:
            assert last.get(key, (number, None)) == (number, None), "a deleted key is back"
