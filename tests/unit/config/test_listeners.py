"""Listeners: which are accepted, which are refused by name, and what clients are told to connect to."""

import pytest

from barnabas.config import listeners
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listeners import require_plaintext
from barnabas.config.settings import ConfigError
from barnabas.net.endpoint import Listener

CANONICAL = "node1.example.org"


@pytest.fixture(autouse=True)
def this_machine_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "canonical_host_name", lambda: CANONICAL)


def node(**settings: str) -> BrokerConfig:
    """A node of both roles; `advertised_listeners="…"` stands for `advertised.listeners`."""
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    return BrokerConfig.from_properties(properties)[0]


def refusal(**settings: str) -> str:
    with pytest.raises(ConfigError) as refused:
        node(**settings)
    return str(refused.value)


def test_broker_and_controller_listeners_are_told_apart() -> None:
    config = node()
    assert config.listeners == (Listener("PLAINTEXT", "PLAINTEXT", "localhost", 9092),)
    assert config.controller_listeners == (Listener("CONTROLLER", "PLAINTEXT", "localhost", 9093),)
    assert config.advertised_listeners == config.listeners


@pytest.mark.parametrize(
    ("entry", "listener"),
    [
        ("plaintext://localhost:9092", Listener("PLAINTEXT", "PLAINTEXT", "localhost", 9092)),
        ("PLAINTEXT://:9092", Listener("PLAINTEXT", "PLAINTEXT", "", 9092)),
        ("PLAINTEXT://127.0.0.1:0", Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 0)),
        ("PLAINTEXT://[::1]:9092", Listener("PLAINTEXT", "PLAINTEXT", "::1", 9092)),
        ("PLAINTEXT://my_host:9092", Listener("PLAINTEXT", "PLAINTEXT", "my_host", 9092)),
    ],
)
def test_a_listener_is_parsed(entry: str, listener: Listener) -> None:
    assert node(listeners=f"{entry},CONTROLLER://localhost:9093").listeners == (listener,)
    assert str(listener) == entry.replace("plaintext", "PLAINTEXT")


@pytest.mark.parametrize(
    "entry", ["PLAINTEXT://localhost", "PLAINTEXT:localhost:9092", "localhost:9092", "PLAINTEXT://h:99999", "://h:1"]
)
def test_a_listener_that_cannot_be_read_is_refused_as_it_was_written(entry: str) -> None:
    assert f"Unable to parse {entry} in listeners" in refusal(listeners=f"{entry},CONTROLLER://localhost:9093")


def test_a_listener_name_of_ones_own_needs_a_mapping() -> None:
    listeners = "FRONT://localhost:9092,CONTROLLER://localhost:9093"
    message = refusal(listeners=listeners)
    assert "No security protocol defined for listener FRONT" in message
    assert "listener.security.protocol.map" in message
    mapped = node(
        listeners=listeners,
        listener_security_protocol_map="FRONT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        inter_broker_listener_name="front",
    )
    assert mapped.listeners == (Listener("FRONT", "PLAINTEXT", "localhost", 9092),)


def test_a_map_of_ones_own_must_hold_the_controller_too() -> None:
    message = refusal(listener_security_protocol_map="PLAINTEXT:PLAINTEXT")
    assert "No security protocol defined for listener CONTROLLER" in message


@pytest.mark.parametrize(
    ("protocol_map", "complaint"),
    [
        ("PLAINTEXT:FOO", "Invalid security protocol `FOO` defined in listener.security.protocol.map"),
        ("PLAINTEXT", "entries have the form NAME:PROTOCOL"),
    ],
)
def test_a_broken_map_is_refused(protocol_map: str, complaint: str) -> None:
    assert complaint in refusal(listener_security_protocol_map=protocol_map)


@pytest.mark.parametrize(
    ("listeners", "complaint"),
    [
        ("PLAINTEXT://localhost:9092,CONTROLLER://localhost:9092", "Each listener must have a different port"),
        ("PLAINTEXT://a:1,PLAINTEXT://b:2,CONTROLLER://localhost:9093", "contains PLAINTEXT more than once"),
        ("PLAINTEXT://localhost:9092", "controller.listener.names must contain at least one value"),
        ("CONTROLLER://localhost:9093", "There must be at least one broker advertised listener."),
    ],
)
def test_listeners_that_do_not_fit_together_are_refused(listeners: str, complaint: str) -> None:
    assert complaint in refusal(listeners=listeners)


def test_one_port_may_serve_an_ipv4_and_an_ipv6_address() -> None:
    both = "PLAINTEXT://127.0.0.1:9092,SIX://[::1]:9092,CONTROLLER://localhost:9093"
    protocols = "PLAINTEXT:PLAINTEXT,SIX:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert len(node(listeners=both, listener_security_protocol_map=protocols).listeners) == 2
    two_of_a_kind = both.replace("[::1]", "127.0.0.2")
    assert "different port" in refusal(listeners=two_of_a_kind, listener_security_protocol_map=protocols)


def test_any_number_of_listeners_may_ask_for_a_free_port() -> None:
    assert [listener.port for listener in node(listeners="PLAINTEXT://h:0,CONTROLLER://h:0").listeners] == [0]


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_secure_listener_is_refused_by_name_until_there_is_security(protocol: str) -> None:
    config = node(
        listeners=f"PLAINTEXT://localhost:9092,{protocol}://:9091,CONTROLLER://localhost:9093",
        listener_security_protocol_map=f"PLAINTEXT:PLAINTEXT,{protocol}:{protocol},CONTROLLER:PLAINTEXT",
    )
    with pytest.raises(ConfigError, match=rf"listener {protocol}://:9091 uses {protocol}, which is not supported yet"):
        require_plaintext(config.listeners)
    require_plaintext(config.listeners[:1])


def test_an_empty_host_is_advertised_under_the_machines_name() -> None:
    config = node(listeners="PLAINTEXT://:9092,CONTROLLER://:9093")
    assert config.advertised_listeners == (Listener("PLAINTEXT", "PLAINTEXT", CANONICAL, 9092),)
    assert config.advertised_controller_listeners == (Listener("CONTROLLER", "PLAINTEXT", CANONICAL, 9093),)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_listening_everywhere_needs_an_address_to_advertise_and_the_message_has_the_line(host: str) -> None:
    listeners = f"PLAINTEXT://{host}:9092,CONTROLLER://localhost:9093"
    assert f"add advertised.listeners=PLAINTEXT://{CANONICAL}:9092" in refusal(listeners=listeners)
    config = node(listeners=listeners, advertised_listeners="PLAINTEXT://broker.example.org:19092")
    assert config.advertised_listeners == (Listener("PLAINTEXT", "PLAINTEXT", "broker.example.org", 19092),)


def test_an_address_that_nobody_can_connect_to_is_not_advertised() -> None:
    message = refusal(advertised_listeners="PLAINTEXT://0.0.0.0:9092")
    assert "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0" in message


def test_a_controller_that_listens_everywhere_is_known_by_the_machines_name() -> None:
    config = node(listeners="PLAINTEXT://localhost:9092,CONTROLLER://0.0.0.0:9093")
    assert config.advertised_controller_listeners == (Listener("CONTROLLER", "PLAINTEXT", CANONICAL, 9093),)


def test_a_controller_may_be_advertised_under_another_address() -> None:
    config = node(advertised_listeners="CONTROLLER://c:1,PLAINTEXT://p:2")
    assert config.advertised_listeners == (Listener("PLAINTEXT", "PLAINTEXT", "p", 2),)
    assert config.advertised_controller_listeners == (Listener("CONTROLLER", "PLAINTEXT", "c", 1),)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"advertised_listeners": "PLAINTEXT://h:1,SSL://h:2"},
            (
                "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. "
                "Found PLAINTEXT,SSL. The valid options based on the current configuration are PLAINTEXT,CONTROLLER"
            ),
        ),
        ({"advertised_listeners": "PLAINTEXT://h:1,CONTROLLER://0.0.0.0:2"}, "the nonroutable meta-address 0.0.0.0"),
        ({"inter_broker_listener_name": "NOPE"}, "not found in listener.security.protocol.map"),
        ({"inter_broker_listener_name": "SSL"}, "must be a listener name defined in advertised.listeners"),
        (
            {"inter_broker_listener_name": "PLAINTEXT", "security_inter_broker_protocol": "PLAINTEXT"},
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
        ),
        ({"early_start_listeners": "FOO"}, "early.start.listeners contains listener FOO"),
        ({"process_roles": "broker"}, "must not contain a value appearing in the 'listeners' configuration"),
        ({"process_roles": "controller"}, "The listeners config must only contain KRaft controller listeners"),
    ],
)
def test_names_that_lead_nowhere_are_refused(settings: dict[str, str], complaint: str) -> None:
    assert complaint in refusal(**settings)
