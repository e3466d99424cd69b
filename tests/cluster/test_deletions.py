"""Records are deleted when every replica that lives has deleted them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import Error
from tests.clients.conftest import LIBRARIES
from tests.cluster.clusters import QUICK, create_replicated, leader_of, make_whole, produce, running, wait_until
from tests.nodes import Cluster
from tests.wire.connection import Connection
from tests.wire.test_delete_records import delete

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_MS = 500


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("deletions"), settings=QUICK) as started:
        yield started


@pytest.fixture
def filled(cluster: Cluster, topic: str) -> Iterator[str]:
    """A topic whose partition has ten records. What a test has ended runs again after it."""
    create_replicated(cluster, topic, 1, min_insync_replicas="1")
    produce(running(cluster), topic, [b"one"] * 10)
    yield topic
    make_whole(cluster)


def test_every_library_deletes_records_of_a_replicated_topic(cluster: Cluster, filled: str) -> None:
    for offset, library in enumerate(LIBRARIES, start=3):
        client = library(running(cluster))
        assert client.delete_records(filled, offset) == offset
        assert client.offset_range(filled) == (offset, 10)


def test_a_deletion_reaches_a_replica_that_leads_later(cluster: Cluster, filled: str) -> None:
    leader = leader_of(cluster, filled)
    client = LIBRARIES[0](running(cluster))
    assert client.delete_records(filled, 6) == 6
    cluster.stop_node(leader)
    wait_until(lambda: leader_of(cluster, filled) not in (leader, -1), "another replica leads")
    assert LIBRARIES[0](running(cluster)).offset_range(filled) == (6, 10)


def test_a_deletion_waits_for_replicas_that_live_and_for_no_others(cluster: Cluster, filled: str) -> None:
    leader = leader_of(cluster, filled)
    silent = next(node_id for node_id in cluster.nodes if node_id != leader)
    with Connection(cluster[leader].port) as connection:
        cluster.pause(silent)
        try:
            outcome = delete(connection, [(filled, 0, 4)], timeout_ms=WAIT_MS)[filled, 0]
            assert outcome == (Error.REQUEST_TIMED_OUT, 0)
            # Silence ends the session of the broker that is silent. Nobody waits for it any more.
            assert delete(connection, [(filled, 0, 4)])[filled, 0] == (Error.NONE, 4)
        finally:
            cluster.resume(silent)
    make_whole(cluster)
    with Connection(cluster[leader].port) as connection:
        assert delete(connection, [(filled, 0, 5)])[filled, 0] == (Error.NONE, 5)


def test_a_follower_refuses_to_delete(cluster: Cluster, filled: str) -> None:
    leader = leader_of(cluster, filled)
    follower = next(node_id for node_id in cluster.nodes if node_id != leader)
    with Connection(cluster[follower].port) as connection:
        assert delete(connection, [(filled, 0, 4)])[filled, 0] == (Error.NOT_LEADER_OR_FOLLOWER, -1)
