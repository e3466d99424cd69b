"""A group that commits a million offsets: its partition of `__consumer_offsets` does not grow with them, and the node
is back as quickly as before."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import Error
from barnabas.testing.node_process import Node
from tests.peers import SETTINGS, closed_segment_sizes, wait_until
from tests.wire.connection import Connection
from tests.wire.groups import await_coordinator, commit, commit_request, fetch_all_offsets, find_coordinator
from tests.wire.requests import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.wire.requests import Topic

COMMITS = 1_000_000
"""Of one offset each."""
PARTITIONS = 10
IN_FLIGHT = 50
SEGMENT_BYTES = 10 << 20
CLOSED_BYTES_MAX = 10_000
STARTS = 3
FOLDER = "__consumer_offsets-0"


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Node]:
    settings = {
        **SETTINGS,
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.segment.bytes": str(SEGMENT_BYTES),
        "log.segment.delete.delay.ms": "0",
    }
    node = Node(tmp_path / "data", settings=settings)
    node.start()
    yield node
    node.kill()


@pytest.mark.full
@pytest.mark.timeout(1_800)
def test_a_million_commits_leave_one_active_segment_and_kilobytes(victim: Node, topic: str, group: str) -> None:
    with Connection(victim.port) as connection:
        committed_to = create_topic(connection, topic, PARTITIONS)
        await_coordinator(connection, group)
        first = commit(connection, commit_request(group, committed_to, dict.fromkeys(range(PARTITIONS), 0)))
        assert set(first.values()) == {Error.NONE}
    before_s = seconds_to_be_back(victim, group, 0)

    rounds = COMMITS // PARTITIONS
    with Connection(victim.port) as connection:
        await_coordinator(connection, group)
        commit_rounds(connection, group, committed_to, rounds)
    log = victim.data_dir / FOLDER
    active = max(log.glob("*.log"))
    assert int(active.stem) > 0, "segments have been closed"
    wait_until(lambda: sum(closed_segment_sizes(log)) < CLOSED_BYTES_MAX, "closed segments hold next to nothing", 120)
    assert max(log.glob("*.log")) == active
    assert active.stat().st_size <= SEGMENT_BYTES

    after_s = seconds_to_be_back(victim, group, rounds)
    assert after_s < 2 * before_s + 0.5, f"from {before_s:.2f} s to {after_s:.2f} s"


def commit_rounds(connection: Connection, group: str, topic: Topic, rounds: int) -> None:
    """Commits the offsets from 1 to `rounds` for every partition, without waiting for each answer."""
    answer: bytes | None = None

    def receive() -> None:
        nonlocal answer
        received = connection.receive_frame()[4:]
        assert answer in (None, received), "every answer is like the first, but for its correlation id"
        answer = received

    for number in range(rounds):
        connection.send(commit_request(group, topic, dict.fromkeys(range(PARTITIONS), number + 1)), 9)
        if number >= IN_FLIGHT:
            receive()
    for _ in range(min(rounds, IN_FLIGHT)):
        receive()


def seconds_to_be_back(node: Node, group: str, offset: int) -> float:
    """From the start of the process after a kill until it tells the offsets of the group; the best of several."""

    def measure() -> float:
        node.kill()
        started = time.monotonic()
        node.start()
        with Connection(node.port) as connection:
            wait_until(lambda: find_coordinator(connection, group)[0] == Error.NONE, "there is a coordinator")
            await_coordinator(connection, group)
            offsets = fetch_all_offsets(connection, group)
        assert set(offsets.values()) == {offset}
        assert len(offsets) == PARTITIONS
        return time.monotonic() - started

    return min(measure() for _ in range(STARTS))
