"""The three libraries, bound to the shared node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.with_aiokafka import AiokafkaClient
from tests.clients.with_confluent import ConfluentClient
from tests.clients.with_kafka_python import KafkaPythonClient

if TYPE_CHECKING:
    from tests.clients.adapter import Client
    from tests.peers import Peer

LIBRARIES: tuple[type[Client], ...] = (ConfluentClient, AiokafkaClient, KafkaPythonClient)


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
def confluent(node: Peer) -> ConfluentClient:
    """librdkafka, for what it alone can do and for tests in which the library does not matter."""
    return ConfluentClient(node.bootstrap)
