"""The groups that this node coordinates: those in the partitions of `__consumer_offsets` that it leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordination.batches import FIRST_SEQUENCE
from barnabas.broker.coordination.coordinator import ShardedCoordinator
from barnabas.broker.coordination.kinds import Kind
from barnabas.broker.coordination.partitioning import OFFSETS_TOPIC
from barnabas.config.values import ConfigError
from barnabas.groups import records
from barnabas.groups.assignors import ASSIGNORS
from barnabas.groups.classic import GroupSettings
from barnabas.groups.consumer_circumstances import ConsumerGroupSettings
from barnabas.groups.consumer_regex import ResolveRegexes
from barnabas.groups.shard import GroupShard, ShardSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.broker.coordination.led_shard import LedShard
    from barnabas.broker.server import Broker
    from barnabas.config.broker import BrokerConfig
    from barnabas.metadata.image import TopicImage

MS_PER_MINUTE = 60_000

GATHERING_MS = 50
"""Less than anybody notices who starts a consumer, and enough for all that are started together."""

_PACKAGE = "org.apache.kafka.coordinator.group.assignor."
_NAMES_OF_CLASSES = {f"{_PACKAGE}UniformAssignor": "uniform", f"{_PACKAGE}RangeAssignor": "range"}


class GroupCoordinator(ShardedCoordinator[GroupShard]):
    def __init__(self, broker: Broker) -> None:
        kind = Kind(
            what="groups",
            topic=OFFSETS_TOPIC,
            partition_count=lambda: broker.config.offsets_topic_num_partitions,
            make_shard=lambda _epoch: GroupShard(self._settings, lambda: broker.image),
            encode=records.encode,
            decode=records.decode,
            base_sequence=FIRST_SEQUENCE,
            load_buffer_bytes=lambda: broker.config.offsets_load_buffer_size,
            commit_timeout_ms=lambda: broker.config.offsets_commit_timeout_ms,
        )
        super().__init__(broker, kind)
        self._settings = shard_settings(broker.config)

    def topics_deleted(self, topics: Iterable[TopicImage]) -> None:
        """Offsets of topics that are gone say nothing about later ones of the same name."""
        deleted = {topic.name: topic.topic_id for topic in topics}
        self.tell(lambda shard: shard.topics_deleted(deleted))

    def carry_out(self, led: LedShard[GroupShard], orders: list[object]) -> None:
        for order in orders:
            assert isinstance(order, ResolveRegexes), order
            self.run_aside(self._resolve(led, order))

    async def _resolve(self, led: LedShard[GroupShard], order: ResolveRegexes) -> None:
        found = await self._broker.run_in_thread(order.find)
        if led.refusal is None:  # Where the shard is given up or read again, its members make the next one ask.
            led.step_unasked(lambda shard, now_ms: shard.regexes_resolved(order, found, now_ms))

    def reconfigure(self, config: BrokerConfig) -> None:
        """The broker's dynamic configuration may have changed."""
        settings = shard_settings(config)
        if settings != self._settings:
            self._settings = settings
            self.tell(lambda shard: shard.reconfigure(settings))


def shard_settings(config: BrokerConfig) -> ShardSettings:
    return ShardSettings(
        group=GroupSettings(
            group_min_session_timeout_ms=config.group_min_session_timeout_ms,
            group_max_session_timeout_ms=config.group_max_session_timeout_ms,
            group_max_size=config.group_max_size,
            group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        ),
        consumer=ConsumerGroupSettings(
            assignors=assignors_of(config),
            session_timeout_ms=config.group_consumer_session_timeout_ms,
            heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            assignment_interval_ms=config.group_consumer_assignment_interval_ms,
            gathering_ms=GATHERING_MS,
            max_size=config.group_consumer_max_size,
            regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
            migration_policy=config.group_consumer_migration_policy.lower(),
        ),
        offsets_retention_ms=config.offsets_retention_minutes * MS_PER_MINUTE,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
    )


def assignors_of(config: BrokerConfig) -> tuple[str, ...]:
    """The assignors by name. Kafka takes the classes of its own for their names too."""
    names = tuple(_NAMES_OF_CLASSES.get(given, given) for given in config.group_consumer_assignors)
    for name in names:
        if name not in ASSIGNORS:
            known = " and ".join(ASSIGNORS)
            raise ConfigError("group.consumer.assignors", f"there is no assignor {name}; there are {known}")
    return names
