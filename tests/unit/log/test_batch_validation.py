"""What a client's batch is refused for. The codes are what Apache Kafka 4.3.1 answered to the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.config.topic_config import TopicConfig
from barnabas.protocol.errors import Error, KafkaError

from .logs import altered, batch, copy_of, create, read_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.testing.clock import ManualClock

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
GOOD = batch(b"abc", b"def", timestamp=NOW_MS)
LARGE = batch(b"x" * 20_000, timestamp=NOW_MS)
CONFIG = TopicConfig(max_message_bytes=10_000)
STAMPING = CONFIG._replace(message_timestamp_type="LogAppendTime")
RECENT_ONLY = CONFIG._replace(message_timestamp_before_max_ms=HOUR_MS)


def patched(at: int, data: bytes) -> memoryview:
    changed = bytearray(GOOD)
    changed[at : at + len(data)] = data
    return memoryview(changed)


def with_length(length: int) -> memoryview:
    return patched(8, length.to_bytes(4, "big", signed=True))


REFUSED = {
    "no bytes": (memoryview(b""), Error.INVALID_RECORD),
    "part of a base offset": (GOOD[:5], Error.INVALID_RECORD),
    "only a base offset and length": (GOOD[:12], Error.INVALID_RECORD),
    "cut before the magic": (GOOD[:16], Error.INVALID_RECORD),
    "cut after the magic": (GOOD[:17], Error.INVALID_RECORD),
    "cut in the header": (GOOD[:60], Error.INVALID_RECORD),
    "cut by one byte": (GOOD[:-1], Error.INVALID_RECORD),
    "length 0": (with_length(0), Error.CORRUPT_MESSAGE),
    "length -1": (with_length(-1), Error.CORRUPT_MESSAGE),
    "length 13": (with_length(13), Error.CORRUPT_MESSAGE),
    "length 14": (with_length(14), Error.CORRUPT_MESSAGE),
    "length 48": (with_length(48), Error.CORRUPT_MESSAGE),
    "length 49": (with_length(49), Error.CORRUPT_MESSAGE),
    "length one too small": (with_length(len(GOOD) - 13), Error.CORRUPT_MESSAGE),
    "length one too large": (with_length(len(GOOD) - 11), Error.INVALID_RECORD),
    "magic 0": (patched(16, b"\0"), Error.INVALID_RECORD),
    "magic 1": (patched(16, b"\1"), Error.INVALID_RECORD),
    "magic 3": (patched(16, b"\3"), Error.CORRUPT_MESSAGE),
    "magic 255": (patched(16, b"\xff"), Error.CORRUPT_MESSAGE),
    "two batches": (memoryview(bytes(GOOD) * 2), Error.INVALID_RECORD),
    "a batch and 20 letters": (memoryview(bytes(GOOD) + b"a" * 20), Error.CORRUPT_MESSAGE),
    "a batch and 12 zeros": (memoryview(bytes(GOOD) + bytes(12)), Error.CORRUPT_MESSAGE),
    "a wrong checksum": (altered(GOOD, crc=1), Error.CORRUPT_MESSAGE),
    "fewer records than offsets": (altered(GOOD, record_count=1), Error.INVALID_RECORD),
    "no records": (altered(GOOD, record_count=0), Error.INVALID_RECORD),
    "a negative count": (altered(GOOD, record_count=-1), Error.INVALID_RECORD),
    "no offsets": (altered(GOOD, record_count=0, last_offset_delta=-1), Error.INVALID_RECORD),
    "a control batch": (altered(GOOD, attributes=0x20), Error.INVALID_RECORD),
    "a control batch with every unused attribute": (altered(GOOD, attributes=-0x80 | 0x20), Error.INVALID_RECORD),
    "a base offset": (altered(GOOD, base_offset=5), Error.INVALID_RECORD),
    "a base offset and a wrong checksum": (altered(GOOD, base_offset=5, crc=4), Error.INVALID_RECORD),
    "a producer id without a sequence": (altered(GOOD, producer_id=5, producer_epoch=0), Error.INVALID_RECORD),
    "too large": (LARGE, Error.MESSAGE_TOO_LARGE),
    "too large and a wrong checksum": (altered(LARGE, crc=3), Error.MESSAGE_TOO_LARGE),
    "codec 5": (altered(GOOD, attributes=5), Error.UNKNOWN_SERVER_ERROR),
    "codec 7": (altered(GOOD, attributes=7), Error.UNKNOWN_SERVER_ERROR),
}

TOO_NEW = batch(b"a", timestamp=NOW_MS + HOUR_MS + 1)
OLD = batch(b"a", timestamp=NOW_MS - HOUR_MS - 1)
BARE = batch(b"a", timestamp=-1)

REFUSED_TIMESTAMPS = {
    "too far ahead": (CONFIG, TOO_NEW),
    "too far ahead, where age is limited": (RECENT_ONLY, TOO_NEW),
    "too old": (RECENT_ONLY, OLD),
    "first record too old": (RECENT_ONLY, altered(GOOD, base_timestamp=NOW_MS - HOUR_MS - 1)),
    "marked as log-append time where the log stamps": (STAMPING, altered(GOOD, attributes=8)),
    "marked as log-append time and without a timestamp": (CONFIG, altered(BARE, attributes=8)),
    "marked as log-append time and too far ahead": (CONFIG, altered(TOO_NEW, attributes=8)),
}

ACCEPTED = {
    "good": (CONFIG, GOOD),
    "at the edge of the future": (CONFIG, batch(b"a", timestamp=NOW_MS + HOUR_MS)),
    "old where age does not matter": (CONFIG, OLD),
    "at the edge of the past": (RECENT_ONLY, batch(b"a", timestamp=NOW_MS - HOUR_MS)),
    "without a timestamp": (RECENT_ONLY, BARE),
    "out of range where the log stamps": (STAMPING, TOO_NEW),
    "marked as log-append time where the log does not stamp": (CONFIG, altered(GOOD, attributes=8)),
    "with some leader epoch": (CONFIG, altered(GOOD, partition_leader_epoch=7)),
    "with unused attributes": (CONFIG, altered(GOOD, attributes=0x80)),
    "of a producer without epoch": (CONFIG, altered(GOOD, producer_id=7, base_sequence=0)),
    "of exactly the largest size": (TopicConfig(max_message_bytes=len(GOOD)), GOOD),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_batch_is_refused_with_kafkas_code_and_nothing_is_appended(
    tmp_path: Path, clock: ManualClock, name: str
) -> None:
    data, error = REFUSED[name]
    log = create(tmp_path, clock, CONFIG)
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(copy_of(data), 0)
    assert refused.value.error is error
    assert "t-0" in refused.value.message
    assert log.end_position == (0, 0, 0)


@pytest.mark.parametrize("name", REFUSED_TIMESTAMPS)
def test_a_timestamp_out_of_range_is_refused(tmp_path: Path, clock: ManualClock, name: str) -> None:
    config, data = REFUSED_TIMESTAMPS[name]
    log = create(tmp_path, clock, config)
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(copy_of(data), 0)
    assert refused.value.error is Error.INVALID_TIMESTAMP
    assert log.log_end_offset == 0


@pytest.mark.parametrize("name", ACCEPTED)
def test_an_unusual_batch_that_kafka_takes_is_taken(tmp_path: Path, clock: ManualClock, name: str) -> None:
    config, data = ACCEPTED[name]
    log = create(tmp_path, clock, config)
    log.append_as_leader(copy_of(data), 0)
    assert len(read_bytes(log, 0)) == len(data)


@pytest.mark.parametrize("rest", [b"abcde", bytes(GOOD)[:40], bytes(GOOD)[:16]])
def test_what_follows_a_batch_and_is_no_whole_batch_is_not_stored(
    tmp_path: Path, clock: ManualClock, rest: bytes
) -> None:
    log = create(tmp_path, clock)
    log.append_as_leader(copy_of(bytes(GOOD) + rest), 0)
    assert log.end_position == (2, 0, len(GOOD))
    assert read_bytes(log, 0)[16:] == GOOD[16:]
