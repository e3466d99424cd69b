"""DescribeCluster: the brokers as the caller's listener sees them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.broker.api.admin.describe_cluster import describe_cluster
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.authorized_operations import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED_FOR
from barnabas.protocol.errors import Error
from tests.unit.broker.api.stand_ins import CLUSTER_ID, NODE_ID, a_broker, a_registration, an_image, caller


def ask(version: int = 2, **fields: Any) -> m.DescribeClusterResponse:
    async def answer() -> m.DescribeClusterResponse:
        brokers = [a_registration(rack="r1"), a_registration(2, fenced=True), a_registration(3, endpoints={"OTHER": 1})]
        return describe_cluster(
            a_broker(an_image([], brokers)).admin, m.DescribeClusterRequest(**fields), caller(version)
        )

    return asyncio.run(answer())


@pytest.mark.parametrize("version", range(3))
def test_brokers_that_can_be_reached_are_listed(version: int) -> None:
    response = ask(version)
    assert codec.encode(response, version)
    assert (response.cluster_id, response.controller_id) == (CLUSTER_ID, NODE_ID)
    assert [(b.broker_id, b.host, b.port, b.rack) for b in response.brokers] == [(1, "host-1", 9092, "r1")]
    assert response.cluster_authorized_operations == OPERATIONS_NOT_ASKED_FOR


def test_fenced_brokers_are_listed_when_asked_for() -> None:
    response = ask(include_fenced_brokers=True)
    assert [(broker.broker_id, broker.is_fenced) for broker in response.brokers] == [(1, False), (2, True)]


def test_permitted_operations_are_given_when_asked_for() -> None:
    response = ask(include_cluster_authorized_operations=True)
    assert response.cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize(
    ("endpoint_type", "error"), [(2, Error.MISMATCHED_ENDPOINT_TYPE), (3, Error.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_a_broker_does_not_describe_other_endpoints(endpoint_type: int, error: Error) -> None:
    response = ask(1, endpoint_type=endpoint_type)
    assert (response.error_code, response.brokers, response.controller_id) == (error, [], -1)
    assert response.error_message
