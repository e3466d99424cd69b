"""Writing to a coordinator's partition: the records of a turn as batches, and what clients are told when that fails.

A turn takes as few batches as the topic's limit on their size allows. The records of one step stay together where they
fit. A step that exceeds the limit, such as the expiry of very many offsets, is spread over several batches: each record
can be replayed on its own. Records of a producer's transaction are in batches of that producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.batch import HEADER_SIZE, build_plain_batch
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.coordination.effects import Effects, Producer, Record

    Pair = tuple[bytes, bytes | None]
    Encode = Callable[[Record], Pair]

RECORD_OVERHEAD_BYTES = 32
"""An upper bound: a record's length, attributes, deltas, lengths of key and value, and count of headers."""

FIRST_SEQUENCE = 0
"""The base sequence that Kafka's group coordinator writes, unlike its transaction coordinator. Neither numbers its
records, and logs do not check."""

_ERRORS_FOR_CLIENTS: Mapping[Error, Error] = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.REQUEST_TIMED_OUT: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR,
    Error.KAFKA_STORAGE_ERROR: Error.NOT_COORDINATOR,
    Error.MESSAGE_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
    Error.RECORD_LIST_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
}


def batches_of(
    steps: Sequence[Effects], encode: Encode, max_bytes: int, now_ms: int, base_sequence: int = FIRST_SEQUENCE
) -> list[bytearray]:
    """In order, uncompressed, each no larger than `max_bytes` unless a single record is."""
    if len(steps) == 1 and len(steps[0].records) == 1:  # A commit of one offset, as most are.
        return [_batch([encode(steps[0].records[0])], now_ms, steps[0].producer, base_sequence)]
    batches: list[bytearray] = []
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


def _batch(pairs: list[Pair], now_ms: int, producer: Producer | None, base_sequence: int) -> bytearray:
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


def for_clients(error: KafkaError) -> KafkaError:
    """The same failure as an error that clients of a coordinator know. They do not know those of produce requests, only
    three reactions: find the coordinator again, retry soon, or give up."""
    return KafkaError(_ERRORS_FOR_CLIENTS.get(error.error, error.error), error.message)
