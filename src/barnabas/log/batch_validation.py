"""May this batch be appended? Decided from its 61-byte header and its checksum, with Kafka's error codes and messages.

Records are never decoded here. What Kafka rejects only because of a record is found where batches are opened
(`batch_opening`); where they are not, it is accepted, and listed in `docs/compatibility.md`: a timestamp out of range
that is neither the first nor the largest, fewer records than the header says, garbage under a valid checksum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER,
    HEADER_SIZE,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    MAGIC_AT,
)
from barnabas.protocol.checksum import crc32c
from barnabas.protocol.compression import Codec
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.record import NO_TIMESTAMP

if TYPE_CHECKING:
    from barnabas.config.topic_config import TopicConfig

HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of a `BatchHeader` in order: on the path of every append, a plain tuple saves creating the object."""

LENGTH_MIN = 14
"""Even the smallest batch of any magic is longer: a smaller length is garbage."""

LOG_APPEND_TIME = "LogAppendTime"

_CODEC_MAX = int(Codec.ZSTD)


class NotOneBatchError(KafkaError):
    """What a client sends for a partition is not one batch of today's format, which no log has to be asked about."""

    def __init__(self, message: str) -> None:
        super().__init__(Error.INVALID_RECORD, message)


class HeaderLimits(NamedTuple):
    """What of a topic's configuration matters to a batch that will be opened: its timestamps are those of its records,
    whatever the header says."""

    max_message_bytes: int
    message_timestamp_type: None = None
    message_timestamp_before_max_ms: int = 1 << 64
    message_timestamp_after_max_ms: int = 1 << 64


def check_batch_to_open(data: memoryview, config: TopicConfig, partition_name: str) -> memoryview:
    """The single batch that a client may append once its records have been looked at, without what follows it; raises
    KafkaError for anything else."""
    fields = check_client_batch(data, HeaderLimits(config.max_message_bytes), 0, partition_name)
    return data[: fields[1] + LENGTH_OVERHEAD]


def check_client_batch(
    data: memoryview, config: TopicConfig | HeaderLimits, now_ms: int, partition_name: str
) -> HeaderFields:
    """The header of the single batch that a client may append; raises KafkaError for anything else.

    Trailing bytes that do not begin another batch are ignored, as in Kafka: the length in the header says what counts.
    """
    size = len(data)
    if size < HEADER_SIZE:
        raise _refusal_of_fragment(data, partition_name)
    fields: HeaderFields = HEADER.unpack_from(data)
    base_offset, length, _, magic, crc, attributes, last_delta, base_ms, max_ms, producer_id, _, sequence, count = (
        fields
    )
    if length + LENGTH_OVERHEAD != size:
        data = _first_batch(data, partition_name)
        return check_client_batch(data, config, now_ms, partition_name)
    if (
        magic != MAGIC
        or base_offset
        or count != last_delta + 1
        or count <= 0
        or size > config.max_message_bytes
        or (not 0 <= attributes <= _CODEC_MAX and (attributes & CONTROL_FLAG or attributes & CODEC_MASK > _CODEC_MAX))
        or (producer_id >= 0 and sequence < 0)
        or crc32c(data[ATTRIBUTES_AT:]) != crc
    ):
        raise _refusal(data, fields, config, partition_name)
    if config.message_timestamp_type == LOG_APPEND_TIME or attributes & LOG_APPEND_TIME_FLAG:
        _check_timestamp_type(attributes, max_ms, config, partition_name)
    if (
        max_ms - now_ms > config.message_timestamp_after_max_ms
        or now_ms - max_ms > config.message_timestamp_before_max_ms
        or now_ms - base_ms > config.message_timestamp_before_max_ms
    ):
        _check_timestamps(base_ms, max_ms, config, now_ms, partition_name)
    return fields


class UnexpectedOffsetError(ValueError):
    """Batches that already have their offsets do not continue the log."""


class AssignedBatch(NamedTuple):
    """A batch that already has its offsets, among others."""

    position: int
    size: int
    fields: HeaderFields


def check_assigned_batches(batches: memoryview, next_offset: int, partition_name: str) -> list[AssignedBatch]:
    """The whole batches among these bytes, if they may follow the record before `next_offset`. One that is cut off at
    the end, as in a fetch, is left out."""
    found: list[AssignedBatch] = []
    position, end = 0, len(batches)
    while end - position >= HEADER_SIZE:
        fields: HeaderFields = HEADER.unpack_from(batches, position)
        base_offset, length, _, magic, crc, _, last_delta, _, _, _, _, _, _ = fields
        size = length + LENGTH_OVERHEAD
        if magic != MAGIC or size < HEADER_SIZE:
            raise _corrupt(
                f"Record is corrupt in topic partition {partition_name}: the batch at byte {position} has magic {magic}"
                f" and a length of {length} bytes"
            )
        if size > end - position:
            break
        if crc32c(batches[position + ATTRIBUTES_AT : position + size]) != crc:
            raise _wrong_crc(crc, partition_name)
        if base_offset < next_offset or last_delta < 0:
            raise UnexpectedOffsetError(
                f"Unexpected offset in append to {partition_name}: a batch with offsets {base_offset}–"
                f"{base_offset + last_delta} cannot follow offset {next_offset - 1}"
            )
        found.append(AssignedBatch(position, size, fields))
        next_offset = base_offset + last_delta + 1
        position += size
    return found


def _check_timestamp_type(
    attributes: int, max_ms: int, config: TopicConfig | HeaderLimits, partition_name: str
) -> None:
    """Only the log marks a batch as log append time. If the topic does not use it, Kafka clears the mark in a client's
    batch, unless that leaves the batch without a timestamp."""
    if config.message_timestamp_type is None:
        return
    if attributes & LOG_APPEND_TIME_FLAG and (
        config.message_timestamp_type == LOG_APPEND_TIME or max_ms == NO_TIMESTAMP
    ):
        raise KafkaError(
            Error.INVALID_TIMESTAMP,
            f"Invalid timestamp type in a batch for topic partition {partition_name}. Producer should not set timestamp"
            " type to LogAppendTime.",
        )


def _check_timestamps(
    base_ms: int, max_ms: int, config: TopicConfig | HeaderLimits, now_ms: int, partition_name: str
) -> None:
    """If the log stamps batches, a producer's timestamps do not matter; a batch without any is always in range."""
    if config.message_timestamp_type == LOG_APPEND_TIME:
        return
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    for timestamp in (base_ms, max_ms):
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            raise KafkaError(
                Error.INVALID_TIMESTAMP,
                f"Timestamp {timestamp} of a batch for topic partition {partition_name} is out of range. The timestamp"
                f" should be within [{earliest}, {latest}]",
            )


def is_one_batch(data: memoryview) -> bool:
    """Whether a log would look any further at what was sent to it for a partition."""
    try:
        _first_batch(data, "")
    except KafkaError:
        return False
    return True


def _first_batch(data: memoryview, partition_name: str) -> memoryview:
    """The first batch, if it is the only one, checked in Kafka's order."""
    size = _size_of_batch(data, partition_name)
    if size is None:
        state = f"is cut off after {len(data)} bytes" if len(data) else "is missing"
        raise NotOneBatchError(
            "Produce requests must have at least one record batch per partition; the one for topic partition"
            f" {partition_name} {state}"
        )
    if data[MAGIC_AT] < MAGIC:
        raise NotOneBatchError(
            f"Produce requests are only allowed to contain record batches with magic version {MAGIC}; one for topic"
            f" partition {partition_name} has {data[MAGIC_AT]}"
        )
    if _size_of_batch(data[size:], partition_name) is not None:
        raise NotOneBatchError(
            "Produce requests are only allowed to contain exactly one record batch per partition; there are more for"
            f" topic partition {partition_name}"
        )
    return data[:size]


def _size_of_batch(data: memoryview, partition_name: str) -> int | None:
    """The size of the whole batch that begins here; None if there is none or it is cut off; raises if it is garbage."""
    if len(data) < LENGTH_OVERHEAD:
        return None
    length = int.from_bytes(data[LENGTH_AT:LENGTH_OVERHEAD], "big", signed=True)
    if length < LENGTH_MIN:
        raise _corrupt(
            f"Record size {length} is less than the minimum record overhead ({LENGTH_MIN}) in topic partition"
            f" {partition_name}"
        )
    if len(data) <= MAGIC_AT:
        return None
    if data[MAGIC_AT] > MAGIC:
        raise _corrupt(f"Invalid magic found in record: {data[MAGIC_AT]} in topic partition {partition_name}")
    return length + LENGTH_OVERHEAD if length + LENGTH_OVERHEAD <= len(data) else None


def _refusal_of_fragment(data: memoryview, partition_name: str) -> KafkaError:
    """Why bytes that are too few for a header are not a batch."""
    first = _first_batch(data, partition_name)
    base_offset = int.from_bytes(first[:LENGTH_AT], "big", signed=True)
    if base_offset:
        return _wrong_base_offset(base_offset, partition_name)
    return _corrupt(
        f"Record batch is corrupt (the size {len(first)} is smaller than the minimum allowed overhead {HEADER_SIZE})"
        f" in topic partition {partition_name}"
    )


def _refusal(
    batch: memoryview, fields: HeaderFields, config: TopicConfig | HeaderLimits, partition_name: str
) -> KafkaError:
    """Why `check_client_batch` refused a whole batch, found in the order in which Kafka checks."""
    base_offset, _, _, magic, crc, attributes, last_delta, _, _, producer_id, _, sequence, count = fields
    if magic != MAGIC:
        _first_batch(batch, partition_name)
    if base_offset:
        return _wrong_base_offset(base_offset, partition_name)
    if len(batch) > config.max_message_bytes:
        return KafkaError(
            Error.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {partition_name} is {len(batch)} bytes which exceeds the maximum"
            f" configured value of {config.max_message_bytes} (max.message.bytes).",
        )
    if crc32c(batch[ATTRIBUTES_AT:]) != crc:
        return _wrong_crc(crc, partition_name)
    if attributes & CODEC_MASK > _CODEC_MAX:
        return KafkaError(
            Error.UNKNOWN_SERVER_ERROR,
            f"Unknown compression type id: {attributes & CODEC_MASK} in topic partition {partition_name}",
        )
    return _invalid(f"{_invalid_field(attributes, last_delta, count, sequence, producer_id)} {partition_name}")


def _invalid_field(attributes: int, last_delta: int, count: int, sequence: int, producer_id: int) -> str:
    """What is wrong with a header of the right magic, up to the name of the partition."""
    if last_delta < 0:
        return f"Batch has an invalid offset range: [0, {last_delta}] in topic partition"
    if count <= 0:
        return f"Invalid reported count for record batch: {count} in topic partition"
    if count != last_delta + 1:
        return f"Inconsistent batch offset range [0, {last_delta}] and count of records {count} in topic partition"
    if attributes & CONTROL_FLAG:
        return "Clients are not allowed to write control records in topic partition"
    return f"Invalid sequence number {sequence} in record batch with producerId {producer_id} in topic partition"


def _wrong_base_offset(base_offset: int, partition_name: str) -> KafkaError:
    return _invalid(
        f"The baseOffset of the record batch in the append to {partition_name} should be 0, but it is {base_offset}"
    )


def _wrong_crc(stored: int, partition_name: str) -> KafkaError:
    return _corrupt(f"Record is corrupt (stored crc = {stored}) in topic partition {partition_name}.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(Error.INVALID_RECORD, message)


def _corrupt(message: str) -> KafkaError:
    return KafkaError(Error.CORRUPT_MESSAGE, message)
