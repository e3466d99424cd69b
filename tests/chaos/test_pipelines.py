"""Kills under a pipeline on Spark that writes exactly once: of its driver, of its Python workers, of the node.

Whatever is killed when: under read_committed every record of the source has its output once, in order.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Literal

import pytest

from tests.chaos.committed import read_committed
from tests.chaos.feeding import Source
from tests.chaos.loop_process import output_of
from tests.chaos.pipeline_runs import Pipeline
from tests.clients.with_confluent import ConfluentClient

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import MakeNode
    from tests.peers import Peer

Event = Literal["driver", "worker", "node"]

PARTITIONS = 3
FEED_S = 0.02
EVENTS_SHORT: tuple[Event, ...] = ("worker", "driver", "node", "driver")
EVENTS_FULL: dict[Event, int] = {"driver": 50, "worker": 15, "node": 15}
RUN_S_MAX = 1.5
AT_ONCE_SHARE = 0.2
"""So many of the kills of a driver come while it is still finding out where it was."""
STARTING_S_MAX = 8.0
SETTINGS = {"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "5"}


@pytest.mark.timeout(5_400)
def test_kills_leave_every_record_written_exactly_once(
    make_node: MakeNode, topic: str, group: str, tmp_path: Path, is_chaos_full: bool
) -> None:
    node = make_node(SETTINGS)
    client = ConfluentClient(node.bootstrap)
    source, sink = f"{topic}-source", f"{topic}-sink"
    for name in (source, sink):
        client.create_topic(name, partitions=PARTITIONS, config={"retention.ms": "-1"})
    chance = random.Random(50)

    pipeline = Pipeline(node.bootstrap, group, source, sink, PARTITIONS, tmp_path)
    try:
        feed = Source(node.bootstrap, source, PARTITIONS, FEED_S)
        try:
            for event in _events(chance, is_chaos_full):
                _let(event, node, pipeline, chance)
            pipeline.await_progress()
        finally:
            feed.finish()
        pipeline.await_end_of_source([feed.count] * PARTITIONS)
        assert pipeline.current.end() == 0, pipeline.current.last_words()
    finally:
        pipeline.kill()

    expected = [output_of(b"%d" % number) for number in range(feed.count)]
    for partition, values in enumerate(read_committed(node.bootstrap, sink, PARTITIONS)):
        assert values == expected, f"{sink}-{partition}"


def _events(chance: random.Random, is_chaos_full: bool) -> list[Event]:
    if not is_chaos_full:
        return list(EVENTS_SHORT)
    events: list[Event] = []
    for event, count in EVENTS_FULL.items():
        events += [event] * count
    chance.shuffle(events)
    return events


def _let(event: Event, node: Peer, pipeline: Pipeline, chance: random.Random) -> None:
    """Something happens at a random moment, and all is well after it."""
    if event == "driver" and chance.random() < AT_ONCE_SHARE:
        time.sleep(chance.uniform(0, STARTING_S_MAX))
    else:
        pipeline.await_progress()
        time.sleep(chance.uniform(0, RUN_S_MAX))  # the random point of the kill
    if event == "node":
        node.kill()
        node.start()
        pipeline.await_progress()
    elif event == "worker":
        assert pipeline.current.kill_a_worker(chance), "there is no worker to kill"
        pipeline.survive()
    else:
        pipeline.current.kill()
        pipeline.start()
