"""May this batch be appended? Decided from its 61-byte header and its checksum, with Kafka's error codes.

Records are never opened here. What Kafka finds only there (a null key on a compacted topic, a timestamp out of range
that is neither the first nor the largest, garbage under a good checksum) is accepted, and listed in
`docs/compatibility.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crc32c import crc32c

from barnabas.protocol.batch import (
    ATTRIBUTES_AT,
    CONTROL_FLAG,
    HEADER,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    MAGIC_AT,
    crc_is_valid,
    iter_headers,
)
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


def check_client_batch(batch: memoryview, config: TopicConfig, now_ms: int, partition_name: str) -> HeaderFields:
    """The header of a batch that a client may append; raises KafkaError for any other."""
    size = len(batch)
    if size < HEADER.size:
        raise _refusal(batch, config, partition_name)
    fields: HeaderFields = HEADER.unpack_from(batch)
    base_offset, length, _, magic, crc, attributes, last_delta, base_ms, max_ms, producer_id, _, sequence, count = (
        fields
    )
    if (
        length + LENGTH_OVERHEAD != size
        or magic != MAGIC
        or base_offset
        or count != last_delta + 1
        or count <= 0
        or size > config.max_message_bytes
        or attributes & CONTROL_FLAG
        or (producer_id >= 0 and sequence < 0)
        or crc32c(batch[ATTRIBUTES_AT:]) != crc
    ):
        raise _refusal(batch, config, partition_name)
    if config.message_timestamp_type == LOG_APPEND_TIME:
        if attributes & LOG_APPEND_TIME_FLAG:
            raise KafkaError(
                Error.INVALID_TIMESTAMP, f"a producer must not mark its batch as log-append time, on {partition_name}"
            )
    elif (
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


def _check_timestamps(base_ms: int, max_ms: int, config: TopicConfig, now_ms: int, partition_name: str) -> None:
    """A batch without timestamps is always in range."""
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    for timestamp in (base_ms, max_ms):
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            raise KafkaError(
                Error.INVALID_TIMESTAMP,
                f"timestamp {timestamp} is not within [{earliest}, {latest}], as {partition_name} demands",
            )


def _refusal(batch: memoryview, config: TopicConfig, partition_name: str) -> KafkaError:
    """Why `check_client_batch` refused, found in the order in which Kafka looks."""
    size = len(batch)
    if size < LENGTH_OVERHEAD:
        return _invalid(f"a produce request needs one record batch per partition, {partition_name} has none")
    length = int.from_bytes(batch[LENGTH_AT:LENGTH_OVERHEAD], "big", signed=True)
    if length < LENGTH_MIN:
        return _corrupt(f"a batch for {partition_name} gives its length as {length}")
    if size <= MAGIC_AT:
        return _invalid(f"a produce request needs one record batch per partition, {partition_name} has none")
    magic = batch[MAGIC_AT]
    if magic > MAGIC:
        return _corrupt(f"a batch for {partition_name} has the unknown magic {magic}")
    if length + LENGTH_OVERHEAD > size:
        return _invalid(f"the batch for {partition_name} is cut off: {size} bytes of {length + LENGTH_OVERHEAD}")
    if magic < MAGIC:
        return _invalid(f"a batch for {partition_name} has the old magic {magic}, producers must send {MAGIC}")
    if length + LENGTH_OVERHEAD < size:
        return _invalid(f"more than one record batch for {partition_name} in one request")
    if size < HEADER.size:
        return _corrupt(f"a batch for {partition_name} is shorter than its header")
    return _refusal_of_whole_batch(batch, HEADER.unpack_from(batch), config, partition_name)


def _refusal_of_whole_batch(
    batch: memoryview, fields: HeaderFields, config: TopicConfig, partition_name: str
) -> KafkaError:
    base_offset, _, _, _, crc, attributes, last_delta, _, _, _, _, sequence, count = fields
    if base_offset:
        return _invalid(f"the base offset of a batch for {partition_name} is {base_offset}, producers must send 0")
    if len(batch) > config.max_message_bytes:
        return KafkaError(
            Error.MESSAGE_TOO_LARGE,
            f"a batch of {len(batch)} bytes for {partition_name} exceeds max.message.bytes={config.max_message_bytes}",
        )
    if crc32c(batch[ATTRIBUTES_AT:]) != crc:
        return _corrupt(f"the checksum of a batch for {partition_name} does not match")
    if count <= 0 or count != last_delta + 1:
        return _invalid(f"a batch for {partition_name} has {count} records and offsets up to {last_delta}")
    if attributes & CONTROL_FLAG:
        return _invalid(f"a client may not write control records, to {partition_name}")
    return _invalid(f"a batch of an idempotent producer for {partition_name} has the sequence {sequence}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(Error.INVALID_RECORD, message)


def _corrupt(message: str) -> KafkaError:
    return KafkaError(Error.CORRUPT_MESSAGE, message)
