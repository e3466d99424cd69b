"""How fast replicas may move: limits of brokers, and of which replicas these hold for, as settings of topics.

They are set before a move begins, and taken back when it is found to be over, for all brokers that there are: nobody
remembers which were concerned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.kafka.java.java_order import in_hash_order, int_hash
from barnabas.cli.kafka.moves.failures import asking_cluster
from barnabas.client.admin.configs import BROKER, TOPIC, Resource, alter_all_configs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.cli.kafka.moves.plans import Plan
    from barnabas.client.admin.reassignments import Reassignment
    from barnabas.client.cluster import Cluster, TopicPartition

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
FOLDER_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"

_CALL: Final = "incrementalAlterConfigs"


class Move(NamedTuple):
    """Of a partition: the brokers that have it, and those that are to get it."""

    sources: set[int]
    destinations: set[int]


def moves(
    under_way: Mapping[TopicPartition, Reassignment],
    proposed: Iterable[tuple[TopicPartition, Sequence[int]]],
    current: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Move]:
    """All moves that there will be: those that are under way, and those that are proposed."""
    found = {place: Move(set(each.replicas) - set(each.adding), set(each.adding)) for place, each in under_way.items()}
    for place, replicas in proposed:
        sources = found[place].sources if place in found else set(current[place])
        found[place] = Move(sources, set(replicas) - sources)
    return found


def limit_moves(cluster: Cluster, found: Mapping[TopicPartition, Move], bytes_per_second: int) -> None:
    """Limit what goes from broker to broker for these moves."""
    topics = {topic: None for topic, _ in found}
    brokers = {broker for move in found.values() for broker in move.sources | move.destinations}
    with asking_cluster(_CALL):
        alter_all_configs(
            cluster,
            {
                Resource(TOPIC, topic): {
                    LEADER_REPLICAS: _replicas(found, topic, lambda move: move.sources),
                    FOLLOWER_REPLICAS: _replicas(found, topic, lambda move: move.destinations - move.sources),
                }
                for topic in topics
            },
        )
        rate = str(bytes_per_second)
        alter_all_configs(
            cluster,
            {Resource(BROKER, str(each)): {LEADER_RATE: rate, FOLLOWER_RATE: rate} for each in sorted(brokers)},
        )
    print(f"The inter-broker throttle limit was set to {bytes_per_second} B/s")


def limit_folders(cluster: Cluster, brokers: Iterable[int], bytes_per_second: int) -> None:
    """Limit what goes from folder to folder on these brokers."""
    changes = {Resource(BROKER, str(each)): {FOLDER_RATE: str(bytes_per_second)} for each in sorted(set(brokers))}
    with asking_cluster(_CALL):
        alter_all_configs(cluster, changes)
    print(f"The replica-alter-dir throttle limit was set to {bytes_per_second} B/s")


def clear_limits(cluster: Cluster, plan: Plan) -> None:
    """Take back all limits of all brokers, and of the topics of a plan."""
    with asking_cluster("listNodes"):
        alive = cluster.nodes()
    brokers = in_hash_order([*alive, *(broker for _, replicas in plan.replicas for broker in replicas)], int_hash)
    print(f"Clearing broker-level throttles on broker{_plural(brokers)} {','.join(map(str, brokers))}")
    _clear(cluster, [Resource(BROKER, str(each)) for each in brokers], (LEADER_RATE, FOLLOWER_RATE, FOLDER_RATE))
    topics = plan.topics
    print(f"Clearing topic-level throttles on topic{_plural(topics)} {','.join(topics)}")
    _clear(cluster, [Resource(TOPIC, each) for each in topics], (LEADER_REPLICAS, FOLLOWER_REPLICAS))


def _clear(cluster: Cluster, resources: Iterable[Resource], names: Iterable[str]) -> None:
    with asking_cluster(_CALL):
        alter_all_configs(cluster, {each: dict.fromkeys(names) for each in resources})


def _replicas(found: Mapping[TopicPartition, Move], topic: str, brokers_of: Callable[[Move], Iterable[int]]) -> str:
    named = {
        f"{partition}:{broker}"
        for (name, partition), move in found.items()
        if name == topic
        for broker in brokers_of(move)
    }
    return ",".join(sorted(named))


def _plural(names: Sequence[object]) -> str:
    return "" if len(names) == 1 else "s"
