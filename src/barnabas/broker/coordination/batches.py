"""The records of a turn as batches for the log: as few as the topic's limit on the size of a batch allows.

The records of one step stay together where they fit. A step that is larger than a batch may be, such as the expiry of
very many offsets, is spread over several: each record stands for itself when it is replayed. What belongs to a
producer's transaction is in batches of that producer.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.batch import HEADER_SIZE, build_batch
from barnabas.protocol.record import Record as LogRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from barnabas.coordination.effects import Producer, Record

    Encode = Callable[[Record], tuple[bytes, bytes | None]]

RECORD_OVERHEAD_BYTES = 32
"""At most: a record's length, attributes, deltas, lengths of key and value, and count of headers."""


FIRST_SEQUENCE = 0
"""Of batches that say that their records are numbered from 0: coordinators number nothing, and logs do not ask them to,
but Kafka's coordinator of groups writes this, and its coordinator of transactions does not."""


class Written(NamedTuple):
    """What one step wants written."""

    producer: Producer | None
    records: Sequence[Record]


def batches_of(
    steps: Iterable[Written], encode: Encode, max_bytes: int, now_ms: int, base_sequence: int = FIRST_SEQUENCE
) -> Iterator[bytes]:
    """In order, uncompressed, each of at most `max_bytes` unless a single record is larger."""
    for producer, of_producer in groupby(steps, attrgetter("producer")):
        encoded = ([_encode(encode, record, now_ms) for record in step.records] for step in of_producer)
        for batch in _filled(encoded, max_bytes):
            if producer is None:
                yield build_batch(batch, base_sequence=base_sequence)
            else:
                yield build_batch(
                    batch,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    base_sequence=base_sequence,
                    is_transactional=True,
                )


def _filled(steps: Iterable[list[LogRecord]], max_bytes: int) -> Iterator[list[LogRecord]]:
    batch: list[LogRecord] = []
    size = HEADER_SIZE
    for step in steps:
        step_size = sum(map(_size_of, step))
        if batch and size + step_size > max_bytes:
            yield batch
            batch, size = [], HEADER_SIZE
        if size + step_size <= max_bytes:
            batch += step
            size += step_size
            continue
        for record in step:
            record_size = _size_of(record)
            if batch and size + record_size > max_bytes:
                yield batch
                batch, size = [], HEADER_SIZE
            batch.append(record)
            size += record_size
    if batch:
        yield batch


def _encode(encode: Encode, record: Record, now_ms: int) -> LogRecord:
    key, value = encode(record)
    return LogRecord(value=value, key=key, timestamp=now_ms)


def _size_of(record: LogRecord) -> int:
    key, value = record.key, record.value
    return RECORD_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
