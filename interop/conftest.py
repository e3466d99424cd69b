"""Brokers for all checks, and the client programs that talk to them, where their toolchains are there.

Most checks need one node. Those that are marked `on("one node", "three nodes")` run twice, the second time on a cluster
in which every topic has three replicas; `on("three nodes")` is for those that make no sense elsewhere.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, cast

import pytest
from tests.peers import Peer, PeerKind, running
from tools import apache_kafka

from interop import clusters, toolchains
from interop.kafka_tools import KafkaTools
from interop.programs import Program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from interop.clusters import ThreeNodes
    from interop.toolchains import Launch, Toolchain

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "200",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
"""Members hear of each other, and transactions time out, as early as they may."""

ONE_NODE, THREE_NODES = "one node", "three nodes"

_NUMBERS = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--peer",
        choices=["barnabas", "kafka"],
        default="barnabas",
        help="what the clients talk to; Apache Kafka proves that the checks state its behaviour",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "on(*brokers): what a check of a client runs on, if not on one node only")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bootstrap" in metafunc.fixturenames:
        chosen = metafunc.definition.get_closest_marker("on")
        metafunc.parametrize("bootstrap", chosen.args if chosen else [ONE_NODE], indirect=True, scope="session")


@pytest.fixture(scope="session")
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    kind = cast("PeerKind", request.config.getoption("--peer"))
    if kind == "kafka" and (reason := apache_kafka.missing()) is not None:
        pytest.skip(f"not run: {reason}")
    with running(kind, tmp_path_factory.mktemp("peer"), SETTINGS) as peer:
        yield peer


@pytest.fixture(scope="session")
def three_nodes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    kind = cast("PeerKind", request.config.getoption("--peer"))
    if kind == "kafka" and (reason := apache_kafka.missing()) is not None:
        pytest.skip(f"not run: {reason}")
    with clusters.running_cluster(kind, tmp_path_factory.mktemp("three-nodes"), SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Where client programs connect."""
    brokers: Peer | ThreeNodes
    brokers = request.getfixturevalue("three_nodes" if request.param == THREE_NODES else "peer")
    return brokers.bootstrap


@pytest.fixture(scope="session")
def java(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Scenarios of the Java client."""
    with _program(toolchains.JAVA, bootstrap, tmp_path_factory.mktemp("java")) as program:
        yield program


@pytest.fixture(scope="session")
def franz_go(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with _program(toolchains.GO, bootstrap, tmp_path_factory.mktemp("go")) as program:
        yield program


@pytest.fixture(scope="session")
def kafkajs(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with _program(toolchains.NODE, bootstrap, tmp_path_factory.mktemp("node")) as program:
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


def _program(toolchain: Toolchain, bootstrap: str, folder: Path) -> contextlib.closing[Program]:
    return contextlib.closing(Program(_launch(toolchain), bootstrap, folder / "log"))


def _launch(toolchain: Toolchain) -> Launch:
    launch = toolchains.prepared(toolchain)
    if isinstance(launch, toolchains.MissingError):
        pytest.skip(f"not run: {launch}")
    return launch
