"""How many connections a broker has: from one address, at one listener, and in all."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.connection import ClosedError, Connection
from tests.wire.requests import BROKER_RESOURCE

if TYPE_CHECKING:
    from tests.conftest import MakeNode

LIMIT = 4
PATIENCE_S = 1.0


def answers(connection: Connection) -> bool:
    """Whether the broker serves a connection; it may have closed it, or not taken it yet."""
    try:
        connection.call(m.ApiVersionsRequest(), 0, m.ApiVersionsResponse)
    except (ClosedError, TimeoutError):
        return False
    return True


def served(opened: ExitStack, port: int) -> Connection:
    connection = opened.enter_context(Connection(port))
    assert answers(connection)
    return connection


def is_refused(port: int) -> bool:
    """Whether a further connection is closed at once."""
    with Connection(port, PATIENCE_S) as connection:
        try:
            connection.send(m.ApiVersionsRequest(), 0)
        except ClosedError:
            return True
        return connection.is_closed()


def alter_broker(connection: Connection, name: str, value: str) -> None:
    request = m.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name=name, config_operation=0, value=value)
    broker = request.AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name="", configs=[config])
    (answer,) = connection.call(request(resources=[broker]), 1, m.IncrementalAlterConfigsResponse).responses
    assert answer.error_code == Error.NONE, answer.error_message


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_address_has_its_own_limit(make_node: MakeNode, host: str) -> None:
    settings = {"max.connections.per.ip": "1000", "max.connections.per.ip.overrides": f"{host}:{LIMIT},10.1.1.1:1"}
    node = make_node(settings)
    with ExitStack() as opened:
        first = served(opened, node.port)

        def fill() -> bool:
            """The node has connections of its own, which count as well."""
            if is_refused(node.port):
                return True
            served(opened, node.port)
            return False

        wait_until(fill, "the address has reached its limit")
        first.close()
        wait_until(lambda: not is_refused(node.port), "there is room again")


def test_the_limit_of_all_addresses_is_changed_while_the_broker_runs(make_node: MakeNode) -> None:
    node = make_node({})
    with ExitStack() as opened:
        connections = [served(opened, node.port) for _ in range(LIMIT)]
        alter_broker(connections[0], "max.connections.per.ip", str(LIMIT))
        wait_until(lambda: is_refused(node.port), "no more come from this address")
        assert all(map(answers, connections))
        alter_broker(connections[0], "max.connections.per.ip", "1000")
        wait_until(lambda: not is_refused(node.port), "more may come")


def test_connections_beyond_the_limit_of_a_listener_wait(make_node: MakeNode) -> None:
    node = make_node({"listener.name.plaintext.max.connections": str(LIMIT)})
    with ExitStack() as opened:
        first = served(opened, node.port)

        def has_to_wait() -> Connection | None:
            """The node may have connections of its own, which count as well."""
            connection = opened.enter_context(Connection(node.port, PATIENCE_S))
            return None if answers(connection) else connection

        waiting = next(filter(None, (has_to_wait() for _ in range(LIMIT))))
        first.close()
        waiting.socket.settimeout(30)
        waiting.receive(m.ApiVersionsResponse, 0)
