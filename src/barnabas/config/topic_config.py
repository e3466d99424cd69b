"""The configuration of a topic: its own overrides, then the broker's settings, then Kafka's defaults.

`TopicConfig` is the typed result that logs and replicas use. It is immutable: the partitions of a topic share one, and
a dynamic change replaces the whole object. Types, ranges and synonyms are defined only in the table of settings.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from barnabas.config import rules
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.legacy import REPLACED
from barnabas.config.settings import TOPIC, ConfigError, did_you_mean
from barnabas.config.values import Value

LONG_MAX = (1 << 63) - 1
COMPACT = "compact"
DELETE = "delete"
"""Cleanup policies."""


class TopicConfig(NamedTuple):
    """Every topic setting as a value. Without arguments: Kafka's defaults."""

    barnabas_validate_records: bool = False
    """The broker's setting: topics have none of their own."""
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    """The size at which the active segment rolls: `internal.segment.bytes` if that is set."""
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    """The age at which the active segment rolls: no more than `max.compaction.lag.ms` where the topic is compacted."""
    unclean_leader_election_enable: bool = False


def resolve_topic_config(overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
    """The values in effect for a topic: its overrides, else the broker's, else Kafka's defaults.

    An override with an unknown name is ignored, because metadata written by another version must not keep a
    partition from opening. Raises `ConfigError` for a value that cannot be parsed.
    """
    base = _without_overrides(broker)
    changes: dict[str, Any] = {
        name.replace(".", "_"): TOPIC[name].parse(text) for name, text in overrides.items() if name in TOPIC
    }
    if "cleanup_policy" in changes:
        changes["cleanup_policy"] = frozenset(changes["cleanup_policy"])
    internal_segment_bytes = changes.pop("internal_segment_bytes", None)
    if internal_segment_bytes is not None:
        changes["segment_bytes"] = internal_segment_bytes
    return _rolling_in_time(base._replace(**changes)) if changes else _rolling_in_time(base)


def _rolling_in_time(config: TopicConfig) -> TopicConfig:
    """An active segment is never compacted, so one must not be active for longer than a record may wait for that."""
    if COMPACT not in config.cleanup_policy or config.segment_ms <= config.max_compaction_lag_ms:
        return config
    return config._replace(segment_ms=config.max_compaction_lag_ms)


@functools.lru_cache(maxsize=4)
def _without_overrides(broker: BrokerConfig) -> TopicConfig:
    """The configuration of most topics. It is cached, because thousands of topics share it."""
    values: dict[str, Any] = {name.replace(".", "_"): inherited(name, broker) for name in TOPIC}
    del values["internal_segment_bytes"]
    values["cleanup_policy"] = frozenset(values["cleanup_policy"])
    values["barnabas_validate_records"] = broker.barnabas_validate_records
    return TopicConfig(**values)


def inherited(name: str, broker: BrokerConfig) -> Value:
    """The value of a topic setting for topics that do not override it."""
    setting = TOPIC[name]
    if not setting.synonyms:
        return setting.default
    resolved = _RESOLVED.get(name)
    return resolved(broker.get) if resolved else broker.get(setting.synonyms[0])


# Topic settings for which the broker has several, in different units.
_RESOLVED: Mapping[str, Callable[[rules.Get], int]] = {
    "flush.ms": rules.flush_interval_ms,
    "retention.ms": rules.retention_ms,
    "segment.jitter.ms": rules.roll_jitter_ms,
    "segment.ms": rules.roll_ms,
}


def validate_topic_overrides(overrides: Mapping[str, str], broker: BrokerConfig | None = None) -> None:
    """Rejects overrides that Kafka rejects for a topic. `broker` provides the values that are not overridden."""
    for name in overrides:
        if name not in TOPIC:
            raise ConfigError(name, f"Unknown topic config name: {name}{_advice(name)}")
    values = {name: setting.default if broker is None else inherited(name, broker) for name, setting in TOPIC.items()}
    values.update({name: TOPIC[name].parse(text) for name, text in overrides.items()})
    _check_compaction_lag(values)
    if values["remote.storage.enable"]:
        raise ConfigError(
            "remote.storage.enable",
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        )


def _advice(name: str) -> str:
    if name in REPLACED:
        return f"; it was removed from Kafka, replacement: {REPLACED[name]}"
    return did_you_mean(name, TOPIC)


def _check_compaction_lag(values: Mapping[str, Value]) -> None:
    least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(least, int)
    assert isinstance(most, int)
    if least > most:
        raise ConfigError(
            "min.compaction.lag.ms",
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})",
        )
