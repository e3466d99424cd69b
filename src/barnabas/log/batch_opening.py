"""Opening a client's batch before it is appended: are its records sound, and do they have the topic's codec?

A batch is opened where the topic asks for it: it has a codec of its own (`compression.type`), it is compacted, or all
batches are to be validated (`barnabas.validate.records`). Most topics ask for none of that: their batches are
checked by their headers only (`batch_validation`), as all batches are first.

What is in a batch may be a million records, or bytes that expand a thousandfold. So this is done in worker processes:
bytes and rules go in, a verdict comes out. It refuses what Apache Kafka refuses, with its codes and words, and does to
a batch what Kafka does:

- A batch whose codec is not the topic's is made anew. Its base timestamp is then that of its first record, its offsets
  are 0, 1, 2 and so on whatever the client wrote, and of its attributes only the transactional bit is kept.
- Any other keeps the bytes of its records. Its largest timestamp becomes that which the records have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.protocol.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    assemble_batch,
    read_header,
)
from barnabas.protocol.compression import (
    DECOMPRESSED_BYTES_MAX,
    LEVELS,
    Codec,
    NoRoomError,
    compress,
    decompress_into,
)
from barnabas.protocol.errors import DecodeError, Error
from barnabas.protocol.record import NO_TIMESTAMP, Record, decode_section, encode_records
from barnabas.protocol.record_survey import RecordFields, Survey, iter_fields, survey_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.config.topic_config import TopicConfig

PRODUCER: Final = "producer"
"""The `compression.type` that leaves batches as they are."""
LOG_APPEND_TIME: Final = "LogAppendTime"
CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
RECORD_ERRORS_MAX: Final = 10_000
"""How many records are named in one refusal."""
NAMED_IN_MESSAGE: Final = 3
ROOM_BYTES: Final = 4 * 1024 * 1024
"""For decompressed records, kept from one batch to the next: fresh pages cost more than decompressing into them."""

_INT64_MAX: Final = (1 << 63) - 1


class OpeningRules(NamedTuple):
    """What a topic asks of batches that are opened."""

    codec: Codec | None
    """None: that of the producer."""
    level: int | None
    is_compacted: bool
    has_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    batch_bytes_max: int


def opening_rules(config: TopicConfig) -> OpeningRules | None:
    """How batches for a topic are opened; None if they are not."""
    is_compacted = "compact" in config.cleanup_policy
    if config.compression_type == PRODUCER and not is_compacted and not config.barnabas_validate_records:
        return None
    codec = CODECS.get(config.compression_type)
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    level = None if codec is None else levels.get(codec)
    return OpeningRules(
        codec,
        LEVELS[Codec.GZIP][2] if codec is Codec.GZIP and level == -1 else level,
        is_compacted,
        config.message_timestamp_type == LOG_APPEND_TIME,
        config.message_timestamp_before_max_ms,
        config.message_timestamp_after_max_ms,
        config.max_message_bytes,
    )


class BatchToOpen(NamedTuple):
    data: bytearray
    """A whole batch whose header and checksum are known to be good."""
    rules: OpeningRules
    now_ms: int
    partition: str


class OpenedBatch(NamedTuple):
    """A batch that may be appended."""

    remade: bytearray | None
    """The batch to append instead; None: the one that was opened."""
    max_timestamp: int


class RefusedBatch(NamedTuple):
    error: Error
    message: str
    record_errors: list[tuple[int, str]]
    """Which records are to blame, by their number in the batch, and for what."""


def open_batches(batches: Sequence[BatchToOpen]) -> list[OpenedBatch | RefusedBatch]:
    """The verdict on each. May run in another process."""
    return [open_batch(*batch) for batch in batches]


def open_batch(data: bytearray, rules: OpeningRules, now_ms: int, partition: str) -> OpenedBatch | RefusedBatch:
    header = read_header(data)
    try:
        section, size = _decompressed(header.codec, memoryview(data)[HEADER_SIZE : header.size])
    except NoRoomError as error:
        return RefusedBatch(Error.MESSAGE_TOO_LARGE, f"A batch for topic partition {partition}: {error}", [])
    except DecodeError as error:
        return _refused(Error.UNKNOWN_SERVER_ERROR, error, partition)
    try:
        survey = survey_records(section, size, header.record_count)
        if rules.codec is not None and rules.codec is not header.codec:
            refusal = _check_records(header, survey, section, rules, now_ms, partition, "DefaultRecord")
            return refusal or _remade(header, survey, section, size, rules, partition)
    except DecodeError as error:
        return _refused(Error.INVALID_RECORD, error, partition)
    if header.codec is not Codec.NONE and not survey.is_sequential:
        # Kafka would make the batch anew, and finds that it has not kept the records.
        message = f"Offsets in a compressed batch are not sequential in topic partition {partition}"
        return RefusedBatch(Error.UNKNOWN_SERVER_ERROR, message, [])
    kind = "DefaultRecord" if header.codec is Codec.NONE else "PartialDefaultRecord"
    refusal = _check_records(header, survey, section, rules, now_ms, partition, kind)
    return refusal or OpenedBatch(None, _max_timestamp(header, survey, section))


def _refused(error: Error, reason: DecodeError, partition: str) -> RefusedBatch:
    return RefusedBatch(error, f"{reason} in topic partition {partition}", [])


class _Room:
    """Where records are decompressed to."""

    def __init__(self) -> None:
        self.bytes = bytearray()


_room = _Room()


def _decompressed(codec: Codec, data: memoryview) -> tuple[bytearray, int]:
    """The records, and how many bytes they take at the beginning of a buffer, which is valid until the next call."""
    if codec is Codec.NONE:
        return bytearray(data), len(data)
    room = _room.bytes
    while True:
        try:
            with memoryview(room) as view:
                return room, decompress_into(codec, data, view)
        except NoRoomError:
            if len(room) >= DECOMPRESSED_BYTES_MAX:
                raise
        room = bytearray(min(max(ROOM_BYTES, 4 * len(room)), DECOMPRESSED_BYTES_MAX))
        if len(room) == ROOM_BYTES:
            _room.bytes = room


# ── what records may be ──────────────────────────────────────────────────────────────────────────────────────


def _check_records(
    header: BatchHeader,
    survey: Survey,
    section: bytearray,
    rules: OpeningRules,
    now_ms: int,
    partition: str,
    kind: str,
) -> RefusedBatch | None:
    """Why the batch is refused because of some of its records. `kind` is what Kafka calls them in its messages."""
    if header.attributes & LOG_APPEND_TIME_FLAG:
        earliest = latest = header.max_timestamp
        is_suspect = rules.has_append_time or header.max_timestamp == NO_TIMESTAMP
    else:
        earliest = header.base_timestamp + survey.timestamp_delta_min
        latest = header.base_timestamp + survey.timestamp_delta_max
        is_suspect = False
    if not rules.has_append_time:
        is_suspect |= (
            now_ms - earliest > rules.timestamp_before_max_ms or latest - now_ms > rules.timestamp_after_max_ms
        )
    if not is_suspect and not (rules.is_compacted and survey.has_null_key):
        return None
    found: list[tuple[int, str]] = []
    error = Error.INVALID_RECORD
    count = 0
    records = zip(iter_fields(section, header.record_count), _timestamps(header, section), strict=True)
    for number, (fields, timestamp) in enumerate(records):
        if rules.is_compacted and fields.key_size < 0:
            message = f"Compacted topic cannot accept message without key in topic partition {partition}"
        elif reason := _wrong_timestamp(header, fields, timestamp, rules, now_ms, kind):
            error = Error.INVALID_TIMESTAMP
            message = reason
        else:
            continue
        count += 1
        if len(found) < RECORD_ERRORS_MAX:
            found.append((number, message))
    if not count:
        return None
    if error is Error.INVALID_TIMESTAMP:
        return RefusedBatch(error, "One or more records have been rejected due to invalid timestamp", found)
    named = ", ".join(f"RecordError(batchIndex={n}, message='{text}')" for n, text in found[:NAMED_IN_MESSAGE])
    return RefusedBatch(
        error,
        f"One or more records have been rejected due to {count} record errors in total, and only showing the first"
        f" three errors at most: [{named}]",
        found,
    )


def _wrong_timestamp(
    header: BatchHeader, fields: RecordFields, timestamp: int, rules: OpeningRules, now_ms: int, kind: str
) -> str | None:
    if not rules.has_append_time and timestamp != NO_TIMESTAMP:
        earliest, latest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
        if earliest <= timestamp <= latest:
            return None
        return (
            f"Timestamp {timestamp} of message with offset {fields.offset_delta} is out of range. The timestamp should"
            f" be within [{earliest}, {latest}]"
        )
    if header.attributes & LOG_APPEND_TIME_FLAG:
        record = (
            f"{kind}(offset={fields.offset_delta}, timestamp={timestamp}, key={max(0, fields.key_size)} bytes,"
            f" value={max(0, fields.value_size)} bytes)"
        )
        return f"Invalid timestamp type in message {record}. Producer should not set timestamp type to LogAppendTime."
    return None


def _timestamps(header: BatchHeader, section: bytearray) -> Iterator[int]:
    """That of each record, as a reader of the batch sees it: a sum that is too large for 64 bits wraps around."""
    if header.attributes & LOG_APPEND_TIME_FLAG:
        for _ in range(header.record_count):
            yield header.max_timestamp
    else:
        for fields in iter_fields(section, header.record_count):
            yield _wrapped(header.base_timestamp + fields.timestamp_delta)


def _wrapped(value: int) -> int:
    return (value + _INT64_MAX + 1) % (1 << 64) - _INT64_MAX - 1


def _max_timestamp(header: BatchHeader, survey: Survey, section: bytearray) -> int:
    if header.attributes & LOG_APPEND_TIME_FLAG:
        return header.max_timestamp
    earliest = header.base_timestamp + survey.timestamp_delta_min
    latest = header.base_timestamp + survey.timestamp_delta_max
    if latest > _INT64_MAX or earliest < -_INT64_MAX:
        latest = max(_timestamps(header, section))
    return max(latest, NO_TIMESTAMP)


# ── making a batch anew ──────────────────────────────────────────────────────────────────────────────────────


def _remade(
    header: BatchHeader, survey: Survey, section: bytearray, size: int, rules: OpeningRules, partition: str
) -> OpenedBatch | RefusedBatch:
    """The batch as the topic wants it. Its records are the same bytes, unless their deltas have to change."""
    assert rules.codec is not None
    max_timestamp = _max_timestamp(header, survey, section)
    has_append_time = header.attributes & LOG_APPEND_TIME_FLAG
    if survey.is_sequential and not survey.first_timestamp_delta and not has_append_time:
        base_timestamp = header.base_timestamp
        records = memoryview(section)[:size]
    else:
        timestamps = list(_timestamps(header, section))
        base_timestamp = timestamps[0]
        records = memoryview(_renumbered(bytes(memoryview(section)[:size]), timestamps))
    with records:
        body = compress(rules.codec, records, rules.level)
    batch_size = HEADER_SIZE + len(body)
    if batch_size > rules.batch_bytes_max:
        return RefusedBatch(
            Error.MESSAGE_TOO_LARGE,
            f"Message batch size is {batch_size} bytes in append to partition {partition} which exceeds the maximum"
            f" configured size of {rules.batch_bytes_max} (max.message.bytes) after"
            " recompression to the topic's compression.type.",
            [],
        )
    changed = header._replace(
        attributes=rules.codec | header.attributes & TRANSACTIONAL_FLAG,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
    )
    return OpenedBatch(bytearray(assemble_batch(changed, body)), max_timestamp)


def _renumbered(section: bytes, timestamps: Sequence[int]) -> bytes:
    """The records with offset deltas 0, 1, 2 and so on, and with timestamp deltas to the first of them."""
    base = timestamps[0]
    records: list[Record] = [
        record._replace(timestamp=base + _wrapped(timestamp - base))
        for record, timestamp in zip(decode_section(section, len(timestamps), 0, 0), timestamps, strict=True)
    ]
    return encode_records(records, range(len(records)), base)
