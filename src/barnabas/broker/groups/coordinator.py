"""The groups that this node coordinates: those in the partitions of `__consumer_offsets` that it leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordination.coordinator import ShardedCoordinator
from barnabas.broker.coordination.kinds import Kind
from barnabas.broker.coordination.partitioning import OFFSETS_TOPIC
from barnabas.groups import records
from barnabas.groups.classic import GroupSettings
from barnabas.groups.shard import GroupShard, ShardSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.broker.server import Broker
    from barnabas.config.broker import BrokerConfig
    from barnabas.metadata.image import TopicImage

MS_PER_MINUTE = 60_000


class GroupCoordinator(ShardedCoordinator[GroupShard]):
    def __init__(self, broker: Broker) -> None:
        kind = Kind(
            what="groups",
            topic=OFFSETS_TOPIC,
            partition_count=lambda: broker.config.offsets_topic_num_partitions,
            make_shard=lambda _epoch: GroupShard(shard_settings(broker.config)),
            encode=records.encode,
            decode=records.decode,
            load_buffer_bytes=lambda: broker.config.offsets_load_buffer_size,
            commit_timeout_ms=lambda: broker.config.offsets_commit_timeout_ms,
        )
        super().__init__(broker, kind)

    def topics_deleted(self, topics: Iterable[TopicImage]) -> None:
        """Offsets of topics that are gone say nothing about later ones of the same name."""
        deleted = {topic.name: topic.topic_id for topic in topics}
        self.tell(lambda shard: shard.topics_deleted(deleted))


def shard_settings(config: BrokerConfig) -> ShardSettings:
    return ShardSettings(
        group=GroupSettings(
            group_min_session_timeout_ms=config.group_min_session_timeout_ms,
            group_max_session_timeout_ms=config.group_max_session_timeout_ms,
            group_max_size=config.group_max_size,
            group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        ),
        offsets_retention_ms=config.offsets_retention_minutes * MS_PER_MINUTE,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
    )
