"""The cluster as this node sees it: what its controller counts, and how far its quorum has come.

Only the active controller speaks of the cluster as a whole, as with Kafka: sums over all nodes count nothing twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.metadata.image import NO_LEADER
from barnabas.metrics.exposition import GAUGE, SUMMARY, Family, counter, gauge
from barnabas.raft.consensus.messages import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.controller.quorum_controller import QuorumController
    from barnabas.metadata.image import MetadataImage
    from barnabas.node.metrics.loop_watch import LoopWatch
    from barnabas.raft.quorum_client import QuorumClient

CONTROLLER: Final = "kafka_controller_kafkacontroller_"
STATISTICS: Final = "kafka_controller_controllerstats_"
EVENTS: Final = "kafka_controller_controllereventmanager_"
QUORUM: Final = "kafka_server_raft_metrics_"
LOADER: Final = "kafka_server_metadataloader_"


def controller_families(image: MetadataImage, *, is_active: bool) -> Iterator[Family]:
    """Zero where another controller is the active one, but for what every controller knows of itself."""
    offline = unpreferred = partitions = topics = fenced = active = leaving = 0
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
            leaving += broker.in_controlled_shutdown
    for name, explanation, value in (
        ("activecontrollercount", "1 where the active controller is", int(is_active)),
        ("globaltopiccount", "topics of the cluster", topics),
        ("globalpartitioncount", "partitions of the cluster", partitions),
        ("offlinepartitionscount", "partitions without a leader", offline),
        ("preferredreplicaimbalancecount", "partitions that another than their preferred replica leads", unpreferred),
        ("activebrokercount", "brokers that are not fenced", active),
        ("fencedbrokercount", "brokers that are registered and fenced", fenced),
        ("controlledshutdownbrokercount", "brokers that are about to leave", leaving),
        ("lastappliedrecordoffset", "up to which offset this node has put metadata into effect", image.offset),
        (
            "lastcommittedrecordoffset",
            "up to which offset metadata is known to be committed",
            image.offset,
        ),
        ("lastappliedrecordtimestamp", "when that was written, in ms since 1970", image.timestamp_ms),
    ):
        yield gauge(CONTROLLER + name, explanation, value)


def registration_family(image: MetadataImage) -> Family:
    """As Kafka numbers the states of brokers."""
    family = Family(
        f"{CONTROLLER}brokerregistrationstate", GAUGE, "10: a broker is fenced, 20: it is about to leave, 30: it serves"
    )
    for broker in image.brokers.values():
        state = 10 if broker.fenced else 20 if broker.in_controlled_shutdown else 30
        family.add(state, broker=str(broker.id))
    return family


def own_controller_families(controller: QuorumController, watch: LoopWatch) -> Iterator[Family]:
    """What a controller has done, and how busy it is."""
    yield counter(
        f"{STATISTICS}uncleanleaderelections_total",
        "leaders that this node has elected who may lack records",
        controller.unclean_elections,
    )
    yield gauge(
        f"{CONTROLLER}timedoutbrokerheartbeatcount",
        "brokers that this node has fenced because nothing was heard of them",
        controller.expired_sessions,
    )
    yield gauge(
        f"{EVENTS}avgidleratio",
        "the share of the last half minute in which the controller's event loop had nothing to do",
        round(watch.idle_share, 4),
    )
    waits = Family(f"{EVENTS}eventqueuetimems", SUMMARY, "milliseconds until the controller turns to what has come")
    waits.add_durations(watch.waits)
    yield waits


def quorum_families(quorum: QuorumClient, *, is_controller: bool) -> Iterator[Family]:
    """Kafka calls whoever follows without a vote an observer."""
    core = quorum.driver.core
    leader = quorum.leader
    for name, explanation, value in (
        ("current_epoch", "the epoch of the metadata quorum", leader.epoch),
        (
            "current_leader",
            "who leads the metadata quorum, by node id; -1 if that is not known",
            leader.id if leader.is_known else -1,
        ),
        ("high_watermark", "up to which offset the metadata log is committed", core.high_watermark),
        ("log_end_offset", "the offset after the last of this node's metadata log", core.log.end.offset),
        ("log_end_epoch", "the epoch of the last record of this node's metadata log", core.log.end.epoch),
    ):
        yield gauge(QUORUM + name, explanation, value)
    state = Family(f"{QUORUM}current_state", GAUGE, "1 under what this node is in the metadata quorum")
    is_observer = not is_controller and core.role is Role.FOLLOWER
    state.add(1, state="observer" if is_observer else core.role.value)
    yield state
    replicas = core.end_offsets()
    if not replicas:
        return
    voter_count = sum(votes for _, votes, _ in replicas)
    yield gauge(f"{QUORUM}number_of_voters", "voters of the metadata quorum, on its leader", voter_count)
    yield gauge(
        f"{QUORUM}number_of_observers",
        "observers of the metadata quorum, on its leader",
        len(replicas) - voter_count,
    )
    lag = Family("barnabas_quorum_replica_lag", GAUGE, "metadata records that a replica lacks, on the leader")
    for replica, votes, end_offset in replicas:
        behind = max(core.log.end.offset - max(end_offset, 0), 0)
        lag.add(behind, replica=str(replica.id), kind="voter" if votes else "observer")
    yield lag


def metadata_families(image: MetadataImage) -> Iterator[Family]:
    """The metadata that is in effect here."""
    yield gauge(f"{LOADER}currentmetadataversion", "the metadata version in effect", image.features.metadata_version)
    yield gauge(f"{LOADER}currentcontrollerid", "the controller that wrote the last metadata", image.controller_id)
    levels = Family(f"{LOADER}finalizedlevel", GAUGE, "the levels of the cluster's features")
    for feature, level in sorted(image.features.finalized.items()):
        levels.add(level, featureName=feature)
    yield levels
