"""Logs and batches for tests: a log on a real folder, batches of any shape, and a way to read a log back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from barnabas.config.topic_config import TopicConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.ports import SystemDisk
from barnabas.protocol.batch import CRC_AT, HEADER, HEADER_SIZE, BatchHeader, build_batch, decode_records, read_header
from barnabas.protocol.record import Record
from barnabas.protocol.uuids import Uuid

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from barnabas.ports import Clock, Disk
    from barnabas.protocol.varint import Buffer
    from barnabas.testing.clock import ManualClock

from crc32c import crc32c

TOPIC = "t"
TOPIC_ID = Uuid(bytes(range(16)))


def batch(*values: bytes, timestamp: int = 1_700_000_000_000, **fields: Any) -> memoryview:
    """A producer's batch of records with these values."""
    records = [Record(value=value, timestamp=timestamp) for value in values]
    return memoryview(bytearray(build_batch(records, **fields)))


def copy_of(data: Buffer) -> memoryview:
    """A batch to append: the log puts offset and leader epoch into it, so a second append needs another copy."""
    return memoryview(bytearray(data))


def idempotent(producer_id: int, epoch: int, sequence: int, count: int = 1, **fields: Any) -> memoryview:
    values = [b"v"] * count
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


def altered(data: memoryview, **fields: int) -> memoryview:
    """The batch with other header fields, under a checksum that fits them unless `crc` is one of them."""
    header = read_header(data)._replace(**fields)
    changed = bytearray(data)
    HEADER.pack_into(changed, 0, *header)
    if "crc" not in fields:
        changed[CRC_AT : CRC_AT + 4] = crc32c(memoryview(changed)[CRC_AT + 4 :]).to_bytes(4, "big")
    return memoryview(changed)


def create(
    folder: Path | str, clock: Clock, config: TopicConfig | None = None, disk: Disk | None = None
) -> PartitionLog:
    return PartitionLog.create(
        f"{folder}/{TOPIC}-0", TOPIC, 0, TOPIC_ID, config or TopicConfig(), disk=disk or SystemDisk(), clock=clock
    )


def reopen(
    log: PartitionLog,
    clock: ManualClock,
    *,
    clean_shutdown: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    disk: Disk | None = None,
) -> PartitionLog:
    """The log as the next process finds it. After a clean shutdown the caller has closed it before."""
    return PartitionLog.open(
        log.folder,
        log.topic,
        log.partition,
        log.config,
        disk=disk or SystemDisk(),
        clock=clock,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        clean_shutdown=clean_shutdown,
    )


def put_to_sleep(log: PartitionLog) -> None:
    """Lets time pass until the log counts as idle: its files are closed, and what waited in memory is in them."""
    log.release_if_idle()
    log.release_if_idle()


def read_bytes(log: PartitionLog, offset: int, max_bytes: int = 1 << 20) -> bytes:
    found = log.read(offset, max_bytes, log.end_position, whole_first_batch=True)
    return b"" if found is None else log.segments.disk.pread(found.file.fd, found.length, found.position)


def read_records(log: PartitionLog, offset: int | None = None) -> list[Record]:
    """Every record from an offset on, fetched as a consumer does: from where the last answer ended."""
    offset = log.log_start_offset if offset is None else offset
    records: list[Record] = []
    while data := read_bytes(log, offset):
        position = 0
        while position + HEADER_SIZE <= len(data):
            header = read_header(data, position)
            if position + header.size > len(data):
                break
            records += (each for each in decode_records(data, position) if each.offset >= offset)
            offset = header.next_offset
            position += header.size
    return records


def stored_header(log: PartitionLog, offset: int) -> BatchHeader:
    return read_header(read_bytes(log, offset, 1))


def files_of(log: PartitionLog) -> dict[str, bytes]:
    contents = {}
    for name in sorted(os.listdir(log.folder)):
        with open(f"{log.folder}/{name}", "rb") as file:
            contents[name] = file.read()
    return contents
