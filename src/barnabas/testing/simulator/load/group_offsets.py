"""Asking a group's coordinator for what is committed, and noting what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol import messages as m
from barnabas.testing.simulator.load.client import GaveUpError, Kind
from barnabas.testing.simulator.load.history import OffsetsSeen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.testing.simulator.load.client import ClusterClient
    from barnabas.testing.simulator.load.history import History, TopicPartition

VERSION = 9
"""The last that names topics by name."""


async def committed_offsets(
    client: ClusterClient, group: str, partitions: Sequence[TopicPartition], history: History, give_up_s: float
) -> list[OffsetsSeen]:
    """What is committed, once no transaction that commits offsets is open."""
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    asked = m.OffsetFetchRequest
    topics = [asked.OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in by_topic.items()]
    request = asked(groups=[asked.OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=True)
    sent_s = client.now_s
    answer = await client.ask_coordinator(
        Kind.GROUP, group, request, version=VERSION, give_up_s=give_up_s, errors_in=_error
    )
    (found,) = answer.response.groups
    if _error(answer.response):
        raise GaveUpError(f"{client.name}: the offsets of {group} were refused with error {_error(answer.response)}")
    by_name = {(topic.name, each.partition_index): each for topic in found.topics for each in topic.partitions}
    epoch = client.coordinator_epoch(answer.node, group)
    seen = []
    for partition in partitions:
        each = by_name[partition]
        seen.append(
            OffsetsSeen(
                group, partition, each.committed_offset, each.metadata or "", answer.node, epoch, sent_s, client.now_s
            )
        )
    history.offsets_seen += seen
    return seen


async def committed_offset(
    client: ClusterClient, group: str, partition: TopicPartition, history: History, give_up_s: float
) -> OffsetsSeen:
    (seen,) = await committed_offsets(client, group, [partition], history, give_up_s)
    return seen


def _error(response: Any) -> int:
    (group,) = response.groups
    if group.error_code:
        return int(group.error_code)
    return next((each.error_code for topic in group.topics for each in topic.partitions if each.error_code), 0)
