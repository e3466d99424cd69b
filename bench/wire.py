"""Hand-made Kafka frames for loads that must not spend their time in a client library.

Nothing here comes from the broker under test: a fault in its codec would otherwise cancel out. The layout of
Produce v12 around one batch, all integers big-endian, lengths as unsigned varints of (n + 1):

    size i32 | api 0 i16, version 12 i16, correlation i32, client id string(i16), tags
    transactional id null, acks i16, timeout i32, [topic name, [partition i32, records bytes, tags], tags], tags
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

CLIENT_ID = b"bench"
PRODUCE, METADATA = 0, 3
PRODUCE_VERSION, METADATA_VERSION = 12, 4
ACKS_ALL, ACKS_LEADER = -1, 1
TIMEOUT_MS = 30_000
TRANSACTIONAL = 0x10
CORRELATION_AT = 8
"""Where a request frame holds its correlation id, after size, api key and version."""

_RETRIABLE_AT_START = frozenset({3, 5, 6, 13})
"""Errors of a node that is about to serve: unknown topic, no leader, not the leader, no connection yet."""

_RETRY_SECONDS = 0.001

PARTITION_REPLY_BYTES = 4 + 2 + 8 + 8 + 8 + 1 + 1 + 1
"""Index, error, base offset, append time, log start, no record errors, no message, tags."""

_ERROR = struct.Struct(">h")


class WireError(RuntimeError):
    """An answer that is not the expected one; a benchmark on top of it would measure something else."""


@dataclass(frozen=True, slots=True)
class ProduceReply:
    """Where things are in the answer to a Produce of some partitions that succeeded; such answers have one length."""

    size_bytes: int
    error_at: int
    """Of the first partition; that of each further one is `PARTITION_REPLY_BYTES` later."""
    partitions: int = 1

    @staticmethod
    def of(topic: str, partitions: int = 1) -> ProduceReply:
        # size, correlation, tags | one topic, its name, the partitions | index, then the error code
        name = topic.encode()
        error_at = 4 + 4 + 1 + 1 + len(_uvarint(len(name) + 1)) + len(name) + len(_uvarint(partitions + 1)) + 4
        # … | topic tags | throttle, tags
        size_bytes = error_at - 4 + partitions * PARTITION_REPLY_BYTES + 1 + 4 + 1
        return ProduceReply(size_bytes, error_at, partitions)

    def first_error(self, answer: bytes, at: int = 0) -> int:
        """The first error code in the answer that begins at `at`; 0 when there is none."""
        for partition in range(self.partitions):
            error: int = _ERROR.unpack_from(answer, at + self.error_at + partition * PARTITION_REPLY_BYTES)[0]
            if error:
                return error
        return 0


def record_batch(values: Sequence[bytes], timestamp_ms: int) -> bytes:
    """One uncompressed magic-2 batch of keyless records, offsets from 0."""
    return _batch(records_of(values), len(values), timestamp_ms, attributes=0, producer_id=-1, epoch=-1, sequence=-1)


def transactional_batch(records: bytes, count: int, timestamp_ms: int, producer_id: int, epoch: int) -> bytes:
    """A batch of encoded records, the first that this epoch of the producer writes to a partition."""
    return _batch(records, count, timestamp_ms, TRANSACTIONAL, producer_id, epoch, sequence=0)


def records_of(values: Sequence[bytes]) -> bytes:
    """Keyless records as they stand in a batch, for whoever sends the same ones again and again."""
    return b"".join(_record(delta, value) for delta, value in enumerate(values))


def _batch(
    records: bytes, count: int, timestamp_ms: int, attributes: int, producer_id: int, epoch: int, sequence: int
) -> bytes:
    covered = (
        struct.pack(">hiqqqhii", attributes, count - 1, timestamp_ms, timestamp_ms, producer_id, epoch, sequence, count)
        + records
    )
    head = struct.pack(">qiibI", 0, 4 + 1 + 4 + len(covered), -1, 2, crc32c.crc32c(covered))
    return head + covered


def produce_frame(topic: str, partitions: Sequence[int], batch: bytes, acks: int = ACKS_LEADER) -> bytes:
    """A Produce request, the same batch for each partition; its correlation id is 0 until the sender
    writes one at `CORRELATION_AT`."""
    name = topic.encode()
    body = b"".join(
        (
            struct.pack(">bhi", 0, acks, TIMEOUT_MS),
            b"\x02" + _uvarint(len(name) + 1) + name,
            _uvarint(len(partitions) + 1),
            *(struct.pack(">i", each) + _uvarint(len(batch) + 1) + batch + b"\x00" for each in partitions),
            b"\x00\x00",
        )
    )
    return _frame(PRODUCE, PRODUCE_VERSION, b"\x00" + body)


def first_acknowledged(host: str, port: int, topic: str, seconds_max: float, acks: int = ACKS_LEADER) -> None:
    """Returns when a record to partition 0 of the topic, created on demand, has been acknowledged."""
    deadline = time.monotonic() + seconds_max
    metadata = _metadata_frame(topic)
    produce = produce_frame(topic, [0], record_batch([b"first"], int(time.time() * 1000)), acks)
    while True:
        try:
            with socket.create_connection((host, port), timeout=seconds_max) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while True:
                    exchange(connection, metadata)
                    error = _produce_error(topic, exchange(connection, produce))
                    if error == 0:
                        return
                    if error not in _RETRIABLE_AT_START:
                        raise WireError(f"Produce to {topic}-0 was refused with error code {error}")
                    _pause_until(deadline, f"{host}:{port} still answers error code {error} for {topic}-0")
        except ConnectionError as error:
            _pause_until(deadline, f"{host}:{port} does not accept a record: {error}")


def exchange(connection: socket.socket, frame: bytes) -> bytes:
    """Sends one request and returns its whole answer, size included."""
    connection.sendall(frame)
    head = receive_exactly(connection, 4)
    return head + receive_exactly(connection, struct.unpack(">i", head)[0])


def receive_exactly(connection: socket.socket, size_bytes: int) -> bytes:
    parts = bytearray()
    while len(parts) < size_bytes:
        part = connection.recv(size_bytes - len(parts))
        if not part:
            raise ConnectionResetError(f"the broker closed the connection {size_bytes - len(parts)} bytes early")
        parts += part
    return bytes(parts)


def connect(host: str, port: int) -> socket.socket:
    connection = socket.create_connection((host, port), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _produce_error(topic: str, answer: bytes) -> int:
    return ProduceReply.of(topic).first_error(answer)


def _pause_until(deadline: float, reason: str) -> None:
    if time.monotonic() > deadline:
        raise WireError(reason)
    time.sleep(_RETRY_SECONDS)


def _metadata_frame(topic: str) -> bytes:
    """Metadata v4, which also asks to create the topic if it is not there."""
    name = topic.encode()
    return _frame(METADATA, METADATA_VERSION, struct.pack(">ih", 1, len(name)) + name + b"\x01")


def _frame(api_key: int, version: int, rest: bytes) -> bytes:
    payload = struct.pack(">hhih", api_key, version, 0, len(CLIENT_ID)) + CLIENT_ID + rest
    return struct.pack(">i", len(payload)) + payload


def _record(offset_delta: int, value: bytes) -> bytes:
    body = b"\x00\x00" + varint(offset_delta) + varint(-1) + varint(len(value)) + value + b"\x00"
    return varint(len(body)) + body


def varint(value: int) -> bytes:
    return _uvarint((value << 1) ^ (value >> 63))


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
