"""Produce requests of one-record batches over raw sockets, as many as the broker answers: the cost of a request, not
of bytes.

Each connection keeps a fixed number of requests in flight. Frames are encoded once; between sends only correlation
ids change. Every answer is checked: its length, its place in the order, its error code.
"""

from __future__ import annotations

import contextlib
import select
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench import wire
from bench.loads import payload
from bench.loads.meter import Meter

if TYPE_CHECKING:
    from collections.abc import Iterator

RECEIVE_BYTES = 65_536
ANSWER_SECONDS_MAX = 30.0
CORRELATION_MASK = 0x7FFF_FFFF

_CORRELATION = struct.Struct(">i")
_SIZE_AND_CORRELATION = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class RequestsLoad:
    host: str
    port: int
    broker_pid: int
    topic: str
    partitions: int
    record_bytes: int
    connections: int
    in_flight: int
    seconds: float
    batches: int = 1
    """In each request, for as many partitions: Java's producer gathers them so."""
    acks: int = wire.ACKS_LEADER
    peer_pids: tuple[int, ...] = ()
    """Further nodes of the broker's cluster, whose CPU counts too."""


class Lane:
    """One connection with its pre-encoded requests: answers come in the order of requests, so two counters suffice."""

    __slots__ = ("_answered", "_frame_bytes", "_frames", "_received", "_reply", "_sent", "socket")

    def __init__(self, load: RequestsLoad, partition: int) -> None:
        value = payload.values(1, load.record_bytes)[0]
        partitions = [(partition + number) % load.partitions for number in range(load.batches)]
        batch = wire.record_batch([value], int(time.time() * 1000))
        frame = wire.produce_frame(load.topic, partitions, batch, load.acks)
        self.socket = wire.connect(load.host, load.port)
        self.socket.setblocking(False)
        self._frame_bytes = len(frame)
        self._frames = bytearray(frame * load.in_flight)
        self._reply = wire.ProduceReply.of(load.topic, load.batches)
        self._received = b""
        self._sent = 0
        self._answered = 0

    @property
    def outstanding(self) -> int:
        return self._sent - self._answered

    def send(self, count: int) -> None:
        """Sends the next `count` requests, never more than may be in flight, in one call."""
        for slot in range(count):
            at = slot * self._frame_bytes + wire.CORRELATION_AT
            _CORRELATION.pack_into(self._frames, at, (self._sent + slot) & CORRELATION_MASK)
        size = count * self._frame_bytes
        if self.socket.send(memoryview(self._frames)[:size]) != size:
            raise wire.WireError("the socket buffer cannot hold the requests in flight: lower their number or size")
        self._sent += count

    def receive(self) -> int:
        """Takes the answers that are there and returns how many they were."""
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise wire.WireError(f"the broker closed a connection with {self.outstanding} requests in flight")
        data = self._received + data
        size = self._reply.size_bytes
        count = len(data) // size
        for at in range(0, count * size, size):
            self._check(data, at)
        self._received = data[count * size :]
        return count

    def _check(self, data: bytes, at: int) -> None:
        length, correlation = _SIZE_AND_CORRELATION.unpack_from(data, at)
        error = self._reply.first_error(data, at)
        if length != self._reply.size_bytes - 4 or correlation != self._answered & CORRELATION_MASK or error:
            raise wire.WireError(
                f"answer {self._answered}: {length} bytes, correlation id {correlation}, error code {error}"
            )
        self._answered += 1


@contextlib.contextmanager
def open_lanes(load: RequestsLoad) -> Iterator[dict[int, Lane]]:
    """The connections of a load by file descriptor, spread over partitions."""
    with contextlib.ExitStack() as stack:
        lanes = {}
        for number in range(load.connections):
            lane = Lane(load, number % load.partitions)
            stack.callback(lane.socket.close)
            lanes[lane.socket.fileno()] = lane
        yield lanes


def run(load: RequestsLoad) -> dict[str, float]:
    with open_lanes(load) as lanes, select.epoll() as poller:
        for fd in lanes:
            poller.register(fd, select.EPOLLIN)
        meter = Meter(load.broker_pid, *load.peer_pids)
        for lane in lanes.values():
            lane.send(load.in_flight)
        answered = 0
        while meter.elapsed_seconds() < load.seconds:
            for fd, _ in _ready(poller):
                count = lanes[fd].receive()
                lanes[fd].send(count)
                answered += count
        while any(lane.outstanding for lane in lanes.values()):
            answered += sum(lanes[fd].receive() for fd, _ in _ready(poller))
        return meter.figures(answered * load.batches)


def _ready(poller: select.epoll) -> list[tuple[int, int]]:
    ready = poller.poll(ANSWER_SECONDS_MAX)
    if not ready:
        raise wire.WireError(f"no answer for {ANSWER_SECONDS_MAX:.0f} s")
    return ready
