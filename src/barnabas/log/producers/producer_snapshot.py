"""Producer state in a file: `<offset>.snapshot` holds what was known of all producers before that offset.

One is written when a segment begins and when the log is closed; opening a log loads the newest and replays only the
batches after it.

    version int16 = 1 · crc-32c of all that follows uint32 · count int32 · entries:
    producer id int64 · epoch int16 · last sequence int32 · last offset int64 · offset delta int32
    · timestamp int64 · coordinator epoch int32 · first offset of the open transaction int64, -1 without one

Kafka's format ends here and has room for the last batch of each producer only. A producer that has several on their way
when a broker stops may send them all again, to a broker that has just been started: if it knew the last one only, it
would refuse the others as out of order, and there are clients that then write them once more. So the earlier batches
follow, oldest first, in bytes that Kafka checks and does not read:

    producer id int64 · first sequence int32 · last sequence int32 · first offset int64 · last offset int64
    · timestamp int64
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from barnabas.log.producers.producer_state import NO_OFFSET, SEQUENCE_MAX, ProducerEntry, RememberedBatch
from barnabas.protocol.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.ports import Disk

VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_EARLIER_BATCH = struct.Struct(">qiiqqq")


class CorruptSnapshotError(Exception):
    """The file does not hold a whole snapshot. An older one, or the log itself, is used instead."""


def encode_snapshot(producers: Mapping[int, ProducerEntry]) -> bytes:
    body = bytearray(_COUNT.pack(len(producers)))
    for producer_id, entry in producers.items():
        last = entry.batches[-1] if entry.batches else None
        body += _ENTRY.pack(
            producer_id,
            entry.epoch,
            entry.last_sequence,
            last.last_offset if last else NO_OFFSET,
            last.last_offset - last.first_offset if last else 0,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.txn_first_offset,
        )
    for producer_id, entry in producers.items():
        for batch in entry.batches[:-1]:
            body += _EARLIER_BATCH.pack(producer_id, *batch)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[tuple[int, ProducerEntry]]:
    try:
        version, crc = _HEAD.unpack_from(data)
        (count,) = _COUNT.unpack_from(data, _HEAD.size)
    except struct.error:
        raise CorruptSnapshotError(f"{len(data)} bytes are too few for a snapshot") from None
    if version != VERSION:
        raise CorruptSnapshotError(f"Snapshot contained an unknown file version {version}")
    if crc != crc32c(data[_HEAD.size :]):
        raise CorruptSnapshotError(f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {crc}")
    entries_at = _HEAD.size + _COUNT.size
    earlier_at = entries_at + count * _ENTRY.size
    if count < 0 or len(data) < earlier_at or (len(data) - earlier_at) % _EARLIER_BATCH.size:
        raise CorruptSnapshotError(f"{len(data) - entries_at} bytes do not hold {count} producers")
    entries = [_decode_entry(*fields) for fields in _ENTRY.iter_unpack(data[entries_at:earlier_at])]
    _add_earlier_batches(dict(entries), data[earlier_at:])
    return entries


def _add_earlier_batches(producers: Mapping[int, ProducerEntry], data: bytes) -> None:
    earlier: dict[int, list[RememberedBatch]] = {}
    for producer_id, *batch in _EARLIER_BATCH.iter_unpack(data):
        earlier.setdefault(producer_id, []).append(RememberedBatch(*batch))
    for producer_id, batches in earlier.items():
        if producer_id not in producers:
            raise CorruptSnapshotError(f"there are batches of producer {producer_id}, which is not in it")
        producers[producer_id].batches[:0] = batches


def _decode_entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    txn_first_offset: int,
) -> tuple[int, ProducerEntry]:
    entry = ProducerEntry(epoch)
    entry.coordinator_epoch = coordinator_epoch
    entry.txn_first_offset = txn_first_offset
    entry.last_timestamp = timestamp
    if last_offset >= 0:
        first_sequence = last_sequence - offset_delta
        if first_sequence < 0 <= last_sequence:
            first_sequence += SEQUENCE_MAX + 1
        first_offset = last_offset - offset_delta
        entry.batches.append(RememberedBatch(first_sequence, last_sequence, first_offset, last_offset, timestamp))
    return producer_id, entry


def write_snapshot(disk: Disk, path: str, producers: Mapping[int, ProducerEntry]) -> None:
    """Writes without fsync: a snapshot that is torn by a crash fails its checksum and is not used."""
    data = encode_snapshot(producers)
    fd = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        written = 0
        while written < len(data):
            written += disk.pwrite(fd, data[written:], written)
    finally:
        disk.close(fd)


def read_snapshot(disk: Disk, path: str) -> list[tuple[int, ProducerEntry]]:
    fd = disk.open(path, os.O_RDONLY)
    try:
        data = disk.pread(fd, disk.size(path), 0)
    finally:
        disk.close(fd)
    return decode_snapshot(data)
