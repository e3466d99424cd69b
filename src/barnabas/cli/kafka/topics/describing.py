"""`kafka-topics --describe`: a line for each topic and one for each of its partitions, or those that need a look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.admin_access import asking
from barnabas.cli.kafka.java.java_ids import IdError, read_id
from barnabas.cli.kafka.java.java_order import in_hash_order, string_hash
from barnabas.cli.kafka.tool import ToolError
from barnabas.client.admin.configs import TOPIC, ConfigEntry, Resource, describe_configs
from barnabas.client.admin.reassignments import Reassignment, list_reassignments
from barnabas.client.admin.topics import (
    PARTITIONS_PER_ANSWER,
    PartitionState,
    TopicState,
    describe_topic_by_id,
    describe_topics,
    list_brokers,
    list_topics,
)
from barnabas.protocol import uuids
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.uuids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.cli.kafka.flags import Given
    from barnabas.client.cluster import Cluster, TopicPartition

MIN_IN_SYNC: Final = "min.insync.replicas"


def describe(cluster: Cluster, given: Given, topics_meant: Callable[[Cluster, Given], list[str]]) -> None:
    topic_id = _id_given(given)
    topics = _topic_of(cluster, topic_id, given) if topic_id else _topics_of(cluster, given, topics_meant)
    with asking("describeConfigs"):
        configs = _configs_of(cluster, topics)
    with asking("listNodes"):
        alive = set(list_brokers(cluster))
    moves = _moves_of(cluster, topics)
    for topic in topics:
        _print_topic(topic, configs[topic.name], moves, alive, given)


def _print_topic(
    topic: TopicState,
    entries: list[ConfigEntry],
    moves: dict[TopicPartition, Reassignment],
    alive: set[int],
    given: Given,
) -> None:
    overrides = [entry for entry in entries if not entry.is_default]
    only_overridden = given.has("topics-with-overrides")
    reports = _reports(given, entries, alive)
    if not reports and (overrides or not only_overridden):
        first = topic.partitions[0]
        print(_heading(topic, overrides, replication_factor(first, moves.get((topic.name, first.partition)))))
    if only_overridden:
        return
    for state in topic.partitions:
        move = moves.get((topic.name, state.partition))
        if not reports or any(report(state, move) for report in reports):
            print(_partition_line(topic.name, state, move, alive))


def _heading(topic: TopicState, overrides: list[ConfigEntry], factor: int) -> str:
    topic_id = "" if topic.topic_id == ZERO_UUID else f"\tTopicId: {uuids.to_text(topic.topic_id)}"
    by_name = {entry.name: entry.value for entry in overrides}
    configs = ",".join(f"{name}={'null' if value is None else value}" for name, value in by_name.items())
    return (
        f"Topic: {topic.name}{topic_id}\tPartitionCount: {len(topic.partitions)}\tReplicationFactor: {factor}"
        f"\tConfigs: {configs}"
    )


def _partition_line(topic: str, state: PartitionState, move: Reassignment | None, alive: set[int]) -> str:
    cells = [
        f"Topic: {topic}",
        f"Partition: {state.partition}",
        f"Leader: {state.leader_id if state.leader_id in alive else 'none'}",
        f"Replicas: {_ids(state.replicas)}",
        f"Isr: {_ids(state.in_sync)}",
    ]
    if move is not None:
        cells += [f"Adding Replicas: {_ids(move.adding)}", f"Removing Replicas: {_ids(move.removing)}"]
    cells += [f"Elr: {_ids(state.eligible_leaders)}", f"LastKnownElr: {_ids(state.last_known_eligible)}"]
    return "".join(f"\t{cell}" for cell in cells)


def _ids(brokers: Iterable[int] | None) -> str:
    return "N/A" if brokers is None else ",".join(map(str, brokers))


def _reports(
    given: Given, entries: list[ConfigEntry], alive: set[int]
) -> list[Callable[[PartitionState, Reassignment | None], bool]]:
    """What partitions are looked for; none of these where all are shown."""

    def needed() -> int:
        return next(int(entry.value or 0) for entry in entries if entry.name == MIN_IN_SYNC)

    reports: dict[str, Callable[[PartitionState, Reassignment | None], bool]] = {
        "under-replicated-partitions": lambda state, move: replication_factor(state, move) > len(state.in_sync),
        "unavailable-partitions": lambda state, _: state.leader_id not in alive,
        "under-min-isr-partitions": lambda state, _: state.leader_id not in alive or len(state.in_sync) < needed(),
        "at-min-isr-partitions": lambda state, _: len(state.in_sync) == needed(),
    }
    return [report for flag, report in reports.items() if given.has(flag)]


def replication_factor(state: PartitionState, move: Reassignment | None) -> int:
    """How many replicas a partition has, without those that are only on their way in."""
    if move is None or not set(state.replicas) & {*move.adding, *move.removing}:
        return len(state.replicas)
    return len(move.replicas) - len(move.adding)


def _id_given(given: Given) -> Uuid | None:
    text = given.text("topic-id")
    if text is None:
        return None
    try:
        topic_id = read_id(text)
    except IdError as error:
        raise ToolError(str(error)) from None
    return None if topic_id == ZERO_UUID else topic_id


def _topic_of(cluster: Cluster, topic_id: Uuid, given: Given) -> list[TopicState]:
    with asking("listTopics"):
        excluded = given.has("exclude-internal")
        listed = {topic.topic_id for topic in list_topics(cluster) if not (excluded and topic.is_internal)}
    if topic_id not in listed:
        if given.has("if-exists"):
            return []
        raise ToolError(f"TopicId '{uuids.to_text(topic_id)}' does not exist as expected")
    with asking("describeTopicsWithIds"):
        return [describe_topic_by_id(cluster, topic_id)]


def _topics_of(cluster: Cluster, given: Given, topics_meant: Callable[[Cluster, Given], list[str]]) -> list[TopicState]:
    names = topics_meant(cluster, given)
    topic = given.text("topic")
    if topic and not names and not given.has("if-exists"):
        raise ToolError(f"Topic '{topic}' does not exist as expected")
    limit = given.integer("partition-size-limit-per-response")
    with asking("describeTopicPartitions"):
        found = describe_topics(cluster, names, partitions_per_answer=PARTITIONS_PER_ANSWER if limit is None else limit)
    states = []
    for name in in_table_order(names):
        state = found[name]
        if isinstance(state, KafkaError):
            raise ToolError(state.message)
        states.append(state)
    return states


def in_table_order(names: list[str]) -> list[str]:
    """Topics as they come out of two tables, the first of which is made so large that it need not grow."""
    size = len(names)
    return in_hash_order(in_hash_order(names, string_hash, int(size / 0.75) + 1), string_hash, size)


def _configs_of(cluster: Cluster, topics: list[TopicState]) -> dict[str, list[ConfigEntry]]:
    if not topics:
        return {}
    found = describe_configs(cluster, [Resource(TOPIC, topic.name) for topic in topics])
    configs = {}
    for resource, entries in found.items():
        if isinstance(entries, KafkaError):
            raise entries
        by_name = {entry.name: entry for entry in entries}
        configs[resource.name] = [by_name[name] for name in in_hash_order(by_name, string_hash)]
    return configs


def _moves_of(cluster: Cluster, topics: list[TopicState]) -> dict[TopicPartition, Reassignment]:
    """What is on its way; nothing where nobody may ask, or nothing can be."""
    partitions = [(topic.name, state.partition) for topic in topics for state in topic.partitions]
    if not partitions:
        return {}
    try:
        return list_reassignments(cluster, partitions)
    except KafkaError as failure:
        if failure.error in (Error.CLUSTER_AUTHORIZATION_FAILED, Error.UNSUPPORTED_VERSION):
            return {}
        raise ToolError(failure.message) from None
