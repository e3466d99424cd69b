"""The group coordinator: the groups in those partitions of `__consumer_offsets` that this node leads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC, CoordinatorEnvironment, CoordinatorSpec
from barnabas.broker.coordinators.shard_writing import FIRST_SEQUENCE
from barnabas.broker.coordinators.sharded_coordinator import ShardedCoordinator
from barnabas.config.values import ConfigError
from barnabas.groups import group_records
from barnabas.groups.assignors import ASSIGNORS
from barnabas.groups.classic.classic_group import ClassicGroupSettings
from barnabas.groups.consumer.regex_subscriptions import ResolveRegexes
from barnabas.groups.consumer.step_context import ConsumerGroupSettings
from barnabas.groups.group_shard import GroupShard, ShardSettings
from barnabas.net.large_requests import Breather

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.broker.coordinators.led_shard import LedShard
    from barnabas.config.broker_config import BrokerConfig
    from barnabas.coordination.effects import Action, Effects
    from barnabas.metadata.image import TopicImage
    from barnabas.protocol.uuids import Uuid

MS_PER_MINUTE = 60_000

GROUPS_AT_ONCE = 200
"""From which the offsets of deleted topics are deleted in one step."""

GATHERING_MS = 50
"""Too short to be noticed when a consumer starts, and long enough for consumers that are started together."""

_PACKAGE = "org.apache.kafka.coordinator.group.assignor."
_NAMES_OF_CLASSES = {f"{_PACKAGE}UniformAssignor": "uniform", f"{_PACKAGE}RangeAssignor": "range"}


class GroupCoordinator(ShardedCoordinator[GroupShard]):
    def __init__(self, environment: CoordinatorEnvironment) -> None:
        spec = CoordinatorSpec(
            what="groups",
            topic=OFFSETS_TOPIC,
            partition_count=lambda: environment.config().offsets_topic_num_partitions,
            make_shard=lambda _epoch: GroupShard(self._settings, environment.image),
            encode=group_records.encode,
            decode=group_records.decode,
            base_sequence=FIRST_SEQUENCE,
            load_buffer_bytes=lambda: environment.config().offsets_load_buffer_size,
            commit_timeout_ms=lambda: environment.config().offsets_commit_timeout_ms,
        )
        super().__init__(environment, spec)
        self._settings = shard_settings(environment.config())

    async def topics_deleted(self, topics: Iterable[TopicImage]) -> None:
        """Deletes the offsets of deleted topics, so that later topics of the same name do not inherit them: those of a
        few groups at a time, with turns for others in between."""
        deleted = {topic.name: topic.topic_id for topic in topics}
        breather = Breather()
        for led in list(self._led.values()):
            if led.refusal is not None:
                led.tell(lambda shard: shard.topics_deleted(deleted))
                continue
            group_ids = led.shard.groups_with_offsets()
            for start in range(0, len(group_ids), GROUPS_AT_ONCE):
                some = group_ids[start : start + GROUPS_AT_ONCE]
                led.tell(partial(topics_deleted, deleted, some))
                await breather.pause_if_due()

    def start_actions(self, led: LedShard[GroupShard], actions: list[Action]) -> None:
        for action in actions:
            assert isinstance(action, ResolveRegexes), action
            self.run_in_background(self._resolve(led, action))

    async def _resolve(self, led: LedShard[GroupShard], action: ResolveRegexes) -> None:
        found = await self._environment.run_in_thread(action.find)
        if led.refusal is None:  # If the shard no longer serves, the heartbeats of its members start this again.
            led.step_unasked(lambda shard, now_ms: shard.regexes_resolved(action, found, now_ms))

    def reconfigure(self, config: BrokerConfig) -> None:
        """The broker's dynamic configuration may have changed."""
        settings = shard_settings(config)
        if settings != self._settings:
            self._settings = settings
            self.tell(lambda shard: shard.reconfigure(settings))


def topics_deleted(topics: Mapping[str, Uuid], group_ids: list[str], shard: GroupShard) -> Effects:
    return shard.topics_deleted(topics, group_ids)


def shard_settings(config: BrokerConfig) -> ShardSettings:
    return ShardSettings(
        group=ClassicGroupSettings(
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
    """The assignors by name. As in Kafka, the built-in ones may also be given by their class."""
    names = tuple(_NAMES_OF_CLASSES.get(given, given) for given in config.group_consumer_assignors)
    for name in names:
        if name not in ASSIGNORS:
            known = " and ".join(ASSIGNORS)
            raise ConfigError("group.consumer.assignors", f"{name} is not a known assignor; known are {known}")
    return names
