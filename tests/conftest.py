"""Brokers for the tests: one shared by a whole run, and fresh ones for tests that stop, kill or configure theirs."""

from __future__ import annotations

import contextlib
import itertools
import logging
from typing import TYPE_CHECKING, Any, cast

import hypothesis
import pytest
from tools import apache_kafka

from tests.peers import Peer, PeerKind, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    MakeNode = Callable[[Mapping[str, str]], Peer]

hypothesis.settings.register_profile("starved", deadline=None)
hypothesis.settings.load_profile("starved")
"""How long an example takes says how busy the machine is, and nothing about what is tested."""

_NUMBERS = itertools.count(1)

GROUP_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "200",
    "group.max.size": "6",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.max.size": "6",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.num.partitions": "5",
}
"""Members and producers that are gone are missed early, and the first member does not wait for others."""

SPARK_TIMEOUT_S = 300
"""The first test that needs Spark waits for its start."""


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Commands that run in the process of the tests leave its logging as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--peer",
        choices=["barnabas", "kafka"],
        default="barnabas",
        help="what the client and wire tests talk to; Apache Kafka proves that the tests state its behaviour",
    )
    parser.addoption(
        "--chaos",
        choices=["short", "full"],
        default="short",
        help="how long tests/chaos goes on; `make chaos` runs it in full",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: takes gigabytes or many minutes, and so runs with --chaos=full only")


@pytest.hookimpl(optionalhook=True)  # there may be one process only, and no plugin
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.handing_out import ByModule

    return ByModule(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "spark" in fixtures:
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))
        if "apache_kafka_runs" in fixtures:
            item.add_marker(pytest.mark.kafka)
    if config.getoption("--chaos") == "full":
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def apache_kafka_runs() -> None:
    """Required by what needs Apache Kafka: says what is missing where it cannot run."""
    reason = apache_kafka.missing()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def peer_kind(request: pytest.FixtureRequest) -> PeerKind:
    kind = cast("PeerKind", request.config.getoption("--peer"))
    if kind == "kafka":
        request.getfixturevalue("apache_kafka_runs")
    return kind


@pytest.fixture(scope="session")
def is_chaos_full(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--chaos") == "full")


@pytest.fixture(scope="session")
def node(peer_kind: PeerKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """One broker for all tests that leave it as it was; they keep apart by the names of their topics."""
    with running(peer_kind, tmp_path_factory.mktemp("node")) as peer:
        yield peer


@pytest.fixture(scope="session")
def group_node(peer_kind: PeerKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """One broker for all tests of groups and transactions, in which nothing takes longer than it must."""
    with running(peer_kind, tmp_path_factory.mktemp("group-node"), GROUP_SETTINGS) as peer:
        yield peer


@pytest.fixture
def make_node(peer_kind: PeerKind, tmp_path: Path) -> Iterator[MakeNode]:
    """Starts brokers with settings and folders of their own; all are gone at the end of the test."""
    with contextlib.ExitStack() as stack:

        def make(settings: Mapping[str, str]) -> Peer:
            folder = tmp_path / f"node-{next(_NUMBERS)}"
            folder.mkdir()
            return stack.enter_context(running(peer_kind, folder, settings))

        yield make


@pytest.fixture
def fresh_node(make_node: MakeNode) -> Peer:
    """A broker that the test may stop, kill and start again."""
    return make_node({})


@pytest.fixture
def topic() -> str:
    """A name that no other test uses. The topic does not exist yet."""
    return f"topic-{next(_NUMBERS)}"


@pytest.fixture
def group() -> str:
    """A name that no other test uses. The group does not exist yet."""
    return f"group-{next(_NUMBERS)}"


@pytest.fixture
def transactional_id() -> str:
    """A name that no other test uses. No producer has it yet."""
    return f"producer-{next(_NUMBERS)}"
