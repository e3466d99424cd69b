"""Topics and partitions of a broker, under the names of Kafka's BrokerTopicMetrics, ReplicaManager and Partition.

What was written is read off the logs: between two looks, a partition has got as many messages as its end has moved, and
as many bytes as its segments have grown. Looks are at most `LOOK_S` apart, so that segments do not come and go between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.metrics.exposition import COUNTER, GAUGE, Family, counter, gauge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from barnabas.metadata.image import MetadataImage
    from barnabas.replication.hosted import HostedPartition
    from barnabas.replication.partition import BrokerId
    from barnabas.replication.replica_manager import ReplicaManager

LOOK_S: Final = 10.0
TOPIC_METRICS: Final = "kafka_server_brokertopicmetrics_"
REPLICA_METRICS: Final = "kafka_server_replicamanager_"
PARTITION_METRICS: Final = "kafka_cluster_partition_"


class Mark(NamedTuple):
    """How far a log had come when it was last looked at."""

    end_offset: int
    segment: int
    size: int
    bytes_out: int


NEW: Final = Mark(0, 0, 0, 0)


class Traffic:
    """What has come into the partitions that this broker leads, and what has left them."""

    __slots__ = ("bytes_in", "bytes_out", "messages_in")

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0


class TopicTraffic:
    """Totals by topic, brought up to date by every look."""

    def __init__(self) -> None:
        self.by_topic: dict[str, Traffic] = {}
        self.replicated_bytes = 0
        """What has come into the partitions that other brokers lead."""
        self._marks: dict[HostedPartition, Mark] = {}

    def begin(self, partitions: Iterable[HostedPartition]) -> None:
        """What is there when a broker begins to serve came in an earlier life."""
        self._marks = {hosted: mark_of(hosted) for hosted in partitions}

    def look(self, partitions: Iterable[HostedPartition]) -> None:
        marks: dict[HostedPartition, Mark] = {}
        for hosted in partitions:
            mark = mark_of(hosted)
            # One that has not been seen before is new, and was empty.
            before = self._marks.get(hosted, NEW)
            marks[hosted] = mark
            if hosted.state.is_leader:
                self._add(hosted, before, mark)
            else:
                self.replicated_bytes += grown_bytes(hosted, before, mark)
        self._marks = marks

    def _add(self, hosted: HostedPartition, before: Mark, mark: Mark) -> None:
        traffic = self.by_topic.get(hosted.topic)
        if traffic is None:
            traffic = self.by_topic[hosted.topic] = Traffic()
        traffic.messages_in += max(mark.end_offset - before.end_offset, 0)
        traffic.bytes_in += grown_bytes(hosted, before, mark)
        traffic.bytes_out += mark.bytes_out - before.bytes_out


def mark_of(hosted: HostedPartition) -> Mark:
    active = hosted.log.segments.active
    return Mark(hosted.log.log_end_offset, active.base_offset, active.size, hosted.bytes_out)


def grown_bytes(hosted: HostedPartition, before: Mark, mark: Mark) -> int:
    """By how much the segments from the one that was active have grown."""
    if mark.segment == before.segment:
        return max(mark.size - before.size, 0)
    since = (each.size for each in list(hosted.log.segments.all) if before.segment <= each.base_offset < mark.segment)
    return max(sum(since) + mark.size - before.size, 0)


def topic_families(traffic: TopicTraffic) -> Iterator[Family]:
    """Totals have no label, as Kafka's have none."""
    figures: tuple[tuple[str, str, Callable[[Traffic], int]], ...] = (
        ("messagesin_total", "records that were written", lambda each: each.messages_in),
        ("bytesin_total", "bytes that clients wrote", lambda each: each.bytes_in),
        ("bytesout_total", "bytes that consumers read", lambda each: each.bytes_out),
    )
    by_topic = sorted(traffic.by_topic.items())
    for name, explanation, figure in figures:
        family = Family(TOPIC_METRICS + name, COUNTER, explanation)
        family.add(sum(figure(each) for _, each in by_topic))
        for topic, each in by_topic:
            family.add(figure(each), topic=topic)
        yield family
    yield counter(
        f"{TOPIC_METRICS}replicationbytesin_total", "bytes copied from other brokers", traffic.replicated_bytes
    )


def replica_families(replicas: ReplicaManager) -> Iterator[Family]:
    """What Kafka's ReplicaManager counts."""
    partitions = list(replicas)
    led = [each for each in partitions if each.state.is_leader]
    in_sync = [(len(each.state.isr), each) for each in led]
    figures = (
        ("partitioncount", "partitions that this broker hosts", len(partitions)),
        ("leadercount", "partitions that this broker leads", len(led)),
        (
            "offlinereplicacount",
            "replicas of failed data folders",
            sum(each.offline_reason is not None for each in partitions),
        ),
        (
            "underreplicatedpartitions",
            "led partitions that lack a replica in sync",
            sum(count < len(each.state.replicas) for count, each in in_sync),
        ),
        (
            "underminisrpartitioncount",
            "led partitions with fewer replicas in sync than min.insync.replicas",
            sum(count < each.state.min_insync_replicas for count, each in in_sync),
        ),
        (
            "atminisrpartitioncount",
            "led partitions with just min.insync.replicas in sync",
            sum(count == each.state.min_insync_replicas for count, each in in_sync),
        ),
        (
            "produceridcount",
            "idempotent and transactional producers that partitions know",
            sum(len(each.log.active_producers) for each in partitions),
        ),
    )
    for name, explanation, value in figures:
        yield gauge(f"{REPLICA_METRICS}{name}", explanation, value)
    for name, explanation, count in (
        ("isrshrinks_total", "how often a replica left the in-sync ones", replicas.isr_shrinks),
        ("isrexpands_total", "how often a replica joined the in-sync ones", replicas.isr_expands),
    ):
        yield counter(f"{REPLICA_METRICS}{name}", explanation, count)
    failed = Family(
        "kafka_server_replicafetchermanager_failedpartitionscount",
        GAUGE,
        "partitions that cannot be copied because of this broker's own disk or log",
    )
    failed.add(replicas.failed_copies, clientId="Replica")
    yield failed


def reassignment_family(image: MetadataImage, broker_id: int) -> Family:
    return gauge(
        f"{REPLICA_METRICS}reassigningpartitions",
        "led partitions of which replicas are moving to other brokers",
        sum(
            bool(partition.adding_replicas or partition.removing_replicas)
            for topic in image.topics
            for partition in topic.partitions
            if partition.leader == broker_id
        ),
    )


def partition_families(replicas: ReplicaManager) -> Iterator[Family]:
    """Each partition that is hosted; where it is not led from here, all are 0, as with Kafka."""
    figures: tuple[tuple[str, str, Callable[[HostedPartition], int]], ...] = (
        ("replicascount", "replicas of a partition", lambda each: len(each.state.replicas)),
        ("insyncreplicascount", "replicas in sync of a partition", lambda each: len(each.state.isr)),
        (
            "underreplicated",
            "1 for a partition that lacks a replica in sync",
            lambda each: len(each.state.isr) < len(each.state.replicas),
        ),
        (
            "underminisr",
            "1 for a partition with fewer replicas in sync than min.insync.replicas",
            lambda each: len(each.state.isr) < each.state.min_insync_replicas,
        ),
        (
            "atminisr",
            "1 for a partition with just min.insync.replicas in sync",
            lambda each: len(each.state.isr) == each.state.min_insync_replicas,
        ),
        ("laststableoffsetlag", "committed records that wait for the end of a transaction", unstable_count),
    )
    partitions = sorted(replicas, key=lambda each: (each.topic, each.index))
    for name, explanation, figure in figures:
        family = Family(PARTITION_METRICS + name, GAUGE, explanation)
        for each in partitions:
            value = figure(each) if each.state.is_leader else 0
            family.add(value, topic=each.topic, partition=str(each.index))
        yield family


def follower_families(replicas: ReplicaManager) -> Iterator[Family]:
    """How far the followers of the partitions that are led here are behind."""
    lags: dict[BrokerId, int] = {}
    for hosted in replicas:
        state = hosted.state
        if state.is_leader:
            for follower_id, follower in list(state.followers.items()):
                lag = 0 if follower.end is None else max(state.log_end.offset - follower.end.offset, 0)
                lags[follower_id] = max(lags.get(follower_id, 0), lag)
    family = Family("barnabas_follower_max_lag", GAUGE, "records that a follower lacks where it lacks most")
    for follower_id, lag in sorted(lags.items()):
        family.add(lag, follower=str(follower_id))
    yield family


def unstable_count(hosted: HostedPartition) -> int:
    try:
        return max(hosted.state.high_watermark.offset - hosted.last_stable_offset, 0)
    except RuntimeError:
        # A transaction begins or ends in this moment.
        return 0
