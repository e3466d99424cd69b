"""The pytest plugin of the test kit. pytest finds it by itself where Barnabas is installed.

    barnabas_broker           the broker of the session: each test finds it well, whatever the last one did to it
    barnabas_topic            the name of a new topic there, which no other test has
    barnabas_own_broker       a broker of this test alone
    barnabas_session_broker   the broker of the session, for fixtures of that scope
    barnabas_settings         Kafka's settings of all these brokers, to be overridden in a conftest.py

`barnabas_cluster`, `barnabas_cluster_topic`, `barnabas_own_cluster` and `barnabas_session_cluster` are the same with
three nodes.

Every process of a run in parallel (pytest-xdist) has brokers of its own, so that tests do not meet. Nothing is imported
or started before a test asks for it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from barnabas.testing import Broker, Cluster

NAME_LENGTH_MAX: Final = 60
LOG_LINES_SHOWN: Final = 50

_SHOWN = pytest.StashKey[list["Broker"]]()


@pytest.fixture(scope="session")
def barnabas_settings() -> Mapping[str, str]:
    """Kafka's settings of the brokers of the session. Override it in a `conftest.py`."""
    return {}


@pytest.fixture(scope="session")
def barnabas_session_broker(barnabas_settings: Mapping[str, str]) -> Iterator[Broker]:
    """The broker of the session."""
    from barnabas.testing import Broker

    with Broker(settings=barnabas_settings) as broker:
        yield broker


@pytest.fixture
def barnabas_broker(barnabas_session_broker: Broker, request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The broker of the session. What a test has it suffer ends with the test."""
    make_well(barnabas_session_broker)
    show_if_failed(request, barnabas_session_broker)
    yield barnabas_session_broker
    make_well(barnabas_session_broker)


@pytest.fixture
def barnabas_own_broker(barnabas_settings: Mapping[str, str], request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of this test alone."""
    from barnabas.testing import Broker

    with Broker(settings=barnabas_settings) as broker:
        show_if_failed(request, broker)
        yield broker


@pytest.fixture
def barnabas_topic(barnabas_broker: Broker, request: pytest.FixtureRequest) -> str:
    """The name of a new topic of one partition."""
    return barnabas_broker.create_topic(topic_name(request))


@pytest.fixture(scope="session")
def barnabas_session_cluster(barnabas_settings: Mapping[str, str]) -> Iterator[Cluster]:
    """The cluster of the session, of three nodes."""
    from barnabas.testing import Cluster

    with Cluster(nodes=3, settings=barnabas_settings) as cluster:
        yield cluster


@pytest.fixture
def barnabas_cluster(barnabas_session_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster of the session. What a test has its nodes suffer ends with the test."""
    make_cluster_well(barnabas_session_cluster)
    show_if_failed(request, *members(barnabas_session_cluster))
    yield barnabas_session_cluster
    make_cluster_well(barnabas_session_cluster)


@pytest.fixture
def barnabas_own_cluster(barnabas_settings: Mapping[str, str], request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of this test alone, of three nodes."""
    from barnabas.testing import Cluster

    with Cluster(nodes=3, settings=barnabas_settings) as cluster:
        show_if_failed(request, *members(cluster))
        yield cluster


@pytest.fixture
def barnabas_cluster_topic(barnabas_cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """The name of a new topic of one partition and three replicas."""
    return barnabas_cluster.create_topic(topic_name(request))


def topic_name(request: pytest.FixtureRequest) -> str:
    """The test's own name, as far as topics may have it, with something that is nobody else's."""
    from barnabas.testing import unique_name

    return unique_name(re.sub(r"[^a-zA-Z0-9_-]+", "-", request.node.name)[:NAME_LENGTH_MAX].strip("-") or "topic")


def make_well(broker: Broker) -> None:
    """Ends all faults. A broker that does not run, or is paused, is started again, with all that it has."""
    end_faults(broker)
    if not broker.is_running:
        broker.kill()  # one that has ended by itself has not been waited for
        broker.start()


def make_cluster_well(cluster: Cluster) -> None:
    """Nodes are started together: a majority of them may have to be there before any is ready."""
    for broker in members(cluster):
        end_faults(broker)
    cluster.start()


def end_faults(broker: Broker) -> None:
    if broker.is_running:
        broker.resume()
        broker.faults.heal()


def members(cluster: Cluster) -> list[Broker]:
    return [cluster[node_id] for node_id in cluster.nodes]


def show_if_failed(request: pytest.FixtureRequest, *brokers: Broker) -> None:
    """The report of a test that fails ends with the last lines of what these brokers say from now on."""
    request.node.stash.setdefault(_SHOWN, []).extend(brokers)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and report.when == "call":
        for broker in item.stash.get(_SHOWN, ()):
            lines = broker.log_text().splitlines()[-LOG_LINES_SHOWN:]
            report.sections.append((f"log of {broker.bootstrap}", "\n".join(lines)))
    return report
