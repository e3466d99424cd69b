"""Which broker and group settings can be updated dynamically, and to which values.

The messages are Kafka's, because `kafka-configs --alter` shows them to its users. An invalid broker setting fails with
INVALID_REQUEST, an invalid topic or group setting with INVALID_CONFIG.
"""

from collections.abc import Iterable, Mapping

from barnabas.config import rules
from barnabas.config.broker_config import OF_LISTENERS, BrokerConfig, ConfigSource
from barnabas.config.settings import BROKER, GROUP, PER_BROKER, READ_ONLY, ConfigError, did_you_mean, listener_base
from barnabas.config.values import Value

_ONLY_PER_LISTENER = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
# These may be set for a listener on all brokers at once; other settings of a listener are set broker by broker.
_CLUSTER_WIDE_OF_A_LISTENER = frozenset({"max.connection.creation.rate", "max.connections", "num.network.threads"})
_THREAD_POOLS = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)


def validate_broker_overrides(overrides: Mapping[str, str], scope: ConfigSource, broker: BrokerConfig) -> None:
    """Raises `ConfigError` if `overrides` cannot become the dynamic layer of `scope`.

    `scope` is DYNAMIC_BROKER or DYNAMIC_DEFAULT_BROKER.
    """
    _refuse("Cannot update these configs dynamically", (name for name in overrides if _is_read_only(name)))
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        _ONLY_PER_LISTENER.intersection(overrides),
    )
    for name, text in overrides.items():
        setting = BROKER.get(listener_base(name) or name)
        if setting is not None:
            setting.parse(text)
    if scope is ConfigSource.DYNAMIC_DEFAULT_BROKER:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            (name for name in overrides if _belongs_to_one_broker(name)),
        )
        changed = broker.with_dynamic(overrides, broker.layers[ConfigSource.DYNAMIC_BROKER])
    else:
        changed = broker.with_dynamic(broker.layers[ConfigSource.DYNAMIC_DEFAULT_BROKER], overrides)
        _check_listeners(broker, changed)
    _check_thread_pools(broker, changed)
    _check_cleaner_threads(broker, changed)
    _check_local_retention(changed)


def without_listeners(overrides: Mapping[str, str]) -> dict[str, str]:
    """What of a broker's dynamic settings can be judged by another node."""
    return {name: text for name, text in overrides.items() if name not in OF_LISTENERS}


def _check_listeners(now: BrokerConfig, changed: BrokerConfig) -> None:
    """A listener can be added and removed, but stays as it is as long as it is there."""
    for name in OF_LISTENERS & changed.ignored_dynamic.keys():
        raise ConfigError(name, changed.ignored_dynamic[name])
    before = {listener.name: listener.security_protocol for listener in now.listeners}
    for listener in changed.listeners:
        if before.get(listener.name, listener.security_protocol) != listener.security_protocol:
            raise ConfigError(
                "listener.security.protocol.map",
                f"Security protocol cannot be updated for existing listener {listener.name}",
            )


def _refuse(reason: str, names: Iterable[str]) -> None:
    refused = sorted(names)
    if refused:
        raise ConfigError(refused[0], f"{reason}: [{', '.join(refused)}]")


def _is_read_only(name: str) -> bool:
    return name in BROKER and BROKER[name].update_mode == READ_ONLY


def _belongs_to_one_broker(name: str) -> bool:
    base = listener_base(name)
    if base is not None:
        return base not in _CLUSTER_WIDE_OF_A_LISTENER
    return name in BROKER and BROKER[name].update_mode == PER_BROKER


def _check_thread_pools(now: BrokerConfig, changed: BrokerConfig) -> None:
    for name in _THREAD_POOLS:
        current, wanted = rules.whole(now.get, name), rules.whole(changed.get, name)
        problem = f"Dynamic thread count update validation failed for {name}={wanted}"
        if wanted < current // 2:
            raise _invalid(name, f"{problem}, value should be at least half the current value {current}")
        if wanted > current * 2:
            raise _invalid(name, f"{problem}, value should not be greater than double the current value {current}")


def _check_cleaner_threads(now: BrokerConfig, changed: BrokerConfig) -> None:
    current, wanted = now.log_cleaner_threads, changed.log_cleaner_threads
    if wanted < current // 2:
        problem = f"Log cleaner threads cannot be reduced to less than half the current value {current}"
        raise _invalid("log.cleaner.threads", problem)
    if wanted > current * 2:
        problem = f"Log cleaner threads cannot be increased to more than double the current value {current}"
        raise _invalid("log.cleaner.threads", problem)


def _invalid(name: str, problem: str) -> ConfigError:
    """A refusal as Kafka's tools print it, which has the name of a class in the place of a value."""
    prefix = "Invalid value org.apache.kafka.common.config.ConfigException:"
    return ConfigError(name, f"{prefix} {problem} for configuration Invalid dynamic configuration")


def _check_local_retention(changed: BrokerConfig) -> None:
    limits = {
        "log.local.retention.ms": ("log.retention.ms", changed.log_retention_ms),
        "log.local.retention.bytes": ("log.retention.bytes", changed.log_retention_bytes),
    }
    for name, (total_name, total) in limits.items():
        local = rules.whole(changed.get, name)
        if total == -1 or local == -2:
            continue
        problem = f"Invalid value {local} for configuration {name}: Value must not be"
        if local == -1:
            raise ConfigError(name, f"{problem} -1 as {total_name} value is set as {total}.")
        if local > total:
            raise ConfigError(name, f"{problem} more than {total_name} property value: {total}")


def validate_group_overrides(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Rejects what Kafka rejects for a group: unknown names, and values outside the broker's bounds."""
    for name in overrides:
        if name not in GROUP:
            raise ConfigError(name, f"Unknown group config name: {name}{did_you_mean(name, GROUP)}")
    values: dict[str, Value] = {
        name: broker.get(setting.synonyms[0]) if setting.synonyms else setting.default
        for name, setting in GROUP.items()
    }
    values.update({name: GROUP[name].parse(text) for name, text in overrides.items()})
    for name in overrides:
        _check_bounds(name, values[name], broker)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if rules.whole(values.__getitem__, session) <= rules.whole(values.__getitem__, heartbeat):
            both = f"the values are {values[session]} and {values[heartbeat]}"
            raise ConfigError(session, f"{session} must be greater than {heartbeat}; {both}")


def _check_bounds(name: str, value: Value, broker: BrokerConfig) -> None:
    kind, _, rest = name.partition(".")
    least, most = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest.removeprefix('num.')}"
    if least in BROKER:
        assert isinstance(value, int)
        if value < rules.whole(broker.get, least):
            raise ConfigError(name, f"{name} must be greater than or equal to {least}")
    if most in BROKER:
        assert isinstance(value, int)
        if value > rules.whole(broker.get, most):
            raise ConfigError(name, f"{name} must be less than or equal to {most}")
