"""Replicas are equal below the high watermark, and committed metadata is never lost.

Both are the same promise about different logs. Each replica of each life is followed from where it was last looked at
to its high watermark; at the end everything is compared once more, from the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from barnabas.log.folder.checkpoints import TopicPartition
from barnabas.protocol.batch import iter_headers
from barnabas.testing.simulator.protocols import Violation

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.segments.open_files import FileRange
    from barnabas.testing.simulator.cluster import SimulatedCluster
    from barnabas.testing.simulator.invariants.committed_logs import CommittedLogs
    from barnabas.testing.simulator.nodes import SimulatedNode

METADATA: Final = TopicPartition("__cluster_metadata", 0)
READ_BYTES: Final = 1 << 20
NOBODY: Final = -1


class _Reads(Protocol):
    def __call__(self, offset: int) -> FileRange | None: ...


class _Follower:
    """Reads logs from where they were last read, and compares what is new with what is known to be committed."""

    def __init__(self, name: str, committed: CommittedLogs) -> None:
        self._name = name
        self._committed = committed
        self._positions: dict[tuple[int, int, TopicPartition], int] = {}
        """By node, life and partition: up to where it was read."""

    def forget_positions(self) -> None:
        """Everything is compared again, from the start."""
        self._positions.clear()

    def follow(
        self,
        node: SimulatedNode,
        partition: TopicPartition,
        start: int,
        high_watermark: int,
        read: _Reads,
        now_s: float,
    ) -> None:
        key = (node.id, node.life, partition)
        position = self._positions.get(key, 0)
        if high_watermark == position:
            return
        if high_watermark < position:
            raise Violation(
                self._name,
                f"{partition}: everything below offset {position} was committed at node {node.id}, whose high watermark"
                f" is {high_watermark} at {now_s:.3f} s",
            )
        log = self._committed.of(partition)
        offset = max(position, start)
        source = f"node {node.id} at {now_s:.3f} s"
        while offset < high_watermark:
            found = read(offset)
            if found is None:
                raise Violation(
                    self._name,
                    f"{partition}: node {node.id} has nothing at offset {offset}, though its high watermark is"
                    f" {high_watermark} at {now_s:.3f} s",
                )
            data = bytes(found.file.read(found.position, found.length))
            contradiction = log.learn(data, high_watermark, source)
            if contradiction is not None:
                raise Violation(self._name, contradiction)
            offset = _end_of(data, offset)
        self._positions[key] = high_watermark


def _end_of(data: bytes, offset: int) -> int:
    for _, header in iter_headers(data):
        offset = header.next_offset
    return offset


class ReplicasAreEqual:
    name = "replicas are equal below the high watermark"

    def __init__(self, committed: CommittedLogs) -> None:
        self._follower = _Follower(self.name, committed)

    def observe(self, cluster: SimulatedCluster) -> None:
        for node in cluster.live_nodes:
            for hosted in node.partitions:
                if hosted.is_removed or hosted.offline_reason is not None:
                    continue
                log = hosted.log
                self._follower.follow(
                    node,
                    TopicPartition(hosted.topic, hosted.index),
                    log.log_start_offset,
                    hosted.state.high_watermark.offset,
                    lambda offset, log=log: read_log(log, offset),
                    cluster.now_s,
                )

    def finish(self, cluster: SimulatedCluster) -> None:
        self._follower.forget_positions()
        self.observe(cluster)


class CommittedMetadataIsKept:
    name = "committed metadata is never lost"

    def __init__(self, committed: CommittedLogs) -> None:
        self._follower = _Follower(self.name, committed)

    def observe(self, cluster: SimulatedCluster) -> None:
        for node in cluster.live_nodes:
            quorum = node.quorum
            if quorum is None:
                continue
            high_watermark = quorum.driver.core.high_watermark
            log = quorum.driver.log
            image = node.image
            if image is not None and image.offset >= high_watermark:
                raise Violation(
                    self.name,
                    f"the image of node {node.id} has offset {image.offset} at {cluster.now_s:.3f} s, but only what is"
                    f" before {high_watermark} is committed as far as it knows",
                )
            self._follower.follow(
                node,
                METADATA,
                log.start_offset,
                high_watermark,
                lambda offset, log=log: log.read(offset, READ_BYTES),
                cluster.now_s,
            )

    def finish(self, cluster: SimulatedCluster) -> None:
        self._follower.forget_positions()
        self.observe(cluster)
        # A snapshot does not say who leads the quorum, so an image made of one does not know until the next election.
        images = {
            node.id: node.image._replace(controller_id=NOBODY) for node in cluster.live_nodes if node.image is not None
        }
        for node_id, image in images.items():
            for other_id, other in images.items():
                if other.offset == image.offset and other != image:
                    raise Violation(
                        self.name,
                        f"the images of nodes {node_id} and {other_id} differ, though both have offset {image.offset}",
                    )


def read_log(log: PartitionLog, offset: int) -> FileRange | None:
    return log.read(offset, READ_BYTES, log.end_position, whole_first_batch=True)
