"""Roles and quorums: which combinations of settings a node starts with, and what it says to the others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tools import apache_kafka

from barnabas.config import settings
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listeners import require_plaintext_quorum
from barnabas.config.properties import format_properties
from barnabas.config.quorum import QuorumServer, QuorumVoter
from barnabas.config.settings import BROKER, TOPIC, ConfigError
from barnabas.net.endpoint import Listener

QUORUM = {"node.id": "1", "controller.listener.names": "CONTROLLER"}
AT = {"controller.quorum.bootstrap.servers": "localhost:9093"}
BROKER_ONLY = {**QUORUM, **AT, "process.roles": "broker", "listeners": "PLAINTEXT://localhost:9092"}
CONTROLLER_ONLY = {**QUORUM, **AT, "process.roles": "controller", "listeners": "CONTROLLER://localhost:9093"}
COMBINED = {
    **QUORUM,
    **AT,
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
}
NO_QUORUM = (
    "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap controllers "
    "or controller.quorum.voters must contain a parseable set of controllers."
)
MUST_VOTE = "If process.roles contains the 'controller' role, the node id 1 must be included in the set of voters"
UNMAPPED = "defined in controller.listener.names not found in listener.security.protocol.map  (an explicit security"
ONLY_CONTROLLERS = "The listeners config must only contain KRaft controller listeners from controller.listener.names"
NO_CONTROLLER = (
    "controller.listener.names must contain at least one value appearing in the 'listeners' configuration when running "
    "the KRaft controller role"
)
UNKNOWN_CONTROLLER = (
    "controller.listener.names must only contain values appearing in the 'listeners' configuration when running the "
    "KRaft controller role"
)
NO_BROKER = (
    "There must be at least one broker advertised listener. Perhaps all listeners appear in controller.listener.names?"
)
NOT_ADVERTISED = "inter.broker.listener.name must be a listener name defined in advertised.listeners."
OTHERS = {"controller.quorum.voters": "2@localhost:9094,3@localhost:9095"}
WITH_SELF = {"controller.quorum.voters": "1@localhost:9093,2@localhost:9094"}
UNNAMED = {"controller.quorum.bootstrap.servers": ""}
TWO_NAMES = {"controller.listener.names": "CONTROLLER,OTHER"}

# name: (a node, what is changed of its settings, how the refusal begins; empty if Kafka starts)
CASES: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "broker": (BROKER_ONLY, {}, ""),
    "controller": (CONTROLLER_ONLY, {}, ""),
    "both": (COMBINED, {}, ""),
    "voters besides bootstrap servers": (COMBINED, WITH_SELF, ""),
    "voters instead of bootstrap servers": (COMBINED, {**UNNAMED, **WITH_SELF}, ""),
    "a broker without a quorum": (BROKER_ONLY, UNNAMED, NO_QUORUM),
    "a controller without a quorum": (CONTROLLER_ONLY, UNNAMED, NO_QUORUM),
    "both roles without a quorum": (COMBINED, UNNAMED, NO_QUORUM),
    "a broker among the voters": (
        BROKER_ONLY,
        WITH_SELF,
        (
            "If process.roles contains just the 'broker' role, the node id 1 must not be included in the set of voters "
            "controller.quorum.voters=Set(1, 2)"
        ),
    ),
    "a controller not among the voters": (
        CONTROLLER_ONLY,
        OTHERS,
        f"{MUST_VOTE} controller.quorum.voters=Set(2, 3)",
    ),
    "both roles, not among the voters": (COMBINED, OTHERS, f"{MUST_VOTE} controller.quorum.voters=Set(2, 3)"),
    "a broker with a controller listener": (
        BROKER_ONLY,
        {"listeners": COMBINED["listeners"]},
        (
            "controller.listener.names must not contain a value appearing in the 'listeners' configuration when "
            "running KRaft with just the broker role"
        ),
    ),
    "a broker that has no protocol for controllers": (
        BROKER_ONLY,
        {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
        f"Controller listener with name CONTROLLER {UNMAPPED}",
    ),
    "a broker that has no protocol for the second listener of controllers": (
        BROKER_ONLY,
        {**TWO_NAMES, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"},
        f"Controller listener with name OTHER {UNMAPPED}",
    ),
    "a secure broker that has no protocol for controllers": (
        BROKER_ONLY,
        {"listeners": "SSL://localhost:9092", "security.inter.broker.protocol": "SSL"},
        f"Controller listener with name CONTROLLER {UNMAPPED}",
    ),
    "a broker that names two listeners of controllers": (BROKER_ONLY, TWO_NAMES, ""),
    "a controller with a broker's listener": (
        CONTROLLER_ONLY,
        {"listeners": COMBINED["listeners"]},
        ONLY_CONTROLLERS,
    ),
    "a controller with a broker's listener only": (
        CONTROLLER_ONLY,
        {"listeners": BROKER_ONLY["listeners"]},
        ONLY_CONTROLLERS,
    ),
    "a controller with an absent listener": (CONTROLLER_ONLY, TWO_NAMES, UNKNOWN_CONTROLLER),
    "both roles with an absent listener": (COMBINED, TWO_NAMES, UNKNOWN_CONTROLLER),
    "both roles without a controller's listener": (
        COMBINED,
        {"listeners": BROKER_ONLY["listeners"]},
        NO_CONTROLLER,
    ),
    "both roles without a broker's listener": (COMBINED, {"listeners": CONTROLLER_ONLY["listeners"]}, NO_BROKER),
    "both roles, only the controller advertised": (
        COMBINED,
        {"advertised.listeners": "CONTROLLER://h:1"},
        NO_BROKER,
    ),
    "both roles, only the broker advertised": (COMBINED, {"advertised.listeners": "PLAINTEXT://h:1"}, ""),
    "both roles advertised": (COMBINED, {"advertised.listeners": "PLAINTEXT://h:1,CONTROLLER://h:2"}, ""),
    "a controller that advertises an address": (CONTROLLER_ONLY, {"advertised.listeners": "CONTROLLER://h:1"}, ""),
    "a controller that advertises a broker's listener": (
        CONTROLLER_ONLY,
        {"advertised.listeners": "PLAINTEXT://h:1"},
        "",
    ),
    "a controller advertised everywhere": (
        COMBINED,
        {"advertised.listeners": "PLAINTEXT://h:1,CONTROLLER://0.0.0.0:2"},
        "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address",
    ),
    "a controller that listens everywhere": (
        COMBINED,
        {"listeners": "PLAINTEXT://localhost:9092,CONTROLLER://0.0.0.0:9093"},
        "",
    ),
    "brokers that speak by the controllers' listener": (
        COMBINED,
        {"inter.broker.listener.name": "CONTROLLER"},
        NOT_ADVERTISED,
    ),
    "brokers that speak by an absent protocol": (
        BROKER_ONLY,
        {"security.inter.broker.protocol": "SSL"},
        NOT_ADVERTISED,
    ),
    "an absent listener that is advertised": (
        BROKER_ONLY,
        {"advertised.listeners": "PLAINTEXT://h:1,SSL://h:2"},
        (
            "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found "
            "PLAINTEXT,SSL. The valid options based on the current configuration are PLAINTEXT"
        ),
    ),
    "an early listener that the node does not have": (
        BROKER_ONLY,
        {"early.start.listeners": "CONTROLLER"},
        (
            "early.start.listeners contains listener CONTROLLER, but this is not contained in listeners or "
            "controller.listener.names"
        ),
    ),
    "an unknown role": (
        COMBINED,
        {"process.roles": "broker,foo"},
        "Invalid value foo for configuration process.roles: String must be one of: broker, controller",
    ),
    "a voter without a port": (
        COMBINED,
        {"controller.quorum.voters": "1@localhost"},
        (
            "Failed to parse host name from entry 1@localhost for the configuration controller.quorum.voters. Each "
            "entry should be in the form `{id}@{host}:{port}`."
        ),
    ),
    "a voter without an id": (
        COMBINED,
        {"controller.quorum.voters": "localhost:9093"},
        (
            "Invalid configuration value for controller.quorum.voters. Each entry should be in the form "
            "`{id}@{host}:{port}`."
        ),
    ),
    "a voter whose id is no number": (
        COMBINED,
        {"controller.quorum.voters": "x@localhost:9093"},
        "Failed to parse voter ID as an integer from x",
    ),
    "a voter at no port": (COMBINED, {"controller.quorum.voters": "1@localhost:99999"}, "port out of range:99999"),
    "a voter that is named twice": (COMBINED, {"controller.quorum.voters": "1@localhost:9093,1@localhost:9094"}, ""),
    "a bootstrap server without a port": (
        COMBINED,
        {"controller.quorum.bootstrap.servers": "localhost"},
        (
            "Failed to parse host name from localhost for the configuration controller.quorum.bootstrap.servers. Each "
            'entry should be in the form "{host}:{port}"'
        ),
    ),
    "a bootstrap server at no port": (
        COMBINED,
        {"controller.quorum.bootstrap.servers": "localhost:99999"},
        "port out of range:99999",
    ),
    "a broker that is to join the voters": (
        BROKER_ONLY,
        {"controller.quorum.auto.join.enable": "true"},
        "controller.quorum.auto.join.enable is only supported when process.roles contains the 'controller' role.",
    ),
    "two ids": (COMBINED, {"broker.id": "2"}, "You must set `node.id` to the same value as `broker.id`."),
    "followers that may not wait for their leader": (
        COMBINED,
        {"replica.lag.time.max.ms": "400"},
        (
            "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent "
            "frequent changes in ISR"
        ),
    ),
    "followers whose fetches time out before they wait": (
        COMBINED,
        {"replica.socket.timeout.ms": "400"},
        (
            "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary "
            "socket timeouts"
        ),
    ),
    "heartbeats as rare as the session is long": (COMBINED, {"broker.heartbeat.interval.ms": "9000"}, ""),
    "no fetchers": (
        COMBINED,
        {"num.replica.fetchers": "0"},
        "Invalid value 0 for configuration num.replica.fetchers: Value must be at least 1",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_roles_and_quorum_are_accepted_or_refused_with_the_reason(name: str) -> None:
    node, changes, complaint = CASES[name]
    if not complaint:
        BrokerConfig.from_properties({**node, **changes})
        return
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_properties({**node, **changes})
    assert str(refused.value).startswith(complaint)
    assert refused.value.key in settings.BROKER


@pytest.mark.kafka
@pytest.mark.usefixtures("apache_kafka_runs")
def test_kafka_says_the_same(tmp_path: Path) -> None:
    files = {}
    for number, (name, (node, changes, _)) in enumerate(CASES.items()):
        file = tmp_path / f"{number}.properties"
        file.write_text(format_properties({**node, **changes}))
        files[str(file)] = name
    java = apache_kafka.java_command()
    source = Path(__file__).with_name("ReadConfigs.java")
    done = subprocess.run([*java, str(source), *files], capture_output=True, text=True, check=True, timeout=100)
    said = dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)
    for path, name in files.items():
        complaint = CASES[name][2]
        theirs = said[path].removeprefix("requirement failed: ")
        assert theirs.startswith(complaint), name
        assert bool(theirs) == bool(complaint), (name, theirs)


def test_a_broker_knows_how_to_reach_the_quorum() -> None:
    config, _ = BrokerConfig.from_properties({**BROKER_ONLY, "controller.quorum.bootstrap.servers": "a:1,[::1]:2"})
    assert config.is_broker
    assert not config.is_controller
    assert config.quorum_listener == ("CONTROLLER", "PLAINTEXT")
    assert config.quorum_servers == (QuorumServer("a", 1), QuorumServer("::1", 2))
    assert config.quorum_voters == ()
    assert config.controller_listeners == config.advertised_controller_listeners == ()
    assert config.inter_broker_listener_name == "PLAINTEXT"


def test_controllers_behind_tls_are_refused_by_name_until_there_is_security() -> None:
    config, _ = BrokerConfig.from_properties({**BROKER_ONLY, "controller.listener.names": "SSL"})
    with pytest.raises(ConfigError, match="reached by listener SSL, which uses SSL; that is not supported yet"):
        require_plaintext_quorum(config.quorum_listener)
    require_plaintext_quorum(BrokerConfig.from_properties(BROKER_ONLY)[0].quorum_listener)


def test_voters_are_found_where_the_settings_say() -> None:
    voters = "1@a:9093,2@b:9093,3@[::1]:9093"
    config, _ = BrokerConfig.from_properties({**CONTROLLER_ONLY, **UNNAMED, "controller.quorum.voters": voters})
    assert config.quorum_voters == (
        QuorumVoter(1, "a", 9093),
        QuorumVoter(2, "b", 9093),
        QuorumVoter(3, "::1", 9093),
    )
    assert config.quorum_servers == (QuorumServer("a", 9093), QuorumServer("b", 9093), QuorumServer("::1", 9093))
    assert config.listeners == config.advertised_listeners == ()
    assert config.controller_listeners == (Listener("CONTROLLER", "PLAINTEXT", "localhost", 9093),)


def test_the_listener_between_brokers_has_its_name_from_either_setting() -> None:
    listeners = {
        "listeners": "PLAINTEXT://localhost:9092,INSIDE://localhost:9094",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    by_name, _ = BrokerConfig.from_properties({**BROKER_ONLY, **listeners, "inter.broker.listener.name": "inside"})
    assert by_name.inter_broker_listener_name == "INSIDE"
    by_protocol, _ = BrokerConfig.from_properties({**BROKER_ONLY, **listeners})
    assert by_protocol.inter_broker_listener_name == "PLAINTEXT"


def test_heartbeats_that_come_too_late_and_names_that_are_not_used_are_warned_of() -> None:
    _, warnings = BrokerConfig.from_properties({**BROKER_ONLY, **TWO_NAMES, "broker.heartbeat.interval.ms": "5000"})
    assert any(
        text.startswith(
            "broker.heartbeat.interval.ms (5000 ms) must be less than or equal to half of the "
            "broker.session.timeout.ms (9000 ms)"
        )
        for text in warnings
    )
    assert any("only the first will be used since process.roles=broker: CONTROLLER, OTHER" in text for text in warnings)


def test_a_setting_is_described_when_this_version_acts_on_it() -> None:
    columns = ["num.replica.fetchers", "INT", "1", "[1,...]", "cluster-wide", "-", "Fetchers."]
    silent = settings.Setting("broker", columns)
    assert not silent.acts
    assert silent.documentation == settings.NOT_ACTING
    for setting in (BROKER["replica.lag.time.max.ms"], TOPIC["leader.replication.throttled.replicas"]):
        assert setting.acts
        assert setting.documentation != settings.NOT_ACTING
