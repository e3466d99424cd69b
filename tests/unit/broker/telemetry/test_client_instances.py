"""What is remembered of clients that push metrics ends with time, with their connections, and with their number."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from barnabas.broker.telemetry import client_instances
from barnabas.broker.telemetry.client_instances import ClientInstances, attributes_of, subscription_id
from barnabas.metadata.image import ConfigResource, ConfigsImage, ResourceType
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.uuids import Uuid

if TYPE_CHECKING:
    from barnabas.broker.telemetry.client_instances import ClientInstance
    from barnabas.net.connection import Connection

MINUTE_MS = 60_000


class OpenConnection(SimpleNamespace):
    is_closed = False


@pytest.fixture
def connection() -> Connection:
    return cast("Connection", OpenConnection())


def number(value: int) -> Uuid:
    return Uuid(value.to_bytes(16, "big"))


def find(instances: ClientInstances, connection: Connection, now_ms: int, value: int = 7) -> ClientInstance:
    attributes = attributes_of(number(value), "c", ("software", "1.0"), ("127.0.0.1", 1))
    return instances.find(number(value), attributes, connection, now_ms)


def test_a_client_is_known_for_three_of_its_intervals(connection: Connection) -> None:
    instances = ClientInstances()
    first = find(instances, connection, 0)
    assert find(instances, connection, 15 * MINUTE_MS) is first
    assert find(instances, connection, 30 * MINUTE_MS + 1) is not first


def test_a_client_is_forgotten_with_its_connection(connection: Connection) -> None:
    instances = ClientInstances()
    first = find(instances, connection, 0)
    connection.is_closed = True
    assert find(instances, connection, 1) is not first


def test_the_clients_that_were_heard_of_last_are_remembered(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_instances, "INSTANCES_MAX", 2)
    instances = ClientInstances()
    first, second = find(instances, connection, 0, 1), find(instances, connection, 0, 2)
    assert find(instances, connection, 0, 1) is first
    find(instances, connection, 0, 3)
    assert len(instances) == 2
    assert find(instances, connection, 0, 1) is first
    assert find(instances, connection, 0, 2) is not second


def test_a_client_comes_once_in_an_interval(connection: Connection) -> None:
    instances = ClientInstances()
    resource = ConfigResource(ResourceType.CLIENT_METRICS, "s")
    instances.follow(ConfigsImage({resource: {"interval.ms": "100", "metrics": "a.,b."}}))
    client = find(instances, connection, 0)
    assert (client.metrics, client.push_interval_ms) == (["a.", "b."], 100)
    client.get(0)
    with pytest.raises(KafkaError) as refused:
        client.get(99)
    assert refused.value.error is Error.THROTTLING_QUOTA_EXCEEDED
    client.push(client.subscription_id, 0, 1, 1, 30, is_last=False)
    with pytest.raises(KafkaError):
        client.push(client.subscription_id, 0, 1, 1, 129, is_last=False)
    client.push(client.subscription_id, 0, 1, 1, 130, is_last=False)
    client.get(230)


def test_every_client_and_everything_that_is_asked_for_has_its_own_subscription_id() -> None:
    ids = {
        subscription_id(metrics, interval_ms, number(value))
        for metrics in ([], ["a."], ["a.", "b."], ["*"])
        for interval_ms in (100, 300_000)
        for value in (1, 2, 3, 1 << 100)
    }
    assert len(ids) == 32
    assert -(2**31) <= subscription_id(["*"], 100, number(2**128 - 1)) < 2**31
