"""Files of the ZooKeeper era that name the same `zookeeper.connect`: who founds the cluster, who joins it."""

from __future__ import annotations

import pytest

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.meeting_point import (
    Attempt,
    BindOutcome,
    EraRole,
    Meeting,
    Memory,
    addresses_to_bind,
    era_properties,
    format_memory,
    is_of_the_era,
    meet,
    parse_connect,
    parse_memory,
)
from barnabas.config.quorum import QuorumServer
from barnabas.config.settings import ConfigError
from barnabas.net.endpoint import Listener

HERE, THERE = QuorumServer("localhost", 2181), QuorumServer("zk2", 2181)
BOUND, IN_USE = Attempt(HERE, BindOutcome.BOUND), Attempt(HERE, BindOutcome.IN_USE)
FOUNDER, BROKER = Memory(EraRole.FOUNDER, HERE), Memory(EraRole.BROKER, HERE)
FILE = {
    "broker.id": "0",
    "listeners": "PLAINTEXT://:9092",
    "log.dirs": "/tmp/kafka-logs-0",
    "zookeeper.connect": "localhost:2181",
    "zookeeper.connection.timeout.ms": "18000",
}


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("localhost:2181", (HERE,)),
        ("localhost", (HERE,)),
        (" localhost:2181 , zk2:2181/kafka", (HERE, THERE)),
        ("[::1]:2182/a/b", (QuorumServer("::1", 2182),)),
    ],
)
def test_addresses_are_read_without_the_path(text: str, servers: tuple[QuorumServer, ...]) -> None:
    assert parse_connect(text) == servers


@pytest.mark.parametrize("text", ["", "localhost:x", "localhost:99999", "a:1,,b:2", "a:1:2"])
def test_what_is_no_list_of_addresses_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a list of host:port"):
        parse_connect(text)


# remembered, what became of binding, role, where the quorum is, whether that is to be remembered
DECISIONS = {
    "first at the address": (None, BOUND, EraRole.FOUNDER, (HERE,), True),
    "second at the address": (None, IN_USE, EraRole.BROKER, (HERE,), True),
    "on another machine": (None, None, EraRole.BROKER, (HERE, THERE), True),
    "the founder again": (FOUNDER, BOUND, EraRole.FOUNDER, (HERE,), False),
    "a broker again": (BROKER, None, EraRole.BROKER, (HERE, THERE), False),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_the_role_follows_from_the_address_and_the_memory(name: str) -> None:
    remembered, attempt, role, servers, is_new = DECISIONS[name]
    meeting = meet(0, (HERE, THERE), remembered, attempt)
    assert (meeting.role, meeting.servers, meeting.is_new) == (role, servers, is_new)


def test_a_broker_that_comes_back_first_does_not_take_the_address() -> None:
    assert addresses_to_bind((HERE, THERE), None) == (HERE, THERE)
    assert addresses_to_bind((HERE, THERE), FOUNDER) == (HERE,)
    assert addresses_to_bind((HERE, THERE), BROKER) == ()


@pytest.mark.parametrize(
    ("servers", "attempt", "complaint"),
    [
        ((HERE,), IN_USE, "another process listens there"),
        ((HERE,), None, "not on this machine any more"),
        ((THERE,), None, "zookeeper.connect=zk2:2181 does not name it"),
    ],
)
def test_a_founder_without_its_address_is_refused(
    servers: tuple[QuorumServer, ...], attempt: Attempt | None, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint) as refused:
        meet(0, servers, FOUNDER, attempt)
    assert "the folder of node 0 has the only vote of its cluster, which is expected at localhost:2181" in str(
        refused.value
    )


def test_the_single_point_of_failure_is_named() -> None:
    warning = meet(0, (HERE,), None, BOUND).warning
    assert "node 0 is the only voter of this cluster, at localhost:2181, and a single point of failure" in warning
    assert "node 1 is a broker of the cluster whose only voter is expected at localhost:2181" in (
        meet(1, (HERE,), None, IN_USE).warning
    )


def config_of(properties: dict[str, str], attempt: Attempt | None) -> BrokerConfig:
    servers = parse_connect(properties["zookeeper.connect"])
    meeting = meet(int(properties["broker.id"]), servers, None, attempt)
    complete, notes = era_properties(properties, meeting)
    assert "ZooKeeper is not used: ignoring zookeeper.connection.timeout.ms" in notes
    config, warnings = BrokerConfig.from_properties(complete)
    assert warnings == []
    return config


def test_three_files_become_a_voter_and_two_brokers() -> None:
    files = [{**FILE, "broker.id": str(number), "listeners": f"PLAINTEXT://:{9092 + number}"} for number in range(3)]
    configs = [config_of(file, BOUND if number == 1 else IN_USE) for number, file in enumerate(files)]
    assert [config.node_id for config in configs] == [0, 1, 2]
    assert [config.process_roles for config in configs] == [("broker",), ("broker", "controller"), ("broker",)]
    assert {config.quorum_servers for config in configs} == {(HERE,)}
    assert configs[1].controller_listeners == (Listener("CONTROLLER", "PLAINTEXT", "localhost", 2181),)
    assert [[each.port for each in config.listeners] for config in configs] == [[9092], [9093], [9094]]


@pytest.mark.parametrize("attempt", [BOUND, IN_USE])
def test_a_port_without_listeners_stays_the_clients_port(attempt: Attempt) -> None:
    file = {name: value for name, value in FILE.items() if name != "listeners"}
    config = config_of({**file, "port": "9095", "host.name": "localhost"}, attempt)
    assert config.listeners == (Listener("PLAINTEXT", "PLAINTEXT", "localhost", 9095),)


def test_listeners_of_other_names_keep_their_protocols_beside_the_controllers() -> None:
    file = {
        **FILE,
        "listeners": "INSIDE://:9092",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    founder, meeting_broker = meet(0, (HERE,), None, BOUND), meet(0, (HERE,), None, IN_USE)
    config, _ = BrokerConfig.from_properties(era_properties(file, founder)[0])
    assert [each.name for each in config.controller_listeners] == ["CONTROLLER"]
    config, _ = BrokerConfig.from_properties(era_properties(file, meeting_broker)[0])
    assert config.quorum_listener == ("CONTROLLER", "PLAINTEXT")


@pytest.mark.parametrize("broker_id", ["-1", ""])
def test_an_id_that_was_to_be_generated_is_refused(broker_id: str) -> None:
    file = {name: value for name, value in {**FILE, "broker.id": broker_id}.items() if value}
    with pytest.raises(ConfigError, match=r"need ids that differ: set broker\.id"):
        era_properties(file, meet(0, (HERE,), None, BOUND))


@pytest.mark.parametrize("meeting", [meet(0, (HERE,), None, BOUND), meet(0, (HERE, THERE), None, None)])
def test_the_folder_remembers(meeting: Meeting) -> None:
    assert parse_memory(format_memory(meeting)) == Memory(meeting.role, HERE)


@pytest.mark.parametrize("text", ["", "role=founder\n", "role=king\nserver=a:1\n", "role=broker\nserver=a:1,b:2\n"])
def test_a_memory_that_is_damaged_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"meeting-point.properties cannot be read"):
        parse_memory(text)


def test_a_file_with_roles_is_not_of_the_era() -> None:
    assert is_of_the_era(FILE)
    assert not is_of_the_era({**FILE, "process.roles": "broker"})
    assert not is_of_the_era({"broker.id": "0"})
