"""`kafka-consumer-groups --delete`, `--delete-offsets`: groups go, or what they have committed for some topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.admin_access import AskError, asking
from barnabas.cli.kafka.groups.failures import print_error
from barnabas.cli.kafka.groups.listing import NAME_WIDTH_MIN, group_names
from barnabas.cli.kafka.groups.partitions import parse_topic_with_partitions
from barnabas.cli.kafka.java.java_exceptions import exception_name
from barnabas.cli.kafka.java.java_order import in_hash_order, string_hash
from barnabas.client.admin import groups as admin
from barnabas.client.admin.topics import describe_topics
from barnabas.protocol.error_messages import message_of
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.cli.kafka.flags import Given
    from barnabas.client.cluster import Cluster, TopicPartition

_OF_GROUP: Final = (
    Error.INVALID_GROUP_ID,
    Error.GROUP_ID_NOT_FOUND,
    Error.GROUP_AUTHORIZATION_FAILED,
    Error.NON_EMPTY_GROUP,
)
_OF_PARTITIONS: Final = (
    Error.GROUP_SUBSCRIBED_TO_TOPIC,
    Error.TOPIC_AUTHORIZATION_FAILED,
    Error.UNKNOWN_TOPIC_OR_PARTITION,
)
_NO_PARTITION: Final = -1
"""Where a topic as a whole cannot be found."""


def delete(cluster: Cluster, given: Given) -> None:
    groups = group_names(cluster) if given.has("all-groups") else given.texts("group")
    failures: dict[str, KafkaError | None] = {}
    try:
        with asking("deleteConsumerGroups(api=FIND_COORDINATOR)"):
            failures = admin.delete_groups(cluster, groups)
    except AskError as failure:
        failures = dict.fromkeys(groups, KafkaError(failure.error, failure.message))
    in_order = in_hash_order(failures, string_hash)
    deleted = [group for group in in_order if failures[group] is None]
    if len(deleted) == len(in_order):
        print(f"Deletion of requested consumer groups ({_quoted(deleted)}) was successful.")
        return
    print_error("Deletion of some consumer groups failed:")
    for group in in_order:
        each = failures[group]
        if each is not None:
            print(f"* Group '{group}' could not be deleted due to: {exception_name(each.error)}: {each.message}")
    if deleted:
        print(f"\nThese consumer groups were deleted successfully: {_quoted(deleted)}")


def delete_offsets(cluster: Cluster, given: Given) -> None:
    group = given.required("group")
    outcomes: dict[TopicPartition, KafkaError | None] = {}
    partitions = _partitions_meant(cluster, given.texts("topic"), outcomes)
    whole, deleted = _deleted(cluster, group, partitions)
    error = whole or next((each.error for each in deleted.values() if each is not None), Error.NONE)
    if error is Error.NONE:
        print(f"Request succeeded for deleting offsets from group {group}.")
    elif error in _OF_GROUP:
        print_error(message_of(error))
    elif error in _OF_PARTITIONS:
        print_error("Encountered some partition-level error, see the follow-up details.")
    else:
        print_error(f"Encountered some unknown error: {error.name}")
    _print_outcomes({**outcomes, **deleted})


def _partitions_meant(
    cluster: Cluster, texts: Iterable[str], outcomes: dict[TopicPartition, KafkaError | None]
) -> list[TopicPartition]:
    """Partitions as they were named, and all of each topic that was named without; topics that are not there become
    outcomes."""
    texts = list(dict.fromkeys(texts))
    partitions = [place for text in texts if ":" in text for place in parse_topic_with_partitions(text)]
    topics = [text for text in texts if ":" not in text]
    try:
        with asking("describeTopics"):
            found = describe_topics(cluster, topics)
    except AskError as failure:
        found = dict.fromkeys(topics, KafkaError(failure.error, failure.message))
    for topic in topics:
        state = found[topic]
        if isinstance(state, KafkaError):
            outcomes[topic, _NO_PARTITION] = state
        else:
            partitions += [(topic, each.partition) for each in state.partitions]
    return list(dict.fromkeys(partitions))


def _deleted(
    cluster: Cluster, group: str, partitions: list[TopicPartition]
) -> tuple[Error | None, dict[TopicPartition, KafkaError | None]]:
    """The error of the whole, if there is one, and of each partition."""
    try:
        with asking("deleteConsumerGroupOffsets(api=FIND_COORDINATOR)"):
            return None, admin.delete_offsets(cluster, group, partitions)
    except AskError as failure:
        return failure.error, dict.fromkeys(partitions, KafkaError(failure.error, failure.message))


def _print_outcomes(outcomes: dict[TopicPartition, KafkaError | None]) -> None:
    width = max([NAME_WIDTH_MIN, *(len(topic) for topic, _ in outcomes)])

    def print_row(topic: str, partition: object, status: str) -> None:
        print(f"\n{topic:<{width}} {partition!s:<10} {status:<15}", end="")

    print_row("TOPIC", "PARTITION", "STATUS")
    for (topic, partition), failure in sorted(outcomes.items(), key=lambda each: f"{each[0][0]}{each[0][1]}"):
        status = "Successful" if failure is None else f"Error: {exception_name(failure.error)}: {failure.message}"
        print_row(topic, "-" if partition == _NO_PARTITION else partition, status)
    print()


def _quoted(groups: list[str]) -> str:
    return ", ".join(f"'{group}'" for group in groups)
