"""Ten thousand partitions and five thousand connections on one node."""

from __future__ import annotations

import contextlib
import resource
import struct
import time
from typing import TYPE_CHECKING, Final

from barnabas.client.broker_connection import TRANSIENT, Connection
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from bench import procfs, wire
from bench.case import CaseError, LifecycleCase, Row
from bench.nodes import HOST
from bench.stats import AtMost, Measure

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from bench.case import Plan
    from bench.results import Figures
    from bench.upkeep.nodes import FolderNode

TOPIC_PARTITIONS: Final = 1_000
IN_ONE_REQUEST: Final = 2_000
"""Partitions: Kafka takes 10,000 records of metadata in one request, and a partition may have more than one."""
CREATE_VERSION, METADATA_VERSION, FETCH_VERSION = 7, 12, 12
ANSWER_SECONDS_MAX: Final = 300.0
RETRY_SECONDS: Final = 0.01
SETTLE_SECONDS: Final = 3.0
SPARE_FILES: Final = 200
_API_VERSIONS: Final = struct.Struct(">ihhih5s")


def every(plan: Plan) -> list[LifecycleCase[FolderNode]]:
    return [_partitions_case(plan), _connections_case(plan)]


def _many_partitions(plan: Plan, node: FolderNode) -> Figures:
    node.start()
    before = procfs.resident_bytes(node.pid)
    names = [f"bench-many-{number}" for number in range(max(1, plan.node_partitions // TOPIC_PARTITIONS))]
    partitions = min(TOPIC_PARTITIONS, plan.node_partitions)
    figures = {"answer_seconds": _timed(lambda: _create(node, names, partitions))}
    figures["create_seconds"] = figures["answer_seconds"] + _timed(lambda: _write_to_each(node, names, partitions))
    figures["describe_seconds"] = _timed(lambda: _await_leaders(node, len(names) * partitions))
    time.sleep(SETTLE_SECONDS)
    figures["bytes"] = procfs.resident_bytes(node.pid)
    figures["bytes_each"] = (figures["bytes"] - before) / (len(names) * partitions)
    node.stop()
    figures["restart_seconds"] = _timed(lambda: _start(node, len(names) * partitions))
    figures["cold_seconds"] = _timed(lambda: _read_each(node, names, partitions))
    return figures


def _start(node: FolderNode, partitions: int) -> None:
    node.start()
    _await_leaders(node, partitions)


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _create(node: FolderNode, names: list[str], partitions: int) -> None:
    struct_ = m.CreateTopicsRequest
    at_once = max(1, IN_ONE_REQUEST // partitions)
    with _connected(node) as connection:
        for some in _batched(names, at_once):
            topics = [
                struct_.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in some
            ]
            request = struct_(topics=topics, timeout_ms=int(ANSWER_SECONDS_MAX * 1e3))
            for topic in connection.send(request, CREATE_VERSION).topics:
                if topic.error_code != Error.NONE:
                    raise CaseError(f"{topic.name} was not created: {Error(topic.error_code).name}")


def _batched(names: list[str], size: int) -> Iterator[list[str]]:
    for first in range(0, len(names), size):
        yield names[first : first + size]


def _await_leaders(node: FolderNode, partitions: int) -> None:
    """Returns when one answer has a leader for every partition."""
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    request = m.MetadataRequest(topics=None)
    while True:
        try:
            with _connected(node) as connection:
                while True:
                    found = connection.send(request, METADATA_VERSION).topics
                    led = sum(part.leader_id >= 0 for topic in found for part in topic.partitions)
                    if led >= partitions:
                        return
                    _pause_until(deadline, f"{led:,} of {partitions:,} partitions have a leader")
        except TRANSIENT as error:
            _pause_until(deadline, str(error))


def _write_to_each(node: FolderNode, names: list[str], partitions: int) -> None:
    """A record in each, so that each has a segment to be opened."""
    batch = wire.record_batch([b"first"], int(time.time() * 1000))
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    with wire.connect(HOST, node.port) as connection:
        for name in names:
            frame = wire.produce_frame(name, range(partitions), batch)
            reply = wire.ProduceReply.of(name, partitions)
            while error := reply.first_error(wire.exchange(connection, frame)):
                _pause_until(deadline, f"{name} takes no records: {Error(error).name}")


def _read_each(node: FolderNode, names: list[str], partitions: int) -> None:
    """The first record of every partition, whose segment nobody has opened since the start."""
    struct_ = m.FetchRequest
    with _connected(node) as connection:
        for name in names:
            asked = [
                struct_.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1_000)
                for number in range(partitions)
            ]
            request = struct_(
                topics=[struct_.FetchTopic(topic=name, partitions=asked)],
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=100 << 20,
                session_epoch=-1,
            )
            (topic,) = connection.send(request, FETCH_VERSION).responses
            empty = sum(not part.records for part in topic.partitions)
            if empty:
                raise CaseError(f"{empty} of {partitions} partitions of {name} gave no record")


def _many_connections(plan: Plan, node: FolderNode) -> Figures:
    _allow_files(plan.connections + SPARE_FILES)
    node.start()
    time.sleep(SETTLE_SECONDS)
    before = procfs.resident_bytes(node.pid)
    with contextlib.ExitStack() as stack:
        started = time.perf_counter()
        opened = [stack.enter_context(wire.connect(HOST, node.port)) for _ in range(plan.connections)]
        for connection in opened:
            connection.sendall(_api_versions_frame())
        for connection in opened:
            _receive_answer(connection)
        seconds = time.perf_counter() - started
        time.sleep(SETTLE_SECONDS)
        each = (procfs.resident_bytes(node.pid) - before) / plan.connections
    return {"seconds": seconds, "bytes_each": each}


def _api_versions_frame() -> bytes:
    """ApiVersions v0, which every broker answers."""
    return _API_VERSIONS.pack(_API_VERSIONS.size - 4, 18, 0, 0, 5, b"bench")


def _receive_answer(connection: socket.socket) -> None:
    (length,) = struct.unpack(">i", wire.receive_exactly(connection, 4))
    wire.receive_exactly(connection, length)


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard < count:
            raise CaseError(f"{count:,} open files are needed, and the system allows {hard:,}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def _connected(node: FolderNode) -> Connection:
    return Connection(HOST, node.port, timeout_s=ANSWER_SECONDS_MAX)


def _pause_until(deadline: float, reason: str) -> None:
    if time.monotonic() > deadline:
        raise CaseError(reason)
    time.sleep(RETRY_SECONDS)


def _partitions_case(plan: Plan) -> LifecycleCase[FolderNode]:
    what = f"{plan.node_partitions:,} partitions"
    half = (AtMost(Measure.RATIO, 0.5),)
    rows = (
        Row(f"create {what}, until all are written to", "s", "create_seconds", targets=half),
        Row(f"create {what}, until the last answer", "s", "answer_seconds"),
        Row(f"describe {what}", "s", "describe_seconds"),
        Row(f"memory with {what}", "MB", "bytes", 1e-6, targets=half),
        Row(f"memory per partition, {what}", "kB", "bytes_each", 1e-3),
        Row(f"restart until {what} have leaders", "s", "restart_seconds", targets=half),
        Row(f"read from {what} after a restart", "s", "cold_seconds"),
    )
    return LifecycleCase("ten-thousand-partitions", rows, _many_partitions)


def _connections_case(plan: Plan) -> LifecycleCase[FolderNode]:
    what = f"{plan.connections:,} connections"
    rows = (
        Row(f"open {what}, each answered once", "s", "seconds"),
        Row(f"memory per connection, {what}", "kB", "bytes_each", 1e-3),
    )
    return LifecycleCase("connections", rows, _many_connections)
