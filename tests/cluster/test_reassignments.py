"""Partitions are moved between brokers while they are written to, and nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kafka
import pytest

from barnabas.protocol.errors import Error
from tests.clients.conftest import LIBRARIES
from tests.cluster.clusters import (
    QUICK,
    WHOLE_S,
    admin,
    consume,
    create_topic,
    described,
    make_whole,
    produce,
    running,
    wait_until,
)
from tests.cluster.writers import require_each_once, wait_until_on, writing
from tests.nodes import Cluster
from tests.wire.connection import Connection
from tests.wire.test_reassignments import alter, outcomes, under_way

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("reassignments"), settings=QUICK) as started:
        yield started


@pytest.fixture(autouse=True)
def whole(cluster: Cluster) -> Iterator[None]:
    """What a test has ended runs again after it."""
    yield
    make_whole(cluster)


@pytest.fixture
def connection(cluster: Cluster) -> Iterator[Connection]:
    with Connection(cluster[1].port) as opened:
        yield opened


def replicas(cluster: Cluster, topic: str, at: int | None = None) -> list[list[int]]:
    return [partition.replicas for partition in described(cluster, topic, at)]


def is_moved(cluster: Cluster, topic: str, wanted: list[int], partition: int = 0) -> bool:
    found = described(cluster, topic)[partition]
    return list(found.replicas) == wanted and set(found.isrs) == set(wanted) and found.leader in wanted


def move(connection: Connection, topic: str, wanted: dict[int, list[int] | None]) -> None:
    answer = alter(connection, {topic: wanted})
    assert outcomes(answer) == {(topic, index): (Error.NONE, None) for index in wanted}


def test_a_partition_moves_to_other_brokers_with_its_records(
    cluster: Cluster, connection: Connection, topic: str
) -> None:
    create_topic(admin(cluster, 1), topic, 1)
    values = [b"%d" % number for number in range(100)]
    produce(running(cluster), topic, values)
    for wanted in ([2], [3], [3, 1], [1, 2, 3], [2]):
        move(connection, topic, {0: wanted})
        wait_until(lambda wanted=wanted: is_moved(cluster, topic, wanted), f"the replicas are {wanted}", WHOLE_S)  # type: ignore[misc]
        assert consume(running(cluster), topic, len(values)) == values
    wait_until(lambda: under_way(connection) == {}, "nothing is under way any more")
    folders = {node_id: cluster[node_id].data_dir / f"{topic}-0" for node_id in NODES}
    wait_until(
        lambda: [node_id for node_id, folder in folders.items() if folder.exists()] == [2],
        "brokers that have no replica any more have no folder either",
    )


def test_writers_of_every_library_go_on_while_their_partitions_move(
    cluster: Cluster, connection: Connection, topic: str
) -> None:
    clients = [library(running(cluster)) for library in LIBRARIES]
    names = [f"{topic}-{client.name}" for client in clients]
    for name in names:
        create_topic(admin(cluster, 1), name, 1)
    with writing(clients, names, 1) as writers:
        for wanted in ([1, 2], [3, 2], [2]):
            for name in names:
                move(connection, name, {0: wanted})
            for name in names:
                wait_until(
                    lambda name=name, wanted=wanted: is_moved(cluster, name, wanted),  # type: ignore[misc]
                    f"{name} is on {wanted}",
                    WHOLE_S,
                )
            wait_until_on(writers)
    require_each_once(clients, names, writers)


def test_a_reassignment_is_listed_while_it_is_under_way_and_can_be_cancelled(
    cluster: Cluster, connection: Connection, topic: str
) -> None:
    create_topic(admin(cluster, 1), topic, 2)
    move(connection, topic, {0: [1], 1: [1]})
    wait_until(lambda: is_moved(cluster, topic, [1]) and is_moved(cluster, topic, [1], 1), "broker 1 has both")
    produce(running(cluster), topic, [b"one"] * 10)
    cluster.pause(3)
    try:
        move(connection, topic, {0: [3], 1: [3, 1]})
        found = under_way(connection)
        assert set(found) == {(topic, 0), (topic, 1)}
        first, second = found[topic, 0], found[topic, 1]
        assert (first.replicas, first.adding_replicas, first.removing_replicas) == ([3, 1], [3], [1])
        assert (second.replicas, second.adding_replicas, second.removing_replicas) == ([3, 1], [3], [])
        assert set(under_way(connection, {topic: [1]})) == {(topic, 1)}
        move(connection, topic, {0: None})
        wait_until(lambda: replicas(cluster, topic, 1)[0] == [1], "the first has gone back")
        assert set(under_way(connection)) == {(topic, 1)}
        refused = outcomes(alter(connection, {topic: {0: None}}))
        assert refused == {(topic, 0): (Error.NO_REASSIGNMENT_IN_PROGRESS, None)}
    finally:
        cluster.resume(3)
    wait_until(lambda: is_moved(cluster, topic, [3, 1], 1), "the second is done when the broker is back", WHOLE_S)
    assert consume(running(cluster), topic, 10) == [b"one"] * 10


def test_the_replication_factor_can_be_kept(cluster: Cluster, connection: Connection, topic: str) -> None:
    create_topic(admin(cluster, 1), topic, 1)
    before = replicas(cluster, topic)
    answer = alter(connection, {topic: {0: [1, 2]}}, may_change_factor=False)
    assert outcomes(answer)[topic, 0][0] == Error.INVALID_REPLICATION_FACTOR
    assert replicas(cluster, topic) == before


def test_kafka_python_moves_partitions(cluster: Cluster, topic: str) -> None:
    create_topic(admin(cluster, 1), topic, 1)
    client: Any = kafka.KafkaAdminClient(bootstrap_servers=running(cluster))
    try:
        client.alter_partition_reassignments({kafka.TopicPartition(topic, 0): [3, 2]})
        wait_until(lambda: is_moved(cluster, topic, [3, 2]), "the replicas are moved", WHOLE_S)
        assert client.list_partition_reassignments() == {}
    finally:
        client.close()
