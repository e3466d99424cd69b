"""The records of a turn as batches for the log: as few as the topic's limit on the size of a batch allows.

The records of one step stay together where they fit. A step that is larger than a batch may be, such as the expiry of
very many offsets, is spread over several: each record stands for itself when it is replayed. What belongs to a
producer's transaction is in batches of that producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.batch import HEADER_SIZE, build_plain_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.coordination.effects import Effects, Producer, Record

    Pair = tuple[bytes, bytes | None]
    Encode = Callable[[Record], Pair]

RECORD_OVERHEAD_BYTES = 32
"""At most: a record's length, attributes, deltas, lengths of key and value, and count of headers."""


FIRST_SEQUENCE = 0
"""Of batches that say that their records are numbered from 0: coordinators number nothing, and logs do not ask them to,
but Kafka's coordinator of groups writes this, and its coordinator of transactions does not."""


def batches_of(
    steps: Sequence[Effects], encode: Encode, max_bytes: int, now_ms: int, base_sequence: int = FIRST_SEQUENCE
) -> list[bytes]:
    """In order, uncompressed, each of at most `max_bytes` unless a single record is larger."""
    if len(steps) == 1 and len(steps[0].records) == 1:  # A commit of one offset, as most are.
        return [_batch([encode(steps[0].records[0])], now_ms, steps[0].producer, base_sequence)]
    batches: list[bytes] = []
    filling: list[Pair] = []
    size = HEADER_SIZE
    producer: Producer | None = None
    for step in steps:
        pairs = [encode(record) for record in step.records]
        if filling and (step.producer != producer or size + sum(map(_size_of, pairs)) > max_bytes):
            batches.append(_batch(filling, now_ms, producer, base_sequence))
            filling, size = [], HEADER_SIZE
        producer = step.producer
        for pair in pairs:
            pair_size = _size_of(pair)
            if filling and size + pair_size > max_bytes:
                batches.append(_batch(filling, now_ms, producer, base_sequence))
                filling, size = [], HEADER_SIZE
            filling.append(pair)
            size += pair_size
    if filling:
        batches.append(_batch(filling, now_ms, producer, base_sequence))
    return batches


def _batch(pairs: list[Pair], now_ms: int, producer: Producer | None, base_sequence: int) -> bytes:
    if producer is None:
        return build_plain_batch(pairs, now_ms, base_sequence=base_sequence)
    return build_plain_batch(
        pairs,
        now_ms,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=base_sequence,
        is_transactional=True,
    )


def _size_of(pair: Pair) -> int:
    key, value = pair
    return RECORD_OVERHEAD_BYTES + len(key) + (len(value) if value else 0)
