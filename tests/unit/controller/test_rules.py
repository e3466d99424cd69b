"""The node's configuration as the controller sees it."""

from __future__ import annotations

import pytest

from barnabas.config.broker_config import BrokerConfig
from barnabas.controller.config_rules import BrokerConfigRules, controller_settings, metadata_limits
from barnabas.controller.decisions.context import DynamicLayers
from barnabas.metadata.image import ResourceType
from barnabas.protocol.errors import Error, KafkaError
from barnabas.raft.folder.metadata_log import MetadataLogLimits

NOTHING = DynamicLayers({}, {})


def config(**overrides: str) -> BrokerConfig:
    """A node's configuration; `_` in the names of settings stands for a dot."""
    given = {name.replace("_", "."): value for name, value in overrides.items()}
    return BrokerConfig.for_single_node(data_dir="/nowhere", overrides=given)[0]


def test_decisions_go_by_the_nodes_settings() -> None:
    settings = controller_settings(
        config(num_partitions="7", delete_topic_enable="false", broker_session_timeout_ms="1234"),
        cluster_id="c",
        sole_broker_id=1,
    )
    assert (settings.default_partition_count, settings.session_timeout_ms) == (7, 1234)
    assert (settings.is_topic_deletion_enabled, settings.sole_broker_id) == (False, 1)


def test_without_settings_the_metadata_log_has_kafkas_limits() -> None:
    assert metadata_limits(config()) == MetadataLogLimits()


def test_the_metadata_log_has_the_limits_that_were_set() -> None:
    limits = metadata_limits(config(metadata_max_idle_interval_ms="9", metadata_log_max_snapshot_interval_ms="8"))
    assert (limits.idle_interval_ms, limits.snapshot_interval_ms) == (9, 8)
    assert metadata_limits(config(internal_metadata_log_segment_bytes="4096")).segment_bytes == 4096


def test_a_topic_reports_what_the_layers_below_it_give() -> None:
    rules = BrokerConfigRules(config(log_retention_ms="111"))
    layers = DynamicLayers({"log.segment.bytes": "2000000"}, {"log.cleanup.policy": "compact"})

    def reported(layers: DynamicLayers) -> dict[str, tuple[str | None, int]]:
        return {entry.name: (entry.value, entry.source) for entry in rules.topic_configs({"flush.ms": "5"}, layers)}

    with_layers = reported(layers)
    assert with_layers["flush.ms"] == ("5", 1)
    assert with_layers["cleanup.policy"] == ("compact", 2)
    assert with_layers["segment.bytes"] == ("2000000", 3)
    assert with_layers["retention.ms"] == ("111", 4)
    assert with_layers["max.message.bytes"] == ("1048588", 5)
    assert reported(NOTHING)["segment.bytes"] == ("1073741824", 5)


def test_lists_are_known_by_their_type() -> None:
    rules = BrokerConfigRules(config())
    assert rules.is_list(ResourceType.TOPIC, "cleanup.policy")
    assert not rules.is_list(ResourceType.TOPIC, "retention.ms")
    assert not rules.is_list(ResourceType.TOPIC, "unheard.of")
    assert rules.default_text(ResourceType.TOPIC, "cleanup.policy") == "delete"


@pytest.mark.parametrize(
    ("check", "configs", "error"),
    [
        ("check_topic", {"retention.ms": "x"}, Error.INVALID_CONFIG),
        ("check_group", {"unheard.of": "1"}, Error.INVALID_CONFIG),
        ("check_broker", {"num.partitions": "3"}, Error.INVALID_REQUEST),
        ("check_cluster", {"broker.rack": "r"}, Error.INVALID_REQUEST),
    ],
)
def test_refusals_have_kafkas_codes(check: str, configs: dict[str, str], error: Error) -> None:
    with pytest.raises(KafkaError) as refused:
        getattr(BrokerConfigRules(config()), check)(configs, NOTHING)
    assert refused.value.error is error
