"""A topic's values: its own before the broker's before Kafka's defaults, and what is refused."""

import pytest

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.settings import ConfigError
from barnabas.config.topic_config import TopicConfig, resolve_topic_config, validate_topic_overrides


def broker(**settings: str) -> BrokerConfig:
    overrides = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig.for_single_node(data_dir="/data", overrides=overrides)[0]


def test_without_overrides_a_topic_has_kafkas_defaults() -> None:
    assert resolve_topic_config({}, broker()) == TopicConfig()


def test_a_topic_inherits_the_brokers_settings_under_their_own_names_and_units() -> None:
    inherited = resolve_topic_config(
        {},
        broker(
            log_retention_hours="1",
            log_roll_hours="2",
            log_roll_jitter_hours="3",
            log_flush_scheduler_interval_ms="4",
            message_max_bytes="5",
            log_index_size_max_bytes="6",
            log_segment_delete_delay_ms="7",
            log_cleanup_policy="compact,delete",
            log_message_timestamp_type="LogAppendTime",
            min_insync_replicas="2",
            log_preallocate="true",
            compression_type="zstd",
            compression_zstd_level="7",
            barnabas_validate_records="true",
        ),
    )
    assert inherited.retention_ms == 3_600_000
    assert inherited.segment_ms == 2 * 3_600_000
    assert inherited.segment_jitter_ms == 3 * 3_600_000
    assert inherited.flush_ms == 4
    assert inherited.max_message_bytes == 5
    assert inherited.segment_index_bytes == 6
    assert inherited.file_delete_delay_ms == 7
    assert inherited.cleanup_policy == {"compact", "delete"}
    assert inherited.message_timestamp_type == "LogAppendTime"
    assert inherited.min_insync_replicas == 2
    assert inherited.preallocate is True
    assert (inherited.compression_type, inherited.compression_zstd_level) == ("zstd", 7)
    assert inherited.barnabas_validate_records is True


def test_a_topics_own_values_go_before_the_brokers() -> None:
    config = broker(log_retention_ms="1000", log_cleanup_policy="compact")
    own = resolve_topic_config({"retention.ms": "-1", "cleanup.policy": "delete"}, config)
    assert own.retention_ms == -1
    assert own.cleanup_policy == {"delete"}
    assert resolve_topic_config({}, config).retention_ms == 1000


def test_a_dynamic_change_of_the_broker_reaches_its_topics() -> None:
    changed = broker().with_dynamic({"log.retention.ms": "60000"}, {})
    assert resolve_topic_config({}, changed).retention_ms == 60_000


def test_small_segments_for_tests_go_before_the_usual_size() -> None:
    small = resolve_topic_config({"internal.segment.bytes": "4096", "segment.bytes": "2000000"}, broker())
    assert small.segment_bytes == 4096


def test_an_override_that_a_newer_version_stored_does_not_keep_a_topic_from_opening() -> None:
    assert resolve_topic_config({"of.a.newer.version": "1"}, broker()) == TopicConfig()


def test_retention_recipes() -> None:
    week = resolve_topic_config({"retention.ms": str(168 * 3_600_000), "retention.bytes": "-1"}, broker())
    assert (week.retention_ms, week.retention_bytes) == (604_800_000, -1)
    years = resolve_topic_config({}, broker(log_retention_hours="17520", log_retention_bytes="524288000"))
    assert (years.retention_ms, years.retention_bytes) == (63_072_000_000, 524_288_000)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"foo": "1"}, "Unknown topic config name: foo"),
        ({"segment.ms": "xyz", "foo": "1"}, "Unknown topic config name: foo"),
        ({"retention.mss": "1"}, "Unknown topic config name: retention.mss; did you mean retention.ms?"),
        (
            {"message.format.version": "2.8"},
            (
                "Unknown topic config name: message.format.version; it was removed from Kafka, "
                "replacement: none needed, records are always stored and served in message format v2"
            ),
        ),
        ({"retention.ms": "-5"}, "Invalid value -5 for configuration retention.ms: Value must be at least -1"),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true"},
            (
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage."
            ),
        ),
    ],
)
def test_overrides_are_refused_in_kafkas_words(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate_topic_overrides(overrides, broker())
    assert str(refused.value) == message


def test_overrides_are_judged_together_with_what_the_broker_gives() -> None:
    config = broker(log_cleaner_min_compaction_lag_ms="100")
    with pytest.raises(ConfigError, match=r"min.compaction.lag.ms \(100\) > max.compaction.lag.ms \(50\)"):
        validate_topic_overrides({"max.compaction.lag.ms": "50"}, config)
    validate_topic_overrides({"max.compaction.lag.ms": "50"})


def test_what_kafka_accepts_is_accepted() -> None:
    validate_topic_overrides(
        {
            "cleanup.policy": "",
            "retention.bytes": "-5",
            "segment.ms": " 5 ",
            "remote.log.copy.disable": "true",
            "local.retention.ms": "700000000000",
            "leader.replication.throttled.replicas": "*",
        }
    )


@pytest.mark.parametrize(
    ("policy", "lag_ms", "rolls_after_ms"),
    [
        ("compact", "1000", 1_000),
        ("compact,delete", "1000", 1_000),
        ("delete", "1000", 5_000),
        ("compact", "9000", 5_000),
    ],
)
def test_an_active_segment_of_a_compacted_topic_is_not_older_than_a_record_may_wait(
    policy: str, lag_ms: str, rolls_after_ms: int
) -> None:
    overrides = {"cleanup.policy": policy, "max.compaction.lag.ms": lag_ms, "segment.ms": "5000"}
    assert resolve_topic_config(overrides, broker()).segment_ms == rolls_after_ms
