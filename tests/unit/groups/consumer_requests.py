"""Requests of members of consumer groups, and clusters with topics for them, in few words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.groups.classic.classic_members import ClientInfo
from barnabas.metadata.image import (
    ConfigResource,
    ConfigsImage,
    MetadataImage,
    PartitionImage,
    ResourceType,
    TopicImage,
    TopicsImage,
)
from barnabas.protocol import messages as m
from barnabas.protocol.uuids import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REBALANCE_TIMEOUT_MS = 60_000
CLIENT = ClientInfo(client_id="client", host="/127.0.0.1", version=1, new_member_id="made up by the broker")


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"\x01")[:16])


def topic(name: str, partitions: int, id_: Uuid | None = None) -> TopicImage:
    each = PartitionImage(
        replicas=(1,), directories=(topic_id("dir"),), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0
    )
    return TopicImage(name, topic_id(name) if id_ is None else id_, (each,) * partitions)


def cluster(
    *topics: TopicImage, offset: int = 1, group_configs: Mapping[str, Mapping[str, str]] | None = None
) -> MetadataImage:
    configs = {ConfigResource(ResourceType.GROUP, name): each for name, each in (group_configs or {}).items()}
    return MetadataImage(
        cluster_id="c",
        offset=offset,
        topics=TopicsImage({each.name: each for each in topics}, {each.topic_id: each for each in topics}),
        configs=ConfigsImage(configs),
    )


def join(
    group_id: str,
    member_id: str,
    *topics: str,
    regex: str | None = None,
    instance_id: str | None = None,
    **fields: Any,
) -> m.ConsumerGroupHeartbeatRequest:
    """The first heartbeat, or the first again after an error."""
    return m.ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=0,
        instance_id=instance_id,
        rebalance_timeout_ms=fields.pop("rebalance_timeout_ms", REBALANCE_TIMEOUT_MS),
        subscribed_topic_names=list(topics) if topics or regex is None else None,
        subscribed_topic_regex=regex,
        topic_partitions=fields.pop("topic_partitions", []),
        **fields,
    )


def beat(
    group_id: str, member_id: str, epoch: int, owned: Mapping[Uuid, Iterable[int]] | None = None, **fields: Any
) -> m.ConsumerGroupHeartbeatRequest:
    """A later one. It names what the member owns only when that has changed."""
    return m.ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        topic_partitions=None if owned is None else reported(owned),
        **fields,
    )


def reported(owned: Mapping[Uuid, Iterable[int]]) -> list[m.ConsumerGroupHeartbeatRequest.TopicPartitions]:
    return [
        m.ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=id_, partitions=sorted(partitions))
        for id_, partitions in owned.items()
    ]


def leave(group_id: str, member_id: str, *, instance_id: str | None = None, epoch: int = -1) -> Any:
    return m.ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=epoch, instance_id=instance_id
    )


def assigned(response: m.ConsumerGroupHeartbeatResponse) -> dict[Uuid, list[int]] | None:
    """What an answer gives its member; None if it says nothing of that."""
    if response.assignment is None:
        return None
    return {each.topic_id: list(each.partitions) for each in response.assignment.topic_partitions}
