"""Topics, partitions and logs of a broker, under the names of Kafka's BrokerTopicMetrics, ReplicaManager and Log.

What was written is read off the logs: between two looks, a partition has got as many messages as its end has moved, and
as many bytes as its segments have grown. Looks are at most `LOOK_S` apart, so that segments do not come and go between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.metrics.exposition import COUNTER, GAUGE, Family

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from barnabas.replication.hosted import HostedPartition
    from barnabas.replication.replica_manager import ReplicaManager

LOOK_S: Final = 10.0
TOPIC_METRICS: Final = "kafka_server_brokertopicmetrics_"


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
        family = Family(f"kafka_server_replicamanager_{name}", GAUGE, explanation)
        family.add(value)
        yield family
    for name, explanation, count in (
        ("isrshrinks_total", "how often a replica left the in-sync ones", replicas.isr_shrinks),
        ("isrexpands_total", "how often a replica joined the in-sync ones", replicas.isr_expands),
    ):
        family = Family(f"kafka_server_replicamanager_{name}", COUNTER, explanation)
        family.add(count)
        yield family


def log_families(replicas: ReplicaManager) -> Iterator[Family]:
    """Each log: how large it is, and from where to where it goes."""
    figures: tuple[tuple[str, str, Callable[[HostedPartition], int]], ...] = (
        ("size", "bytes of the segments of a log", lambda each: each.log.size_bytes),
        ("logstartoffset", "the first offset of a log", lambda each: each.log.log_start_offset),
        ("logendoffset", "the offset after the last of a log", lambda each: each.log.log_end_offset),
        ("numlogsegments", "segments of a log", lambda each: len(each.log.segments.all)),
    )
    partitions = sorted(replicas, key=lambda each: (each.topic, each.index))
    for name, explanation, figure in figures:
        family = Family(f"kafka_log_log_{name}", GAUGE, explanation)
        for each in partitions:
            family.add(figure(each), topic=each.topic, partition=str(each.index))
        yield family
    under = Family(
        "kafka_cluster_partition_underreplicated", GAUGE, "1 for a led partition that lacks a replica in sync"
    )
    for each in partitions:
        if each.state.is_leader:
            under.add(len(each.state.isr) < len(each.state.replicas), topic=each.topic, partition=str(each.index))
    yield under
