"""Listeners that come and go while the broker runs, by changes of `listeners`."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.config_resources import ResourceType
from barnabas.protocol.errors import Error
from tests.peers import HOST, free_port, wait_until
from tests.wire.connection import Connection
from tests.wire.test_config_resources import DELETE, SET, change, described
from tests.wire.test_connection_limits import PATIENCE_S, answers

if TYPE_CHECKING:
    from tests.conftest import MakeNode
    from tests.peers import PeerKind

PROTOCOLS = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTRA:PLAINTEXT,OTHER:PLAINTEXT"


def alter(connection: Connection, **settings: str | None) -> Error:
    operations = {key.replace("_", "."): (DELETE if value is None else SET, value) for key, value in settings.items()}
    return Error(change(connection, ResourceType.BROKER, "1", operations).error_code)


def listeners(connection: Connection) -> str:
    value, _ = described(connection, ResourceType.BROKER, "1")["listeners"]
    assert value is not None
    return value


def serves(port: int) -> bool:
    try:
        with Connection(port, PATIENCE_S) as connection:
            return answers(connection)
    except ConnectionRefusedError:
        return False


def brokers_at(port: int) -> list[tuple[int, int]]:
    """The brokers, with their ports, that a client is told of at this listener."""
    with Connection(port) as connection:
        answer = connection.call(m.MetadataRequest(topics=[]), 9, m.MetadataResponse)
    return [(each.node_id, each.port) for each in answer.brokers]


def test_a_listener_is_added_and_removed_while_the_broker_runs(make_node: MakeNode) -> None:
    advertised = f"PLAINTEXT://{HOST}:{free_port()}"
    node = make_node({"advertised.listeners": advertised, "listener.security.protocol.map": PROTOCOLS})
    with Connection(node.port) as connection:
        static = listeners(connection)
        extra, other = free_port(), free_port()
        assert alter(connection, listeners=f"{static},EXTRA://{HOST}:{extra}") is Error.NONE
        wait_until(lambda: serves(extra), "the new listener serves")
        assert listeners(connection) == f"{static},EXTRA://{HOST}:{extra}"
        assert (
            alter(connection, listeners=f"{static},EXTRA://{HOST}:{free_port()},OTHER://{HOST}:{other}") is Error.NONE
        )
        wait_until(lambda: serves(other), "another listener serves")
        assert serves(extra), "a listener stays where it is as long as it is there"
        assert alter(connection, listeners=f"{static},OTHER://{HOST}:{other}") is Error.NONE
        wait_until(lambda: not serves(extra), "the listener is gone")
        with socket.create_server((HOST, 0)) as taken:
            port = taken.getsockname()[1]
            assert alter(connection, listeners=f"{static},EXTRA://{HOST}:{port}") is Error.NONE
            wait_until(lambda: not serves(other), "the listener is gone")
        assert answers(connection), "a port that is taken does not keep the broker from serving others"
        assert alter(connection, listeners=None) is Error.NONE
        wait_until(lambda: listeners(connection) == static, "the broker has its own listeners again")


def test_what_cannot_be_the_listeners_is_refused(make_node: MakeNode) -> None:
    advertised = f"PLAINTEXT://{HOST}:{free_port()}"
    node = make_node({"advertised.listeners": advertised, "listener.security.protocol.map": PROTOCOLS})
    with Connection(node.port) as connection:
        static = listeners(connection)
        with_extra = f"{static},EXTRA://{HOST}:{free_port()}"
        assert alter(connection, listeners=with_extra) is Error.NONE
        wrong = [
            f"{static},OTHER://{HOST}:{node.port}",
            f"{static},UNMAPPED://{HOST}:{free_port()}",
            f"{static},EXTRA",
            f"EXTRA://{HOST}:{free_port()}",
            "",
        ]
        assert {each: alter(connection, listeners=each) for each in wrong} == dict.fromkeys(
            wrong, Error.INVALID_REQUEST
        )
        for protocols in (
            "PLAINTEXT:PLAINTEXT",
            PROTOCOLS.replace("EXTRA:PLAINTEXT", "EXTRA:SSL"),
            "EXTRA",
            "EXTRA:NO",
        ):
            assert alter(connection, listener_security_protocol_map=protocols) is Error.INVALID_REQUEST, protocols
        assert alter(connection, listener_security_protocol_map=f"{PROTOCOLS},NEW:PLAINTEXT") is Error.NONE
        assert alter(connection, advertised_listeners=advertised) is Error.INVALID_REQUEST
        of_all = change(connection, ResourceType.BROKER, "", {"listeners": (SET, static)})
        assert of_all.error_code == Error.INVALID_REQUEST
        assert listeners(connection) == with_extra


def test_clients_are_told_of_a_new_listener_where_all_are_advertised(make_node: MakeNode, peer_kind: PeerKind) -> None:
    if peer_kind == "kafka":
        pytest.skip("Apache Kafka tells nobody of a listener that is added")
    node = make_node({})
    with Connection(node.port) as connection:
        static = listeners(connection)
        extra = free_port()
        added = f"{static},EXTRA://{HOST}:{extra}"
        assert alter(connection, listeners=added, listener_security_protocol_map=PROTOCOLS) is Error.NONE
        wait_until(lambda: serves(extra), "the new listener serves")
        wait_until(lambda: brokers_at(extra) == [(1, extra)], "its clients are told of it")
        assert brokers_at(node.port) == [(1, node.port)]
    node.stop()
    node.start()
    wait_until(lambda: serves(extra), "it is there after a restart, too")
    assert brokers_at(extra) == [(1, extra)]
    with Connection(extra) as kept, Connection(node.port) as connection:
        assert answers(kept)
        assert alter(connection, listeners=None) is Error.NONE
        assert kept.is_closed()
        wait_until(lambda: not serves(extra), "the listener is gone")
