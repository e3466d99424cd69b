"""Compacted logs in either broker's folder: what one has cleaned, or begun to swap, the other opens and goes on with;
both keep the same of the same records."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tools.apache_kafka import KafkaNode

from barnabas.config.topic_config import TopicConfig
from barnabas.log.cleaning import swap
from barnabas.log.cleaning.log_cleaning import CleanedSegment, clean_log
from barnabas.log.folder.checkpoints import FIRST_DIRTY_OFFSETS, TopicPartition, read_offsets
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments.segment_scan import scan
from barnabas.ports import SystemClock, SystemDisk
from barnabas.protocol.batch import decode_records
from tests.clients.adapter import ConsumerOptions, Message, ProducerOptions
from tests.clients.with_confluent import ConfluentClient
from tests.files.test_dump_log import dumped
from tests.nodes import Node
from tests.peers import wait_until
from tests.unit.log.cleaning.cleanings import LIMITS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.peers import Peer

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

TOPIC = "compacted"
SEGMENT_MS = 600_000
CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": str(SEGMENT_MS),
    "file.delete.delay.ms": "0",
}
SETTINGS = {"log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "100"}
NO_CLEANER = {"log.cleaner.enable": "false", "log.initial.task.delay.ms": "100"}
DISK = SystemDisk()
NOT_YET = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)


class Writer:
    """Writes the same to any broker: every kind of batch that compaction treats in its own way."""

    def __init__(self, bootstrap: str) -> None:
        self.client = ConfluentClient(bootstrap)
        self._now_ms = int(time.time() * 1000)
        self._rounds = 0

    def write_round(self) -> None:
        """One segment's worth, which the last record closes by beginning the next."""
        number, self._rounds = self._rounds, self._rounds + 1
        value = b"%d" % number
        self._send(*((b"k%d" % key, value * 20) for key in range(20)))
        for codec in ("gzip", "snappy", "lz4", "zstd"):
            self._send(*((b"%s-%d" % (codec.encode(), key), value * 20) for key in range(10)), codec=codec)
            self._send(*((b"%s-%d" % (codec.encode(), key), value * 30) for key in range(0, 10, 3)), codec=codec)
        self._send((b"gone", value), (b"beside", value))
        self._send((b"gone", None), (b"k1", value))
        self._send(*((b"k%d" % key, b"last" + value) for key in range(0, 20, 2)))
        producer = self.client.transactional_producer("writer")
        for is_committed in (True, False, True):
            producer.begin()
            key = b"t" if is_committed else b"k3"
            producer.send(TOPIC, [self._message(key, value)])
            producer.send(TOPIC, [self._message(b"k5", value)])
            if is_committed:
                producer.commit()
            else:
                producer.abort()
        producer.close()
        self._now_ms += 2 * SEGMENT_MS
        self._send((b"rolls-%d" % number, value))

    def _message(self, key: bytes, value: bytes | None) -> Message:
        return Message(value, key, timestamp_ms=self._now_ms)

    def _send(self, *pairs: tuple[bytes, bytes | None], codec: Any = "none") -> None:
        # It lingers until it is flushed: both brokers are to get the same batches, however busy the machine is.
        options = ProducerOptions(codec=codec, idempotent=codec == "zstd", linger_ms=20_000)
        self.client.produce(TOPIC, [self._message(*pair) for pair in pairs], options=options)


def wait_until_clean(node: Peer) -> None:
    """Until all but the active segment is."""
    folder = node.data_dir / f"{TOPIC}-0"

    def is_clean() -> bool:
        active = max(int(file.stem) for file in folder.glob("*.log"))
        checkpoint = read_offsets(DISK, str(node.data_dir / FIRST_DIRTY_OFFSETS))
        return checkpoint.get(TopicPartition(TOPIC, 0)) == active

    wait_until(is_clean, "the log is clean")


def stored(data_dir: Path) -> list[tuple[object, ...]]:
    """What the segments hold, batch by batch; not when, nor by which producer."""
    found: list[tuple[object, ...]] = []
    for file in sorted((data_dir / f"{TOPIC}-0").glob("*.log")):
        for header, _, batch in scan(DISK, str(file), 0, file.stat().st_size):
            records = [(r.offset, r.key, None if header.is_control else r.value) for r in decode_records(batch)]
            flags = (header.codec, header.is_control, header.is_transactional, header.delete_horizon_ms is not None)
            found.append((header.base_offset, header.last_offset, header.base_sequence, *flags, *records))
    return found


def read(bootstrap: str, isolation: Any) -> list[tuple[int, bytes | None, bytes | None]]:
    client = ConfluentClient(bootstrap)
    wait_until(lambda: is_led(client), "the partition has a leader")
    _, end = client.offset_range(TOPIC)
    seen: list[tuple[int, bytes | None, bytes | None]] = []
    with client.consumer(TOPIC, "beginning", options=ConsumerOptions(isolation=isolation)) as consumer:
        while not seen or seen[-1][0] < end - 1:
            received = consumer.receive(1)
            assert received, f"nothing came after {seen[-1:]}"
            seen += [(each.offset, each.key, each.value) for each in received]
    return seen


def is_led(client: ConfluentClient) -> bool:
    """A broker that has just started knows its topics before it leads their partitions."""
    if TOPIC not in client.topic_names():
        return False
    try:
        client.offset_range(TOPIC)
    except KafkaException as refused:
        if refused.args[0].code() not in NOT_YET:
            raise
        return False
    return True


def read_both(bootstrap: str) -> list[object]:
    return [read(bootstrap, "read_committed"), read(bootstrap, "read_uncommitted")]


def test_both_brokers_keep_the_same_of_the_same_records(apache_kafka_runs: None, tmp_path: Path) -> None:
    """After the first cleaning, and after another one that meets what the first has left."""
    with (
        Node(tmp_path / "ours", settings=SETTINGS) as ours,
        KafkaNode(tmp_path / "theirs", properties=SETTINGS) as theirs,
    ):
        writers = [Writer(ours.bootstrap), Writer(theirs.bootstrap)]
        for writer in writers:
            writer.client.create_topic(TOPIC, config=CONFIG)
        for _ in range(3):
            for writer in writers:
                writer.write_round()
            wait_until_clean(ours)
            wait_until_clean(theirs)
            assert stored(ours.data_dir) == stored(theirs.data_dir)
            assert read_both(ours.bootstrap) == read_both(theirs.bootstrap)


def test_kafka_opens_a_folder_that_was_cleaned_here_and_goes_on(apache_kafka_runs: None, tmp_path: Path) -> None:
    with Node(tmp_path / "data", settings=SETTINGS) as node:
        writer = Writer(node.bootstrap)
        writer.client.create_topic(TOPIC, config=CONFIG)
        for _ in range(2):
            writer.write_round()
            wait_until_clean(node)
        expected = read_both(node.bootstrap)
    folder = tmp_path / "data" / f"{TOPIC}-0"
    assert "isvalid: false" not in dumped(*sorted(folder.glob("*.log")))
    for suffix in ("index", "timeindex", "txnindex"):
        if files := sorted(folder.glob(f"*.{suffix}")):
            dumped(*files)
    with KafkaNode(tmp_path / "data", properties=SETTINGS) as kafka:
        assert read_both(kafka.bootstrap) == expected
        Writer(kafka.bootstrap).write_round()
        wait_until_clean(kafka)
        expected = read_both(kafka.bootstrap)
        log = kafka.log
    assert "Error" not in log
    assert "Exception" not in log
    with Node(tmp_path / "data", settings=SETTINGS) as node:
        assert read_both(node.bootstrap) == expected


def test_a_folder_that_kafka_has_cleaned_is_opened_and_cleaned_here(apache_kafka_runs: None, tmp_path: Path) -> None:
    with KafkaNode(tmp_path / "data", properties=SETTINGS) as kafka:
        writer = Writer(kafka.bootstrap)
        writer.client.create_topic(TOPIC, config=CONFIG)
        for _ in range(2):
            writer.write_round()
            wait_until_clean(kafka)
        expected = read_both(kafka.bootstrap)
    with Node(tmp_path / "data", settings=SETTINGS) as node:
        assert read_both(node.bootstrap) == expected
        Writer(node.bootstrap).write_round()
        wait_until_clean(node)
        expected = read_both(node.bootstrap)
    with Node(tmp_path / "data", settings=SETTINGS) as node:
        assert read_both(node.bootstrap) == expected


@pytest.mark.parametrize("step", ["decided in part", "decided", "retired in part", "retired", "completed in part"])
def test_a_swap_that_was_begun_here_is_completed_or_dropped_by_kafka(
    apache_kafka_runs: None, tmp_path: Path, step: str
) -> None:
    with Node(tmp_path / "data", settings=NO_CLEANER) as node:
        writer = Writer(node.bootstrap)
        writer.client.create_topic(TOPIC, config=CONFIG)
        for _ in range(2):
            writer.write_round()
        before = read(node.bootstrap, "read_committed")
    begin_swap(tmp_path / "data", step)
    last_before = {key: (offset, value) for offset, key, value in before}
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with KafkaNode(tmp_path / "data", properties=NO_CLEANER) as kafka:
        theirs = read(kafka.bootstrap, "read_committed")
    with Node(tmp_path / "copy", settings=NO_CLEANER) as node:
        ours = read(node.bootstrap, "read_committed")
    assert ours == theirs
    assert {key: (offset, value) for offset, key, value in theirs} == last_before
    assert (theirs == before) is (step == "decided in part")
    for data_dir in (tmp_path / "data", tmp_path / "copy"):
        names = [file.name for file in (data_dir / f"{TOPIC}-0").iterdir()]
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]


def begin_swap(data_dir: Path, step: str) -> None:
    """Leaves the folder as a broker does that is killed after a step of a swap."""
    folder = str(data_dir / f"{TOPIC}-0")
    config = TopicConfig(cleanup_policy=frozenset({"compact"}), segment_ms=SEGMENT_MS)
    log = PartitionLog.open(
        folder,
        TOPIC,
        0,
        config,
        disk=DISK,
        clock=SystemClock(),
        recovery_point=1 << 40,
        log_start_offset=0,
        clean_shutdown=True,
    )
    log.high_watermark_moved(log.log_end_offset)
    steps = clean_log(DISK, log.begin_cleaning(log.dirt(log.log_end_offset), LIMITS).order)
    cleaned = next(each for each in steps if isinstance(each, CleanedSegment))
    log.segments.release()
    disk: Any = Interrupted(step)
    try:
        swap.decide(disk, folder, cleaned)
        disk.reached("decided")
        swap.retire(disk, folder, cleaned)
        disk.reached("retired")
        swap.complete(disk, folder, cleaned)
    except KilledError:
        return
    raise AssertionError(f"{step} was not reached")


class KilledError(Exception):
    pass


class Interrupted(SystemDisk):
    """Ends the process, as it were, after a step, or after the first change that belongs to it."""

    __slots__ = ("_phase", "_step")

    def __init__(self, step: str) -> None:
        self._step = step
        self._phase = 0

    def reached(self, phase: str) -> None:
        if self._step == phase:
            raise KilledError
        self._phase += 1

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if self._step == ("decided in part", "retired in part", "completed in part")[self._phase]:
            raise KilledError
