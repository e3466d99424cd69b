"""Markers in the cluster: read, written and removed. What they mean is said in `markers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.client.cluster import Call
from barnabas.client.offsets import committed_offsets, delete_group
from barnabas.client.pool import borrowed
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError
from barnabas.spark.markers import (
    BatchMarker,
    MarkerError,
    Run,
    TaskMarker,
    batch_metadata,
    check_surplus,
    read_batch_marker,
    read_task_marker,
    task_metadata,
    task_name,
)
from barnabas.spark.transacting import commit_marker

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster, TopicPartition
    from barnabas.client.settings import ClientSettings
    from barnabas.spark.encoding import Author
    from barnabas.spark.transacting import Protocol

LASTING_MS: Final = 100 * 365 * 24 * 3_600_000
LASTING_VERSION_MAX: Final = 4
"""The newest OffsetCommit that says how long an offset is kept."""

RETENTION_SETTING: Final = "offsets.retention.minutes"
_BROKER_RESOURCE: Final = 4
_MS_PER_MINUTE: Final = 60_000

GAP_MAX: Final = 32
"""How many groups in a row must be missing for the last one to have been found."""


def read_batch(cluster: Cluster, identity: str, place: TopicPartition) -> BatchMarker | None:
    found = committed_offsets(cluster, identity, [place]).get(place)
    return None if found is None else read_batch_marker(identity, found.offset, found.metadata)


def write_batch(cluster: Cluster, identity: str, place: TopicPartition, marker: BatchMarker) -> None:
    """Outside of any transaction, and to stay."""
    structs = m.OffsetCommitRequest
    partition = structs.OffsetCommitRequestPartition(
        partition_index=place[1], committed_offset=marker.run.batch_id, committed_metadata=batch_metadata(marker)
    )
    request = structs(
        group_id=identity,
        retention_time_ms=LASTING_MS,
        topics=[structs.OffsetCommitRequestTopic(name=place[0], partitions=[partition])],
    )
    call = Call(ApiKey.OFFSET_COMMIT, lambda _: request, _commit_error, LASTING_VERSION_MAX)
    cluster.ask_coordinator(identity, call)


def read_task(cluster: Cluster, identity: str, task: int, place: TopicPartition) -> TaskMarker | None:
    """What a task has written last; waits for a transaction that is about to say so."""
    group = task_name(identity, task)
    found = committed_offsets(cluster, group, [place], require_stable=True).get(place)
    return None if found is None else read_task_marker(group, found.offset, found.metadata)


def write_task(cluster: Cluster, author: Author, protocol: Protocol, place: TopicPartition, marker: TaskMarker) -> None:
    """In the transaction of the rows. The group has the name of the transactional id."""
    group = author.transactional_id or ""
    commit_marker(cluster, author, protocol, group, place, marker.run.batch_id, task_metadata(marker))


def settle(cluster: Cluster, identity: str, place: TopicPartition, batch_id: int, task_count: int) -> None:
    """A batch is finished: note how many tasks it had, and remove the markers of tasks beyond them."""
    found = read_batch(cluster, identity, place)
    if found is None or found.task_count == task_count:
        return
    run = Run(found.run.query_id, batch_id)
    for task in range(task_count, found.task_count):
        check_surplus(read_task(cluster, identity, task, place), run, task, task_count)
        delete_group(cluster, task_name(identity, task))
    write_batch(cluster, identity, place, BatchMarker(found.run, found.begun_ms, task_count))


def remove_tasks(cluster: Cluster, identity: str, task_count: int) -> None:
    """Remove the markers of tasks that nobody will run again."""
    for task in range(task_count):
        delete_group(cluster, task_name(identity, task))


def forget(settings: ClientSettings, identity: str) -> int:
    """Remove all markers of an output that is not written any more; how many there were.

    `markers.identity_of_checkpoint` gives the identity of a query that was given none.
    """
    with borrowed(settings) as cluster:
        known = committed_offsets(cluster, identity)
        task_count = max(
            (read_batch_marker(identity, each.offset, each.metadata).task_count for each in known.values()), default=0
        )
        removed = int(delete_group(cluster, identity))
        task = gap = 0
        while task < task_count or gap < GAP_MAX:
            was_there = delete_group(cluster, task_name(identity, task))
            removed += was_there
            gap = 0 if was_there else gap + 1
            task += 1
        return removed


def retention_ms(cluster: Cluster, group: str) -> int:
    """How long the coordinator of a group keeps offsets."""
    no_topics = m.MetadataRequest(topics=[], allow_auto_topic_creation=False)
    brokers = cluster.ask_any(Call(ApiKey.METADATA, lambda _: no_topics)).brokers
    coordinator = cluster.coordinator(group)
    ids = [each.node_id for each in brokers if (each.host, each.port) == (coordinator.host, coordinator.port)]
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_BROKER_RESOURCE, resource_name=str(ids[0]), configuration_keys=[RETENTION_SETTING]
    )
    request = m.DescribeConfigsRequest(resources=[resource])
    call = Call(ApiKey.DESCRIBE_CONFIGS, lambda _: request, lambda response: int(response.results[0].error_code))
    try:
        (setting,) = cluster.ask_coordinator(group, call).results[0].configs
    except KafkaError as failure:
        raise MarkerError(
            f"there is no marker of this task, and how long the brokers keep them cannot be read: {failure.message}. "
            f"Give this user the right to describe their configuration; or, if the rows of this batch are not in the "
            "topic, start once with option onMissingMarker=write"
        ) from failure
    return int(setting.value) * _MS_PER_MINUTE


def _commit_error(response: m.OffsetCommitResponse) -> int:
    (topic,) = response.topics
    (partition,) = topic.partitions
    return int(Error(partition.error_code))
