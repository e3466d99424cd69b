"""One leader per epoch, of the quorum and of each partition.

The leader of a partition is named by every node's metadata, and by every replica that believes it is the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.log.folder.checkpoints import TopicPartition
from barnabas.testing.simulator.protocols import Violation

if TYPE_CHECKING:
    from barnabas.metadata.image import TopicsImage
    from barnabas.testing.simulator.cluster import SimulatedCluster
    from barnabas.testing.simulator.nodes import SimulatedNode

NOBODY = -1


class OneQuorumLeaderPerEpoch:
    name = "one leader of the quorum per epoch"

    def __init__(self) -> None:
        self._leaders: dict[int, tuple[int, str]] = {}

    def observe(self, cluster: SimulatedCluster) -> None:
        for node in cluster.live_nodes:
            if node.quorum is None:
                continue
            core = node.quorum.driver.core
            if core.leader_id != NOBODY:
                self._note(core.epoch, core.leader_id, node, cluster.now_s)

    def finish(self, cluster: SimulatedCluster) -> None:
        self.observe(cluster)

    def _note(self, epoch: int, leader: int, node: SimulatedNode, now_s: float) -> None:
        known = self._leaders.get(epoch)
        if known is None:
            self._leaders[epoch] = (leader, f"node {node.id} at {now_s:.3f} s")
        elif known[0] != leader:
            raise Violation(
                self.name,
                f"in epoch {epoch}, node {node.id} says that {leader} leads at {now_s:.3f} s, but {known[1]} said that"
                f" {known[0]} does",
            )


class OnePartitionLeaderPerEpoch:
    name = "one leader of a partition per epoch"

    def __init__(self) -> None:
        self._leaders: dict[tuple[TopicPartition, int], tuple[int, str]] = {}
        self._seen: dict[int, TopicsImage] = {}
        """By node: images share what did not change, so one that was seen is not looked at again."""

    def observe(self, cluster: SimulatedCluster) -> None:
        for node in cluster.live_nodes:
            image = node.image
            if image is not None and self._seen.get(node.id) is not image.topics:
                self._seen[node.id] = image.topics
                for topic in image.topics.names.values():
                    for index, each in enumerate(topic.partitions):
                        if each.leader != NOBODY:
                            partition = TopicPartition(topic.name, index)
                            self._note(partition, each.leader_epoch, each.leader, node, cluster.now_s)
            for hosted in node.partitions:
                state = hosted.state
                if state.is_leader:
                    partition = TopicPartition(hosted.topic, hosted.index)
                    self._note(partition, state.leader_epoch, state.local_id, node, cluster.now_s)

    def finish(self, cluster: SimulatedCluster) -> None:
        self.observe(cluster)

    def _note(self, partition: TopicPartition, epoch: int, leader: int, node: SimulatedNode, now_s: float) -> None:
        known = self._leaders.get((partition, epoch))
        if known is None:
            self._leaders[partition, epoch] = (leader, f"node {node.id} at {now_s:.3f} s")
        elif known[0] != leader:
            raise Violation(
                self.name,
                f"{partition}, epoch {epoch}: node {node.id} has {leader} as leader at {now_s:.3f} s, but {known[1]}"
                f" had {known[0]}",
            )
