"""What an append writes: a client's batch with the fields that the log assigns, or an end-of-transaction marker.

The log assigns the base offset and the leader epoch, which precede the part that the checksum covers. Log append time
is the one change that requires a new checksum.

A marker is a control batch of one record that commits or aborts what its producer wrote before it. It carries the
producer's id and epoch but no sequence number. Consumers receive it, act on it and skip it.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    build_batch,
)
from barnabas.protocol.checksum import crc32c
from barnabas.protocol.control_records import ControlRecordType, encode_end_transaction
from barnabas.protocol.record import Record

if TYPE_CHECKING:
    from barnabas.log.batch_validation import HeaderFields
    from barnabas.protocol.varint import Buffer

ASSIGNED = Struct(">qii")
"""The first fields of a batch: base offset, length and leader epoch."""
COORDINATOR_FIELDS = Struct(">2xi8xqq")
"""From the attributes on: last offset delta, largest timestamp and producer id; the rest is skipped."""

new_tuple = tuple.__new__
"""`new_tuple(Appended, (…))` takes half of the time that `Appended(…)` takes, which counts on the path of every
append."""

_INT16 = Struct(">h")
_INT64 = Struct(">q")
_UINT32 = Struct(">I")


class Appended(NamedTuple):
    """Where an append put its batches."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the log stamped the batch. For a duplicate, the timestamp of the original batch, as Kafka answers."""
    log_start_offset: int
    is_duplicate: bool


class EndMarker(NamedTuple):
    """What a transaction coordinator asks a partition to write."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int


def stamped_batch(
    batch: memoryview, fields: HeaderFields, base_offset: int, leader_epoch: int, stamp_ms: int
) -> tuple[Buffer, Buffer]:
    """A batch whose timestamp type changes, in two pieces, the second of which is the client's own bytes. `stamp_ms` is
    the log append time, or -1 for a batch that wrongly claims to have one, and keeps the client's timestamps."""
    length, attributes, max_ms = fields[1], fields[5], fields[8]
    size = length + LENGTH_OVERHEAD
    assigned = ASSIGNED.pack(base_offset, length, leader_epoch)
    if stamp_ms >= 0:
        head = _stamped(batch[:size], assigned, attributes | LOG_APPEND_TIME_FLAG, stamp_ms)
    else:
        head = _stamped(batch[:size], assigned, attributes & ~LOG_APPEND_TIME_FLAG, max_ms)
    return head, batch[HEADER_SIZE:size]


def build_marker(
    marker: EndMarker, base_offset: int, leader_epoch: int, now_ms: int, *, log_append_time: bool
) -> bytes:
    """The marker as a batch, ready to be written."""
    kind = ControlRecordType.COMMIT if marker.is_commit else ControlRecordType.ABORT
    key, value = encode_end_transaction(kind, marker.coordinator_epoch)
    return build_batch(
        [Record(key=key, value=value, timestamp=now_ms, offset=base_offset)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_transactional=True,
        is_control=True,
        log_append_time=log_append_time,
    )


def _stamped(batch: memoryview, assigned: bytes, attributes: int, max_ms: int) -> bytearray:
    """The header with another timestamp type and largest timestamp, and the checksum to match."""
    head = bytearray(batch[:HEADER_SIZE])
    head[:MAGIC_AT] = assigned
    _INT16.pack_into(head, ATTRIBUTES_AT, attributes)
    _INT64.pack_into(head, MAX_TIMESTAMP_AT, max_ms)
    _UINT32.pack_into(head, CRC_AT, crc32c(batch[HEADER_SIZE:], crc32c(memoryview(head)[ATTRIBUTES_AT:])))
    return head
