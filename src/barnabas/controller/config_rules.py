"""The controller's view of the node's configuration: the settings it depends on, and the checks of altered configs.

Decisions are pure and do not know the table of settings; this module implements the `ConfigRules` that they use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.config.broker_config import BrokerConfig, ConfigSource
from barnabas.config.client_metrics import check_client_metrics
from barnabas.config.describe import describe_topic
from barnabas.config.describe_configs import describe_resources
from barnabas.config.dynamic import validate_broker_overrides, validate_group_overrides, without_listeners
from barnabas.config.settings import BROKER, GROUP, TOPIC, ConfigError, ConfigType
from barnabas.config.topic_config import validate_topic_overrides
from barnabas.config.values import format_value
from barnabas.controller.decisions.context import ConfigEntry, DynamicLayers, Settings
from barnabas.controller.quorum_controller import ElectionIntervals
from barnabas.metadata.image import ResourceType
from barnabas.protocol.errors import Error, KafkaError
from barnabas.raft.folder.metadata_log import MetadataLogLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.config.settings import Setting
    from barnabas.protocol import messages as m

_TABLES: Mapping[int, Mapping[str, Setting]] = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.BROKER: BROKER,
    ResourceType.GROUP: GROUP,
}


class BrokerConfigRules:
    """`ConfigRules` over the static configuration of this node."""

    def __init__(self, config: BrokerConfig) -> None:
        self._static = config
        self._layers = DynamicLayers({}, {})
        self._current = config

    def check_topic(self, overrides: Mapping[str, str], layers: DynamicLayers) -> None:
        try:
            validate_topic_overrides(overrides, self._in_force(layers))
        except ConfigError as error:
            raise KafkaError(Error.INVALID_CONFIG, error.message) from error

    def check_group(self, overrides: Mapping[str, str], layers: DynamicLayers) -> None:
        try:
            validate_group_overrides(overrides, self._in_force(layers))
        except ConfigError as error:
            raise KafkaError(Error.INVALID_CONFIG, error.message) from error

    def check_cluster(self, configs: Mapping[str, str], layers: DynamicLayers) -> None:
        self._check_broker_layer(configs, ConfigSource.DYNAMIC_DEFAULT_BROKER, layers)

    def check_broker(self, configs: Mapping[str, str], layers: DynamicLayers) -> None:
        self._check_broker_layer(configs, ConfigSource.DYNAMIC_BROKER, layers)

    def check_client_metrics(self, configs: Mapping[str, str]) -> None:
        check_client_metrics(configs)

    def is_list(self, resource_type: int, name: str) -> bool:
        setting = _TABLES.get(resource_type, {}).get(name)
        return setting is not None and setting.type is ConfigType.LIST

    def default_text(self, resource_type: int, name: str) -> str | None:
        setting = _TABLES.get(resource_type, {}).get(name)
        return None if setting is None else format_value(setting.default)

    def topic_configs(self, overrides: Mapping[str, str], layers: DynamicLayers) -> list[ConfigEntry]:
        entries = describe_topic(overrides, self._in_force(layers))
        return sorted(ConfigEntry(e.name, e.value, e.source, e.read_only, e.is_sensitive) for e in entries)

    def describe(
        self, request: m.DescribeConfigsRequest, layers: DynamicLayers, stored: Callable[[int, str], Mapping[str, str]]
    ) -> m.DescribeConfigsResponse:
        return describe_resources(request, self._in_force(layers), stored)

    def _check_broker_layer(self, configs: Mapping[str, str], scope: ConfigSource, layers: DynamicLayers) -> None:
        try:
            if scope is ConfigSource.DYNAMIC_BROKER:
                # This node's own settings stand in for those of any other; its listeners cannot.
                configs = without_listeners(configs)
            validate_broker_overrides(configs, scope, self._in_force(layers))
        except ConfigError as error:
            raise KafkaError(Error.INVALID_REQUEST, error.message) from error

    def _in_force(self, layers: DynamicLayers) -> BrokerConfig:
        """The node's configuration under these layers; cached, because they seldom change."""
        if layers != self._layers:
            self._current = self._static.with_dynamic(layers.cluster, layers.node)
            self._layers = layers
        return self._current


def controller_settings(config: BrokerConfig, *, cluster_id: str, sole_broker_id: int | None) -> Settings:
    return Settings(
        node_id=config.node_id,
        cluster_id=cluster_id,
        default_partition_count=config.num_partitions,
        default_replication_factor=config.default_replication_factor,
        is_topic_deletion_enabled=config.delete_topic_enable,
        session_timeout_ms=config.broker_session_timeout_ms,
        disconnect_grace_ms=config.barnabas_broker_disconnect_grace_ms,
        min_insync_replicas=config.min_insync_replicas,
        is_unclean_election_enabled=config.unclean_leader_election_enable,
        sole_broker_id=sole_broker_id,
    )


def election_intervals(config: BrokerConfig) -> ElectionIntervals:
    rebalance_s = config.leader_imbalance_check_interval_seconds if config.auto_leader_rebalance_enable else None
    return ElectionIntervals(rebalance_s, config.unclean_leader_election_interval_ms / 1000)


def metadata_limits(config: BrokerConfig) -> MetadataLogLimits:
    smaller_segment_bytes = config.internal_metadata_log_segment_bytes
    return MetadataLogLimits(
        segment_bytes=config.metadata_log_segment_bytes if smaller_segment_bytes is None else smaller_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
        retention_bytes=config.metadata_max_retention_bytes,
        retention_ms=config.metadata_max_retention_ms,
        snapshot_bytes=config.metadata_log_max_record_bytes_between_snapshots,
        snapshot_interval_ms=config.metadata_log_max_snapshot_interval_ms,
        idle_interval_ms=config.metadata_max_idle_interval_ms,
    )
