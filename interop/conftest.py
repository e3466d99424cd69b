"""A broker for all checks, and the client programs that talk to it, where their toolchains are there."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, cast

import pytest
from tests.peers import Peer, PeerKind, running
from tools import apache_kafka

from interop import toolchains
from interop.kafka_tools import KafkaTools
from interop.programs import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interop.toolchains import Launch, Toolchain

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "200",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
"""Members hear of each other, and transactions time out, as early as they may."""

_NUMBERS = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--peer",
        choices=["barnabas", "kafka"],
        default="barnabas",
        help="what the clients talk to; Apache Kafka proves that the checks state its behaviour",
    )


@pytest.fixture(scope="session")
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    kind = cast("PeerKind", request.config.getoption("--peer"))
    if kind == "kafka" and (reason := apache_kafka.missing()) is not None:
        pytest.skip(f"not run: {reason}")
    with running(kind, tmp_path_factory.mktemp("peer"), SETTINGS) as peer:
        yield peer


@pytest.fixture(scope="session")
def java(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Scenarios of the Java client."""
    launch = _launch(toolchains.JAVA)
    with contextlib.closing(Program(launch, peer.bootstrap, tmp_path_factory.mktemp("java") / "log")) as program:
        yield program


@pytest.fixture(scope="session")
def franz_go(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    launch = _launch(toolchains.GO)
    with contextlib.closing(Program(launch, peer.bootstrap, tmp_path_factory.mktemp("go") / "log")) as program:
        yield program


@pytest.fixture(scope="session")
def kafkajs(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    launch = _launch(toolchains.NODE)
    with contextlib.closing(Program(launch, peer.bootstrap, tmp_path_factory.mktemp("node") / "log")) as program:
        yield program


@pytest.fixture(scope="session")
def word_count() -> Launch:
    """A Kafka Streams application that counts words."""
    return _launch(toolchains.STREAMS)


@pytest.fixture(scope="session")
def tools(peer: Peer) -> KafkaTools:
    """Kafka's own command-line tools."""
    if (reason := apache_kafka.missing()) is not None:
        pytest.skip(f"not run: {reason}")
    return KafkaTools(peer.bootstrap)


@pytest.fixture
def topic() -> str:
    """A name that no other check uses. The topic does not exist yet."""
    return f"topic-{next(_NUMBERS)}"


@pytest.fixture
def group() -> str:
    """A name that no other check uses. The group does not exist yet."""
    return f"group-{next(_NUMBERS)}"


def _launch(toolchain: Toolchain) -> Launch:
    launch = toolchains.prepared(toolchain)
    if isinstance(launch, toolchains.MissingError):
        pytest.skip(f"not run: {launch}")
    return launch
