"""Apache Kafka's own tools on folders that `PartitionLog` wrote: every file kind is read without a complaint."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tools import apache_kafka

from barnabas.config.topic_config import TopicConfig
from barnabas.log.append_batches import EndMarker
from barnabas.log.producers.producer_state import NOT_NEEDED
from barnabas.protocol.batch import build_batch
from barnabas.protocol.compression import Codec
from barnabas.protocol.record import Record

from .logs import batch, create, files_of, reopen

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from barnabas.log.partition_log import PartitionLog
    from barnabas.testing.clock import ManualClock

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("apache_kafka_runs")]

DUMP = "org.apache.kafka.tools.DumpLogSegments"


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> PartitionLog:
    """Three segments with all codecs, an idempotent producer, transactions, two leader epochs; cleanly closed."""
    log = create(tmp_path, clock, TopicConfig(segment_bytes=64_000, index_interval_bytes=1_000))
    sequence = 0
    for number in range(300):
        records = [
            Record(key=b"key-%d" % number, value=b"v" * 100, timestamp=clock.now_ms() + number, headers=[("h", b"x")])
            for _ in range(1 + number % 7)
        ]
        codec = Codec(number % 5)
        producer: dict[str, Any] = {}
        if number % 2:
            producer = {"producer_id": 7, "producer_epoch": 1, "base_sequence": sequence}
        sequence += len(records) if producer else 0
        log.append_as_leader(memoryview(bytearray(build_batch(records, codec=codec, **producer))), number // 200)
    for epoch, is_commit in enumerate((False, True)):
        append_transaction(log, epoch, is_commit=is_commit)
    log.close()
    return log


def append_transaction(log: PartitionLog, epoch: int, *, is_commit: bool) -> None:
    data = batch(b"in it", producer_id=9, producer_epoch=epoch, base_sequence=0, is_transactional=True)
    log.append_as_leader(data, 1, NOT_NEEDED)
    log.append_marker(EndMarker(9, epoch, 3, is_commit, 1), 1)


def dump(log: PartitionLog, suffixes: tuple[str, ...], *flags: str) -> str:
    files = [f"{log.folder}/{name}" for name in files_of(log) if name.endswith(suffixes)]
    assert files
    done = apache_kafka.run_tool(DUMP, *flags, "--files", ",".join(files))
    assert done.returncode == 0, done.stdout + done.stderr
    for complaint in ("isvalid: false", "Found timestamp mismatch", "out of order", "Mismatches", "Exception", "error"):
        assert complaint not in done.stdout, done.stdout
    assert "Exception" not in done.stderr, done.stderr
    assert done.stdout.count("Dumping") == len(files)
    return done.stdout


def test_segments_are_read_record_by_record(log: PartitionLog) -> None:
    shown = dump(log, (".log",), "--deep-iteration", "--print-data-log")
    assert re.findall(r"\| offset: (\d+) ", shown) == [str(offset) for offset in range(log.log_end_offset)]
    assert all(f"compresscodec: {codec}" in shown for codec in ("none", "gzip", "snappy", "lz4", "zstd"))
    assert shown.count("endTxnMarker: ABORT coordinatorEpoch: 3") == 1
    assert shown.count("endTxnMarker: COMMIT coordinatorEpoch: 3") == 1
    assert shown.count("isTransactional: true isControl: true") == 2


@pytest.mark.parametrize("flag", ["--deep-iteration", "--index-sanity-check", "--verify-index-only"])
def test_indexes_agree_with_their_segments(log: PartitionLog, flag: str) -> None:
    shown = dump(log, (".index", ".timeindex"), flag)
    if flag == "--index-sanity-check":
        assert shown.count("passed sanity check") == 2 * len(log.segments.all)
    if flag == "--deep-iteration":
        assert shown.count("position:") > 50


def test_producer_snapshots_and_the_transaction_index_are_read(log: PartitionLog) -> None:
    shown = dump(log, (".snapshot", ".txnindex"))
    assert "producerId: 7 producerEpoch: 1" in shown
    assert shown.count("producerId: 9") == 2


def test_a_recovered_log_is_as_good(log: PartitionLog, clock: ManualClock) -> None:
    again = reopen(log, clock, clean_shutdown=False)
    again.close()
    dump(again, (".log", ".index", ".timeindex"), "--deep-iteration")
