"""DescribeConfigs of Apache Kafka, entry by entry, beside ours for the same settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tools import apache_kafka

from barnabas.client.broker_connection import Connection
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from barnabas.protocol import messages as m
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BROKER, TOPIC, GROUP = 4, 2, 32
SET = 0
STATIC = {"log.roll.hours": "24", "num.partitions": "2", "ssl.key.password": "secret", "an.unknown.setting": "hello"}
LAYERS: dict[tuple[int, str], dict[str, str]] = {
    (BROKER, ""): {"log.cleaner.backoff.ms": "14000", "message.max.bytes": "1500000", "max.connections": "80000"},
    (BROKER, "1"): {
        "message.max.bytes": "2000000",
        "listener.name.plaintext.max.connections": "700",
        "leader.replication.throttled.rate": "1000",
        "log.cleanup.policy": "compact, delete",
    },
    (TOPIC, "t"): {"segment.ms": "5000", "min.cleanable.dirty.ratio": "0.0001", "cleanup.policy": "compact,delete"},
    (GROUP, "g"): {"consumer.session.timeout.ms": "50000", "share.auto.offset.reset": "by_duration:P1D"},
}


@pytest.mark.kafka
@pytest.mark.usefixtures("apache_kafka_runs")
def test_every_entry_is_kafkas(tmp_path: Path) -> None:
    with apache_kafka.KafkaNode(tmp_path / "data", properties=STATIC) as kafka:
        host, _, port = kafka.bootstrap.rpartition(":")
        with Connection(host, int(port)) as connection:
            _create_topic(connection)
            for (resource_type, name), values in LAYERS.items():
                _alter(connection, resource_type, name, values)
            wait_until(
                lambda: _describe(connection, TOPIC, "t")["max.message.bytes"][0] == "2000000",
                "the broker has taken its dynamic configuration",
            )
            theirs = {resource: _describe(connection, *resource) for resource in LAYERS}
    properties = _static_properties(theirs[BROKER, "1"]) | STATIC
    all_brokers = LAYERS[BROKER, ""] | _bootstrap_configuration(theirs[BROKER, ""])
    broker = BrokerConfig.from_properties(properties)[0].with_dynamic(all_brokers, LAYERS[BROKER, "1"])
    ours = {
        (BROKER, ""): describe_cluster_default(broker),
        (BROKER, "1"): describe_broker(broker),
        (TOPIC, "t"): describe_topic(LAYERS[TOPIC, "t"], broker),
        (GROUP, "g"): describe_group(LAYERS[GROUP, "g"], broker),
    }
    for resource, entries in ours.items():
        assert {entry.name: _comparable(entry) for entry in entries} == theirs[resource], resource


def _static_properties(this_broker: Mapping[str, Any]) -> dict[str, str]:
    """The properties file that Kafka was started with, as far as it shows it."""
    return {name: value for entry in this_broker.values() for name, value, source in entry[-1] if source == 4}


def _bootstrap_configuration(all_brokers: Mapping[str, Any]) -> dict[str, str]:
    """What Kafka itself wrote when the cluster was made."""
    return {name: entry[0] for name, entry in all_brokers.items() if name not in LAYERS[BROKER, ""]}


def _create_topic(connection: Connection) -> None:
    topic = m.CreateTopicsRequest.CreatableTopic(
        name="t",
        num_partitions=1,
        replication_factor=1,
        configs=[
            m.CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
            for name, value in LAYERS[TOPIC, "t"].items()
        ],
    )
    response = connection.send(m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    assert [topic.error_code for topic in response.topics] == [0]


def _alter(connection: Connection, resource_type: int, name: str, values: Mapping[str, str]) -> None:
    request = m.IncrementalAlterConfigsRequest
    resource = request.AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[request.AlterableConfig(name=key, config_operation=SET, value=value) for key, value in values.items()],
    )
    response = connection.send(request(resources=[resource]))
    assert [(answer.error_code, answer.error_message) for answer in response.responses] == [(0, None)]


def _describe(connection: Connection, resource_type: int, name: str) -> dict[str, tuple[Any, ...]]:
    request = m.DescribeConfigsRequest
    resource = request.DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
    response = connection.send(request(resources=[resource], include_synonyms=True, include_documentation=True))
    [result] = response.results
    assert result.error_code == 0, result.error_message
    return {
        entry.name: (
            entry.value,
            entry.config_source,
            entry.config_type,
            entry.read_only,
            entry.is_sensitive,
            entry.documentation is None,
            [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms],
        )
        for entry in result.configs
    }


def _comparable(entry: ConfigEntry) -> tuple[Any, ...]:
    return (
        entry.value,
        entry.source,
        entry.type,
        entry.read_only,
        entry.is_sensitive,
        entry.documentation is None,
        [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms],
    )
