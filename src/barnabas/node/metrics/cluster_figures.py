"""The cluster as this node sees it: what its controller counts, and how far its quorum has come.

Only the active controller speaks of the cluster as a whole, as with Kafka: sums over all nodes count nothing twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.metadata.image import NO_LEADER
from barnabas.metrics.exposition import GAUGE, Family

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.metadata.image import MetadataImage
    from barnabas.raft.quorum_client import QuorumClient

CONTROLLER: Final = "kafka_controller_kafkacontroller_"
QUORUM: Final = "kafka_server_raft_metrics_"


def controller_families(image: MetadataImage, *, is_active: bool) -> Iterator[Family]:
    """Zero where another controller is the active one, but for what every controller knows of itself."""
    offline = unpreferred = partitions = topics = fenced = active = 0
    if is_active:
        topics = len(image.topics)
        for topic in image.topics:
            for each in topic.partitions:
                partitions += 1
                offline += each.leader == NO_LEADER
                unpreferred += each.leader != each.replicas[0]
        for broker in image.brokers.values():
            fenced += broker.fenced
            active += not broker.fenced
    figures = (
        ("activecontrollercount", "1 where the active controller is", int(is_active)),
        ("globaltopiccount", "topics of the cluster", topics),
        ("globalpartitioncount", "partitions of the cluster", partitions),
        ("offlinepartitionscount", "partitions without a leader", offline),
        ("preferredreplicaimbalancecount", "partitions that another than their preferred replica leads", unpreferred),
        ("activebrokercount", "brokers that are not fenced", active),
        ("fencedbrokercount", "brokers that are registered and fenced", fenced),
    )
    for name, explanation, value in figures:
        family = Family(CONTROLLER + name, GAUGE, explanation)
        family.add(value)
        yield family


def quorum_families(quorum: QuorumClient) -> Iterator[Family]:
    core = quorum.driver.core
    leader = quorum.leader
    figures = (
        ("current_epoch", "the epoch of the metadata quorum", leader.epoch),
        (
            "current_leader",
            "who leads the metadata quorum, by node id; -1 if that is not known",
            leader.id if leader.is_known else -1,
        ),
        ("high_watermark", "up to which offset the metadata log is committed", core.high_watermark),
        ("log_end_offset", "the offset after the last of this node's metadata log", core.log.end.offset),
    )
    for name, explanation, value in figures:
        family = Family(QUORUM + name, GAUGE, explanation)
        family.add(value)
        yield family
