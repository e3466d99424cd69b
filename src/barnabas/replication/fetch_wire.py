"""The bytes of a follower's Fetch requests and of their answers, written and read by hand: all that is written
anywhere in a cluster passes here as often as it is copied.

A request (v17): max wait, min bytes, max bytes, isolation, session id and epoch; topics by id, each with partitions
(index, leader epoch, offset, last fetched epoch, log start, max bytes); forgotten topics with indexes; rack; as a tag,
which replica asks in which broker epoch.

An answer: throttle time, error, session id; topics by id, each with partitions (index, error, high watermark, last
stable offset, log start, aborted transactions, preferred replica, records, tags: the diverging epoch is number 0).
Records are views of the buffer that the answer lies in.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812 (an exception class in all but name)
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import DecodeError
from barnabas.protocol.varint import read_uvarint, write_uvarint
from barnabas.replication.follower import EpochEnd

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

VERSION = 17
NO_SESSION = 0
INITIAL_EPOCH = 0
TOPIC_ID_BYTES = 16

_REQUEST_HEAD = Struct(">iiibii")
_PARTITION = Struct(">iiqiqib")
_INDEX = Struct(">i")
_REPLICA_STATE = Struct(">iqb")
_ANSWER_HEAD = Struct(">ihi")
_PARTITION_HEAD = Struct(">ihqqq")
_ABORTED_BYTES = 17
_PREFERRED_REPLICA_BYTES = 4
_EPOCH_END = Struct(">iq")
_DIVERGING_EPOCH_TAG = 0


class AskedPartition(NamedTuple):
    partition: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class FetchLimits(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int


class FetchedPartition(NamedTuple):
    topic_id: bytes
    partition: int
    error: int
    high_watermark: int
    log_start_offset: int
    diverging: EpochEnd | None
    records: memoryview


class FetchAnswer(NamedTuple):
    error: int
    session_id: int
    partitions: Iterator[FetchedPartition]
    """Raises DecodeError where the answer breaks off."""


def write_request(
    limits: FetchLimits,
    session_id: int,
    session_epoch: int,
    topics: Mapping[bytes, Sequence[AskedPartition]],
    forgotten: Mapping[bytes, Sequence[int]],
    replica_id: int,
    broker_epoch: int,
) -> bytes:
    out = bytearray(
        _REQUEST_HEAD.pack(limits.max_wait_ms, limits.min_bytes, limits.max_bytes, 0, session_id, session_epoch)
    )
    write_uvarint(out, len(topics) + 1)
    for topic_id, partitions in topics.items():
        out += topic_id
        write_uvarint(out, len(partitions) + 1)
        for index, leader_epoch, offset, last_epoch, log_start in partitions:
            out += _PARTITION.pack(index, leader_epoch, offset, last_epoch, log_start, limits.partition_max_bytes, 0)
        out.append(0)
    write_uvarint(out, len(forgotten) + 1)
    for topic_id, indexes in forgotten.items():
        out += topic_id
        write_uvarint(out, len(indexes) + 1)
        for index in indexes:
            out += _INDEX.pack(index)
        out.append(0)
    # No rack; one tag, number 1, of 13 bytes.
    out += b"\x01\x01\x01\x0d"
    out += _REPLICA_STATE.pack(replica_id, broker_epoch, 0)
    return bytes(out)


def read_answer(body: memoryview) -> FetchAnswer:
    try:
        _, error, session_id = _ANSWER_HEAD.unpack_from(body)
    except StructError as broken:
        raise DecodeError(f"a Fetch answer breaks off: {broken}") from broken
    return FetchAnswer(error, session_id, _read_partitions(body, _ANSWER_HEAD.size))


def _read_partitions(body: memoryview, position: int) -> Iterator[FetchedPartition]:
    try:
        topic_count, position = read_uvarint(body, position)
        for _ in range(topic_count - 1):
            topic_id = bytes(body[position : position + TOPIC_ID_BYTES])
            partition_count, position = read_uvarint(body, position + TOPIC_ID_BYTES)
            for _ in range(partition_count - 1):
                partition, position = _read_partition(body, position, topic_id)
                yield partition
            position, _ = _skip_tags(body, position)
    except (StructError, IndexError) as broken:
        raise DecodeError(f"a Fetch answer breaks off at byte {position}: {broken}") from broken


def _read_partition(body: memoryview, position: int, topic_id: bytes) -> tuple[FetchedPartition, int]:
    index, error, high_watermark, _, log_start = _PARTITION_HEAD.unpack_from(body, position)
    aborted_count, position = read_uvarint(body, position + _PARTITION_HEAD.size)
    position += max(aborted_count - 1, 0) * _ABORTED_BYTES + _PREFERRED_REPLICA_BYTES
    size, position = read_uvarint(body, position)
    end = position + max(size - 1, 0)
    if end >= len(body):
        raise DecodeError(f"records of {size - 1} bytes reach past the end of a Fetch answer")
    records = body[position:end]
    diverging = None
    if body[end]:
        position, diverging = _skip_tags(body, end)
    else:
        position = end + 1
    return FetchedPartition(topic_id, index, error, high_watermark, log_start, diverging, records), position


def _skip_tags(body: memoryview, position: int) -> tuple[int, EpochEnd | None]:
    """Where the tags end, and the one that a follower cares for."""
    diverging = None
    count, position = read_uvarint(body, position)
    for _ in range(count):
        tag, position = read_uvarint(body, position)
        size, position = read_uvarint(body, position)
        if tag == _DIVERGING_EPOCH_TAG and size >= _EPOCH_END.size:
            diverging = EpochEnd(*_EPOCH_END.unpack_from(body, position))
        position += size
    return position, diverging


def by_topic(keys: Iterable[tuple[bytes, int]]) -> dict[bytes, list[int]]:
    """Indexes of partitions, grouped."""
    grouped: dict[bytes, list[int]] = {}
    for topic_id, index in keys:
        grouped.setdefault(topic_id, []).append(index)
    return grouped
