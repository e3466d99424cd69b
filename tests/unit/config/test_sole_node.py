"""Which roles and quorums are those of a node that is alone."""

import socket

import pytest

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.sole_node import is_sole_node

CONTROLLER_ONLY = {"process_roles": "controller", "listeners": "CONTROLLER://localhost:9093"}
BROKER_ONLY = {"process_roles": "broker", "listeners": "PLAINTEXT://localhost:9092"}


def node(**settings: str) -> BrokerConfig:
    """A node of both roles; `process_roles="…"` stands for `process.roles`."""
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    return BrokerConfig.from_properties(properties)[0]


@pytest.mark.parametrize("settings", [BROKER_ONLY, CONTROLLER_ONLY], ids=["broker", "controller"])
def test_a_node_of_one_role_needs_others(settings: dict[str, str]) -> None:
    assert not is_sole_node(node(**settings))


def test_a_node_with_other_voters_is_not_alone() -> None:
    assert not is_sole_node(node(controller_quorum_voters="1@localhost:9093,2@other:9093,3@third:9093"))


def test_a_node_that_is_the_only_voter_is_alone() -> None:
    assert is_sole_node(node(controller_quorum_voters="1@localhost:9093"))
    assert is_sole_node(node(controller_quorum_voters="1@kafka.invalid:9093"))


@pytest.mark.parametrize(
    ("listeners", "servers"),
    [
        ("PLAINTEXT://:9092,CONTROLLER://:9093", "localhost:9093"),
        ("PLAINTEXT://:9092,CONTROLLER://:9093", "127.0.0.1:9093,[::1]:9093"),
        ("PLAINTEXT://:9092,CONTROLLER://:9093", f"{socket.gethostname()}:9093"),
        ("PLAINTEXT://localhost:9092,CONTROLLER://0.0.0.0:9093", "localhost:9093"),
        ("PLAINTEXT://localhost:9092,CONTROLLER://127.0.0.1:9093", "LOCALHOST:9093"),
        ("PLAINTEXT://localhost:9092,CONTROLLER://kafka.invalid:9093", "kafka.invalid:9093"),
        (f"PLAINTEXT://localhost:9092,CONTROLLER://{socket.gethostbyname('localhost')}:9093", "localhost:9093"),
    ],
)
def test_a_node_whose_bootstrap_server_is_its_own_controller_listener_is_alone(listeners: str, servers: str) -> None:
    assert is_sole_node(node(listeners=listeners, controller_quorum_bootstrap_servers=servers))


def test_a_node_whose_bootstrap_server_is_its_advertised_listener_is_alone() -> None:
    advertised = "PLAINTEXT://localhost:9092,CONTROLLER://kafka.invalid:19093"
    servers = "kafka.invalid:19093"
    assert is_sole_node(node(advertised_listeners=advertised, controller_quorum_bootstrap_servers=servers))


@pytest.mark.parametrize(
    "servers",
    ["kafka.invalid:9093", "localhost:9093,kafka.invalid:9093", "localhost:9094", "localhost:9092", "192.0.2.7:9093"],
)
def test_a_node_with_other_bootstrap_servers_is_not_alone(servers: str) -> None:
    assert not is_sole_node(node(controller_quorum_bootstrap_servers=servers))
