"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: the errors and the forms that Kafka answers with."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.api.admin.configs import alter_configs, describe_configs, incremental_alter_configs
from barnabas.config.broker_config import ConfigSource
from barnabas.metadata.image import ConfigResource, ConfigsImage, ResourceType
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.unit.broker.api.stand_ins import Answer, a_broker, a_config, a_topic, an_image, asked, caller, no_controller

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.config.broker_config import BrokerConfig

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

CONFIGS: Mapping[ConfigResource, Mapping[str, str]] = {
    ConfigResource(ResourceType.TOPIC, "t"): {"retention.ms": "1000"},
    ConfigResource(ResourceType.GROUP, "g"): {"consumer.session.timeout.ms": "50000"},
    ConfigResource(ResourceType.CLIENT_METRICS, "m"): {"interval.ms": "1000"},
    ConfigResource(ResourceType.BROKER, "1"): {"log.cleaner.threads": "2"},
}


def describe(
    resource_type: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int = 4,
    config: BrokerConfig | None = None,
    include_synonyms: bool = False,
    include_documentation: bool = False,
) -> m.DescribeConfigsResponse.DescribeConfigsResult:
    async def answer() -> m.DescribeConfigsResponse:
        image = an_image([a_topic("t")])._replace(configs=ConfigsImage(CONFIGS))
        resource = m.DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=keys
        )
        request = m.DescribeConfigsRequest(
            resources=[resource], include_synonyms=include_synonyms, include_documentation=include_documentation
        )
        response = describe_configs(a_broker(image, config=config).admin, request, caller(version))
        return codec.decode(m.DescribeConfigsResponse, codec.encode(response, version), version)

    (result,) = asyncio.run(answer()).results
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result


def values(result: m.DescribeConfigsResponse.DescribeConfigsResult) -> dict[str, str | None]:
    return {config.name: config.value for config in result.configs}


def test_a_topics_settings_are_its_own_over_the_brokers() -> None:
    result = describe(TOPIC, "t", config=a_config(log_segment_bytes="1048576"))
    settings = {config.name: config for config in result.configs}
    assert (settings["retention.ms"].value, settings["retention.ms"].config_source) == ("1000", ConfigSource.TOPIC)
    assert settings["segment.bytes"].value == "1048576"
    assert settings["segment.bytes"].config_source == ConfigSource.STATIC_BROKER
    assert settings["cleanup.policy"].config_source == ConfigSource.DEFAULT
    assert len(settings) > 30


@pytest.mark.parametrize("keys", [None, []])
def test_no_keys_ask_for_all(keys: list[str] | None) -> None:
    assert len(describe(TOPIC, "t", keys).configs) > 30


def test_keys_choose_settings_and_unknown_ones_choose_none() -> None:
    assert values(describe(TOPIC, "t", ["retention.ms", "nobody"])) == {"retention.ms": "1000"}


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_synonyms_and_documentation_come_when_asked_for(version: int) -> None:
    (plain,) = describe(TOPIC, "t", ["retention.ms"], version=version).configs
    (full,) = describe(
        TOPIC, "t", ["retention.ms"], version=version, include_synonyms=True, include_documentation=version >= 3
    ).configs
    assert plain.synonyms == []
    assert [(s.name, s.value, s.source) for s in full.synonyms][:1] == [("retention.ms", "1000", ConfigSource.TOPIC)]
    assert bool(full.documentation) == (version >= 3)
    assert full.config_type == (5 if version >= 3 else 0)


def test_the_brokers_own_settings_are_described() -> None:
    result = describe(BROKER, "1", ["num.partitions", "node.id"], config=a_config(num_partitions="7"))
    assert values(result) == {"node.id": "1", "num.partitions": "7"}
    assert {config.read_only for config in result.configs} == {True}


def test_the_empty_broker_name_is_what_all_brokers_share() -> None:
    config = a_config().with_dynamic({"log.cleaner.threads": "3"}, {})
    assert values(describe(BROKER, "", config=config)) == {"log.cleaner.threads": "3"}


def test_a_groups_settings_are_described() -> None:
    result = describe(GROUP, "g", ["consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"])
    assert values(result) == {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "5000"}


def test_subscriptions_to_client_metrics_are_described_with_their_defaults() -> None:
    assert values(describe(METRICS, "m")) == {"interval.ms": "1000", "match": "", "metrics": ""}


@pytest.mark.parametrize(
    ("resource_type", "name", "error", "message"),
    [
        (TOPIC, "nobody", Error.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (TOPIC, "", Error.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
        (
            BROKER,
            "2",
            Error.INVALID_REQUEST,
            "Unexpected broker id, expected 1 or empty string, but received 2",
        ),
        (BROKER, "x", Error.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (GROUP, "", Error.INVALID_REQUEST, "Group name must not be empty"),
        (METRICS, "", Error.INVALID_REQUEST, "Client metrics subscription name must not be empty"),
        (99, "x", Error.INVALID_REQUEST, "Unsupported resource type: 99"),
    ],
)
def test_a_resource_that_cannot_be_described_says_why(
    resource_type: int, name: str, error: Error, message: str
) -> None:
    result = describe(resource_type, name)
    assert (result.error_code, result.error_message, result.configs) == (error, message, [])


# ── altering ─────────────────────────────────────────────────────────────────────────────────────────────────────

Outcome = tuple[int, str | None]


def accept_all(request: Any) -> Any:
    kind: Any = m.IncrementalAlterConfigsResponse
    if isinstance(request, m.AlterConfigsRequest):
        kind = m.AlterConfigsResponse
    return kind(
        responses=[
            kind.AlterConfigsResourceResponse(
                resource_type=r.resource_type, resource_name=r.resource_name, error_message=None
            )
            for r in request.resources
        ]
    )


def replace(
    *resources: tuple[int, str, dict[str, str | None]], answer: Answer = accept_all
) -> tuple[list[Outcome], list[Any]]:
    async def play() -> tuple[list[Outcome], list[Any]]:
        broker = a_broker(an_image([a_topic("t")]), answer=answer)
        request = m.AlterConfigsRequest(
            resources=[
                m.AlterConfigsRequest.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[m.AlterConfigsRequest.AlterableConfig(name=k, value=v) for k, v in settings.items()],
                )
                for kind, name, settings in resources
            ],
            validate_only=True,
        )
        response = await alter_configs(broker.admin, request, caller(2))
        return [(result.error_code, result.error_message) for result in response.responses], asked(broker)

    return asyncio.run(play())


def change(
    *resources: tuple[int, str, list[tuple[str, int, str | None]]], answer: Answer = accept_all
) -> tuple[list[Outcome], list[Any]]:
    async def play() -> tuple[list[Outcome], list[Any]]:
        image = an_image([a_topic("t")])._replace(configs=ConfigsImage(CONFIGS))
        broker = a_broker(image, answer=answer)
        request = m.IncrementalAlterConfigsRequest(
            resources=[
                m.IncrementalAlterConfigsRequest.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        m.IncrementalAlterConfigsRequest.AlterableConfig(name=k, config_operation=operation, value=v)
                        for k, operation, v in changes
                    ],
                )
                for kind, name, changes in resources
            ]
        )
        response = await incremental_alter_configs(broker.admin, request, caller(1))
        return [(result.error_code, result.error_message) for result in response.responses], asked(broker)

    return asyncio.run(play())


def test_accepted_resources_go_to_the_controller_and_refused_ones_do_not() -> None:
    outcomes, (request,) = replace((TOPIC, "t", {"retention.ms": "5"}), (BROKER, "2", {}), (TOPIC, "other", {}))
    assert [error for error, _ in outcomes] == [Error.NONE, Error.INVALID_REQUEST, Error.NONE]
    assert [resource.resource_name for resource in request.resources] == ["t", "other"]
    assert request.validate_only


def test_the_controllers_refusals_are_passed_on() -> None:
    def refuse(request: m.IncrementalAlterConfigsRequest) -> m.IncrementalAlterConfigsResponse:
        response: m.IncrementalAlterConfigsResponse = accept_all(request)
        response.responses[0].error_code = Error.INVALID_CONFIG
        response.responses[0].error_message = "Unknown topic config name: nope"
        return response

    outcomes, _ = change((TOPIC, "t", [("nope", SET, "1")]), answer=refuse)
    assert outcomes == [(Error.INVALID_CONFIG, "Unknown topic config name: nope")]


def test_a_resource_that_the_controller_forgot_is_a_server_error() -> None:
    outcomes, _ = change((TOPIC, "t", []), answer=lambda _: m.IncrementalAlterConfigsResponse())
    assert outcomes == [(Error.UNKNOWN_SERVER_ERROR, None)]


def test_success_has_no_message() -> None:
    assert change((TOPIC, "t", [("retention.ms", SET, "5")]))[0] == [(Error.NONE, None)]


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        ((TOPIC, "t", {"retention.ms": None}), "Null value not supported for : retention.ms"),
        ((BROKER, "2", {}), "Unexpected broker id, expected 1, but received 2"),
        ((BROKER, "x", {}), "Node id must be an integer, but it is: x"),
        ((BROKER, "1", {"num.partitions": "5"}), "Cannot update these configs dynamically: [num.partitions]"),
        (
            (BROKER, "", {"log.cleaner.threads": "x"}),
            "Invalid value x for configuration log.cleaner.threads: Not a number of type INT",
        ),
        ((LOGGER, "1", {}), "Unknown resource type 8"),
        ((99, "1", {}), "Unknown resource type 99"),
    ],
)
def test_what_the_broker_itself_refuses_to_replace(resource: Any, message: str) -> None:
    outcomes, _ = replace(resource, answer=no_controller)
    assert outcomes == [(Error.INVALID_REQUEST, message)]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            [("num.partitions", SET, "5")],
            Error.INVALID_REQUEST,
            "Cannot update these configs dynamically: [num.partitions]",
        ),
        (
            [("log.cleaner.threads", SET, None)],
            Error.INVALID_REQUEST,
            "Null value not supported for : log.cleaner.threads",
        ),
        ([("log.cleaner.threads", 9, "1")], Error.INVALID_REQUEST, "Unknown operations type 9"),
        ([("zzz", APPEND, "1")], Error.INVALID_CONFIG, "Unknown config name: zzz"),
        (
            [("log.cleaner.threads", SUBTRACT, "1")],
            Error.INVALID_CONFIG,
            "Config value subtract is not allowed for config key: log.cleaner.threads",
        ),
        (
            [("log.cleaner.threads", SET, "1"), ("log.cleaner.threads", DELETE, None)],
            Error.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
    ],
)
def test_what_the_broker_itself_refuses_to_change(changes: Any, error: Error, message: str) -> None:
    outcomes, _ = change((BROKER, "1", changes), answer=no_controller)
    assert outcomes == [(error, message)]


def test_a_resource_that_is_named_twice_is_refused_each_time() -> None:
    outcomes, (request,) = change((TOPIC, "t", []), (TOPIC, "t", []), (GROUP, "t", []))
    twice = (Error.INVALID_REQUEST, "Each resource must appear at most once.")
    assert outcomes == [twice, twice, (Error.NONE, None)]
    assert [resource.resource_type for resource in request.resources] == [GROUP]


@pytest.mark.parametrize(
    "changes",
    [
        [("log.cleaner.threads", DELETE, None)],
        [("log.cleanup.policy", APPEND, "compact")],
        [("log.cleanup.policy", SUBTRACT, "compact")],
    ],
)
def test_changes_that_the_broker_could_apply_go_to_the_controller(changes: Any) -> None:
    outcomes, requests = change((BROKER, "1", changes))
    assert outcomes == [(Error.NONE, None)]
    assert len(requests) == 1
