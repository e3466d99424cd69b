"""The broker's configuration: one immutable view over its layers.

The layers are, from lowest to highest precedence: Kafka's defaults, the static properties (file and command line),
the dynamic configuration of all brokers, and the dynamic configuration of this broker. A dynamic change makes a new
view; code that holds the old one sees consistent values until it takes the new one.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NoReturn, Self

from barnabas.config import rules
from barnabas.config.listeners import (
    ListenerSettings,
    NodeListeners,
    QuorumListener,
    require_plaintext,
    resolve_listeners,
)
from barnabas.config.quorum import QuorumServer, QuorumVoter, parse_servers, parse_voters
from barnabas.config.settings import BROKER, READ_ONLY, ConfigError, broker_setting
from barnabas.config.startup import complete_for_one_node, prepare, single_node_properties
from barnabas.config.values import Value
from barnabas.net.endpoint import Listener


class ConfigSource(IntEnum):
    """Where a value comes from, with the codes of DescribeConfigs."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class BrokerConfig:
    """Settings as typed attributes (`num.partitions` is `num_partitions`), or by name through `get`.

    Where Kafka has several settings for one thing, the attribute of the first holds the resulting value:
    `inter_broker_listener_name`, `log_retention_ms`, `log_roll_ms`, `log_roll_jitter_ms`, `log_flush_interval_ms`,
    `log_dirs`, `metadata_log_dir`.
    """

    add_partitions_to_txn_retry_backoff_max_ms: int
    add_partitions_to_txn_retry_backoff_ms: int
    alter_log_dirs_replication_quota_window_num: int
    alter_log_dirs_replication_quota_window_size_seconds: int
    auto_create_topics_enable: bool
    auto_leader_rebalance_enable: bool
    background_threads: int
    barnabas_broker_disconnect_grace_ms: int
    barnabas_client_telemetry_dir: str | None
    barnabas_metrics_listener: str | None
    barnabas_offsets_topic_min_isr: int | None
    barnabas_request_log_ms: int
    barnabas_validate_records: bool
    broker_heartbeat_interval_ms: int
    broker_id: int
    broker_rack: str | None
    broker_session_timeout_ms: int
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    connections_max_idle_ms: int
    controlled_shutdown_enable: bool
    controller_listener_names: tuple[str, ...]
    controller_quorum_append_linger_ms: int
    controller_quorum_auto_join_enable: bool
    controller_quorum_bootstrap_servers: tuple[str, ...]
    controller_quorum_election_backoff_max_ms: int
    controller_quorum_election_timeout_ms: int
    controller_quorum_fetch_max_bytes: int
    controller_quorum_fetch_snapshot_max_bytes: int
    controller_quorum_fetch_timeout_ms: int
    controller_quorum_request_timeout_ms: int
    controller_quorum_retry_backoff_ms: int
    controller_quorum_voters: tuple[str, ...]
    controller_socket_timeout_ms: int
    cordoned_log_dirs: tuple[str, ...]
    default_replication_factor: int
    delete_topic_enable: bool
    fetch_max_bytes: int
    follower_replication_throttled_rate: int | None
    group_consumer_assignment_interval_ms: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_assignment_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_consumer_min_assignment_interval_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_regex_refresh_interval_ms: int
    group_consumer_session_timeout_ms: int
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    initial_broker_registration_timeout_ms: int
    inter_broker_listener_name: str
    internal_metadata_log_segment_bytes: int | None
    leader_imbalance_check_interval_seconds: int
    leader_replication_throttled_rate: int | None
    listener_security_protocol_map: str
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_delete_retention_ms: int
    log_cleaner_enable: bool
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_max_compaction_lag_ms: int
    log_cleaner_min_cleanable_ratio: float
    log_cleaner_min_compaction_lag_ms: int
    log_cleaner_threads: int
    log_cleanup_policy: tuple[str, ...]
    log_dir: tuple[str, ...]
    log_dir_failure_timeout_ms: int
    log_dirs: tuple[str, ...]
    log_flush_interval_messages: int
    log_flush_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_index_interval_bytes: int
    log_index_size_max_bytes: int
    log_message_timestamp_after_max_ms: int
    log_message_timestamp_before_max_ms: int
    log_message_timestamp_type: str
    log_preallocate: bool
    log_retention_bytes: int
    log_retention_check_interval_ms: int
    log_retention_hours: int
    log_retention_minutes: int | None
    log_retention_ms: int
    log_roll_hours: int
    log_roll_jitter_hours: int
    log_roll_jitter_ms: int
    log_roll_ms: int
    log_segment_bytes: int
    log_segment_delete_delay_ms: int
    max_connection_creation_rate: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: str
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    message_max_bytes: int
    metadata_log_dir: str
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int
    metadata_max_idle_interval_ms: int
    metadata_max_retention_bytes: int
    metadata_max_retention_ms: int
    min_insync_replicas: int
    node_id: int
    num_partitions: int
    num_recovery_threads_per_data_dir: int
    num_replica_alter_log_dirs_threads: int | None
    num_replica_fetchers: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    process_roles: tuple[str, ...]
    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    queued_max_request_bytes: int
    quota_window_num: int
    quota_window_size_seconds: int
    replica_alter_log_dirs_io_max_bytes_per_second: int | None
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_socket_receive_buffer_bytes: int
    replica_socket_timeout_ms: int
    replication_quota_window_num: int
    replication_quota_window_size_seconds: int
    request_timeout_ms: int
    security_inter_broker_protocol: str
    share_coordinator_state_topic_min_isr: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_segment_bytes: int
    socket_connection_setup_timeout_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int
    telemetry_max_bytes: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_max_timeout_ms: int
    transaction_partition_verification_enable: bool
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_load_buffer_size: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transactional_id_expiration_ms: int
    unclean_leader_election_enable: bool
    unclean_leader_election_interval_ms: int

    def __init__(
        self,
        static: Mapping[str, str],
        cluster_default: Mapping[str, str] | None = None,
        broker: Mapping[str, str] | None = None,
    ) -> None:
        """Use `from_properties` or `for_single_node`: here `static` must be complete, without deprecated names."""
        layers = {
            ConfigSource.DYNAMIC_BROKER: dict(broker or {}),
            ConfigSource.DYNAMIC_DEFAULT_BROKER: dict(cluster_default or {}),
            ConfigSource.STATIC_BROKER: dict(static),
        }
        self.__dict__["layers"] = layers
        self.__dict__["_values"] = _parse_layers(layers)
        rules.check(self.get)
        self.__dict__["_listeners"] = self._resolve_listeners()
        self.__dict__.update({name: self.get(name.replace("_", ".")) for name in _ATTRIBUTES})
        self.__dict__.update(
            inter_broker_listener_name=self._listeners.inter_broker_name,
            cordoned_log_dirs=rules.cordoned_dirs(self.get),
            log_dirs=rules.data_dirs(self.get),
            log_flush_interval_ms=rules.flush_interval_ms(self.get),
            log_retention_ms=rules.retention_ms(self.get),
            log_roll_jitter_ms=rules.roll_jitter_ms(self.get),
            log_roll_ms=rules.roll_ms(self.get),
            max_connections_by_ip=rules.connection_limits(self.max_connections_per_ip_overrides),
            metadata_log_dir=self.get("metadata.log.dir") or rules.data_dirs(self.get)[0],
        )

    layers: Mapping[ConfigSource, Mapping[str, str]]
    """The text of every configured setting, by layer, highest precedence first."""
    ignored_dynamic: Mapping[str, str] = MappingProxyType({})
    """Dynamic entries that were ignored, each with the reason."""
    max_connections_by_ip: Mapping[str, int]
    _values: Mapping[str, Value]
    _listeners: NodeListeners

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a BrokerConfig is immutable: make a new one to set {name} = {value!r}")

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], overrides: Mapping[str, str] | None = None
    ) -> tuple[Self, list[str]]:
        """The configuration of a properties file with command-line overrides, and any warnings to print."""
        given, warnings = prepare({**properties, **(overrides or {})})
        config = cls(complete_for_one_node(given))
        return config, [*warnings, *rules.advice(config.get)]

    @classmethod
    def for_single_node(
        cls,
        *,
        data_dir: str,
        host: str = "localhost",
        port: int = 9092,
        overrides: Mapping[str, str] | None = None,
    ) -> tuple[Self, list[str]]:
        """The configuration of a node that is started without a properties file."""
        given, warnings = prepare(overrides or {})
        return cls(complete_for_one_node({**single_node_properties(data_dir, host, port), **given})), warnings

    def with_dynamic(self, cluster_default: Mapping[str, str], broker: Mapping[str, str]) -> Self:
        """The same static configuration under new dynamic layers, which replace the old ones.

        An entry that is invalid on its own is ignored and listed in `ignored_dynamic`, because a node must keep
        serving whatever the metadata log contains. Raises `ConfigError` if the other entries contradict each other.
        """
        ignored: dict[str, str] = {}
        static = self.layers[ConfigSource.STATIC_BROKER]
        cluster_default, own = _applicable(cluster_default, ignored), _applicable(broker, ignored)
        try:
            changed = type(self)(static, cluster_default, own)
            if not OF_LISTENERS.isdisjoint(own):
                require_plaintext(changed.listeners)
        except ConfigError as error:
            without = {name: text for name, text in own.items() if name not in OF_LISTENERS}
            if len(without) == len(own):
                raise
            # The listeners stay as they are, and other settings are not affected.
            changed = type(self)(static, cluster_default, without)
            ignored |= dict.fromkeys(own.keys() - without.keys(), error.message)
        changed.__dict__["ignored_dynamic"] = ignored
        return changed

    def get(self, name: str) -> Value:
        """The value of a broker setting by its Kafka name, or its default if no layer sets it."""
        values = self._values
        return values[name] if name in values else BROKER[name].default

    def source_of(self, name: str) -> ConfigSource:
        """The layer with the highest precedence that sets `name`, which need not be a known setting."""
        for source, layer in self.layers.items():
            if name in layer:
                return source
        return ConfigSource.DEFAULT

    def listener_override(self, listener_name: str, name: str) -> Value:
        """The value of `listener.name.LISTENER.NAME`, or None if that listener has no value of its own."""
        key = f"listener.name.{listener_name.lower()}.{name}"
        for layer in self.layers.values():
            if key in layer:
                return BROKER[name].parse(layer[key])
        return None

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @property
    def quorum_servers(self) -> tuple[QuorumServer, ...]:
        """Where controllers are looked for: the bootstrap servers, else the addresses of the voters."""
        servers = parse_servers(self.controller_quorum_bootstrap_servers)
        return servers or tuple(QuorumServer(voter.host, voter.port) for voter in self.quorum_voters)

    @property
    def quorum_voters(self) -> tuple[QuorumVoter, ...]:
        """The voters that the settings name; empty where they are in the metadata log."""
        return parse_voters(self.controller_quorum_voters)

    @property
    def quorum_listener(self) -> QuorumListener:
        """The controllers' listener by which this node reaches them; a node that is only a broker has none itself."""
        return self._listeners.quorum

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The listeners for clients and other brokers."""
        return self._listeners.broker

    @property
    def advertised_listeners(self) -> tuple[Listener, ...]:
        """The addresses that clients are told to connect to, one for each advertised listener."""
        return self._listeners.advertised

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """The listeners for the metadata quorum."""
        return self._listeners.controller

    @property
    def advertised_controller_listeners(self) -> tuple[Listener, ...]:
        """The addresses at which other nodes reach the listeners for the metadata quorum."""
        return self._listeners.advertised_controller

    def _resolve_listeners(self) -> NodeListeners:
        get = self.get
        protocol_map, inter_broker_protocol = "listener.security.protocol.map", "security.inter.broker.protocol"
        return resolve_listeners(
            ListenerSettings(
                roles=rules.words(get, "process.roles"),
                listeners=rules.words(get, "listeners"),
                advertised=rules.words(get, "advertised.listeners") or None,
                protocol_map=rules.text(get, protocol_map),
                protocol_map_is_given=self.source_of(protocol_map) is not ConfigSource.DEFAULT,
                controller_names=rules.words(get, "controller.listener.names"),
                inter_broker_name=rules.text(get, "inter.broker.listener.name") or None,
                inter_broker_protocol=rules.text(get, inter_broker_protocol),
                inter_broker_protocol_is_given=self.source_of(inter_broker_protocol) is not ConfigSource.DEFAULT,
                early_start=rules.words(get, "early.start.listeners"),
            )
        )


OF_LISTENERS = frozenset({"listener.security.protocol.map", "listeners"})
"""Dynamic settings that only the node can judge whose they are: they must fit its roles and its other listeners."""

_ATTRIBUTES = tuple(name for name in BrokerConfig.__annotations__ if name.replace("_", ".") in BROKER)


def _parse_layers(layers: Mapping[ConfigSource, Mapping[str, str]]) -> dict[str, Value]:
    merged: dict[str, str] = {}
    for layer in reversed([*layers.values()]):
        merged.update(layer)
    return {name: BROKER[name].parse(text) for name, text in merged.items() if name in BROKER}


def _applicable(layer: Mapping[str, str], ignored: dict[str, str]) -> dict[str, str]:
    kept = {}
    for name, text in layer.items():
        setting = broker_setting(name)
        try:
            if name in BROKER and BROKER[name].update_mode == READ_ONLY:
                raise ConfigError(name, f"{name} cannot be updated dynamically")
            if setting is not None:
                setting.parse(text)
        except ConfigError as error:
            ignored[name] = error.message
        else:
            kept[name] = text
    return kept
