"""Layers of a broker's configuration, precedence among settings for the same thing, and rules between settings."""

import pytest

from barnabas.config.broker_config import BrokerConfig, ConfigSource
from barnabas.config.settings import ConfigError

HOUR_MS = 3_600_000


def broker(**settings: str) -> BrokerConfig:
    """`log_roll_ms="5"` stands for `log.roll.ms=5`."""
    overrides = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig.for_single_node(data_dir="/data", overrides=overrides)[0]


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({}, 168 * HOUR_MS),
        ({"log_retention_hours": "24"}, 24 * HOUR_MS),
        ({"log_retention_hours": "24", "log_retention_minutes": "5"}, 300_000),
        ({"log_retention_hours": "24", "log_retention_minutes": "5", "log_retention_ms": "7"}, 7),
        ({"log_retention_minutes": "-5"}, -1),
        ({"log_retention_hours": "-1"}, -1),
        ({"log_retention_ms": "-1"}, -1),
    ],
)
def test_retention_is_taken_from_ms_before_minutes_before_hours(settings: dict[str, str], retention_ms: int) -> None:
    assert broker(**settings).log_retention_ms == retention_ms


@pytest.mark.parametrize(
    ("settings", "roll_ms", "jitter_ms"),
    [
        ({}, 168 * HOUR_MS, 0),
        ({"log_roll_hours": "1", "log_roll_jitter_hours": "2"}, HOUR_MS, 2 * HOUR_MS),
        ({"log_roll_hours": "1", "log_roll_ms": "9", "log_roll_jitter_ms": "3"}, 9, 3),
    ],
)
def test_rolling_is_taken_from_ms_before_hours(settings: dict[str, str], roll_ms: int, jitter_ms: int) -> None:
    config = broker(**settings)
    assert (config.log_roll_ms, config.log_roll_jitter_ms) == (roll_ms, jitter_ms)


def test_the_flush_interval_is_the_schedulers_where_it_is_not_given() -> None:
    assert broker().log_flush_interval_ms == 2**63 - 1
    assert broker(log_flush_scheduler_interval_ms="5").log_flush_interval_ms == 5
    assert broker(log_flush_scheduler_interval_ms="5", log_flush_interval_ms="9").log_flush_interval_ms == 9


def test_log_dirs_goes_before_log_dir() -> None:
    files, _ = BrokerConfig.from_properties({"log.dir": "/one"})
    assert files.log_dirs == ("/one",)
    assert files.metadata_log_dir == "/one"
    files, _ = BrokerConfig.from_properties({"log.dir": "/one", "log.dirs": "/two, /three"})
    assert files.log_dirs == ("/two", "/three")
    assert files.metadata_log_dir == "/two"
    assert broker(metadata_log_dir="/meta").metadata_log_dir == "/meta"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"log_retention_ms": "0"}, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        ({"log_retention_hours": "0"}, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        ({"log_roll_ms": "0"}, "log.roll.ms must be greater than or equal to 1"),
        ({"log_roll_jitter_ms": "-5"}, "log.roll.jitter.ms must be greater than or equal to 0"),
        (
            {"queued_max_request_bytes": "5"},
            "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
        ),
        (
            {"max_connections_per_ip": "0"},
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
        ),
        ({"max_connections_per_ip_overrides": "127.0.0.1"}, "entries have the form host:count"),
        ({"max_connections_per_ip_overrides": "h:x"}, "Invalid entry `h:x` in max.connections.per.ip.overrides"),
        ({"connections_max_idle_ms": "50"}, "should always be less than connections.max.idle.ms=50"),
        ({"replica_socket_timeout_ms": "5"}, "should always be at least replica.fetch.wait.max.ms"),
        ({"cordoned_log_dirs": "/x"}, "Missing entries : /x"),
        ({"controller_quorum_voters": "2@localhost:9093"}, "the node id 1 must be included in the set of voters"),
        (
            {"group_consumer_session_timeout_ms": "10000"},
            "or equal to group.consumer.min.session.timeout.ms; the values are 10000 and 45000",
        ),
        (
            {"group_coordinator_rebalance_protocols": "consumer"},
            "group.coordinator.rebalance.protocols must contain classic",
        ),
        (
            {"group_consumer_heartbeat_interval_ms": "20000"},
            "heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        (
            {"group_consumer_max_assignment_interval_ms": "1", "group_consumer_min_assignment_interval_ms": "2"},
            "assignment.interval.ms must be greater than or equal to group.consumer.min.assignment.interval.ms",
        ),
        (
            {
                "group_consumer_heartbeat_interval_ms": "45000",
                "group_consumer_max_heartbeat_interval_ms": "50000",
            },
            "group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms",
        ),
        ({"log_cleaner_threads": "0"}, "log.cleaner.threads must be at least 1"),
        (
            {"log_cleaner_dedupe_buffer_size": "1000"},
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread",
        ),
        ({"num_partitions": "0"}, "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        broker(**settings)
    assert complaint in str(refused.value)


def test_connection_limits_by_address_are_read() -> None:
    config = broker(max_connections_per_ip_overrides="127.0.0.1:5, host:200,[::1]:7")
    assert config.max_connections_by_ip == {"127.0.0.1": 5, "host": 200, "::1": 7}


def test_a_listener_may_have_limits_of_its_own() -> None:
    config = broker().with_dynamic({}, {"listener.name.plaintext.max.connections": "700"})
    assert config.listener_override("PLAINTEXT", "max.connections") == 700
    assert config.listener_override("CONTROLLER", "max.connections") is None
    assert config.max_connections == 2**31 - 1


def test_this_brokers_dynamic_value_goes_before_all_brokers_before_the_file_before_the_default() -> None:
    name = "message.max.bytes"
    config = broker()
    assert (config.message_max_bytes, config.source_of(name)) == (1_048_588, ConfigSource.DEFAULT)
    config = broker(message_max_bytes="1")
    assert (config.message_max_bytes, config.source_of(name)) == (1, ConfigSource.STATIC_BROKER)
    config = config.with_dynamic({name: "2"}, {})
    assert (config.message_max_bytes, config.source_of(name)) == (2, ConfigSource.DYNAMIC_DEFAULT_BROKER)
    config = config.with_dynamic({name: "2"}, {name: "3"})
    assert (config.message_max_bytes, config.source_of(name)) == (3, ConfigSource.DYNAMIC_BROKER)
    assert config.with_dynamic({}, {}).message_max_bytes == 1


def test_a_dynamic_retention_in_ms_goes_before_hours_in_the_file() -> None:
    config = broker(log_retention_hours="24").with_dynamic({"log.retention.ms": "5000"}, {})
    assert config.log_retention_ms == 5000


def test_a_dynamic_entry_that_cannot_be_applied_is_left_out_and_named() -> None:
    config = broker().with_dynamic(
        {"num.partitions": "9", "log.retention.ms": "5000"}, {"message.max.bytes": "many", "of.a.newer.version": "1"}
    )
    assert config.num_partitions == 1
    assert config.log_retention_ms == 5000
    assert config.message_max_bytes == 1_048_588
    assert config.ignored_dynamic == {
        "num.partitions": "num.partitions cannot be updated dynamically",
        "message.max.bytes": "Invalid value many for configuration message.max.bytes: Not a number of type INT",
    }
    assert config.source_of("of.a.newer.version") is ConfigSource.DYNAMIC_BROKER


def test_a_configuration_does_not_change() -> None:
    with pytest.raises(AttributeError, match="num_partitions"):
        broker().num_partitions = 5


def test_week_long_retention_without_a_size_limit() -> None:
    config = broker(log_retention_hours="168", log_retention_bytes="-1")
    assert (config.log_retention_ms, config.log_retention_bytes) == (604_800_000, -1)


def test_two_years_or_half_a_gigabyte() -> None:
    config = broker(log_retention_hours="17520", log_retention_bytes="524288000")
    assert (config.log_retention_ms, config.log_retention_bytes) == (63_072_000_000, 524_288_000)
