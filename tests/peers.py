"""What the tests talk to: a node of Barnabas, or, with `--peer=kafka`, Apache Kafka itself.

Tests of clients and of the wire state Kafka's behaviour. Run against Kafka they prove that they do; run against
Barnabas, that it has it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tools import apache_kafka

from tests.nodes import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

HOST = "127.0.0.1"
PeerKind = Literal["barnabas", "kafka"]

SETTINGS: Mapping[str, str] = {
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
    "log.cleaner.backoff.ms": "200",
}
"""Retention and compaction look often enough for a test to see what they do."""

SHORT_LIVED: Mapping[str, str] = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""For a Spark that lives as long as a few tests: the compiler that makes long-running programs fast would take a
quarter of the processor time, and pay it back after hours."""


class Reachable(Protocol):
    """What clients can connect to, be it one broker or several."""

    @property
    def bootstrap(self) -> str: ...


class Peer(Reachable, Protocol):
    """A broker process of its own with a data folder of its own."""

    data_dir: Path
    port: int

    @property
    def pid(self) -> int: ...
    def start(self) -> Any: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


@contextlib.contextmanager
def running(kind: PeerKind, folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Peer]:
    """A broker for as long as the block lasts; what it leaves behind is its folder and its log."""
    settings = {**SETTINGS, **(settings or {})}
    if kind == "kafka":
        with apache_kafka.KafkaNode(folder / "data", properties=settings) as kafka:
            yield kafka
    else:
        port = free_port() if "advertised.listeners" in settings else 0
        with Node(folder / "data", settings=settings, port=port) as node:
            yield node


def free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def wait_until(condition: Callable[[], object], what: str, deadline_s: float = 30.0, poll_s: float = 0.02) -> None:
    """Return when the condition holds; fail with `what` when the deadline passes first."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"within {deadline_s} s it did not come about that {what}"
        time.sleep(poll_s)


def resident_bytes(pid: int) -> int:
    """The memory that a process holds, as Linux counts it."""
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(pid: int) -> int:
    """How many file descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def closed_segment_sizes(log: Path) -> list[int]:
    """The bytes of all segments of a log but the active one, the oldest first."""
    while True:
        try:
            return [file.stat().st_size for file in sorted(log.glob("*.log"))[:-1]]
        except FileNotFoundError:
            continue  # one went while we looked
