"""Which roles and quorums a node accepts that can only be alone."""

import socket

import pytest

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.settings import ConfigError
from barnabas.config.sole_node import require_sole_node

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


def refusal(**settings: str) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        require_sole_node(node(**settings))
    return refused.value


@pytest.mark.parametrize("settings", [BROKER_ONLY, CONTROLLER_ONLY], ids=["broker", "controller"])
def test_a_node_of_one_role_is_refused_by_the_name_of_the_setting(settings: dict[str, str]) -> None:
    error = refusal(**settings)
    assert error.key == "process.roles"
    assert f"process.roles={settings['process_roles']} needs other nodes" in str(error)
    assert "set process.roles=broker,controller" in str(error)


def test_voters_beside_this_node_are_refused_and_named() -> None:
    voters = "1@localhost:9093,2@other:9093,3@third:9093"
    error = refusal(controller_quorum_voters=voters)
    assert error.key == "controller.quorum.voters"
    assert f"controller.quorum.voters={voters} names 2@other:9093, 3@third:9093 besides node 1" in str(error)


def test_this_node_as_the_only_voter_is_accepted() -> None:
    require_sole_node(node(controller_quorum_voters="1@localhost:9093"))
    require_sole_node(node(controller_quorum_voters="1@kafka.invalid:9093"))


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
def test_the_controller_listener_of_this_node_is_accepted_as_bootstrap_server(listeners: str, servers: str) -> None:
    require_sole_node(node(listeners=listeners, controller_quorum_bootstrap_servers=servers))


def test_the_advertised_controller_listener_is_accepted_as_bootstrap_server() -> None:
    advertised = "PLAINTEXT://localhost:9092,CONTROLLER://kafka.invalid:19093"
    require_sole_node(node(advertised_listeners=advertised, controller_quorum_bootstrap_servers="kafka.invalid:19093"))


@pytest.mark.parametrize(
    ("servers", "other"),
    [
        ("kafka.invalid:9093", "kafka.invalid:9093"),
        ("localhost:9093,kafka.invalid:9093", "kafka.invalid:9093"),
        ("localhost:9094", "localhost:9094"),
        ("localhost:9092", "localhost:9092"),
        ("192.0.2.7:9093", "192.0.2.7:9093"),
    ],
)
def test_other_bootstrap_servers_are_refused_and_named(servers: str, other: str) -> None:
    error = refusal(controller_quorum_bootstrap_servers=servers)
    assert error.key == "controller.quorum.bootstrap.servers"
    assert f"controller.quorum.bootstrap.servers={servers} names {other}, which is not" in str(error)
    assert "CONTROLLER://localhost:9093" in str(error)
