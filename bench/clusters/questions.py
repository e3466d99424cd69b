"""What a cluster says of itself: who controls it, who leads a partition, which replicas are in sync; and what its
metadata log says of when things were decided.

The log of committed metadata is the same on both sides, byte for byte, and every batch in it has the time at which the
active controller appended it. That dates a decision to the millisecond without asking anybody anything meanwhile.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from barnabas.client.broker_connection import TRANSIENT, Connection, WireError
from barnabas.ports import SystemDisk
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.raft.folder.metadata_log import PARTITION, TOPIC, metadata_folder, read_folder
from bench.case import CaseError
from bench.nodes import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from barnabas.raft.folder.metadata_batches import DecodedBatch
    from bench.clusters.nodes import Cluster

T = TypeVar("T")

FENCED = 1
METADATA_VERSION, DESCRIBE_QUORUM_VERSION, CREATE_TOPICS_VERSION = 12, 2, 7
POLL_SECONDS = 0.05
ANSWER_SECONDS_MAX = 60.0


def connect(cluster: Cluster, node_id: int) -> Connection:
    return Connection(HOST, cluster.nodes[node_id].port, timeout_s=ANSWER_SECONDS_MAX)


def active_controller(cluster: Cluster) -> int:
    """The node that leads the quorum, as any of them that runs knows it."""
    struct = m.DescribeQuorumRequest
    request = struct(
        topics=[struct.TopicData(topic_name=TOPIC, partitions=[struct.PartitionData(partition_index=PARTITION)])]
    )

    def ask() -> int | None:
        with connect(cluster, cluster.running[0]) as connection:
            answer = connection.send(request, DESCRIBE_QUORUM_VERSION)
        if answer.error_code != Error.NONE:
            return None
        leader_id = int(answer.topics[0].partitions[0].leader_id)
        return leader_id if leader_id in cluster.running else None

    return _until(ask, "no controller is active")


def create_topic(
    cluster: Cluster, name: str, assignments: Mapping[int, Sequence[int]], settings: Mapping[str, str]
) -> None:
    """A topic whose replicas are where the assignments say, the preferred leader first."""
    struct = m.CreateTopicsRequest
    topic = struct.CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            struct.CreatableReplicaAssignment(partition_index=partition, broker_ids=list(replicas))
            for partition, replicas in assignments.items()
        ],
        configs=[struct.CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
    )
    with connect(cluster, cluster.running[0]) as connection:
        answer = connection.send(
            struct(topics=[topic], timeout_ms=int(ANSWER_SECONDS_MAX * 1e3)), CREATE_TOPICS_VERSION
        )
    if (code := answer.topics[0].error_code) != Error.NONE:
        raise CaseError(f"{name} was not created: {Error(code).name}, {answer.topics[0].error_message}")


def leader_of(cluster: Cluster, topic: str, partition: int, *, other_than: Iterable[int] = ()) -> int:
    """Who leads a partition, once the node that is asked knows of somebody."""
    struct = m.MetadataRequest
    request = struct(topics=[struct.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    excluded = {-1, *other_than}

    def ask() -> int | None:
        with connect(cluster, cluster.running[0]) as connection:
            answer = connection.send(request, METADATA_VERSION)
        led = {each.partition_index: each.leader_id for each in answer.topics[0].partitions}
        leader_id = led.get(partition, -1)
        return None if leader_id in excluded else leader_id

    return _until(ask, f"nobody leads {topic}-{partition}")


def await_serving(cluster: Cluster, node_id: int) -> None:
    """Returns when a node that was launched answers clients, and knows itself to be one of the brokers."""
    request = m.MetadataRequest(topics=[])

    def ask() -> bool | None:
        with connect(cluster, node_id) as connection:
            answer = connection.send(request, METADATA_VERSION)
        return True if any(each.node_id == node_id for each in answer.brokers) else None

    _until(ask, f"node {node_id} does not serve")


def await_in_sync(cluster: Cluster, asked: int, replicas: int, seconds_max: float) -> None:
    """Returns when `asked` says that every partition has a leader, and so many replicas in sync."""
    request = m.MetadataRequest(topics=None)
    deadline = time.monotonic() + seconds_max
    with connect(cluster, asked) as connection:
        while missing := sum(_lacking(connection.send(request, METADATA_VERSION), replicas)):
            if time.monotonic() > deadline:
                raise CaseError(f"{missing} partitions are not in sync after {seconds_max:.0f} s")
            time.sleep(POLL_SECONDS)


def _lacking(answer: m.MetadataResponse, replicas: int) -> Iterator[bool]:
    for topic in answer.topics:
        for each in topic.partitions:
            yield each.leader_id < 0 or len(each.isr_nodes) < min(replicas, len(each.replica_nodes))


def fenced_at(cluster: Cluster, node_id: int, after: float) -> float:
    """When the controller decided that a broker is gone, in seconds of the clock on the wall."""

    def is_fencing(batch: DecodedBatch) -> bool:
        return any(
            isinstance(each, m.BrokerRegistrationChangeRecord) and each.broker_id == node_id and each.fenced == FENCED
            for each in batch.records
        )

    return _decided_at(cluster, is_fencing, after, f"broker {node_id} was fenced")


def elected_at(cluster: Cluster, after: float) -> float:
    """When the last election of a controller was won, in seconds of the clock on the wall."""

    def is_election(batch: DecodedBatch) -> bool:
        return batch.is_control and any(isinstance(each, m.LeaderChangeMessage) for each in batch.records)

    return _decided_at(cluster, is_election, after, "a controller was elected")


def _decided_at(cluster: Cluster, is_it: Callable[[DecodedBatch], bool], after: float, what: str) -> float:
    folder = metadata_folder(str(cluster.nodes[cluster.running[0]].data_dir))

    def look() -> float | None:
        times = [batch.timestamp_ms / 1e3 for batch in read_folder(SystemDisk(), folder).batches if is_it(batch)]
        return times[-1] if times and times[-1] >= after else None

    return _until(look, f"the metadata log does not say that {what}")


def _until(ask: Callable[[], T | None], failure: str) -> T:
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while True:
        reason = ""
        try:
            if (found := ask()) is not None:
                return found
        except (*TRANSIENT, WireError) as error:
            reason = f": {error}"
        if time.monotonic() > deadline:
            raise CaseError(f"{failure} after {ANSWER_SECONDS_MAX:.0f} s{reason}")
        time.sleep(POLL_SECONDS)
