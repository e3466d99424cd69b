"""What controllers answer on their own listeners (KIP-919), and which of it brokers answer as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.wire.connection import Connection

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from tests.clients.with_confluent import ConfluentClient

    from interop.clusters import ThreeNodes
    from interop.programs import Program

PREFERRED, UNCLEAN = 0, 1
FIRST, WITH_KINDS_OF_ELECTIONS, FLEXIBLE = 0, 1, 2
"""Versions of ElectLeaders."""


@pytest.mark.on("three nodes")
def test_an_admin_client_needs_no_broker(java: Program, three_nodes: ThreeNodes, topic: str) -> None:
    assert java.run("controllers", topic=topic, controllers=three_nodes.bootstrap_controllers) == {
        "voters": [1, 2, 3],
        "leader_is_same": True,
        "nodes": [1, 2, 3],
        "cluster_is_same": True,
        "features": True,
        "refused_setting": "InvalidConfigurationException",
        "elected": "UnsupportedEndpointTypeException",
        "created": "UnsupportedEndpointTypeException",
        "described_topic": "UnsupportedEndpointTypeException",
        "unregistered": "BrokerIdNotRegisteredException",
    }


@pytest.mark.parametrize(
    ("kind", "version"),
    [(PREFERRED, FIRST), (PREFERRED, WITH_KINDS_OF_ELECTIONS), (PREFERRED, FLEXIBLE), (UNCLEAN, FLEXIBLE)],
)
def test_leaders_are_elected_through_any_broker_and_by_the_active_controller(
    three_nodes: ThreeNodes, client: ConfluentClient, topic: str, kind: int, version: int
) -> None:
    client.create_topic(topic, replication_factor=3)
    by_brokers = [elect(node.port, topic, kind, version) for node in three_nodes.nodes.values()]
    assert by_brokers == [(Error.NONE, [Error.ELECTION_NOT_NEEDED])] * 3
    ports = [int(address.rpartition(":")[2]) for address in three_nodes.bootstrap_controllers.split(",")]
    by_controllers = [elect(port, topic, kind, version) for port in ports]
    elsewhere = Error.NOT_CONTROLLER if version > FIRST else Error.NONE
    assert sorted(by_controllers, key=lambda answer: answer[1] == [Error.NOT_CONTROLLER]) == [
        (Error.NONE, [Error.ELECTION_NOT_NEEDED]),
        (elsewhere, [Error.NOT_CONTROLLER]),
        (elsewhere, [Error.NOT_CONTROLLER]),
    ]


def elect(port: int, topic: str, kind: int, version: int) -> tuple[Error, list[Error]]:
    """The error of the request, and that of the only partition."""
    partitions = m.ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[0])
    request = m.ElectLeadersRequest(election_type=kind, topic_partitions=[partitions])
    with Connection(port) as connection:
        answer = connection.call(request, version, m.ElectLeadersResponse)
    results = [each for of_topic in answer.replica_election_results for each in of_topic.partition_result]
    return Error(answer.error_code), [Error(each.error_code) for each in results]
