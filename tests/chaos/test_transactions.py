"""SIGKILL of the node, and now and then of a worker, under a loop that consumes, processes and produces.

Whatever is killed when: under read_committed every record of the source has its output once, in order, and the group's
committed offsets say the same.
"""

from __future__ import annotations

import contextlib
import random
import time
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.chaos.committed import committed_offsets, read_committed
from tests.chaos.feeding import Source
from tests.chaos.loop_process import TRANSACTION_TIMEOUT_MS, LoopOptions, LoopProcess, output_of
from tests.clients.with_confluent import ConfluentClient
from tests.peers import wait_until
from tests.wire.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import MakeNode
    from tests.peers import Peer

PARTITIONS = 6
WORKERS = 3
KILLS_SHORT, KILLS_FULL = 8, 500
RUN_S_MAX = 0.3
AT_ONCE_SHARE = 0.25
"""So many of the kills come while the node and its clients are still finding each other again."""
WORKER_KILL_SHARE = 0.1
PROGRESS_S_MAX = 120.0
FEED_S = 0.01
"""How often each partition of the source gets a record: enough to keep the loop busy, and less than it can do."""
UNDER_WAY = ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"]

SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


class Workers:
    """The loop's processes. Each has a transactional id of its own, which its successor takes over."""

    def __init__(self, bootstrap: str, group: str, source: str, sink: str) -> None:
        self._options = [LoopOptions(bootstrap, group, source, sink, f"{group}-{n}") for n in range(WORKERS)]
        self._processes = [LoopProcess(each) for each in self._options]
        self._committed_before = 0

    def committed(self) -> int:
        """How many records the workers say they have committed; one that was killed may have said too little."""
        return self._committed_before + sum(each.committed for each in self._processes)

    def await_progress(self) -> None:
        before = self.committed()
        wait_until(lambda: self.committed() > before, "the loop commits something", PROGRESS_S_MAX)

    def replace(self, number: int) -> None:
        """SIGKILL one and start another in its place."""
        killed = self._processes[number]
        killed.kill()
        self._committed_before += killed.committed
        self._processes[number] = LoopProcess(self._options[number])

    def end(self) -> None:
        assert all(each.is_running() for each in self._processes), "a worker has ended by itself"
        assert [each.end() for each in self._processes] == [0] * WORKERS

    def kill(self) -> None:
        for each in self._processes:
            each.kill()


@contextlib.contextmanager
def loop(node: Peer, group: str, source: str, sink: str) -> Iterator[Workers]:
    workers = Workers(node.bootstrap, group, source, sink)
    try:
        yield workers
    finally:
        workers.kill()


@pytest.mark.timeout(3_600)
def test_kills_leave_every_record_processed_exactly_once(
    make_node: MakeNode, topic: str, group: str, is_chaos_full: bool
) -> None:
    node = make_node(SETTINGS)
    client = ConfluentClient(node.bootstrap)
    source, sink = f"{topic}-source", f"{topic}-sink"
    for name in (source, sink):
        client.create_topic(name, partitions=PARTITIONS, config={"retention.ms": "-1"})
    chance = random.Random(500)

    with loop(node, group, source, sink) as workers:
        feed = Source(node.bootstrap, source, PARTITIONS, FEED_S)
        try:
            workers.await_progress()
            for _ in range(KILLS_FULL if is_chaos_full else KILLS_SHORT):
                _kill_at_random(node, workers, chance)
        finally:
            feed.finish()
        wait_until(
            lambda: committed_offsets(node.port, group, source, PARTITIONS) == [feed.count] * PARTITIONS,
            "the loop has committed the end of the source",
            PROGRESS_S_MAX,
        )
        workers.end()

    _check_that_nothing_is_under_way(node)
    expected = [output_of(b"%d" % number) for number in range(feed.count)]
    assert feed.count > 0
    for partition, values in enumerate(read_committed(node.bootstrap, sink, PARTITIONS)):
        assert values == expected, f"{sink}-{partition}"


def _kill_at_random(node: Peer, workers: Workers, chance: random.Random) -> None:
    if chance.random() >= AT_ONCE_SHARE:
        workers.await_progress()
    time.sleep(chance.uniform(0, RUN_S_MAX))  # the random point of the kill
    if chance.random() < WORKER_KILL_SHARE:
        workers.replace(chance.randrange(WORKERS))
    node.kill()
    node.start()


def _check_that_nothing_is_under_way(node: Peer) -> None:
    def is_quiet() -> bool:
        with Connection(node.port) as connection:
            asked = m.ListTransactionsRequest(state_filters=UNDER_WAY)
            answer = connection.call(asked, 1, m.ListTransactionsResponse)
        assert Error(answer.error_code) == Error.NONE
        return answer.transaction_states == []

    wait_until(is_quiet, "no transaction is under way", TRANSACTION_TIMEOUT_MS / 1000 + PROGRESS_S_MAX)
