"""May this batch be appended? Decided from its 61-byte header and its checksum, with Kafka's error codes.

Records are never opened here. What Kafka finds only there is accepted, and listed in `docs/compatibility.md`: a null
key on a compacted topic, a timestamp out of range that is neither the first nor the largest, fewer records than the
header says, garbage under a good checksum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crc32c import crc32c

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
    crc_is_valid,
    iter_headers,
)
from barnabas.protocol.compression import Codec
from barnabas.protocol.errors import DecodeError, Error, KafkaError
from barnabas.protocol.record import NO_TIMESTAMP

if TYPE_CHECKING:
    from barnabas.config.topic import TopicConfig
    from barnabas.protocol.batch import BatchHeader

HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of a `BatchHeader` in its order: on the path of every append a plain tuple saves making one."""

LENGTH_MIN = 14
"""Shorter than the smallest batch of any magic: such a length is garbage."""

LOG_APPEND_TIME = "LogAppendTime"

_CODEC_MAX = int(Codec.ZSTD)


def check_client_batch(data: memoryview, config: TopicConfig, now_ms: int, partition_name: str) -> HeaderFields:
    """The header of the one batch that a client may append; raises KafkaError for anything else.

    Bytes that follow the batch and begin no other are ignored, as Kafka does: the header's length says what counts.
    """
    size = len(data)
    if size < HEADER_SIZE:
        raise _refusal_of_pieces(data, partition_name)
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
        or attributes & CONTROL_FLAG
        or attributes & CODEC_MASK > _CODEC_MAX
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
    """Batches that bring their offsets along do not continue the log."""


def check_assigned_batches(batches: memoryview, next_offset: int, partition_name: str) -> list[tuple[int, BatchHeader]]:
    """The whole batches among these bytes, with their places, if they may follow the record before `next_offset`."""
    try:
        headers = list(iter_headers(batches))
    except DecodeError as error:
        raise _corrupt(f"for {partition_name}: {error}") from error
    for position, header in headers:
        if not crc_is_valid(batches, position, header.size):
            raise _corrupt(f"the checksum of the batch at {header.base_offset} for {partition_name} does not match")
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise UnexpectedOffsetError(
                f"a batch with offsets {header.base_offset}–{header.last_offset} cannot follow {next_offset - 1}"
                f" in {partition_name}"
            )
        next_offset = header.next_offset
    return headers


def _check_timestamp_type(attributes: int, max_ms: int, config: TopicConfig, partition_name: str) -> None:
    """Only the log marks a batch as log-append time. Where it does not, Kafka takes the mark off a client's batch,
    unless that leaves the batch without a timestamp."""
    if attributes & LOG_APPEND_TIME_FLAG and (
        config.message_timestamp_type == LOG_APPEND_TIME or max_ms == NO_TIMESTAMP
    ):
        raise KafkaError(
            Error.INVALID_TIMESTAMP, f"a producer must not mark its batch as log-append time, on {partition_name}"
        )


def _check_timestamps(base_ms: int, max_ms: int, config: TopicConfig, now_ms: int, partition_name: str) -> None:
    """Where the log stamps, a producer's timestamps do not matter; and a batch without any is always in range."""
    if config.message_timestamp_type == LOG_APPEND_TIME:
        return
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    for timestamp in (base_ms, max_ms):
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            raise KafkaError(
                Error.INVALID_TIMESTAMP,
                f"timestamp {timestamp} is not within [{earliest}, {latest}], as {partition_name} demands",
            )


def _first_batch(data: memoryview, partition_name: str) -> memoryview:
    """The first batch, if it is the only one: looks at what begins where, in Kafka's order."""
    size = _size_of_batch(data, partition_name)
    if size is None:
        raise _no_batch(data, partition_name)
    if data[MAGIC_AT] < MAGIC:
        raise _invalid(f"a batch for {partition_name} has the old magic {data[MAGIC_AT]}, producers must send {MAGIC}")
    if _size_of_batch(data[size:], partition_name) is not None:
        raise _invalid(f"more than one record batch for {partition_name} in one request")
    return data[:size]


def _size_of_batch(data: memoryview, partition_name: str) -> int | None:
    """The size of the whole batch that begins here; None if none does or it is cut off; raises if it is garbage."""
    if len(data) < LENGTH_OVERHEAD:
        return None
    length = int.from_bytes(data[LENGTH_AT:LENGTH_OVERHEAD], "big", signed=True)
    if length < LENGTH_MIN:
        raise _corrupt(f"a batch for {partition_name} gives its length as {length}")
    if len(data) <= MAGIC_AT:
        return None
    if data[MAGIC_AT] > MAGIC:
        raise _corrupt(f"a batch for {partition_name} has the unknown magic {data[MAGIC_AT]}")
    return length + LENGTH_OVERHEAD if length + LENGTH_OVERHEAD <= len(data) else None


def _refusal_of_pieces(data: memoryview, partition_name: str) -> KafkaError:
    """Why so few bytes are no batch."""
    first = _first_batch(data, partition_name)
    if int.from_bytes(first[:LENGTH_AT], "big"):
        return _invalid(f"the base offset of a batch for {partition_name} is not 0, as producers must send it")
    return _corrupt(f"a batch for {partition_name} has {len(first)} bytes, fewer than its header")


def _no_batch(data: memoryview, partition_name: str) -> KafkaError:
    what = f"is cut off after {len(data)} bytes" if len(data) else "is missing"
    return _invalid(f"a produce request needs one record batch per partition; that for {partition_name} {what}")


def _refusal(batch: memoryview, fields: HeaderFields, config: TopicConfig, partition_name: str) -> KafkaError:
    """Why `check_client_batch` refused a whole batch, found in the order in which Kafka looks."""
    base_offset, _, _, magic, crc, attributes, last_delta, _, _, _, _, sequence, count = fields
    if magic != MAGIC:
        _first_batch(batch, partition_name)
    if base_offset:
        return _invalid(f"the base offset of a batch for {partition_name} is {base_offset}, producers must send 0")
    if len(batch) > config.max_message_bytes:
        return KafkaError(
            Error.MESSAGE_TOO_LARGE,
            f"a batch of {len(batch)} bytes for {partition_name} exceeds max.message.bytes={config.max_message_bytes}",
        )
    if crc32c(batch[ATTRIBUTES_AT:]) != crc:
        return _corrupt(f"the checksum of a batch for {partition_name} does not match")
    if attributes & CODEC_MASK > _CODEC_MAX:
        return KafkaError(
            Error.UNKNOWN_SERVER_ERROR,
            f"a batch for {partition_name} names codec {attributes & CODEC_MASK}, which does not exist",
        )
    if count <= 0 or count != last_delta + 1:
        return _invalid(f"a batch for {partition_name} has {count} records and offsets up to {last_delta}")
    if attributes & CONTROL_FLAG:
        return _invalid(f"a client may not write control records, to {partition_name}")
    return _invalid(f"a batch of an idempotent producer for {partition_name} has the sequence {sequence}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(Error.INVALID_RECORD, message)


def _corrupt(message: str) -> KafkaError:
    return KafkaError(Error.CORRUPT_MESSAGE, message)
