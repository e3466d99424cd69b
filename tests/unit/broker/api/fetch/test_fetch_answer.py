"""The hand-written Fetch answer agrees with the codec, in every version, records and all."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.api.fetch.fetch_answer import (
    FIRST_FLEXIBLE_VERSION,
    FIRST_VERSION_WITH_TOPIC_IDS,
    INLINE_BYTES_MAX,
    Notice,
    PartitionRead,
    encode_answer,
    encode_failure,
    encode_session_error,
    encode_without_records,
)
from barnabas.config.topic_config import TopicConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.net.parts import FilePart, Part, release_parts
from barnabas.ports import SystemClock, SystemDisk
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_batch
from barnabas.protocol.errors import Error
from barnabas.protocol.record import Record
from barnabas.protocol.uuids import Uuid

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = range(4, 19)
TOPIC_ID = Uuid(bytes(range(16)))


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return PartitionLog.create(
        f"{tmp_path}/t-0", "t", 0, TOPIC_ID, TopicConfig(), disk=SystemDisk(), clock=SystemClock()
    )


def read_of(log: PartitionLog, value_bytes: int) -> tuple[PartitionRead, bytes]:
    batch = build_batch([Record(b"v" * value_bytes, timestamp=SystemClock().now_ms())])
    log.append_as_leader(memoryview(bytearray(batch)), 0)
    read = PartitionRead(0, Error.NONE)
    read.high_watermark, read.last_stable_offset, read.log_start_offset = 1, 1, 0
    read.records = log.read(0, 1 << 20, log.end_position, whole_first_batch=True)
    assert read.records is not None
    return read, read.records.file.read(read.records.position, read.records.length)


def assemble(parts: list[Part]) -> bytes:
    whole = b"".join(
        part.file.read(part.position, part.length) if isinstance(part, FilePart) else bytes(part) for part in parts
    )
    release_parts(parts)
    return whole


def topic_of(version: int) -> bytes:
    return TOPIC_ID if version >= FIRST_VERSION_WITH_TOPIC_IDS else b"t"


def decode(frame: bytes, version: int) -> m.FetchResponse:
    assert struct.unpack_from(">ii", frame) == (len(frame) - 4, 42)
    return codec.decode(m.FetchResponse, frame, version, 9 if version >= FIRST_FLEXIBLE_VERSION else 8)


@pytest.mark.parametrize("value_bytes", [10, 2 * INLINE_BYTES_MAX], ids=["inline", "by sendfile"])
@pytest.mark.parametrize("version", VERSIONS)
def test_records_and_offsets_are_what_the_codec_reads(log: PartitionLog, version: int, value_bytes: int) -> None:
    read, stored = read_of(log, value_bytes)
    read.aborted = []
    failed = PartitionRead(7, Error.OFFSET_OUT_OF_RANGE)
    parts = encode_answer(version, 42, [(topic_of(version), [read, failed])])
    assert any(isinstance(part, FilePart) for part in parts) == (value_bytes > INLINE_BYTES_MAX)
    (topic,) = decode(assemble(parts), version).responses
    assert (topic.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.topic.encode()) == topic_of(version)
    good, bad = topic.partitions
    assert good.records is not None
    assert bytes(good.records) == stored
    assert (good.high_watermark, good.last_stable_offset) == (1, 1)
    assert good.log_start_offset == (0 if version >= 5 else -1)
    assert good.aborted_transactions == []
    assert (bad.partition_index, bad.error_code, bad.high_watermark) == (7, Error.OFFSET_OUT_OF_RANGE, -1)
    assert bad.aborted_transactions is None
    assert bytes(bad.records or b"") == b""
    log.close()


@pytest.mark.parametrize("version", range(FIRST_FLEXIBLE_VERSION, 19))
def test_a_diverging_epoch_is_told_in_a_tag(version: int) -> None:
    read = Notice(0, Error.NONE)
    read.diverging = (3, 17)
    parts = encode_answer(version, 42, [(topic_of(version), [read])])
    (partition,) = decode(assemble(parts), version).responses[0].partitions
    assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (3, 17)


@pytest.mark.parametrize("version", range(7, 19))
def test_an_unknown_session_is_an_answer_without_topics(version: int) -> None:
    frame = encode_session_error(version, 42, Error.FETCH_SESSION_ID_NOT_FOUND)
    response = decode(frame, version)
    assert (response.error_code, response.session_id, response.responses) == (70, 0, [])


@pytest.mark.parametrize(
    ("version", "frame"),
    [
        (4, "00000001 00000000 00000001 0003 69736f 00000001 00000000 ffff" + "ff" * 16 + "00000000 00000000"),
        (18, "00000001 00 00000000 ffff 00000000 01 00"),
    ],
)
def test_a_request_that_failed_as_a_whole_gets_the_bytes_that_kafka_sends(version: int, frame: str) -> None:
    request = m.FetchRequest
    asked = request(topics=[request.FetchTopic(topic="iso", partitions=[request.FetchPartition(partition=0)])])
    expected = bytes.fromhex(frame)
    size = struct.pack(">i", len(expected))
    assert encode_failure(version, 1, asked, Error.UNKNOWN_SERVER_ERROR) == size + expected


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_without_records_can_be_kept(version: int) -> None:
    reads = [(topic_of(version), [PartitionRead(0, Error.NONE)])]
    whole = assemble(encode_answer(version, 42, reads))
    assert encode_without_records(version, reads) == whole[8:]
