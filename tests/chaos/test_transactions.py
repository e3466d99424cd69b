"""SIGKILL of the node, and now and then of a worker, under a loop that consumes, processes and produces.

Whatever is killed when: under read_committed every record of the source has its output once, in order, and the group's
committed offsets say the same.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from tests.chaos.committed import committed_offsets, read_committed, transactions_under_way
from tests.chaos.feeding import Source
from tests.chaos.loop_process import TRANSACTION_TIMEOUT_MS, output_of
from tests.chaos.loop_workers import PROGRESS_S_MAX, loop
from tests.clients.with_confluent import ConfluentClient
from tests.peers import wait_until

if TYPE_CHECKING:
    from tests.chaos.loop_workers import Workers
    from tests.conftest import MakeNode
    from tests.peers import Peer

PARTITIONS = 6
WORKERS = 3
KILLS_SHORT, KILLS_FULL = 8, 500
RUN_S_MAX = 0.3
AT_ONCE_SHARE = 0.25
"""So many of the kills come while the node and its clients are still finding each other again."""
WORKER_KILL_SHARE = 0.1
FEED_S = 0.01
"""How often each partition of the source gets a record: enough to keep the loop busy, and less than it can do."""

SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


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

    with loop(node.bootstrap, group, source, sink, WORKERS) as workers:
        feed = Source(node.bootstrap, source, PARTITIONS, FEED_S)
        try:
            workers.await_progress()
            for _ in range(KILLS_FULL if is_chaos_full else KILLS_SHORT):
                _kill_at_random(node, workers, chance)
        finally:
            feed.finish()
        wait_until(
            lambda: committed_offsets(node.bootstrap, group, source, PARTITIONS) == [feed.count] * PARTITIONS,
            "the loop has committed the end of the source",
            PROGRESS_S_MAX,
        )
        workers.end()

    wait_until(
        lambda: transactions_under_way(node.port) == [],
        "no transaction is under way",
        TRANSACTION_TIMEOUT_MS / 1000 + PROGRESS_S_MAX,
    )
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
