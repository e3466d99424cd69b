"""Markers in the cluster: how they are read, written and removed. `exactly_once` says what they mean."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from barnabas.client.cluster import Call
from barnabas.client.offset_queries import committed_offsets, delete_group
from barnabas.client.pool import borrowed
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError
from barnabas.spark.client_options import client_settings
from barnabas.spark.raw_options import OptionError
from barnabas.spark.write.exactly_once import (
    ENDED_KEPT_MS,
    BatchMarker,
    MarkerError,
    Output,
    TaskMarker,
    batch_metadata,
    batch_name,
    check_surplus,
    ended,
    is_superseded,
    named_identity,
    read_batch_marker,
    read_task_marker,
    task_metadata,
    task_name,
)
from barnabas.spark.write.sink_options import parse_sink
from barnabas.spark.write.sink_transactions import commit_marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.client.client_settings import ClientSettings
    from barnabas.client.cluster import Cluster
    from barnabas.spark.columnar.record_encoding import Author
    from barnabas.spark.write.sink_transactions import Protocol

KEPT_VERSION_MAX: Final = 4
"""The newest version of OffsetCommit with a retention time."""

RETENTION_SETTING: Final = "offsets.retention.minutes"
_BROKER_RESOURCE: Final = 4
_MS_PER_MINUTE: Final = 60_000

GAP_MAX: Final = 32
"""After this many missing groups in a row, no more are looked for."""

_log = logging.getLogger(__name__)


def read_batch(cluster: Cluster, output: Output) -> BatchMarker | None:
    group = batch_name(output.identity)
    found = committed_offsets(cluster, group, [output.place]).get(output.place)
    return None if found is None else read_batch_marker(group, found.offset, found.metadata)


def write_batch(cluster: Cluster, output: Output, marker: BatchMarker) -> None:
    """Outside of any transaction, with the retention of the output."""
    topic, partition_index = output.place
    group = batch_name(output.identity)
    structs = m.OffsetCommitRequest
    partition = structs.OffsetCommitRequestPartition(
        partition_index=partition_index,
        committed_offset=marker.run.batch_id,
        committed_metadata=batch_metadata(marker),
    )
    request = structs(
        group_id=group,
        retention_time_ms=output.kept_ms,
        topics=[structs.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    call = Call(ApiKey.OFFSET_COMMIT, lambda _: request, _commit_error, KEPT_VERSION_MAX)
    cluster.ask_coordinator(group, call)


def read_task(cluster: Cluster, output: Output, task: int) -> TaskMarker | None:
    """The marker of what a task wrote last; waits if a transaction that may change it is being completed."""
    group = task_name(output.identity, task)
    found = committed_offsets(cluster, group, [output.place], require_stable=True).get(output.place)
    return None if found is None else read_task_marker(group, found.offset, found.metadata)


def write_task(cluster: Cluster, author: Author, protocol: Protocol, output: Output, marker: TaskMarker) -> None:
    """In the transaction of the rows. The group has the same name as the transactional id."""
    group = author.transactional_id or ""
    commit_marker(cluster, author, protocol, group, output.place, marker.run.batch_id, task_metadata(marker))


def settle(cluster: Cluster, output: Output, begun: BatchMarker, task_count: int, *, gap_max: int = 0) -> None:
    """A batch is finished: records how many tasks it had, and removes the markers of tasks beyond them.

    Tasks beyond them must not have written to this batch. They are looked for up to the task count of the previous
    batch, and then until `gap_max` in a row have no marker.
    """
    found = read_batch(cluster, output)
    if found is None or is_superseded(begun.run, found):
        return
    surplus = []
    task, gap = task_count, 0
    while task < found.task_count or gap < gap_max:
        marker = read_task(cluster, output, task)
        check_surplus(marker, begun.run, task, task_count)
        if marker is not None:
            surplus.append(task)
        gap = gap + 1 if marker is None else 0
        task += 1
    # The batch marker comes first: an attempt of an earlier batch that finds no task marker must see that it is late.
    settled = replace(found if found.run == begun.run else begun, task_count=task_count)
    if settled != found:
        write_batch(cluster, output, settled)
    remove_tasks(cluster, output.identity, surplus)


def end_write(settings: ClientSettings, output: Output, begun: BatchMarker, task_count: int) -> None:
    """A batch write has ended, successfully or not: records that, and removes the markers of its tasks.

    Nothing that goes wrong here is an error. All rows are where they should be, and a job that failed now would be run
    again and write them again.
    """
    try:
        with borrowed(settings) as cluster:
            write_batch(cluster, output._replace(kept_ms=ENDED_KEPT_MS), ended(begun))
            remove_tasks(cluster, output.identity, range(task_count))
    except KafkaError as failure:
        _log.warning("cannot remove markers of a write (groups %s-…), which will expire: %s", output.identity, failure)


def remove_tasks(cluster: Cluster, identity: str, tasks: Iterable[int]) -> None:
    """Removes the markers of tasks that will not be run again. Those that cannot be removed expire."""
    for task in tasks:
        group = task_name(identity, task)
        try:
            _remove(cluster, group, read_task_marker)
        except KafkaError as failure:
            _log.warning("cannot remove group %s and those after it, which will expire: %s", group, failure)
            return


def _remove(cluster: Cluster, group: str, read: Callable[[str, int, str], object]) -> bool:
    """Removes a group that holds nothing but markers; returns whether there was one."""
    known = committed_offsets(cluster, group, require_stable=False)
    try:
        for each in known.values():
            read(group, each.offset, each.metadata)
    except MarkerError as failure:
        _log.warning("group %s is left alone: %s", group, failure)
        return False
    return bool(known) and delete_group(cluster, group)


def forget_output(options: Mapping[str, str]) -> int:
    """Removes all markers of an output that will not be written again, by its options; returns how many there were."""
    parsed = parse_sink(options)
    identity = named_identity(parsed)
    if identity is None:
        raise OptionError(
            "checkpointLocation", "is missing, and so is kafka.transactional.id: one of them must name the output"
        )
    return forget(client_settings(parsed.client), identity)


def forget(settings: ClientSettings, identity: str) -> int:
    """Removes all markers of an output by its identity; returns how many there were."""
    with borrowed(settings) as cluster:
        group = batch_name(identity)
        known = committed_offsets(cluster, group)
        task_count = max(
            (read_batch_marker(group, each.offset, each.metadata).task_count for each in known.values()), default=0
        )
        removed = int(_remove(cluster, group, read_batch_marker))
        task = gap = 0
        while task < task_count or gap < GAP_MAX:
            was_there = _remove(cluster, task_name(identity, task), read_task_marker)
            removed += was_there
            gap = 0 if was_there else gap + 1
            task += 1
        return removed


def retention_ms(cluster: Cluster, group: str) -> int:
    """How long the coordinator of a group keeps offsets; KafkaError if it does not say."""
    no_topics = m.MetadataRequest(topics=[], allow_auto_topic_creation=False)
    brokers = cluster.ask_any(Call(ApiKey.METADATA, lambda _: no_topics)).brokers
    coordinator = cluster.coordinator(group)
    ids = [each.node_id for each in brokers if (each.host, each.port) == (coordinator.host, coordinator.port)]
    if not ids:
        raise KafkaError(
            Error.COORDINATOR_NOT_AVAILABLE, f"the coordinator {coordinator.address} is not among the brokers"
        )
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_BROKER_RESOURCE, resource_name=str(ids[0]), configuration_keys=[RETENTION_SETTING]
    )
    request = m.DescribeConfigsRequest(resources=[resource])
    call = Call(ApiKey.DESCRIBE_CONFIGS, lambda _: request, lambda response: int(response.results[0].error_code))
    found = {each.name: each.value for each in cluster.ask_coordinator(group, call).results[0].configs}
    minutes = found.get(RETENTION_SETTING) or ""
    if not minutes.isdigit():
        raise KafkaError(Error.INVALID_CONFIG, f"broker {ids[0]} does not say what {RETENTION_SETTING} is")
    return int(minutes) * _MS_PER_MINUTE


def _commit_error(response: m.OffsetCommitResponse) -> int:
    (topic,) = response.topics
    (partition,) = topic.partitions
    return int(Error(partition.error_code))
