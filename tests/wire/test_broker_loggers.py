"""The levels of a broker's loggers are described and set while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.config_resources import ResourceType
from barnabas.protocol.errors import Error
from tests.wire.test_config_resources import APPEND, DELETE, SET, change

if TYPE_CHECKING:
    from tests.peers import PeerKind
    from tests.wire.connection import Connection

LOGGER = ResourceType.BROKER_LOGGER
FROM_LOGGER = 6


@pytest.fixture
def logger(peer_kind: PeerKind) -> str:
    """One that the broker has."""
    return "kafka.server.KafkaApis" if peer_kind == "kafka" else "barnabas.broker"


def ask(connection: Connection, name: str, keys: list[str] | None) -> m.DescribeConfigsResponse.DescribeConfigsResult:
    request = m.DescribeConfigsRequest
    resource = request.DescribeConfigsResource(resource_type=LOGGER, resource_name=name, configuration_keys=keys)
    (answer,) = connection.call(request(resources=[resource]), 4, m.DescribeConfigsResponse).results
    return answer


def levels(connection: Connection, keys: list[str] | None = None) -> dict[str, str | None]:
    answer = ask(connection, "1", keys)
    assert answer.error_code == Error.NONE
    assert {(each.config_source, each.read_only, each.is_sensitive) for each in answer.configs} <= {
        (FROM_LOGGER, False, False)
    }
    return {each.name: each.value for each in answer.configs}


def test_loggers_are_described(connection: Connection, logger: str) -> None:
    everything = levels(connection)
    assert {"root", logger} <= set(everything)
    assert set(everything.values()) <= {"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"}
    assert set(levels(connection, [logger])) == {logger}
    assert levels(connection, ["no.such.logger"]) == {}


@pytest.mark.parametrize("name", ["", "2", "not a number"])
def test_only_this_brokers_loggers_are_described(connection: Connection, name: str) -> None:
    assert ask(connection, name, None).error_code == Error.INVALID_REQUEST


def test_a_level_is_set_and_removed(connection: Connection, logger: str) -> None:
    before = levels(connection, [logger])
    for level in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"):
        assert change(connection, LOGGER, "1", {logger: (SET, level)}).error_code == Error.NONE
        assert levels(connection, [logger]) == {logger: level}
    assert change(connection, LOGGER, "1", {logger: (DELETE, None)}).error_code == Error.NONE
    assert levels(connection, [logger]) == before


def test_a_level_can_be_validated_only(connection: Connection, logger: str) -> None:
    before = levels(connection, [logger])
    request = m.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name=logger, config_operation=SET, value="TRACE")
    resource = request.AlterConfigsResource(resource_type=LOGGER, resource_name="1", configs=[config])
    asked = request(resources=[resource], validate_only=True)
    (answer,) = connection.call(asked, 1, m.IncrementalAlterConfigsResponse).responses
    assert answer.error_code == Error.NONE
    assert levels(connection, [logger]) == before


@pytest.mark.parametrize(
    ("operation", "level", "error", "why"),
    [
        (SET, "LOUD", Error.INVALID_CONFIG, "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"),
        (SET, "debug", Error.INVALID_CONFIG, "is not a supported log level"),
        (SET, "OFF", Error.INVALID_CONFIG, "is not a supported log level"),
        (SET, None, Error.INVALID_REQUEST, "Null value not supported for"),
        (APPEND, "INFO", Error.INVALID_REQUEST, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
    ],
)
def test_what_is_no_level_is_refused(
    connection: Connection, logger: str, operation: int, level: str | None, error: Error, why: str
) -> None:
    before = levels(connection, [logger])
    answer = change(connection, LOGGER, "1", {logger: (operation, level)})
    assert (answer.error_code, why in (answer.error_message or "")) == (error, True)
    assert levels(connection, [logger]) == before


def test_no_level_is_set_if_one_is_bad(connection: Connection, logger: str) -> None:
    before = levels(connection, [logger])
    answer = change(connection, LOGGER, "1", {logger: (SET, "TRACE"), "no.such.logger": (SET, "TRACE")})
    assert (answer.error_code, answer.error_message) == (Error.INVALID_CONFIG, "Logger no.such.logger does not exist!")
    assert levels(connection, [logger]) == before


def test_the_root_logger_keeps_a_level(connection: Connection) -> None:
    answer = change(connection, LOGGER, "1", {"root": (DELETE, None)})
    assert answer.error_code == Error.INVALID_REQUEST
    assert answer.error_message == "Removing the log level of the root logger is not allowed"


@pytest.mark.parametrize("name", ["", "2", "not a number"])
def test_only_this_brokers_loggers_are_set(connection: Connection, name: str) -> None:
    assert change(connection, LOGGER, name, {"root": (SET, "WARN")}).error_code == Error.INVALID_REQUEST


def test_the_older_call_does_not_know_loggers(connection: Connection) -> None:
    request = m.AlterConfigsRequest
    config = request.AlterableConfig(name="root", value="INFO")
    resource = request.AlterConfigsResource(resource_type=LOGGER, resource_name="1", configs=[config])
    (answer,) = connection.call(request(resources=[resource]), 2, m.AlterConfigsResponse).responses
    assert answer.error_code == Error.INVALID_REQUEST
