"""The three libraries, bound to the shared node."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

import pytest

from barnabas.client.pool import close_idle
from tests.clients.members import Members
from tests.clients.with_aiokafka import AiokafkaClient
from tests.clients.with_confluent import ConfluentClient
from tests.clients.with_kafka_python import KafkaPythonClient
from tests.clients.writes import PARTITIONS
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.clients.adapter import Client, GroupAdmin, TransactionalProducer
    from tests.peers import Peer

LIBRARIES: tuple[type[Client], ...] = (ConfluentClient, AiokafkaClient, KafkaPythonClient)
GROUP_ADMINS: tuple[type[GroupAdmin], ...] = (ConfluentClient, KafkaPythonClient)


class Begin(Protocol):
    def __call__(self, client: Client, transactional_id: str, timeout_ms: int = 60_000) -> TransactionalProducer: ...


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.name)
def library(request: pytest.FixtureRequest) -> type[Client]:
    """Each library in turn, for tests with a node of their own."""
    chosen: type[Client] = request.param
    return chosen


@pytest.fixture
def client(library: type[Client], node: Peer) -> Client:
    """Each library in turn, bound to the shared node."""
    return library(node.bootstrap)


@pytest.fixture
def members() -> Iterator[Members]:
    """Joins members to groups; at the end of the test they leave."""
    with contextlib.closing(Members()) as joined:
        yield joined


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Makes transactional producers and begins a transaction with each; at the end of the test they are gone."""
    with contextlib.ExitStack() as closing:

        def make(client: Client, transactional_id: str, timeout_ms: int = 60_000) -> TransactionalProducer:
            producer = client.transactional_producer(transactional_id, timeout_ms)
            closing.callback(producer.close)
            producer.begin()
            return producer

        yield make


@pytest.fixture
def group_client(library: type[Client], group_node: Peer) -> Client:
    """Each library in turn, bound to the node for groups."""
    return library(group_node.bootstrap)


@pytest.fixture(params=GROUP_ADMINS, ids=lambda library: library.name)
def group_admin(request: pytest.FixtureRequest, group_node: Peer) -> GroupAdmin:
    """Each library that changes groups, bound to the node for them."""
    library: type[GroupAdmin] = request.param
    return library(group_node.bootstrap)


@pytest.fixture
def group_confluent(group_node: Peer) -> ConfluentClient:
    """librdkafka, bound to the node for groups."""
    return ConfluentClient(group_node.bootstrap)


@pytest.fixture
def confluent(node: Peer) -> ConfluentClient:
    """librdkafka, for what it alone can do and for tests in which the library does not matter."""
    return ConfluentClient(node.bootstrap)


@pytest.fixture
def no_connections_from_before() -> Iterator[None]:
    """Each test of the sink leaves none to the next: the brokers of theirs may differ."""
    yield
    close_idle()


@pytest.fixture
def output(confluent: ConfluentClient, topic: str) -> str:
    """A topic for the sink to write to."""
    confluent.create_topic(topic, PARTITIONS)
    wait_until(lambda: topic in confluent.topic_names(), "the broker has heard of the topic")
    return topic
