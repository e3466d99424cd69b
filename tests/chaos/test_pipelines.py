"""Kills under a pipeline on Spark that writes exactly once: of its driver, of its Python workers, of the node.

Whatever is killed when: under read_committed every record of the source has its output once, in order.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Literal

import pytest

from tests.chaos.committed import committed_offsets, read_committed
from tests.chaos.feeding import Source
from tests.chaos.loop_process import output_of
from tests.chaos.pipeline_process import PipelineOptions, PipelineProcess
from tests.clients.with_confluent import ConfluentClient
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
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
PROGRESS_S_MAX = 180.0
PLANNED_BEFORE_MAX = 2
"""So many batches may be seen to be finished after any moment that were planned before it: the one that runs, and one
that is done already."""
SETTINGS = {"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "5"}


class Pipeline:
    """The processes of one pipeline, one after the other: each goes on from the checkpoint of the one before."""

    def __init__(self, node: Peer, group: str, source: str, sink: str, folder: Path) -> None:
        self._options = PipelineOptions(
            node.bootstrap, group, source, sink, str(folder / "checkpoint"), str(folder / "scratch")
        )
        self._node = node
        self._log = folder / "pipeline.log"
        self._processes: list[PipelineProcess] = []
        self.start()

    @property
    def current(self) -> PipelineProcess:
        return self._processes[-1]

    def start(self) -> None:
        self._processes.append(PipelineProcess(self._options, self._log))

    def processed(self) -> list[int]:
        """How much of each partition is in finished batches, as the pipeline says by its consumer group."""
        found: list[int] = []

        def is_known() -> bool:
            asked = committed_offsets(self._node.port, self._options.group, self._options.source, PARTITIONS)
            found[:] = asked or []
            return asked is not None

        wait_until(is_known, "the offsets of the pipeline's group are known", PROGRESS_S_MAX)
        return [max(offset, 0) for offset in found]

    def await_progress(self) -> None:
        before = self.processed()
        self._await(lambda: self.processed() != before, "the pipeline finishes a batch")

    def await_end_of_source(self, ends: list[int]) -> None:
        self._await(lambda: self.processed() == ends, "all of the source is processed")

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        """While nothing is done to it that it does not survive."""

        def has_come() -> bool:
            assert self.current.is_running(), f"it ended by itself:\n{self.current.last_words()}"
            return condition()

        wait_until(has_come, what, PROGRESS_S_MAX, 0.1)

    def survive(self) -> None:
        """After the death of a worker: what ran there is run again, or else all of it, as its service manager would.

        If it was the process of the source, the query ends when the next batch is to be planned, and not before.
        """
        for _ in range(PLANNED_BEFORE_MAX + 1):
            self._await_progress_or_end(self.processed())
        if not self.current.is_running():
            self.start()

    def _await_progress_or_end(self, before: list[int]) -> None:
        wait_until(
            lambda: not self.current.is_running() or self.processed() != before,
            "the pipeline goes on, or ends",
            PROGRESS_S_MAX,
            0.1,
        )

    def kill(self) -> None:
        for each in self._processes:
            each.kill()
        for each in self._processes:
            each.await_end_of_workers()


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

    pipeline = Pipeline(node, group, source, sink, tmp_path)
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
