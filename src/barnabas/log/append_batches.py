"""What an append writes: a client's batch with the fields that the log assigns, or an end-of-transaction marker.

The log assigns the base offset and the leader epoch, which precede the part that the checksum covers. Log append time
is the one change that requires a new checksum. Both are put into the bytes that the client sent, in place, so that a
batch is written as one piece: two cost a third more system time.

A marker is a control batch of one record that commits or aborts what its producer wrote before it. It carries the
producer's id and epoch but no sequence number. Consumers receive it, act on it and skip it.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from barnabas.protocol.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    MAX_TIMESTAMP_AT,
    build_batch,
)
from barnabas.protocol.checksum import crc32c
from barnabas.protocol.control_records import ControlRecordType, encode_end_transaction
from barnabas.protocol.record import Record

put_assigned = Struct(">qii").pack_into
"""Writes the first fields of a batch: base offset, length and leader epoch."""
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


def stamp(batch: memoryview, attributes: int, max_ms: int) -> None:
    """Gives a batch other attributes and another largest timestamp, in place, and the checksum to match."""
    _INT16.pack_into(batch, ATTRIBUTES_AT, attributes)
    _INT64.pack_into(batch, MAX_TIMESTAMP_AT, max_ms)
    _UINT32.pack_into(batch, CRC_AT, crc32c(batch[ATTRIBUTES_AT:]))


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
