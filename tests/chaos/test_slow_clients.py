"""Clients that do nothing, or hardly anything, cost the others nothing.

Times are compared with those of the same node a moment before, and with room for a machine that has other work.
"""

from __future__ import annotations

import os
import selectors
import socket
import statistics
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import Error
from tests.peers import resident_bytes
from tests.wire.batches import batch
from tests.wire.connection import Connection, request_frame
from tests.wire.requests import Topic, create_topic, fetch, fetch_request, produce

if TYPE_CHECKING:
    from barnabas.testing.node_process import Node

ROUND_TRIPS = 400
SLOWER_MAX = 2.0
MARGIN_S = 0.001
ROOT = Path(__file__).parents[2]
CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def round_trip_s(connection: Connection, topic: Topic, count: int = ROUND_TRIPS) -> list[float]:
    """How long each of so many produces of one small record took."""
    taken = []
    data = batch()
    for _ in range(count):
        started = time.perf_counter()
        assert produce(connection, topic, data).error_code == Error.NONE
        taken.append(time.perf_counter() - started)
    return taken


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has used, in and for its own code."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_S


def test_idle_connections_and_a_reader_of_one_byte_a_second_slow_nobody(
    victim: Node, topic: str, many_files: int
) -> None:
    idle_count = min(2_000, many_files - 200)
    with ExitStack() as stack:
        connection = stack.enter_context(Connection(victim.port))
        made = create_topic(connection, topic)
        large = create_topic(connection, f"{topic}-large")
        for _ in range(20):
            produce(connection, large, batch([bytes(1_000_000)]))
        round_trip_s(connection, made)
        before = round_trip_s(connection, made)

        for _ in range(idle_count):
            stack.enter_context(Connection(victim.port))
        slow = stack.enter_context(Connection(victim.port))
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        is_over = threading.Event()
        reader = threading.Thread(target=_read_one_byte_a_second, args=(slow, is_over))
        slow.send_bytes(request_frame(fetch_request(large, 12, partition_max_bytes=50_000_000), 12) * 10)
        reader.start()
        try:
            during = round_trip_s(connection, made)
        finally:
            is_over.set()
            reader.join()
    assert idle_count == 2_000, f"only {idle_count} connections could be opened: raise the limit of open files"
    assert statistics.median(during) <= SLOWER_MAX * statistics.median(before) + MARGIN_S


def _read_one_byte_a_second(connection: Connection, is_over: threading.Event) -> None:
    while not is_over.wait(1.0):
        connection.socket.recv(1)


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.full)])
def test_parked_fetches_cost_little_memory_and_no_time(victim: Node, topic: str, many_files: int, count: int) -> None:
    """Each waits for a record on a connection of its own."""
    if count + 200 > many_files:
        pytest.fail(f"{count} connections need as many open files, {many_files} are allowed: raise `ulimit -Hn`")
    with ExitStack() as stack:
        control = stack.enter_context(Connection(victim.port))
        made = create_topic(control, topic)
        round_trip_s(control, made, 50)
        end = fetch(control, made).high_watermark
        waiting = request_frame(fetch_request(made, 12, offset=end, max_wait_ms=60_000), 12)
        connections = [stack.enter_context(Connection(victim.port)) for _ in range(count)]
        before_bytes = resident_bytes(victim.pid)
        for each in connections:
            each.send_bytes(waiting)
        # The node answers in the order in which it reads, so that this answer comes after the last was parked.
        round_trip_s(stack.enter_context(Connection(victim.port)), create_topic(control, f"{topic}-other"), 20)
        grown_bytes = resident_bytes(victim.pid) - before_bytes
        assert grown_bytes <= count * 10_000, f"{grown_bytes / count:.0f} bytes for each parked fetch"

        used_before_s, started = cpu_s(victim.pid), time.monotonic()
        time.sleep(2.0)  # the measured interval: nothing happens in it
        share = (cpu_s(victim.pid) - used_before_s) / (time.monotonic() - started)
        assert share <= 0.25, f"{share:.0%} of a core while all wait"

        assert produce(control, made, batch([b"wake up"])).error_code == Error.NONE
        for each in connections:
            assert b"wake up" in each.receive_frame()


@pytest.mark.full
@pytest.mark.timeout(300)
def test_ten_thousand_long_polling_consumers_take_half_a_core_at_most(
    victim: Node, topic: str, many_files: int
) -> None:
    """Each asks again whenever its 500 ms are over, as consumers do."""
    count, interval_s = 10_000, 20.0
    assert count + 200 <= many_files, f"{many_files} open files are allowed: raise `ulimit -Hn`"
    selector = selectors.DefaultSelector()
    with ExitStack() as stack:
        control = stack.enter_context(Connection(victim.port))
        made = create_topic(control, topic)
        waiting = request_frame(fetch_request(made, 12, max_wait_ms=500), 12)
        for _ in range(count):
            each = stack.enter_context(Connection(victim.port))
            selector.register(each.socket, selectors.EVENT_READ)
            each.send_bytes(waiting)
        _poll_for(selector, waiting, 3.0)
        used_before_s, started = cpu_s(victim.pid), time.monotonic()
        answered = _poll_for(selector, waiting, interval_s)
        elapsed_s = time.monotonic() - started
        share = (cpu_s(victim.pid) - used_before_s) / elapsed_s
        selector.close()
    print(f"{answered / elapsed_s:.0f} polls a second of {count} consumers took {share:.0%} of a core")
    assert answered > count, "the consumers hardly polled"
    assert share <= 0.5


def _poll_for(selector: selectors.BaseSelector, waiting: bytes, seconds: float) -> int:
    """Answer every answer with the next request; how many there were. An empty answer comes in one piece."""
    answered = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for key, _ in selector.select(0.1):
            assert isinstance(key.fileobj, socket.socket)
            assert key.fileobj.recv(4_096), "the node closed a connection"
            key.fileobj.send(waiting)
            answered += 1
    return answered


@pytest.mark.full
@pytest.mark.timeout(1_800)
def test_reading_five_gigabytes_of_evicted_segments_leaves_others_their_speed(victim: Node, topic: str) -> None:
    """A reader of cold data waits for the disk, and nobody waits with it: the neighbour's 99th percentile at most
    doubles. What it is alone is measured before and after, as a small machine has its moods."""
    total_bytes = 5 << 30
    data = batch([os.urandom(1_000_000)])
    with Connection(victim.port) as connection:
        small = create_topic(connection, topic)
        cold = create_topic(connection, f"{topic}-cold", config={"segment.bytes": str(256 << 20)})
        for _ in range(total_bytes // len(data) + 1):
            assert produce(connection, cold, data, acks=1).error_code == Error.NONE
        _write_back(victim, cold.name)
        round_trip_s(connection, small, 1_000)
        alone = round_trip_s(connection, small, 10_000)
        _evict(victim, cold.name)
        beside_cold = _beside_a_reader(connection, small, victim.port, cold, len(data), total_bytes)
        alone += round_trip_s(connection, small, 10_000)
    alone_ms, cold_ms = (1000 * percentile(each, 0.99) for each in (alone, beside_cold))
    print(f"p99 of the neighbour: {alone_ms:.2f} ms alone, {cold_ms:.2f} ms beside a reader of cold data")
    assert cold_ms <= 2 * alone_ms


def _beside_a_reader(
    connection: Connection, small: Topic, port: int, read: Topic, batch_bytes: int, total_bytes: int
) -> list[float]:
    """Round trips of one client for as long as another one reads everything."""
    command = [sys.executable, "-m", "tests.chaos.cold_reader", str(port), read.name, str(batch_bytes)]
    taken: list[float] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        while reader.poll() is None:
            taken += round_trip_s(connection, small, 200)
        assert int(reader.stdout.readline()) >= total_bytes
    assert len(taken) >= 1_000, "the read was over too soon for the test to say anything"
    return taken


def _write_back(node: Node, topic: str) -> None:
    for each in (node.data_dir / f"{topic}-0").glob("*.log"):
        with each.open("rb") as segment:
            os.fsync(segment.fileno())


def _evict(node: Node, topic: str) -> None:
    """Drop the segments from the page cache; what is not written back yet would stay there."""
    for each in (node.data_dir / f"{topic}-0").glob("*.log"):
        with each.open("rb") as segment:
            os.posix_fadvise(segment.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]
