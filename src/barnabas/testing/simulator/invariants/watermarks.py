"""The high watermark and the last stable offset never fall within a leader's epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.log.folder.checkpoints import TopicPartition
from barnabas.testing.simulator.protocols import Violation

if TYPE_CHECKING:
    from barnabas.testing.simulator.cluster import SimulatedCluster
    from barnabas.testing.simulator.load.history import History


class WatermarksNeverFall:
    """Seen at the leaders themselves, and by readers: the answers to one reader from one leader come in order."""

    name = "high watermark and last stable offset never fall"

    def __init__(self, history: History) -> None:
        self._history = history
        self._read = 0
        self._highest: dict[tuple[TopicPartition, int, str], tuple[int, int, float]] = {}

    def observe(self, cluster: SimulatedCluster) -> None:
        for node in cluster.live_nodes:
            source = f"node {node.id}, life {node.life}"
            for hosted in node.partitions:
                state = hosted.state
                if not state.is_leader:
                    continue
                self._note(
                    TopicPartition(hosted.topic, hosted.index),
                    state.leader_epoch,
                    source,
                    state.high_watermark.offset,
                    hosted.last_stable_offset,
                    cluster.now_s,
                )
        reads = self._history.reads
        for read in reads[self._read :]:
            if not read.is_from_leader:
                continue
            self._note(
                read.partition,
                read.leader_epoch,
                f"node {read.node} to {read.reader}",
                read.high_watermark,
                read.last_stable_offset,
                read.at_s,
            )
        self._read = len(reads)

    def finish(self, cluster: SimulatedCluster) -> None:
        self.observe(cluster)

    def _note(
        self, partition: TopicPartition, epoch: int, source: str, high_watermark: int, last_stable: int, now_s: float
    ) -> None:
        if last_stable > high_watermark:
            raise Violation(
                self.name,
                f"{partition}, epoch {epoch}: {source} has a last stable offset of {last_stable} beyond its high"
                f" watermark of {high_watermark} at {now_s:.3f} s",
            )
        key = (partition, epoch, source)
        before = self._highest.get(key)
        if before is not None and (before[0] > high_watermark or before[1] > last_stable):
            raise Violation(
                self.name,
                f"{partition}, epoch {epoch}: {source} has high watermark {high_watermark} and last stable offset"
                f" {last_stable} at {now_s:.3f} s, after {before[0]} and {before[1]} at {before[2]:.3f} s",
            )
        self._highest[key] = (high_watermark, last_stable, now_s)
