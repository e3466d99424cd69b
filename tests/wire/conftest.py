"""A raw connection to the shared node, and a topic of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.wire.connection import Connection
from tests.wire.groups import await_coordinator
from tests.wire.requests import Topic, create_topic
from tests.wire.transactions import Producer, await_transactions, init, init_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.peers import Peer


@pytest.fixture
def connection(node: Peer) -> Iterator[Connection]:
    with Connection(node.port) as connection:
        yield connection


@pytest.fixture
def connect(node: Peer) -> Iterator[Callable[[], Connection]]:
    """Further connections; all are closed at the end."""
    opened: list[Connection] = []

    def open_one() -> Connection:
        opened.append(Connection(node.port))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture
def wire_topic(connection: Connection, topic: str) -> Topic:
    """A topic of one partition."""
    return create_topic(connection, topic)


@pytest.fixture
def group_connect(group_node: Peer) -> Iterator[Callable[[], Connection]]:
    """Connections to the node for groups; all are closed at the end."""
    opened: list[Connection] = []

    def open_one() -> Connection:
        opened.append(Connection(group_node.port))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture
def group_connection(group_connect: Callable[[], Connection], group: str) -> Connection:
    """A connection to the node for groups, which is ready for the test's own group."""
    connection = group_connect()
    await_coordinator(connection, group)
    return connection


@pytest.fixture
def group_topic(group_connection: Connection, topic: str) -> Topic:
    """A topic of two partitions on the node for groups."""
    return create_topic(group_connection, topic, partitions=2)


@pytest.fixture
def producer(group_connection: Connection, transactional_id: str) -> Producer:
    """A transactional producer that has written nothing yet."""
    await_transactions(group_connection, transactional_id)
    return init(group_connection, init_request(transactional_id))
