"""`kafka-reassign-partitions --verify`: how far a plan has come. When it is done, its throttles are taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.kafka.java.java_exceptions import exception_name
from barnabas.cli.kafka.moves.failures import asking_cluster, failed
from barnabas.cli.kafka.moves.plans import name_of, read_plan
from barnabas.cli.kafka.moves.throttles import clear_limits
from barnabas.client.admin.reassignments import list_reassignments
from barnabas.client.admin.replica_folders import ReplicaFolders, find_replica_folders
from barnabas.client.admin.topics import describe_topics
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.kafka.moves.plans import Plan
    from barnabas.client.admin.reassignments import Reassignment
    from barnabas.client.admin.replica_folders import Replica
    from barnabas.client.admin.topics import TopicState
    from barnabas.client.cluster import Cluster, TopicPartition


class PartitionProgress(NamedTuple):
    current: list[int]
    target: list[int]
    is_moving: bool


def verify(cluster: Cluster, text: str, *, keeps_limits: bool) -> None:
    plan = read_plan(text)
    with asking_cluster("listPartitionReassignments"):
        under_way = list_reassignments(cluster)
    progress = _progress(cluster, plan, under_way)
    print("Status of partition reassignment:")
    for place in sorted(progress):
        print(_partition_line(place, progress[place]))
    folders = folder_moves(cluster, plan.folders)
    lines = [
        _folder_line(each, plan.folders[each], folders[each])
        for each in sorted(plan.folders, key=lambda each: (each.broker_id, each.topic, each.partition))
    ]
    print("\n".join(lines))
    if not under_way and not any(each.future for each in folders.values()) and not keeps_limits:
        clear_limits(cluster, plan)


def folder_moves(cluster: Cluster, targets: Mapping[Replica, str]) -> dict[Replica, ReplicaFolders]:
    """In which folders the replicas of a plan are, and where they are on their way to."""
    if targets and cluster.settings.at_controllers:
        raise failed(
            f"{exception_name(Error.UNSUPPORTED_ENDPOINT_TYPE)}: This Admin API is not yet supported when "
            "communicating directly with the controller quorum."
        )
    with asking_cluster("describeReplicaLogDirs"):
        return find_replica_folders(cluster, targets)


def _progress(
    cluster: Cluster, plan: Plan, under_way: Mapping[TopicPartition, Reassignment]
) -> dict[TopicPartition, PartitionProgress]:
    resting = {topic for topic, partition in plan.partitions if (topic, partition) not in under_way}
    with asking_cluster("describeTopicPartitions"):
        states = describe_topics(cluster, resting)
    found = {}
    for place, target in plan.replicas:
        if place in under_way:
            found[place] = PartitionProgress(under_way[place].replicas, target, is_moving=True)
        else:
            found[place] = PartitionProgress(_replicas(place, states[place[0]]), target, is_moving=False)
    return found


def _replicas(place: TopicPartition, state: TopicState | KafkaError) -> list[int]:
    """Where a partition is; nowhere if it does not exist."""
    if isinstance(state, KafkaError):
        if state.error is Error.UNKNOWN_TOPIC_OR_PARTITION:
            return []
        with asking_cluster("describeTopicPartitions"):
            raise state
    count, partition = len(state.partitions), place[1]
    if partition > count:
        return []
    if partition in (-1, count) or partition < 0:
        raise failed(f"Index {partition} out of bounds for length {count}")
    return state.partitions[partition].replicas


def _partition_line(place: TopicPartition, progress: PartitionProgress) -> str:
    if progress.is_moving:
        return f"Reassignment of partition {name_of(place)} is still in progress."
    if progress.current == progress.target:
        return f"Reassignment of partition {name_of(place)} is completed."
    current, target = (",".join(map(str, each)) for each in (progress.current, progress.target))
    return (
        f"There is no active reassignment of partition {name_of(place)}, but replica set is {current} rather than "
        f"{target}."
    )


def _folder_line(replica: Replica, target: str, folders: ReplicaFolders) -> str:
    partition = f"{replica.topic}-{replica.partition}"
    on_broker = f"Partition {partition} on broker {replica.broker_id}"
    if folders.current is None:
        return (
            f"Partition {partition} is not found in any live log dir on broker {replica.broker_id}. "
            "There is likely an offline log directory on the broker."
        )
    if folders.future is None:
        if folders.current == target:
            return f"Reassignment of replica {replica} completed successfully."
        return f"{on_broker} is not being moved from log dir {folders.current} to {target}."
    if folders.future == target:
        return f"Reassignment of replica {replica} is still in progress."
    return f"{on_broker} is being moved to log dir {folders.future} instead of {target}."
