"""ListConfigResources, and the settings of subscriptions to the metrics of clients, which it was made for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.config_resources import ResourceType
from barnabas.protocol.errors import Error
from tests.peers import wait_until

if TYPE_CHECKING:
    from tests.wire.connection import Connection
    from tests.wire.requests import Topic

SET, DELETE, APPEND = 0, 1, 2
FROM_SUBSCRIPTION, FROM_DEFAULT = 7, 5


def listed(connection: Connection, types: list[int], version: int = 1) -> set[tuple[int, str]]:
    answer = connection.call(m.ListConfigResourcesRequest(resource_types=types), version, m.ListConfigResourcesResponse)
    assert answer.error_code == Error.NONE
    found = [(each.resource_type, each.resource_name) for each in answer.config_resources]
    assert len(set(found)) == len(found)
    return set(found)


def change(
    connection: Connection, kind: int, name: str, operations: dict[str, tuple[int, str | None]]
) -> m.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse:
    request = m.IncrementalAlterConfigsRequest
    configs = [
        request.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, (operation, value) in operations.items()
    ]
    resource = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    (answer,) = connection.call(request(resources=[resource]), 1, m.IncrementalAlterConfigsResponse).responses
    return answer


def described(connection: Connection, kind: int, name: str) -> dict[str, tuple[str | None, int]]:
    request = m.DescribeConfigsRequest
    resource = request.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    (answer,) = connection.call(request(resources=[resource]), 4, m.DescribeConfigsResponse).results
    assert answer.error_code == Error.NONE
    return {each.name: (each.value, each.config_source) for each in answer.configs}


def test_topics_and_brokers_are_listed(connection: Connection, wire_topic: Topic) -> None:
    everything = listed(connection, [])
    expected = {(ResourceType.TOPIC, wire_topic.name), (ResourceType.BROKER, "1"), (ResourceType.BROKER_LOGGER, "1")}
    assert expected <= everything
    assert listed(connection, [ResourceType.BROKER]) == {(ResourceType.BROKER, "1")}
    assert {kind for kind, _ in listed(connection, [ResourceType.TOPIC, ResourceType.TOPIC])} == {ResourceType.TOPIC}


@pytest.mark.parametrize("unknown", [0, 1, 64, -1])
def test_a_type_that_cannot_be_listed_fails_the_request(connection: Connection, unknown: int) -> None:
    request = m.ListConfigResourcesRequest(resource_types=[ResourceType.TOPIC, unknown])
    answer = connection.call(request, 1, m.ListConfigResourcesResponse)
    assert (answer.error_code, answer.config_resources) == (Error.UNSUPPORTED_VERSION, [])


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [(ResourceType.GROUP, "consumer.session.timeout.ms", "50000"), (ResourceType.CLIENT_METRICS, "metrics", "a.,b.")],
)
def test_groups_and_subscriptions_are_listed_while_they_have_settings(
    connection: Connection, topic: str, kind: int, key: str, value: str
) -> None:
    name = f"of {topic}"
    assert (kind, name) not in listed(connection, [])
    assert change(connection, kind, name, {key: (SET, value)}).error_code == Error.NONE
    wait_until(lambda: (kind, name) in listed(connection, [kind]), "it is listed")
    assert (kind, name) in listed(connection, [])
    assert change(connection, kind, name, {key: (DELETE, None)}).error_code == Error.NONE
    wait_until(lambda: (kind, name) not in listed(connection, [kind]), "it is gone")


def test_the_first_version_lists_subscriptions_only(connection: Connection, topic: str) -> None:
    change(connection, ResourceType.CLIENT_METRICS, topic, {"interval.ms": (SET, "1000")})
    wait_until(lambda: (ResourceType.CLIENT_METRICS, topic) in listed(connection, [], 0), "it is listed")
    assert {kind for kind, _ in listed(connection, [], 0)} == {ResourceType.CLIENT_METRICS}


def test_a_subscription_is_described_with_its_defaults(connection: Connection, topic: str) -> None:
    settings = {"interval.ms": (SET, "5000"), "match": (SET, "client_id=.*,client_software_name=librd")}
    assert change(connection, ResourceType.CLIENT_METRICS, topic, settings).error_code == Error.NONE  # type: ignore[arg-type]
    expected = {
        "interval.ms": ("5000", FROM_SUBSCRIPTION),
        "match": ("client_id=.*,client_software_name=librd", FROM_SUBSCRIPTION),
        "metrics": ("", FROM_DEFAULT),
    }
    wait_until(lambda: described(connection, ResourceType.CLIENT_METRICS, topic) == expected, "it is described")
    of_nobody = described(connection, ResourceType.CLIENT_METRICS, f"{topic}-unknown")
    assert of_nobody["interval.ms"] == ("300000", FROM_DEFAULT)


@pytest.mark.parametrize(
    ("name", "key", "operation", "value", "error"),
    [
        ("", "interval.ms", SET, "1000", Error.INVALID_REQUEST),
        ("refused", "no.such.setting", SET, "1", Error.INVALID_REQUEST),
        ("refused", "interval.ms", SET, "99", Error.INVALID_REQUEST),
        ("refused", "interval.ms", SET, "3600001", Error.INVALID_REQUEST),
        ("refused", "interval.ms", SET, "soon", Error.INVALID_CONFIG),
        ("refused", "match", SET, "no_selector=1", Error.INVALID_CONFIG),
        ("refused", "match", SET, "client_id=[", Error.INVALID_CONFIG),
        ("refused", "match", SET, "client_id", Error.INVALID_CONFIG),
        ("refused", "metrics", APPEND, "a.", Error.INVALID_CONFIG),
    ],
)
def test_what_is_no_subscription_is_refused(
    connection: Connection, name: str, key: str, operation: int, value: str, error: Error
) -> None:
    answer = change(connection, ResourceType.CLIENT_METRICS, name, {key: (operation, value)})
    assert answer.error_code == error
    assert answer.error_message
    assert (ResourceType.CLIENT_METRICS, name) not in listed(connection, [ResourceType.CLIENT_METRICS])
