"""Frames that nobody should send: random bytes, and real requests with a few bytes changed.

The broker may answer or close that connection. It must not fall, leak, stall or print a stack trace, and what other
clients have stored must stay as it is. Every frame follows from the seed, but for the topic's id: names and times are
the same in every run. Apache Kafka runs out of heap somewhere in the thousands, and so it gets the first few only.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.errors import Error
from tests.peers import Peer, resident_bytes
from tests.wire.batches import batch
from tests.wire.connection import ClosedError, Connection, frame, request_frame
from tests.wire.requests import REQUESTS, Context, Topic, create_topic, every_version, fetch, produce

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from tests.conftest import MakeNode
    from tests.peers import PeerKind

SEED = 20_240_601
NAME = "fuzz"
CREATED_MS = 1_700_000_000_000
FRAMES_SHORT, FRAMES_FULL, FRAMES_FOR_KAFKA = 10_000, 100_000, 1_000
GROWTH_MAX_BYTES = 20_000_000
ANSWER_TIMEOUT_S = 0.5
BYTE_BY_BYTE_SHARE = 0.02
PROBE = -77
"""A correlation id that no other request has."""

API_VERSIONS = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")


def captures(victim: Topic) -> list[bytes]:
    """A real request of every API and version, without its length; topics may come and go, but not the witness."""
    content = batch([b"x" * 50], timestamp_ms=CREATED_MS)
    return [
        request_frame(REQUESTS[api](Context(victim, "fuzzed", version, content)), version)[4:]
        for api, version in every_version()
    ]


def mutated(chance: random.Random, whole: bytes, others: list[bytes]) -> bytes:
    data = bytearray(whole)
    kind = chance.randrange(7)
    for _ in range(chance.randint(1, 4)):
        position = chance.randrange(len(data))
        if kind == 0:
            data[position] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[position] = chance.choice((0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF))
        elif kind == 2:
            data[position:position] = chance.randbytes(chance.randint(1, 8))
        elif kind == 3:
            del data[position : position + chance.randint(1, 8)]
        elif kind == 4:
            data[position : position + 4] = chance.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(4)))
        elif kind == 5:
            data[position:] = chance.choice(others)[position:]
        else:
            data[position:] = chance.randbytes(chance.randint(0, 64))
        if not data:
            break
    return bytes(data)


def frames(chance: random.Random, real: list[bytes], count: int) -> Iterator[bytes]:
    """Mostly mutants, some pure noise, and some whose length is wrong."""
    for _ in range(count):
        draw = chance.random()
        if draw < 0.9:
            yield frame(mutated(chance, chance.choice(real), real))
        elif draw < 0.95:
            yield frame(chance.randbytes(chance.randint(0, 200)))
        else:
            yield chance.randbytes(chance.randint(4, 200))


def is_survived(connection: Connection, pieces: Iterable[bytes]) -> bool:
    """Send a frame and then a plain request; whether the connection is still good for another frame."""
    try:
        for piece in pieces:
            connection.send_bytes(piece)
        connection.send_bytes(request_frame(API_VERSIONS, 3, correlation_id=PROBE))
        while int.from_bytes(connection.receive_frame()[:4], signed=True) != PROBE:
            pass
    except (ClosedError, TimeoutError):
        return False
    return True


def in_pieces(chance: random.Random, data: bytes) -> list[bytes]:
    """Mostly whole, sometimes byte by byte."""
    if chance.random() < BYTE_BY_BYTE_SHARE:
        return [data[n : n + 1] for n in range(len(data))]
    return [data]


def make_every_request_once(port: int, victim: Topic) -> None:
    """Compile all that a broker compiles on first use, before its memory is measured."""
    for data in captures(victim):
        with Connection(port) as connection:
            is_survived(connection, [frame(data)])


@pytest.mark.timeout(900)
def test_mutated_and_random_frames_harm_nobody_else(
    make_node: MakeNode, is_chaos_full: bool, peer_kind: PeerKind
) -> None:
    node: Any = make_node({})
    witness, victim = _topics(node)
    make_every_request_once(node.port, victim)
    before_bytes = resident_bytes(node.pid)
    chance = random.Random(SEED)
    count = FRAMES_FULL if is_chaos_full else FRAMES_SHORT
    connection: Connection | None = None
    for data in frames(chance, captures(victim), FRAMES_FOR_KAFKA if peer_kind == "kafka" else count):
        if connection is None:
            connection = Connection(node.port, ANSWER_TIMEOUT_S)
        if not is_survived(connection, in_pieces(chance, data)):
            connection.close()
            connection = None
    if connection is not None:
        connection.close()

    with Connection(node.port) as other:
        assert other.call(API_VERSIONS, 3, m.ApiVersionsResponse).error_code == Error.NONE
        assert produce(other, witness, batch([b"after"])).base_offset == 1
        records = bytes(fetch(other, witness).records or b"")
        assert b"before" in records
        assert b"after" in records
    if peer_kind == "barnabas":
        assert resident_bytes(node.pid) - before_bytes < GROWTH_MAX_BYTES
        assert "Traceback" not in node.log_text()


def _topics(node: Peer) -> tuple[Topic, Topic]:
    with Connection(node.port) as connection:
        witness = create_topic(connection, f"{NAME}-witness")
        victim = create_topic(connection, f"{NAME}-victim")
        assert produce(connection, witness, batch([b"before"])).error_code == Error.NONE
    return witness, victim


def test_a_flood_of_half_requests_holds_little_memory(make_node: MakeNode, peer_kind: PeerKind) -> None:
    """Clients claim a request of 100 MB each and send a few bytes of it. Kafka sets the memory aside, so that the
    hundred which Barnabas stands would be too many for it."""
    node = make_node({})
    _topics(node)
    before_bytes = resident_bytes(node.pid)
    head = (100_000_000).to_bytes(4) + ApiKey.PRODUCE.to_bytes(2) + APIS[ApiKey.PRODUCE].max_version.to_bytes(2)
    claiming = [Connection(node.port) for _ in range(100 if peer_kind == "barnabas" else 3)]
    try:
        for each in claiming:
            each.send_bytes(head + bytes(1_000))
        with Connection(node.port) as other:
            assert other.call(API_VERSIONS, 3, m.ApiVersionsResponse).error_code == Error.NONE
        if peer_kind == "barnabas":
            assert resident_bytes(node.pid) - before_bytes < GROWTH_MAX_BYTES
    finally:
        for each in claiming:
            each.close()
