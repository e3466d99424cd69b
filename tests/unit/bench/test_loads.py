"""The raw loads against a broker of a few lines, which can be told to answer wrongly."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

import pytest
from bench import wire
from bench.loads import payload, requests, roundtrip
from bench.loads.requests import RequestsLoad

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Answer = Callable[[int], bytes]

TOPIC = "t"


def _right(correlation_id: int) -> bytes:
    reply = wire.ProduceReply.of(TOPIC)
    return struct.pack(">ii", reply.size_bytes - 4, correlation_id) + bytes(reply.size_bytes - 8)


def _with_error(correlation_id: int) -> bytes:
    answer = bytearray(_right(correlation_id))
    struct.pack_into(">h", answer, wire.ProduceReply.of(TOPIC).error_at, 6)
    return bytes(answer)


def _serve(connection: socket.socket, answer: Answer) -> None:
    with connection, connection.makefile("rb") as requests_in, contextlib.suppress(ConnectionError):
        while head := requests_in.read(4):
            frame = requests_in.read(struct.unpack(">i", head)[0])
            connection.sendall(answer(struct.unpack_from(">i", frame, wire.CORRELATION_AT - 4)[0]))


@contextlib.contextmanager
def _broker(answer: Answer) -> Iterator[int]:
    """A listener that answers each frame by its correlation id."""
    threads: list[threading.Thread] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=_serve, args=(connection, answer)))
            threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = threading.Thread(target=accept)
        acceptor.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            acceptor.join()
            for thread in threads:
                thread.join()


def _load(port: int, connections: int = 2) -> RequestsLoad:
    return RequestsLoad("127.0.0.1", port, os.getpid(), TOPIC, 4, 100, connections, in_flight=5, seconds=0.2)


def test_requests_are_counted_once_each_and_all_are_answered() -> None:
    answered: list[int] = []

    def answer(correlation_id: int) -> bytes:
        answered.append(correlation_id)
        return _right(correlation_id)

    with _broker(answer) as port:
        figures = requests.run(_load(port))
    assert figures["units"] == len(answered)
    assert figures["rate"] == pytest.approx(figures["units"] / figures["seconds"])
    assert figures["seconds"] >= 0.2


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (_with_error, "error code 6"),
        (lambda correlation_id: _right(correlation_id + 1), "correlation id 1"),
        (lambda correlation_id: _right(correlation_id)[:3] + b"\x00" + _right(correlation_id)[4:], "0 bytes"),
    ],
)
def test_a_wrong_answer_ends_the_load(answer: Answer, complaint: str) -> None:
    with _broker(answer) as port, pytest.raises(wire.WireError, match=complaint):
        requests.run(_load(port, connections=1))


def test_idle_round_trips_are_timed_one_by_one() -> None:
    with _broker(_right) as port:
        figures = roundtrip.run_idle(_load(port))
    assert 0 < figures["p50_ms"] <= figures["p99_ms"]
    assert figures["units"] > 10


def test_an_open_loop_goes_on_sending_through_a_stall_and_charges_it_to_every_request_that_waited() -> None:
    waited_seconds = 0.1

    def answer(correlation_id: int) -> bytes:
        if correlation_id == 0:
            time.sleep(waited_seconds)
        return _right(correlation_id)

    with _broker(answer) as port:
        figures = roundtrip.run_open_loop(roundtrip.OpenLoopLoad(_load(port, connections=8), rate_per_second=1000))
    assert figures["units"] == 200
    assert figures["seconds"] >= 0.199
    assert figures["p99_ms"] >= waited_seconds * 1e3
    assert figures["p50_ms"] < figures["p99_ms"]


def test_a_broker_that_hangs_up_ends_the_load() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            connection, _ = listener.accept()
            connection.recv(1)
            connection.shutdown(socket.SHUT_WR)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises((wire.WireError, ConnectionError)):
            requests.run(_load(listener.getsockname()[1], connections=1))
        thread.join()


def test_values_are_distinct_of_one_size_and_the_same_every_time() -> None:
    values = payload.values(500, 100)
    assert values == payload.values(500, 100)
    assert len(set(values)) == 500
    assert {len(value) for value in values} == {100}
    assert {len(value) for value in payload.values(3, 1024)} == {1024}
