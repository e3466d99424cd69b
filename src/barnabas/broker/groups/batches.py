"""The records of a turn as batches for the log: as few as the topic's limit on the size of a batch allows.

The records of one step stay together where they fit. A step that is larger than a batch may be, such as the expiry of
very many offsets, is spread over several: each record stands for itself when it is replayed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.groups import records
from barnabas.protocol.batch import HEADER_SIZE, build_batch
from barnabas.protocol.record import Record as LogRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.coordination.effects import Record

RECORD_OVERHEAD_BYTES = 32
"""At most: a record's length, attributes, deltas, lengths of key and value, and count of headers."""


def batches_of(steps: Sequence[Sequence[Record]], max_bytes: int, now_ms: int) -> Iterator[bytes]:
    """In order, uncompressed, each of at most `max_bytes` unless a single record is larger."""
    batch: list[LogRecord] = []
    size = HEADER_SIZE
    for step in steps:
        encoded = [_encode(record, now_ms) for record in step]
        step_size = sum(map(_size_of, encoded))
        if batch and size + step_size > max_bytes:
            yield build_batch(batch)
            batch, size = [], HEADER_SIZE
        for record in encoded:
            record_size = _size_of(record)
            if batch and size + record_size > max_bytes:
                yield build_batch(batch)
                batch, size = [], HEADER_SIZE
            batch.append(record)
            size += record_size
    if batch:
        yield build_batch(batch)


def _encode(record: Record, now_ms: int) -> LogRecord:
    key, value = records.encode(record)
    return LogRecord(value=value, key=key, timestamp=now_ms)


def _size_of(record: LogRecord) -> int:
    return RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
