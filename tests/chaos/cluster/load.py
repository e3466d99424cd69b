"""Everything that works on the cluster while things happen to it, and what it must have done at the end.

- producers of `numbers`, which know what was acknowledged, and a reader of everything that leaders show;
- two loops that consume `source`, process and produce exactly once, with members of either group protocol, and a reader
  of what one of them has committed;
- a pipeline on Spark that does the same, if it is asked for.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING

from tests.chaos.cluster.traffic import Acknowledgements, Reader, VerifiableProducer
from tests.chaos.committed import committed_offsets
from tests.chaos.feeding import Source
from tests.chaos.loop_workers import Workers, loop
from tests.chaos.pipeline_runs import Pipeline
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.chaos.cluster.nodes import Nodes
    from tests.chaos.loop_process import GroupProtocol

NUMBERS, SOURCE = "numbers", "source"
SINKS: Mapping[GroupProtocol, str] = {"classic": "sink-classic", "consumer": "sink-consumer"}
SPARK_SINK, SPARK_GROUP = "sink-spark", "spark-pipeline"
NUMBERS_PARTITIONS, SOURCE_PARTITIONS = 6, 3
PRODUCERS, WORKERS = 2, 2
NUMBERS_EVERY_S, SOURCE_EVERY_S = 0.05, 0.05
START_S_MAX, PROGRESS_S_MAX = 120.0, 180.0


def group_of(protocol: GroupProtocol) -> str:
    return f"loop-{protocol}"


class Load:
    """Runs from `with` on; `finish` ends the feeding and returns when everything that was fed is processed."""

    def __init__(self, nodes: Nodes, *, has_pipeline: bool) -> None:
        self._nodes = nodes
        self._has_pipeline = has_pipeline
        self._stack = contextlib.ExitStack()
        self.acknowledged = [Acknowledgements() for _ in range(NUMBERS_PARTITIONS)]
        self.producers: list[VerifiableProducer] = []
        self.readers: list[Reader] = []
        self.loops: dict[GroupProtocol, Workers] = {}
        self.pipeline: Pipeline | None = None
        self.pipeline_restarts = 0
        self.fed = 0
        """How many records each partition of the source got, known at the end."""
        self._source: Source | None = None

    def __enter__(self) -> Load:
        nodes, bootstrap = self._nodes, self._nodes.bootstrap
        nodes.create_topic(NUMBERS, NUMBERS_PARTITIONS)
        for name in (SOURCE, *SINKS.values(), *([SPARK_SINK] if self._has_pipeline else [])):
            nodes.create_topic(name, SOURCE_PARTITIONS)
        with contextlib.ExitStack() as stack:
            for number in range(PRODUCERS):
                producer = VerifiableProducer(bootstrap, NUMBERS, number, self.acknowledged, NUMBERS_EVERY_S)
                stack.callback(producer.stop)
                self.producers.append(producer)
            self._source = Source(bootstrap, SOURCE, SOURCE_PARTITIONS, SOURCE_EVERY_S, nodes.folder / "source.log")
            stack.callback(self._source.stop)
            for protocol, sink in SINKS.items():
                workers = loop(bootstrap, group_of(protocol), SOURCE, sink, WORKERS, protocol)
                self.loops[protocol] = stack.enter_context(workers)
            self.readers = [
                Reader(bootstrap, NUMBERS, NUMBERS_PARTITIONS, "read_uncommitted"),
                Reader(bootstrap, SINKS["classic"], SOURCE_PARTITIONS, "read_committed"),
            ]
            for reader in self.readers:
                stack.callback(reader.stop)
            if self._has_pipeline:
                pipeline = Pipeline(bootstrap, SPARK_GROUP, SOURCE, SPARK_SINK, SOURCE_PARTITIONS, nodes.folder)
                stack.callback(pipeline.kill)
                self.pipeline = pipeline
            self._await_first()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def count_acknowledged(self) -> int:
        return sum(len(each.at) for each in self.acknowledged)

    def processed(self) -> dict[str, int]:
        """How many records the loops say they have committed."""
        return {protocol: workers.committed() for protocol, workers in self.loops.items()}

    def await_progress(self) -> float:
        """Returns the moment at which every partition has acknowledged, and every loop committed, something new."""
        self.keep_pipeline()
        acknowledged = [len(each.at) for each in self.acknowledged]
        processed = self.processed()

        def all_went_on() -> bool:
            return all(
                len(each.at) > before for each, before in zip(self.acknowledged, acknowledged, strict=True)
            ) and all(count > processed[name] for name, count in self.processed().items())

        wait_until(all_went_on, "all partitions are written to, and all loops commit", PROGRESS_S_MAX)
        return time.monotonic()

    def keep_pipeline(self) -> None:
        """A pipeline that ended is started again, as its service manager would."""
        if self.pipeline is not None and not self.pipeline.current.is_running():
            self.pipeline_restarts += 1
            self.pipeline.start()

    def finish(self) -> None:
        assert self._source is not None
        self._source.finish()
        self.fed = self._source.count
        for producer in self.producers:
            producer.finish()
        for protocol in SINKS:
            self._await_end_of_source(group_of(protocol))
        for workers in self.loops.values():
            workers.end()
        if self.pipeline is not None:
            self.keep_pipeline()
            self.pipeline.await_end_of_source([self.fed] * SOURCE_PARTITIONS)
            assert self.pipeline.current.end() == 0, self.pipeline.current.last_words()
        self._await_readers()

    def _await_first(self) -> None:
        wait_until(
            lambda: all(each.at for each in self.acknowledged) and all(self.processed().values()),
            "all partitions are written to, and all loops commit",
            START_S_MAX,
        )
        if self.pipeline is not None:
            self.pipeline.await_progress()

    def _await_end_of_source(self, group: str) -> None:
        found: list[int] | None = None

        def has_come() -> bool:
            nonlocal found
            found = committed_offsets(self._nodes.bootstrap, group, SOURCE, SOURCE_PARTITIONS)
            return found == [self.fed] * SOURCE_PARTITIONS

        try:
            wait_until(has_come, f"{group} has committed the end of the source", PROGRESS_S_MAX, 0.2)
        except AssertionError as late:
            raise AssertionError(f"{late}: of {self.fed} records of each partition, it has committed {found}") from late

    def _await_readers(self) -> None:
        """Until they have seen as many records as there are."""
        sent = sum(producer.count for producer in self.producers)
        of_numbers, of_sink = self.readers
        for reader, count in ((of_numbers, sent), (of_sink, self.fed)):
            wait_until(
                partial(_has_seen, reader, count),
                f"the {reader.isolation} reader of {reader.topic} has come to the end",
                PROGRESS_S_MAX,
            )
            reader.stop()


def _has_seen(reader: Reader, count: int) -> bool:
    return all(len(seen) >= count for seen in reader.seen)
