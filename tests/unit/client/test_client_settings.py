"""Options become settings: under both sets of names, with one value each, and refused where they cannot be right."""

from __future__ import annotations

import pickle

import pytest

from barnabas.client.client_settings import Address, ClientSettings, SettingsError

SECRET = "open sesame"


def settings(**options: str) -> ClientSettings:
    given = {name.replace("_", "."): value for name, value in options.items()}
    return ClientSettings.from_options({"bootstrap.servers": "broker:9092"} | given)


def refusal(**options: str) -> str:
    with pytest.raises(SettingsError) as caught:
        settings(**options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("one:9092", [("one", 9092)]),
        ("one:9092, two:9093,", [("one", 9092), ("two", 9093)]),
        ("[::1]:9092,10.0.0.1:1", [("::1", 9092), ("10.0.0.1", 1)]),
        ("SASL_SSL://broker-1.example.com:9092", [("broker-1.example.com", 9092)]),
    ],
)
def test_bootstrap_servers_are_a_list_of_hosts_and_ports(text: str, addresses: list[tuple[str, int]]) -> None:
    assert ClientSettings.from_options({"bootstrap.servers": text}).bootstrap_servers == tuple(
        Address(*each) for each in addresses
    )


@pytest.mark.parametrize(
    "text", ["", " , ", "broker", "broker:", ":9092", "broker:0", "broker:65536", "a b:1", "::1:9092"]
)
def test_bootstrap_servers_that_are_none_are_refused_by_name(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^bootstrap\.servers "):
        ClientSettings.from_options({"bootstrap.servers": text})


def test_bootstrap_servers_are_needed() -> None:
    with pytest.raises(SettingsError, match=r"^bootstrap\.servers is missing"):
        ClientSettings.from_options({})


def test_names_of_librdkafka_mean_what_those_of_the_java_client_mean() -> None:
    ours = ClientSettings.from_options({"metadata.broker.list": "broker:9092", "socket.timeout.ms": "5"})
    assert ours == settings(request_timeout_ms="5")


def test_two_names_of_one_thing_must_agree() -> None:
    with pytest.raises(SettingsError, match=r"request\.timeout\.ms and socket\.timeout\.ms .* differ"):
        settings(request_timeout_ms="5", socket_timeout_ms="6")
    assert settings(request_timeout_ms="5", socket_timeout_ms="5").request_timeout_ms == 5


@pytest.mark.parametrize("text", ["0", "-1", "soon", "", "1.5", "3000000000", "٣"])
def test_a_time_is_a_positive_whole_number(text: str) -> None:
    assert refusal(request_timeout_ms=text).startswith(f"request.timeout.ms is {text!r}")


def test_options_that_mean_nothing_here_are_told() -> None:
    assert settings(group_id="g", linger_ms="5").unused == ("group.id", "linger.ms")


def test_what_is_not_used_makes_no_difference() -> None:
    assert settings(group_id="g") == settings(group_id="h")
    assert hash(settings(group_id="g")) == hash(settings())


def test_settings_travel_and_are_found_again() -> None:
    original = settings(
        security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="alice", sasl_password=SECRET
    )
    copy = pickle.loads(pickle.dumps(original))
    assert {original: "connections"}[copy] == "connections"
    assert copy.security.sasl.password == SECRET


def test_secrets_are_not_shown() -> None:
    shown = repr(
        settings(
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="alice",
            sasl_password=SECRET,
            ssl_key_pem=SECRET,
            ssl_certificate_pem="certificate",
            ssl_key_password=SECRET,
        )
    )
    assert "alice" in shown
    assert SECRET not in shown
