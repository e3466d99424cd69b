"""Loading a coordinator's partition: its log is replayed into a shard, from its start to its end.

The log is read and decoded in a thread, a buffer at a time. Its records are replayed on the event loop in slices,
between which requests are handled.

A record of an unknown type is skipped with a warning: a downgrade leaves such records behind. A record that cannot be
decoded fails the load: what it said is unknown, and so is the state.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.coordination.effects import NO_PRODUCER_ID, ProducerId
from barnabas.protocol.batch import crc_is_valid, decode_records, iter_headers
from barnabas.protocol.control_records import ControlRecordType, decode_key
from barnabas.protocol.errors import DecodeError, UnknownFormatError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from barnabas.broker.coordinators.coordinator_spec import CoordinatorShard
    from barnabas.coordination.effects import Record
    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.segments.open_files import FileRange
    from barnabas.ports import Disk
    from barnabas.protocol.batch import BatchHeader
    from barnabas.protocol.record import Record as LogRecord
    from barnabas.protocol.varint import Buffer

    Decode = Callable[[Buffer | None, Buffer | None], Record | None]

logger = logging.getLogger("barnabas.coordination")

SLICE_RECORDS = 500
"""Replayed between two turns of the event loop."""
KEY_BYTES_SHOWN_MAX = 32


class UndecodableRecordError(DecodeError):
    """A record that is whole and says nothing that anybody understands. Reading it again would not help."""


class LoggedRecord(NamedTuple):
    """One record of the log, decoded."""

    producer_id: ProducerId
    """`NO_PRODUCER_ID` unless the record is part of a transaction."""
    content: Record | ControlRecordType
    """A control record commits or aborts what its producer wrote before."""


class LogChunk(NamedTuple):
    records: list[LoggedRecord]
    next_offset: int


async def replay_log(
    log: PartitionLog,
    shard: CoordinatorShard,
    decode: Decode,
    *,
    buffer_bytes: int,
    disk: Disk,
    run_in_thread: Callable[..., Awaitable[Any]],
) -> None:
    """Replays the log up to its current end. Raises OSError, KafkaError or DecodeError if it cannot be read."""
    reader = _Reader(log.name, decode)
    end_offset = log.log_end_offset
    offset = log.log_start_offset
    while offset < end_offset:
        # Where the end lies is looked up each time: meanwhile, the cleaner may have put another segment there.
        found = log.read(offset, buffer_bytes, log.position_of(end_offset), whole_first_batch=True)
        if found is None:
            _check_that_nothing_is_left(log, offset, end_offset)
            return
        file = found.file.acquire()  # Idle files are closed, and their descriptors given to others.
        try:
            chunk: LogChunk = await run_in_thread(reader.read_chunk, disk, found, offset)
        finally:
            file.release()
        for number, logged in enumerate(chunk.records, start=1):
            _replay(shard, logged)
            if number % SLICE_RECORDS == 0:
                await asyncio.sleep(0)
        offset = chunk.next_offset


def _check_that_nothing_is_left(log: PartitionLog, offset: int, end_offset: int) -> None:
    """Compaction may have removed all between two offsets, but never the last batch of a log: one must follow."""
    if log.log_end_offset < end_offset or log.segments.find(offset) is None:
        raise DecodeError(f"{log.name} has no batch at or after offset {offset}, and should go on to {end_offset}")


def _replay(shard: CoordinatorShard, logged: LoggedRecord) -> None:
    match logged.content:
        case ControlRecordType.COMMIT:
            shard.commit_transaction(logged.producer_id)
        case ControlRecordType.ABORT:
            shard.abort_transaction(logged.producer_id)
        case ControlRecordType():
            pass  # Control records of other types mean nothing to a coordinator.
        case record:
            shard.replay(record, logged.producer_id)


class _Reader:
    """Reads one partition's log. Used by one thread at a time."""

    def __init__(self, name: str, decode: Decode) -> None:
        self._name = name
        self._decode = decode
        self._passed_over: set[str] = set()
        """Reasons that were logged: each once."""

    def read_chunk(self, disk: Disk, found: FileRange, offset: int) -> LogChunk:
        """Runs in a thread. A batch that the end of the buffer cuts off is left for the next chunk."""
        data = disk.pread(found.file.fd, found.length, found.position)
        records: list[LoggedRecord] = []
        next_offset = offset
        for position, header in iter_headers(data):
            if not crc_is_valid(data, position, header.size):
                raise DecodeError(f"the batch of {self._name} at offset {header.base_offset} has an invalid checksum")
            records.extend(self._records_in(memoryview(data)[position : position + header.size], header, offset))
            next_offset = header.next_offset
        if next_offset == offset:
            raise DecodeError(f"{self._name} has no complete batch at offset {offset}")
        return LogChunk(records, next_offset)

    def _records_in(self, batch: memoryview, header: BatchHeader, first_offset: int) -> Iterator[LoggedRecord]:
        """The first batch may start before the log start offset."""
        producer_id = ProducerId(header.producer_id) if header.is_transactional else NO_PRODUCER_ID
        for each in self._decoded(batch, header):
            if each.offset < first_offset:
                continue
            try:
                if header.is_control:
                    yield LoggedRecord(producer_id, decode_key(each.key or b""))
                elif (record := self._decode(each.key, each.value)) is not None:
                    yield LoggedRecord(producer_id, record)
            except UnknownFormatError as error:
                self._pass_over(each.offset, str(error))
            except DecodeError as error:
                raise UndecodableRecordError(
                    f"the record at offset {each.offset} of {self._name}, {_shown(each)}, cannot be decoded: {error}"
                ) from error

    def _decoded(self, batch: memoryview, header: BatchHeader) -> list[LogRecord]:
        try:
            return decode_records(batch)
        except DecodeError as error:
            raise UndecodableRecordError(
                f"the records of {self._name} from offset {header.base_offset} to {header.last_offset} cannot be "
                f"decoded: {error}"
            ) from error

    def _pass_over(self, offset: int, reason: str) -> None:
        if reason not in self._passed_over:
            self._passed_over.add(reason)
            logger.warning(
                "%s at offset %d of %s: this and others like it are ignored, and may be left over from an aborted "
                "upgrade",
                reason,
                offset,
                self._name,
            )


def _shown(record: LogRecord) -> str:
    key, value = record.key, record.value
    shown = "no key" if key is None else f"key {bytes(key[:KEY_BYTES_SHOWN_MAX]).hex()} of {len(key)} bytes"
    return f"{shown} and {'no value' if value is None else f'a value of {len(value)} bytes'}"
