"""`kafka-reassign-partitions --generate`: a plan that spreads the partitions of some topics over some brokers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.java.java_order import in_hash_order, partition_hash
from barnabas.cli.kafka.moves.current_places import folders_of, places_of_topics
from barnabas.cli.kafka.moves.failures import asking_cluster, failed
from barnabas.cli.kafka.moves.plans import plan_json, read_brokers, read_topics
from barnabas.client.admin.topics import list_brokers
from barnabas.controller.decisions.placement import UsableBroker, place_replicas
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.cluster import Cluster, TopicPartition

MIXED_RACKS: Final = (
    "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica assignment "
    "without rack information."
)


def generate(cluster: Cluster, topics_text: str, broker_list: str, *, minds_racks: bool) -> None:
    """Print where the topics are, and a plan of where they could be. Nothing is moved."""
    wanted = read_brokers(broker_list)
    topics = read_topics(topics_text)
    current = places_of_topics(cluster, topics)
    folders = folders_of(cluster, current)
    proposed = spread(current, _usable(cluster, wanted, minds_racks=minds_racks))
    print(f"Current partition replica assignment\n{plan_json(current, folders)}\n")
    print(f"Proposed partition reassignment configuration\n{plan_json(proposed)}")


def spread(
    current: Mapping[TopicPartition, Sequence[int]], brokers: Sequence[UsableBroker]
) -> dict[TopicPartition, tuple[int, ...]]:
    """New places on these brokers, with as many replicas as each topic has now, as for a topic that is created."""
    partitions: dict[str, list[TopicPartition]] = {}
    for place in in_hash_order(current, partition_hash):
        partitions.setdefault(place[0], []).append(place)
    proposed = {}
    for topic, places in partitions.items():
        try:
            placed = place_replicas(brokers, len(places), len(current[places[0]]), random.randrange)
        except KafkaError as failure:
            raise failed(failure.message) from None
        proposed.update({(topic, partition): replicas for partition, replicas in enumerate(placed)})
    return proposed


def _usable(cluster: Cluster, wanted: Sequence[int], *, minds_racks: bool) -> list[UsableBroker]:
    """Those of the brokers that are there."""
    with asking_cluster("listNodes"):
        alive = list_brokers(cluster)
    brokers = [
        UsableBroker(broker_id, broker.rack if minds_racks else None, fenced=False)
        for broker_id, broker in alive.items()
        if broker_id in wanted
    ]
    if len({each.rack is None for each in brokers}) > 1:
        raise failed(MIXED_RACKS)
    return brokers
