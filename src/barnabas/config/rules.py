"""Rules between settings, which Kafka checks when a broker starts and when its configuration is altered."""

import re
from collections.abc import Callable

from barnabas.config import quorum
from barnabas.config.values import ConfigError, Value

Get = Callable[[str], Value]

_MS_PER_MINUTE = 60_000
_MS_PER_HOUR = 60 * _MS_PER_MINUTE
_MIB = 1 << 20


def whole(get: Get, name: str) -> int:
    """The value of an integer setting that has a default."""
    value = get(name)
    assert isinstance(value, int), name
    return value


def text(get: Get, name: str) -> str:
    """The value of a string setting; empty if it has none."""
    value = get(name)
    assert value is None or isinstance(value, str), name
    return value or ""


def words(get: Get, name: str) -> tuple[str, ...]:
    """The value of a list setting; empty if it has none."""
    value = get(name)
    assert value is None or isinstance(value, tuple), name
    return value or ()


def _first_given(get: Get, units_ms: dict[str, int]) -> int | None:
    for name, unit_ms in units_ms.items():
        value = get(name)
        if value is not None:
            assert isinstance(value, int)
            return value * unit_ms
    return None


def retention_ms(get: Get) -> int:
    """`log.retention.ms`, else `.minutes`, else `.hours`; any negative value keeps data forever (-1)."""
    units = {"log.retention.ms": 1, "log.retention.minutes": _MS_PER_MINUTE, "log.retention.hours": _MS_PER_HOUR}
    retention = _first_given(get, units)
    assert retention is not None
    if retention == 0:
        key = "log.retention.ms"
        raise ConfigError(key, f"{key} must be unlimited (-1) or, greater than or equal to 1")
    return max(retention, -1)


def roll_ms(get: Get) -> int:
    """`log.roll.ms`, else `log.roll.hours`."""
    roll = _first_given(get, {"log.roll.ms": 1, "log.roll.hours": _MS_PER_HOUR})
    assert roll is not None
    if roll < 1:
        raise ConfigError("log.roll.ms", "log.roll.ms must be greater than or equal to 1")
    return roll


def roll_jitter_ms(get: Get) -> int:
    """`log.roll.jitter.ms`, else `log.roll.jitter.hours`."""
    jitter = _first_given(get, {"log.roll.jitter.ms": 1, "log.roll.jitter.hours": _MS_PER_HOUR})
    assert jitter is not None
    if jitter < 0:
        raise ConfigError("log.roll.jitter.ms", "log.roll.jitter.ms must be greater than or equal to 0")
    return jitter


def flush_interval_ms(get: Get) -> int:
    """`log.flush.interval.ms`, else `log.flush.scheduler.interval.ms`."""
    interval = _first_given(get, {"log.flush.interval.ms": 1, "log.flush.scheduler.interval.ms": 1})
    assert interval is not None
    return interval


def data_dirs(get: Get) -> tuple[str, ...]:
    """`log.dirs`, else `log.dir`."""
    return words(get, "log.dirs") or words(get, "log.dir")


def cordoned_dirs(get: Get) -> tuple[str, ...]:
    """`cordoned.log.dirs`, of which an asterisk means all."""
    cordoned = words(get, "cordoned.log.dirs")
    return data_dirs(get) if "*" in cordoned else cordoned


def connection_limits(overrides: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides`: the maximum number of connections by host."""
    key = "max.connections.per.ip.overrides"
    limits = {}
    for entry in filter(None, (part.strip() for part in overrides.split(","))):
        host, colon, count = entry.rpartition(":")
        if not colon or not re.fullmatch(r"[^\s/]+", host) or not re.fullmatch(r"\s*-?[0-9]{1,9}\s*", count):
            raise ConfigError(key, f"Invalid entry `{entry}` in {key}; entries have the form host:count")
        limits[host.strip("[]")] = int(count)
    return limits


def check(get: Get) -> None:
    """Checks all rules between settings except those about listeners."""
    _check_node_id(get)
    _check_quorum(get)
    _check_replication(get)
    _check_limits(get)
    _check_log_dirs(get)
    _check_cleaner(get)
    _check_consumer_groups(get)


def _check_consumer_groups(get: Get) -> None:
    """The defaults for groups must be within the bounds for what they can be set to."""
    for rest in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
        name, least, most = f"group.consumer.{rest}", f"group.consumer.min.{rest}", f"group.consumer.max.{rest}"
        for larger, smaller in ((most, least), (name, least)):
            if whole(get, larger) < whole(get, smaller):
                values = _both(get, larger, smaller)
                raise ConfigError(larger, f"{larger} must be greater than or equal to {smaller}; {values}")
        if whole(get, name) > whole(get, most):
            values = _both(get, name, most)
            raise ConfigError(name, f"{name} must be less than or equal to {most}; {values}")
    heartbeat, session = "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"
    if whole(get, heartbeat) >= whole(get, session):
        values = _both(get, heartbeat, session)
        raise ConfigError(heartbeat, f"{heartbeat} must be less than {session}; {values}")
    protocols = "group.coordinator.rebalance.protocols"
    if "classic" not in words(get, protocols):
        raise ConfigError(protocols, f"{protocols} must contain classic: that protocol cannot be disabled")


def _both(get: Get, one: str, other: str) -> str:
    return f"the values are {whole(get, one)} and {whole(get, other)}"


def _check_node_id(get: Get) -> None:
    node_id, broker_id = get("node.id"), get("broker.id")
    if node_id is None:
        raise ConfigError("node.id", 'Missing required configuration "node.id" which has no default value.')
    if node_id != broker_id:
        raise ConfigError(
            "broker.id",
            f"You must set `node.id` to the same value as `broker.id`. The values are {node_id} and {broker_id}.",
        )


def _check_quorum(get: Get) -> None:
    roles = words(get, "process.roles")
    quorum.check_voters(roles, whole(get, "node.id"), quorum.parse_voters(words(get, quorum.VOTERS)))
    quorum.check_auto_join(roles, is_enabled=bool(get(quorum.AUTO_JOIN)))


def _check_replication(get: Get) -> None:
    socket_timeout, wait_max, lag_max = (
        "replica.socket.timeout.ms",
        "replica.fetch.wait.max.ms",
        "replica.lag.time.max.ms",
    )
    if whole(get, socket_timeout) < whole(get, wait_max):
        raise ConfigError(
            socket_timeout,
            f"{socket_timeout} should always be at least {wait_max} to prevent unnecessary socket timeouts",
        )
    if whole(get, wait_max) > whole(get, lag_max):
        raise ConfigError(
            wait_max,
            f"{wait_max} should always be less than or equal to {lag_max} to prevent frequent changes in ISR",
        )


def advice(get: Get) -> list[str]:
    """What a node may do and hardly anybody wants: Kafka starts too, and complains."""
    notes = []
    interval, session = "broker.heartbeat.interval.ms", "broker.session.timeout.ms"
    if whole(get, interval) * 2 > whole(get, session):
        notes.append(
            f"{interval} ({whole(get, interval)} ms) must be less than or equal to half of the {session} "
            f"({whole(get, session)} ms): a broker whose heartbeat is late by as much loses its lease"
        )
    names = words(get, "controller.listener.names")
    if len(names) > 1 and "controller" not in words(get, "process.roles"):
        notes.append(
            "controller.listener.names has multiple entries; only the first will be used since process.roles=broker: "
            f"{', '.join(names)}"
        )
    return notes


def _check_limits(get: Get) -> None:
    queued_bytes = whole(get, "queued.max.request.bytes")
    if 0 < queued_bytes < whole(get, "socket.request.max.bytes"):
        key = "queued.max.request.bytes"
        raise ConfigError(key, f"{key} must be larger or equal to socket.request.max.bytes")
    if not connection_limits(text(get, "max.connections.per.ip.overrides")) and get("max.connections.per.ip") == 0:
        key = "max.connections.per.ip"
        raise ConfigError(key, f"{key} can be set to zero only if {key}.overrides property is set.")
    idle_ms = whole(get, "connections.max.idle.ms")
    delay_ms = whole(get, "connection.failed.authentication.delay.ms")
    if 0 <= idle_ms <= delay_ms:
        raise ConfigError(
            "connections.max.idle.ms",
            f"connection.failed.authentication.delay.ms={delay_ms} should always be less than "
            f"connections.max.idle.ms={idle_ms} to prevent failed authentication responses from timing out",
        )


def _check_cleaner(get: Get) -> None:
    threads, size = "log.cleaner.threads", "log.cleaner.dedupe.buffer.size"
    if whole(get, threads) == 0:
        raise ConfigError(threads, f"{threads} must be at least 1: log.cleaner.enable=false switches the cleaner off")
    if whole(get, size) // whole(get, threads) <= _MIB:
        raise ConfigError(size, f"requirement failed: {size} must be at least 1MB per cleaner thread.")


def _check_log_dirs(get: Get) -> None:
    missing = {*words(get, "cordoned.log.dirs")} - {*data_dirs(get), "*"}
    if missing:
        raise ConfigError(
            "cordoned.log.dirs",
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {', '.join(sorted(missing))}",
        )
