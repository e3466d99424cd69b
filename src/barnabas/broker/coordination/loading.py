"""Reading a coordinator's partition back, from its start to its end.

The log is read and decoded in a thread, a buffer at a time. What it says is replayed on the event loop in slices,
between which requests have their turn.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from barnabas.coordination.effects import NO_PRODUCER_ID, ProducerId
from barnabas.protocol.batch import crc_is_valid, iter_headers
from barnabas.protocol.control_records import ControlRecordType, decode_key
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.records import decode_records

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from barnabas.broker.coordination.kinds import Shard
    from barnabas.coordination.effects import Record
    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.positions import FileRange
    from barnabas.ports import Disk
    from barnabas.protocol.batch import BatchHeader
    from barnabas.protocol.varint import Buffer

    Decode = Callable[[Buffer | None, Buffer | None], Record | None]

SLICE_RECORDS = 500
"""Replayed between two turns of the event loop."""


class Said(NamedTuple):
    """What one record of the log says, to be replayed in the order of the log."""

    producer_id: ProducerId
    """`NO_PRODUCER_ID` unless this is part of a transaction."""
    content: Record | ControlRecordType
    """A control record commits or aborts what its producer said before."""


class Piece(NamedTuple):
    said: list[Said]
    next_offset: int


async def replay_log(
    log: PartitionLog,
    shard: Shard,
    decode: Decode,
    *,
    buffer_bytes: int,
    disk: Disk,
    run_in_thread: Callable[..., Awaitable[Piece]],
) -> None:
    """Replays what the log says up to where it ends now. OSError, KafkaError or DecodeError if it cannot be read."""
    limit = log.end_position
    offset = log.log_start_offset
    while offset < limit.offset:
        found = log.read(offset, buffer_bytes, limit, whole_first_batch=True)
        if found is None:
            return
        file = found.file.acquire()  # Idle files are closed, and their descriptors given to others.
        try:
            piece = await run_in_thread(_read_piece, disk, found, offset, log.name, decode)
        finally:
            file.release()
        for number, said in enumerate(piece.said, start=1):
            _replay(shard, said)
            if number % SLICE_RECORDS == 0:
                await asyncio.sleep(0)
        offset = piece.next_offset


def _replay(shard: Shard, said: Said) -> None:
    match said.content:
        case ControlRecordType.COMMIT:
            shard.commit_transaction(said.producer_id)
        case ControlRecordType.ABORT:
            shard.abort_transaction(said.producer_id)
        case ControlRecordType():
            pass  # Markers of other kinds say nothing to a coordinator.
        case record:
            shard.replay(record, said.producer_id)


def _read_piece(disk: Disk, found: FileRange, offset: int, name: str, decode: Decode) -> Piece:
    """Runs in a thread. A batch that is cut off by the end of the buffer is left for the next piece."""
    data = disk.pread(found.file.fd, found.length, found.position)
    said: list[Said] = []
    next_offset = offset
    for position, header in iter_headers(data):
        if not crc_is_valid(data, position, header.size):
            raise DecodeError(f"the batch of {name} at offset {header.base_offset} has a wrong checksum")
        said.extend(_said_in(memoryview(data)[position : position + header.size], header, offset, decode))
        next_offset = header.next_offset
    if next_offset == offset:
        raise DecodeError(f"{name} has no whole batch at offset {offset}")
    return Piece(said, next_offset)


def _said_in(batch: memoryview, header: BatchHeader, first_offset: int, decode: Decode) -> Iterator[Said]:
    """The first batch may begin before the log does."""
    producer_id = ProducerId(header.producer_id) if header.is_transactional else NO_PRODUCER_ID
    for each in decode_records(batch):
        if each.offset < first_offset:
            continue
        if header.is_control:
            yield Said(producer_id, decode_key(each.key or b""))
        elif (record := decode(each.key, each.value)) is not None:
            yield Said(producer_id, record)
