"""Properties of Java's clients in librdkafka's terms."""

from __future__ import annotations

import pytest

from barnabas.cli.kafka.rdkafka_properties import CONSUMER, PRODUCER, rdkafka_settings
from barnabas.cli.kafka.tool import ToolError

SERVERS = {"bootstrap.servers": "localhost:9092"}


def test_names_and_values_become_those_of_librdkafka() -> None:
    settings = rdkafka_settings(SERVERS | {"retries": " 3 ", "send.buffer.bytes": "7", "acks": "all"}, PRODUCER)
    assert settings == {
        "bootstrap.servers": "localhost:9092",
        "log_level": 0,
        "message.send.max.retries": 3,
        "socket.send.buffer.bytes": 7,
        "acks": "all",
    }


def test_numbers_that_librdkafka_would_refuse_become_the_nearest() -> None:
    settings = rdkafka_settings(SERVERS | {"batch.size": "0", "linger.ms": "99999999"}, PRODUCER)
    assert (settings["batch.size"], settings["linger.ms"]) == (1, 900_000)


def test_what_nobody_knows_and_what_has_no_match_is_left_out() -> None:
    assert rdkafka_settings(SERVERS | {"nobody.knows": "x", "max.block.ms": "5"}, PRODUCER).keys() == {
        "bootstrap.servers",
        "log_level",
    }


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("acks", "2", "String must be one of: all, -1, 0, 1"),
        ("linger.ms", "x", "Not a number of type LONG"),
        ("batch.size", "3000000000", "Not a number of type INT"),
        ("linger.ms", "-1", "Value must be at least 0"),
        ("enable.idempotence", "maybe", "Expected value to be either true or false"),
    ],
)
def test_what_java_refuses_is_refused_in_its_words(name: str, value: str, problem: str) -> None:
    with pytest.raises(ToolError) as refused:
        rdkafka_settings(SERVERS | {name: value}, PRODUCER)
    assert refused.value.message == (
        f"org.apache.kafka.common.config.ConfigException: Invalid value {value} for configuration {name}: {problem}"
    )


def test_a_group_whose_broker_decides_is_not_told_what_only_its_members_would() -> None:
    given = SERVERS | {"group.protocol": "consumer", "session.timeout.ms": "9000", "group.id": "g"}
    assert "session.timeout.ms" not in rdkafka_settings(given, CONSUMER)
    assert rdkafka_settings(given | {"group.protocol": "classic"}, CONSUMER)["session.timeout.ms"] == 9000


def test_assignors_are_known_by_their_classes() -> None:
    package = "org.apache.kafka.clients.consumer."
    both = f"{package}RangeAssignor,{package}CooperativeStickyAssignor"
    for given, name in ((both, "range"), (f"{package}CooperativeStickyAssignor", "cooperative-sticky")):
        settings = rdkafka_settings(SERVERS | {"partition.assignment.strategy": given}, CONSUMER)
        assert settings["partition.assignment.strategy"] == name
    with pytest.raises(ToolError, match="Failed to construct kafka consumer"):
        rdkafka_settings(SERVERS | {"partition.assignment.strategy": "no.Such"}, CONSUMER)


def test_a_login_of_javas_becomes_one_of_librdkafkas() -> None:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = rdkafka_settings(
        SERVERS
        | {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{login} required username="alice" password="secret";',
            "ssl.truststore.location": "/ca.pem",
            "ssl.truststore.type": "PEM",
        },
        PRODUCER,
    )
    assert settings["security.protocol"] == "sasl_ssl"
    assert (settings["sasl.mechanism"], settings["sasl.username"], settings["sasl.password"]) == (
        "PLAIN",
        "alice",
        "secret",
    )
    assert settings["ssl.ca.location"] == "/ca.pem"


def test_a_login_that_nothing_uses_is_refused() -> None:
    with pytest.raises(ToolError, match=r"sasl\.mechanism"):
        rdkafka_settings(SERVERS | {"sasl.mechanism": "PLAIN"}, PRODUCER)
