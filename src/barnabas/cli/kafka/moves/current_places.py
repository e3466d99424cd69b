"""Where partitions are now: their brokers, and the folders of those."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.kafka.java.java_exceptions import exception_name
from barnabas.cli.kafka.java.java_order import in_hash_order, partition_hash
from barnabas.cli.kafka.moves.failures import asking_cluster, failed
from barnabas.cli.kafka.moves.plans import name_of
from barnabas.client.admin.replica_folders import Replica, find_replica_folders
from barnabas.client.admin.topics import describe_topics
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.cluster import Cluster, TopicPartition

    Places = dict[TopicPartition, list[int]]


def places_of_topics(cluster: Cluster, topics: Iterable[str]) -> Places:
    """The replicas of all partitions of these topics, which have to be there."""
    places: Places = {}
    with asking_cluster("describeTopicPartitions"):
        states = describe_topics(cluster, topics)
    for name, state in states.items():
        if isinstance(state, KafkaError):
            reason = f"Topic {name} not found." if state.error is Error.UNKNOWN_TOPIC_OR_PARTITION else state.message
            raise failed(f"{exception_name(state.error)}: {reason}")
        places.update({(name, each.partition): each.replicas for each in state.partitions})
    return places


def places_of(cluster: Cluster, partitions: Sequence[TopicPartition]) -> Places:
    """The replicas of these partitions, which have to be there."""
    places = places_of_topics(cluster, {topic for topic, _ in partitions})
    missing = in_hash_order((each for each in partitions if each not in places), partition_hash)
    if missing:
        raise failed(
            f"{exception_name(Error.UNKNOWN_TOPIC_OR_PARTITION)}: Unable to find partition: "
            f"{', '.join(map(name_of, missing))}"
        )
    return {each: places[each] for each in partitions}


def folders_of(cluster: Cluster, places: Mapping[TopicPartition, Sequence[int]]) -> dict[Replica, str]:
    """The folders of those replicas whose brokers are there."""
    with asking_cluster("describeReplicaLogDirs"):
        alive = cluster.nodes()
        replicas = [
            Replica(topic, partition, broker)
            for (topic, partition), brokers in places.items()
            for broker in brokers
            if broker in alive
        ]
        found = find_replica_folders(cluster, replicas)
    return {replica: folders.current for replica, folders in found.items() if folders.current is not None}
